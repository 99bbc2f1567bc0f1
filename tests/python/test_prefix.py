"""Samples that begin natively and end in Python: equal to those of Python alone."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

from PIL import Image
from prefix_ops import Failing, Mark, Shift, listed, orientation, ten_more
from torch.utils.data import Subset
from torchvision import transforms as v1
from torchvision.datasets import CIFAR10, MNIST, QMNIST, ImageFolder
from torchvision.transforms import v2

import millrace
from translate_pictures import make_folder

MEAN = (0.5, 0.4, 0.3)

# name: steps, what runs natively
FOLDER: dict[str, tuple[list[Any], str]] = {
    "behind Resize": ([v1.Resize(40), Mark("pil"), v1.CenterCrop(32), v1.ToTensor()], "Resize"),
    "behind the crop": (
        [v1.Resize(40), v1.CenterCrop(32), Mark("pil"), v1.ToTensor()],
        "Resize, CenterCrop",
    ),
    "behind ToTensor": (
        [v1.Resize(40), v1.CenterCrop(32), v1.ToTensor(), Mark("tensor"), v1.Normalize(MEAN, MEAN)],
        "Resize, CenterCrop, ToTensor",
    ),
    "at the end": (
        [v1.Resize((30, 20)), v1.ToTensor(), v1.Normalize(MEAN, MEAN), Mark("tensor")],
        "Resize, ToTensor",
    ),
    "sizes that differ": (
        [v1.Resize(40), v1.ToTensor(), Mark("tensor"), v1.CenterCrop(32)],
        "Resize, ToTensor",
    ),
    "ToTensor first": ([v1.ToTensor(), Mark("tensor"), v1.CenterCrop(60)], "ToTensor"),
    "v2": (
        [v2.ToImage(), Mark("image"), v2.CenterCrop(30), v2.ToDtype(torch.float32, True)],
        "ToImage",
    ),
    "v2, floats": (
        [v2.Resize(33), v2.CenterCrop(30), v2.ToImage(), v2.ToDtype(torch.float32, True)]
        + [Mark("image"), v2.ToPureTensor()],
        "Resize, CenterCrop, ToImage, ToDtype",
    ),
    "without info": (
        [v1.Resize((30, 30)), v1.Pad(3, 7), v1.Grayscale(3), Mark("pil"), v1.ToTensor()],
        "Resize, Pad, Grayscale",
    ),
    "inexact": (
        [v1.Resize((30, 30)), v1.GaussianBlur(3), Mark("pil"), v1.PILToTensor()],
        "Resize",
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("prefix"), 12)


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return type(a) is type(b) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(equal, a, b))
    return bool(a == b)


def both(dataset: Any, **options: Any) -> tuple[list[Any], list[Any]]:
    """The batches with and without a native part."""
    made = []
    for path in ("auto", "python"):
        with millrace.DataLoader(dataset, 4, seed=5, path=path, **options) as loader:
            assert loader.path.startswith("native+python" if path == "auto" else "python"), path
            made.append([batch for _ in range(2) for batch in loader])
    return made[0], made[1]


@pytest.mark.parametrize("name", FOLDER)
def test_folder(folder: Path, name: str) -> None:
    torch.manual_seed(1)  # of GaussianBlur, whose parameter does not vary here
    steps, native = FOLDER[name]
    if name == "inexact":
        steps[1] = v1.GaussianBlur(3, (1.0, 1.0))
    dataset = ImageFolder(str(folder), v1.Compose(steps))
    loader = millrace.DataLoader(dataset, 4)
    assert loader.why[-1] == f"native before Python: reading, decoding, {native}"
    assert equal(*both(dataset))


@pytest.mark.parametrize("workers", [{}, {"multiprocessing_context": "threads"}, "spawn", "fork"])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_workers(folder: Path, workers: Any) -> None:
    steps = [v1.Resize(40), v1.RandomCrop(32), v1.RandomHorizontalFlip(), Mark("pil")]
    dataset = ImageFolder(str(folder), v1.Compose([*steps, v1.ToTensor()]))
    if isinstance(workers, str):
        workers = {"multiprocessing_context": workers}
    with millrace.DataLoader(dataset, 4, True, seed=2) as alone:
        want = [batch for _ in range(2) for batch in alone]
    with millrace.DataLoader(dataset, 4, True, seed=2, num_workers=2, **workers) as loader:
        assert equal([batch for _ in range(2) for batch in loader], want)
        kind = "threads" if workers.get("multiprocessing_context") == "threads" else "processes"
        assert loader.path == f"native+python-{kind}"
    assert not equal(want[:3], want[3:])


def test_draws_are_those_of_the_native_path(folder: Path) -> None:
    """Also with an op behind them that draws from Python's generator."""
    jitter = v1.ColorJitter(0.4, 0.4, 0.4, 0.1)
    steps = [v1.RandomResizedCrop(32), v1.RandomHorizontalFlip(), jitter]
    native = ImageFolder(str(folder), v1.Compose([*steps, v1.ToTensor()]))
    mixed = ImageFolder(str(folder), v1.Compose([*steps, Mark("pil"), Mark("pil"), v1.ToTensor()]))
    random = ImageFolder(str(folder), v1.Compose([*steps, v1.ToTensor(), Shift()]))
    epochs = [
        [batch[0] for _ in range(2) for batch in millrace.DataLoader(s, 5, True, seed=7, epochs=2)]
        for s in (native, mixed, random)
    ]
    assert millrace.DataLoader(native).path == "native"
    assert equal(epochs[0], epochs[1])
    shifted = zip(torch.cat(epochs[0]), torch.cat(epochs[2]), strict=True)
    by = [next(k for k in range(8) if torch.equal(torch.roll(a, k, -1), b)) for a, b in shifted]
    assert len(set(by)) > 1


