"""What DataLoader says: of arguments, of its path, of programs that are no file."""

import re
import subprocess
import sys
import time

import numpy as np
import pytest
from loader_sets import Squares

import millrace
from millrace.stats import PythonWork

torch = pytest.importorskip("torch")


class Sleeps(Squares):
    def __getitem__(self, index):
        time.sleep(0.001)
        return torch.zeros(3)


ARRAY = np.arange(60, dtype=np.float32)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"num_workers": 2, "prefetch_factor": 0}, ValueError, "prefetch_factor option"),
        ({"num_workers": 2.5}, TypeError, "num_workers should be an int"),
        ({"num_workers": -1}, ValueError, "num_workers option"),
        ({"timeout": -1}, ValueError, "timeout option"),
        ({"drop_last": 1}, ValueError, "drop_last"),
        ({"persistent_workers": True}, ValueError, "persistent_workers option"),
        ({"device": "gpu"}, ValueError, "device='gpu': expected \"cuda\""),
    ],
)
def test_arguments(arguments, error, text):
    with pytest.raises(error, match=text):
        millrace.DataLoader(Squares(), **arguments)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"bad": "skip", "max_bad": "lots"}, "^max_bad='lots': expected a number"),
        ({"max_memory": "lots"}, "^max_memory='lots': expected a size"),
    ],
)
def test_options_of_the_engine(arguments, text):
    with pytest.raises(ValueError, match=text):
        iter(millrace.DataLoader(ARRAY, 4, **arguments))


def test_a_state_of_another_chain():
    with millrace.DataLoader(ARRAY, 4) as loader:
        iterator = iter(loader)
        next(iterator)
        state = loader.state_dict()
    with millrace.DataLoader(ARRAY, 4, transform="scale(2)") as other:
        other.load_state_dict(state)
        text = re.escape("load_state_dict(state, force_state=True)")
        with pytest.raises(ValueError, match=text):
            iter(other)
        other.load_state_dict(state, force_state=True)
        assert next(iter(other)).tolist() == [8, 10, 12, 14]


def test_stats_say_what_helps():
    counters = {"bottleneck": "decode", "warm_samples": 0}
    native = millrace.Stats(counters, "native")
    python = millrace.Stats(counters, "python-threads", PythonWork(1))
    assert "num_workers" in native.advice and "__getitem__" not in native.advice
    assert "__getitem__" in python.advice and "what helps" in repr(python)
    assert "advice" not in millrace.Stats({"bottleneck": "consumer"})


def python_stats(each_ms, used_ms, workers, cores):
    """Of a set whose samples take each_ms of Python, in a loop that uses one in used_ms."""
    counters = {
        "bottleneck": "decode", "reason": "about 250 workers would hide it", "warm_samples": 1000,
        "warm_ns": int(1000 * each_ms / workers * 1e6), "consumer_busy_ns": int(1000e6 * used_ms),
    }  # fmt: skip
    work = PythonWork(workers, cores=cores)
    return millrace.Stats(counters, "python-processes", work)


def test_advice_for_python_sets():
    stats = python_stats(each_ms=3, used_ms=0.5, workers=2, cores=16)
    assert stats.reason == "Python code takes about 3 ms a sample: 2 workers made 667 a second"
    assert stats.advice == "num_workers=6 would be enough"
    few = python_stats(each_ms=3, used_ms=0.012, workers=2, cores=16)
    cheaper = "less Python in __getitem__, or a data set that is read natively "
    start = "num_workers=14 (16 cores) would make about 4,667 a second; this loop could use more: "
    assert few.advice.startswith(start + cheaper)
    most = python_stats(each_ms=3, used_ms=0.012, workers=14, cores=16)
    assert most.advice.startswith(cheaper)
    assert most.advice.endswith(": 14 workers run on 16 cores already")
    assert "250" not in repr(few)


def test_advice_knows_what_the_gpu_takes():
    stats = python_stats(each_ms=3, used_ms=0.012, workers=2, cores=16)
    counters = {**stats, "batches": 10, "samples": 1000, "used_batches": 10,
                "used_ns": int(10 * 100 * 0.5e6)}  # fmt: skip
    stats = millrace.Stats(counters, "python-processes", PythonWork(2, cores=16))
    assert stats.advice == "num_workers=6 would be enough"


