"""What goes wrong: arguments, bad samples, closed loaders, forks, Ctrl-C, the interpreter's end."""

import os
import signal
import threading

import numpy as np
import pytest
from loader_sets import LateRagged, Raising, Squares

import millrace

torch = pytest.importorskip("torch")

ARRAY = np.arange(60, dtype=np.float32)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"path": "fast"}, ValueError),
        ({"as_": "tensorflow"}, ValueError),
        ({"bad": "ignore"}, ValueError),
        ({"remainder": "keep"}, ValueError),
        ({"remainder": "exact", "drop_last": True}, ValueError),
        ({"rank": 1}, ValueError),
        ({"rank": 2, "world": 2}, ValueError),
        ({"epochs": -1}, ValueError),
        ({"device": "cuda", "as_": "numpy"}, ValueError),
        ({"num_workers": 1, "multiprocessing_context": 3}, TypeError),
        ({"num_workers": 1, "multiprocessing_context": "thread"}, ValueError),
        ({"batch_size": 2.5}, ValueError),
    ],
)
def test_arguments(arguments, error):
    with pytest.raises(error):
        millrace.DataLoader(Squares(), **arguments)


def test_not_native_names_the_reasons():
    with pytest.raises(millrace.NotNative, match="Squares: a data set without") as caught:
        millrace.DataLoader(Squares(), path="native")
    assert caught.value.reasons == ["loader_sets.Squares: a data set without a native twin"]
    with pytest.raises(millrace.NotNative, match="collate_fn"):
        millrace.DataLoader(ARRAY, path="native", collate_fn=len)
    assert millrace.DataLoader(ARRAY, path="native").path == "native"


def test_no_such_uri():
    with pytest.raises(OSError) as caught:
        millrace.DataLoader("folder:/no/such/place")
    assert "/no/such/place" in str(caught.value)


def test_arrays_of_different_lengths():
    with pytest.raises(ValueError, match="different lengths"):
        millrace.DataLoader((np.zeros(3), np.zeros(4)))


def test_attributes_are_fixed():
    loader = millrace.DataLoader(ARRAY)
    with pytest.raises(ValueError, match="batch_size attribute should not be set"):
        loader.batch_size = 3


@pytest.mark.parametrize("collate", [None, torch.utils.data.default_collate, len])
def test_a_samples_exception_arrives(collate):
    loader = millrace.DataLoader(Raising(20), 4, collate_fn=collate)
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(KeyError, match="no picture 7") as caught:
        next(iterator)
    names = [frame.name for frame in caught.traceback]
    assert "__getitem__" in names


@pytest.mark.parametrize("collate", [None, len])
@pytest.mark.parametrize(("bad", "n"), [("skip", 17), ("replace", 20)])
def test_bad_samples(collate, bad, n):
    loader = millrace.DataLoader(Raising(20, (3, 7, 9)), 4, bad=bad, collate_fn=collate)
    sizes = [batch if collate else len(batch[1]) for batch in loader]
    assert sum(sizes) == n
    assert [item.index for item in loader.bad()] == [3, 7, 9]
    assert "no picture 3" in loader.bad()[0].reason


@pytest.mark.parametrize("collate", [None, len])
def test_too_many_bad_samples(collate):
    loader = millrace.DataLoader(
        Raising(20, (3, 7, 9)), 4, bad="skip", max_bad=2, collate_fn=collate
    )
    with pytest.raises(millrace.BadSamples):
        list(loader)


def test_shapes_that_differ_later():
    loader = millrace.DataLoader(LateRagged(60), 4)
    iterator = iter(loader)
    for _ in range(10):
        next(iterator)
    with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size"):
        next(iterator)


def test_types_that_differ_later_are_no_error():
    class Mixed(Squares):
        def __getitem__(self, index):
            return {"x": float(index)} if index != 42 else {"x": np.float32(index), "y": 1}

    batches = list(millrace.DataLoader(Mixed(60), 4))
    assert torch.cat([batch["x"] for batch in batches]).tolist() == list(range(60))