def arrays(kind: type, pixels: Any, targets: Any, steps: list[Any]) -> Any:
    """A data set of torchvision without its files."""
    dataset = kind.__new__(kind)
    dataset.data, dataset.targets = pixels, targets
    dataset.transform, dataset.target_transform = v1.Compose(steps), ten_more
    dataset.compat = True
    return dataset


@pytest.mark.parametrize("kind", [MNIST, QMNIST, CIFAR10])
@pytest.mark.parametrize("workers", [0, 2])
def test_arrays(kind: type, workers: int) -> None:
    random = np.random.default_rng(1)
    if kind is CIFAR10:
        pixels: Any = random.integers(0, 256, (20, 32, 30, 3), dtype=np.uint8)
        targets: Any = list(range(20))
    else:
        pixels = torch.from_numpy(random.integers(0, 256, (20, 28, 26), dtype=np.uint8))
        targets = torch.arange(20) if kind is MNIST else torch.arange(160).view(20, 8)
    for steps in (
        [v1.Resize((20, 24)), Mark("pil"), v1.ToTensor()],
        [v1.Pad(2), v1.CenterCrop(16), v1.ToTensor(), Mark("tensor")],
    ):
        dataset = arrays(kind, pixels, targets, steps)
        ours, theirs = both(dataset, num_workers=workers)
        assert equal(ours, theirs) and int(ours[0][1][0]) == 10
        assert equal(*both(Subset(Subset(dataset, range(1, 18)), [3, 3, 9, 0, 5])))


def test_whole_chain_behind_a_collate_fn(folder: Path) -> None:
    steps = [v1.Resize(40), v1.CenterCrop(32), v1.ToTensor()]
    dataset = ImageFolder(str(folder), v1.Compose(steps), target_transform=ten_more)
    assert equal(*both(dataset, collate_fn=listed))
    with millrace.DataLoader(dataset, 4, collate_fn=listed) as loader:
        assert loader.why[0] == "collate_fn: batches are made by Python"
        assert "natively: reading, decoding, Resize, CenterCrop, ToTensor" in loader.explain()
        assert "then in Python: nothing but the batch" in loader.explain()


def test_where_there_is_none(folder: Path) -> None:
    """Sub-classes, own loaders, chains whose first op is Python's, and those that only decode."""

    class Mine(ImageFolder):
        pass

    first = v1.Compose([Mark("pil"), v1.Resize(40)])
    for dataset in (
        Mine(str(folder), v1.Compose([v1.Resize(40), Mark("pil")])),
        ImageFolder(str(folder), first),
        ImageFolder(str(folder), v1.Compose([v1.RandomHorizontalFlip(), Mark("pil")])),
        ImageFolder(str(folder), v1.Resize(40), loader=lambda path: Image.open(path)),
    ):
        loader = millrace.DataLoader(dataset, 4)
        assert loader.path == "python-threads"
        assert not any("native before" in reason for reason in loader.why)
    dataset = ImageFolder(str(folder), v1.Compose([v1.Resize(40), Mark("pil")]))
    with pytest.raises(millrace.NotNative, match=r"transform\[1\] .*Mark.*: no native op"):
        millrace.DataLoader(dataset, path="native")


def test_info_of_files(tmp_path: Path) -> None:
    """A PIL image has what its file says, as far as Pillow hands it on."""
    (tmp_path / "a").mkdir()
    exif = Image.Exif()
    exif[0x0112] = 6
    picture = Image.effect_mandelbrot((60, 40), (-2, -1, 1, 1), 50).convert("RGB")
    picture.save(tmp_path / "a" / "0.jpg", exif=exif, dpi=(30, 30))
    picture.save(tmp_path / "a" / "1.jpg", progressive=True, comment=b"text")
    picture.save(tmp_path / "a" / "2.webp", exif=exif)
    picture.save(tmp_path / "a" / "3.png", exif=exif)
    for steps in ([v1.Resize(30)], [v1.Resize((30, 30)), v1.ColorJitter((2, 2))]):
        dataset = ImageFolder(str(tmp_path), v1.Compose([*steps, orientation]))
        ours, theirs = both(dataset, collate_fn=listed)
        for (a, _), (b, _) in zip(ours[0], theirs[0], strict=True):
            assert a.info == b.info and a.size == b.size and a.tobytes() == b.tobytes()
            assert type(a) is type(b) and a.mode == b.mode