def test_advice_for_threads():
    with millrace.DataLoader(Sleeps(), 4) as loader:
        list(loader)
        stats = loader.stats()
    assert "without using a processor" not in stats.reason  # the engine's, of its threads
    assert 'multiprocessing_context="threads"' in stats.advice
    counters = {**stats, "reason": "busy"}
    assert "GIL" in millrace.Stats(counters, "python-threads", PythonWork(1, threads=8)).advice


def test_advice_for_iterable_sets():
    class Source(torch.utils.data.IterableDataset):
        def __iter__(self):
            for i in range(40):
                time.sleep(0.002)
                yield i

    with millrace.DataLoader(Source(), 4) as loader:
        list(loader)
        stats = loader.stats()
    assert "__getitem__" not in stats.advice and "Python code takes" not in stats.reason


def test_advice_counts_batches_that_python_makes():
    with millrace.DataLoader(Sleeps(), 2, collate_fn=torch.stack) as loader:
        list(loader)
        stats = loader.stats()
    assert stats.bottleneck == "decode" and " a batch: 1 worker made " in stats.reason


SCRIPT = """
import sys
sys.modules["cloudpickle"] = None
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "cloudpickle" else find(name, *more)
import numpy as np, millrace
class Map:
    def __len__(self): return 20
    def __getitem__(self, i): return np.zeros(3), i
loader = millrace.DataLoader(Map(), 4, num_workers=1, as_="numpy", multiprocessing_context=%r)
try:
    print(len(list(loader)))
except TypeError as error:
    print(error)
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver", None])
def test_a_script_from_stdin(method):
    done = subprocess.run(
        [sys.executable, "-"], input=SCRIPT % method, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    if method is None:
        assert done.stdout == "5\n" and "is no file" in done.stderr
    else:
        assert "script from stdin" in done.stdout and "install cloudpickle" in done.stdout


# ---- picture folders ----


@pytest.fixture
def folder(tmp_path):
    image = pytest.importorskip("PIL.Image")
    pytest.importorskip("torchvision")
    rng = np.random.default_rng(3)
    for label in "ab":
        (tmp_path / label).mkdir()
        for i in range(4):
            pixels = rng.integers(0, 255, (24 + i, 32, 3), np.uint8)
            image.fromarray(pixels).save(tmp_path / label / f"{i}.png")
    return tmp_path


def test_pictures_with_our_ops_only(folder):
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import CenterCrop, Resize

    pictures = ImageFolder(folder)
    options = {"transform": "center_crop(16,16)", "path": "native"}
    with millrace.DataLoader(pictures, 4, **options) as loader:
        images, labels = next(iter(loader))
    assert labels.tolist() == [0, 0, 0, 0]
    expected = [np.asarray(CenterCrop(16)(pictures[i][0])) for i in range(4)]
    assert (images.numpy() == np.stack(expected)).all()
    resized = ImageFolder(folder, Resize((16, 16)))
    expected = [np.asarray(resized[i][0])[:, ::-1] for i in range(4)]
    with millrace.DataLoader(resized, 4, transform="hflip(1)", path="native") as loader:
        assert (next(iter(loader))[0].numpy() == np.stack(expected)).all()


def test_pictures_without_any_ops(folder):
    from torchvision.datasets import ImageFolder

    loader = millrace.DataLoader(ImageFolder(folder), 4)
    assert loader.path == "python-threads" and "pass transform=" in loader.why[0]


def test_explain_names_the_set(folder):
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    chain = transforms.Compose([transforms.Resize((16, 16)), transforms.ToTensor()])
    text = millrace.DataLoader(ImageFolder(folder, chain), 4).explain()
    assert "torchvision's ImageFolder: 8 samples of image u8[..., ..., 3], label i64[]" in text
    assert "samples.txt" not in text
    assert "differs from torchvision: PNG" in text