def test_a_closed_loader():
    loader = millrace.DataLoader(ARRAY, 4)
    iterator = iter(loader)
    next(iterator)
    loader.close()
    loader.close()
    with pytest.raises(ValueError, match="closed"):
        next(iterator)
    with pytest.raises(ValueError, match="closed"):
        iter(loader)


def test_a_wrong_state():
    loader = millrace.DataLoader(ARRAY, 4)
    with pytest.raises(ValueError, match="state"):
        loader.load_state_dict({"epoch": 3})
    state = millrace.DataLoader(np.zeros(3), batch_sampler=[[0], [1]]).state_dict()
    with pytest.raises(ValueError, match="batch sampler"):
        loader.load_state_dict(state)


def test_timeout():
    gate = threading.Event()

    class Stuck(Squares):
        def __getitem__(self, index):
            if index == 52:
                gate.wait(2)
            return super().__getitem__(index)

    options = {"timeout": 0.3, "seed_samples": False, "sampler": range(50, 80)}
    loader = millrace.DataLoader(Stuck(), 10, **options)
    try:
        with pytest.raises(RuntimeError, match="timed out after 0.3 seconds"):
            next(iter(loader))
    finally:
        gate.set()
        loader.close()


def in_child(work):
    """The exit status of a forked child that does work()."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.alarm(20)
            code = work()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("dataset", [ARRAY, Squares(60)])
def test_a_forked_child(dataset):
    loader = millrace.DataLoader(dataset, 4)
    iterator = iter(loader)
    next(iterator)

    def inherited():
        try:
            next(iterator)
        except RuntimeError as error:
            return 0 if "process" in str(error) else 2
        return 3

    assert in_child(inherited) == 0
    assert in_child(lambda: 0 if len(list(loader)) == 15 else 4) == 0
    assert len(list(iterator)) == 14


CTRL_C = """
import os, signal, threading, time
import numpy as np, millrace
class Slow:
    def __len__(self): return 100
    def __getitem__(self, i):
        time.sleep(0.05 if i < 20 else 1); return np.zeros(3)
loader = millrace.DataLoader(Slow(), 10, as_="numpy", seed_samples=False)
try:
    for i, batch in enumerate(loader):
        if i == 1:
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
except KeyboardInterrupt:
    print("interrupted")
"""

AT_END = """
import numpy as np, millrace
class Map:
    def __len__(self): return 100000
    def __getitem__(self, i): return np.zeros(3), i
for dataset in (np.zeros((1000, 3)), Map()):
    loader = millrace.DataLoader(dataset, 10, epochs=0, as_="numpy")
    iterator = iter(loader)
    next(iterator)
cycle = [loader, iterator]
cycle.append(cycle)
print("end")
"""


def test_ctrl_c(clean):
    assert clean(CTRL_C) == "interrupted\n"


def test_the_interpreters_end(clean):
    assert clean(AT_END) == "end\n"


def test_import_is_light(clean):
    code = "import sys, millrace; print([m for m in ('torch', 'numpy') if m in sys.modules])"
    assert clean(code) == "[]\n"
    code = "import sys, millrace; millrace.DataLoader; print('torch' in sys.modules)"
    assert clean(code) == "False\n"


def test_loaders_that_the_garbage_collector_finds_on_an_engines_thread():
    import gc

    class Collects(Squares):
        def __getitem__(self, index):
            if index % 8 == 0:
                gc.collect()
            return super().__getitem__(index)

    for _ in range(5):
        loader = millrace.DataLoader(Collects(50), 4, seed_samples=False)
        loader.cycle = loader
        iterator = iter(loader)
        next(iterator)
        del loader, iterator
    assert len(list(millrace.DataLoader(Collects(20), 4))) == 5