def test_pictures_that_only_pillow_reads(tmp_path: Path) -> None:
    """Gray PNG of 16 bits, a GIF by another name, a crop that is too large."""
    (tmp_path / "a").mkdir()
    deep = np.arange(1200, dtype=np.uint16).reshape(40, 30) * 50
    Image.fromarray(deep).save(tmp_path / "a" / "0.png")
    Image.fromarray((deep // 256).astype(np.uint8)).save(tmp_path / "a" / "1.jpg", format="GIF")
    Image.fromarray((deep // 256).astype(np.uint8)).save(tmp_path / "a" / "2.jpg")
    steps = [v1.CenterCrop(20), v1.ToTensor(), Mark("tensor")]
    dataset = ImageFolder(str(tmp_path), v1.Compose([v1.Resize(30), *steps]))
    assert equal(*both(dataset))
    dataset.transform = v1.Compose([v1.RandomCrop(35), *steps])
    with pytest.raises(ValueError, match="Required crop size") as error:
        list(millrace.DataLoader(dataset, 4))
    assert "size (35, 35)" in str(error.value)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("steps", [[v1.ToTensor(), Mark("tensor")], [Mark("pil"), v1.ToTensor()]])
def test_corrupt_file(tmp_path: Path, workers: int, steps: list[Any]) -> None:
    make_folder(tmp_path)
    path = tmp_path / "class_0" / "0.jpg"
    path.write_bytes(path.read_bytes()[:400])
    dataset = ImageFolder(str(tmp_path), v1.Compose([v1.Resize((20, 30)), *steps]))
    with pytest.raises(millrace.FormatError, match=r"class_0/0\.jpg") as error:
        list(millrace.DataLoader(dataset, 3, num_workers=workers))
    assert isinstance(error.value, ValueError)
    with millrace.DataLoader(dataset, 3, num_workers=workers, bad="skip") as loader:
        assert loader.path.startswith("native+")
        assert sum(len(batch[1]) for batch in loader) == 5
        (bad,) = loader.bad()
        assert bad.index == 0 and "class_0/0.jpg" in bad.reason


def test_an_op_that_raises(folder: Path) -> None:
    dataset = ImageFolder(str(folder), v1.Compose([v1.Resize((20, 20)), Failing()]))
    with pytest.raises(KeyError, match="my op"):
        list(millrace.DataLoader(dataset, 4))
    missing = ImageFolder(str(folder), v1.Compose([v1.Resize((20, 20)), v1.ToTensor(), Shift()]))
    missing.samples[0] = (str(folder / "none.jpg"), 0)
    with pytest.raises(FileNotFoundError) as error:
        list(millrace.DataLoader(missing, 4))
    assert str(error.value.filename).endswith("none.jpg")


@pytest.mark.parametrize("workers", [0, 2])
def test_resume(folder: Path, workers: int) -> None:
    steps = [v1.RandomResizedCrop(24), v1.ToTensor(), Shift()]
    dataset = ImageFolder(str(folder), v1.Compose(steps))
    options: dict[str, Any] = {"num_workers": workers, "shuffle": True}
    with millrace.DataLoader(dataset, 2, seed=4, **options) as whole:
        list(whole)
        want = list(whole)
    with millrace.DataLoader(dataset, 2, seed=4, **options) as first:
        list(first)
        iterator = iter(first)
        taken = [next(iterator) for _ in range(3)]
        state = first.state_dict()
    with millrace.DataLoader(dataset, 2, seed=9, **options) as second:
        second.load_state_dict(state)
        assert equal(taken + list(second), want)


def test_another_transform_later(folder: Path) -> None:
    steps = [v1.Resize((20, 20)), Mark("pil"), v1.ToTensor()]
    dataset = ImageFolder(str(folder), v1.Compose(steps))
    with millrace.DataLoader(dataset, 4) as loader:
        list(loader)
        dataset.transform = v1.Compose([v1.Resize((9, 9)), v1.PILToTensor()])
        assert equal([b[0] for b in loader], [b[0] for b in millrace.DataLoader(dataset, 4)])


def test_worker_sees_its_data_set(folder: Path) -> None:
    steps = [v1.Resize((20, 20)), Mark("pil"), v1.ToTensor()]
    dataset = ImageFolder(str(folder), v1.Compose(steps))
    with millrace.DataLoader(dataset, 4, num_workers=1, worker_init_fn=check_dataset) as loader:
        assert len(list(loader)) == 3


def check_dataset(worker: int) -> None:
    info = millrace.get_worker_info()
    assert info is not None and type(info.dataset) is ImageFolder


def test_pickle(folder: Path) -> None:
    from millrace._prefix import Prefixed, plan_of

    dataset = ImageFolder(str(folder), v1.Compose([v1.Resize(20), v1.ToTensor(), Mark("tensor")]))
    plan = plan_of(dataset)
    assert plan is not None
    whole = Prefixed(dataset, plan, 1)
    copy = pickle.loads(pickle.dumps(whole))
    assert equal([copy[i] for i in range(len(copy))], [whole[i] for i in range(len(whole))])
    dataset.transform = None
    assert isinstance(whole[0][0], Image.Image)
    assert isinstance(copy[0][0], torch.Tensor)
