"""torch's and torchvision's data sets as native ones: samples, order, labels, refusals."""

from __future__ import annotations

import gzip
import os
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

from torch.utils.data import ConcatDataset, Subset, TensorDataset
from torchvision import datasets, transforms as v1
from torchvision.transforms import InterpolationMode, v2

from millrace._translate import translate
from translate_pictures import DATA, make_folder, native_of, read_all, want_all

FIXED = v1.Compose([v1.Resize((32, 32)), v1.ToTensor()])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("pictures"), 12)


def same(dataset: Any) -> None:
    """All samples, in order, with the dtypes of torch's loader."""
    got, want = read_all(native_of(dataset), len(dataset)), want_all(dataset)
    assert len(got) == len(want)
    for a, b in zip(got, want):
        assert a.dtype == b.dtype and torch.equal(a, b)


def idx(path: Path, array: Any) -> None:
    with open(path, "wb") as out:
        out.write(struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape))
        out.write(array.tobytes())


def mnist(root: Path, kind: str = "MNIST", n: int = 50) -> Path:
    raw = root / kind / "raw"
    raw.mkdir(parents=True)
    random = np.random.default_rng(1)
    for split in ("train", "t10k"):
        images = random.integers(0, 256, (n, 28, 28), dtype=np.uint8)
        idx(raw / f"{split}-images-idx3-ubyte", images)
        labels = random.integers(0, 10, n, dtype=np.uint8)
        idx(raw / f"{split}-labels-idx1-ubyte", labels)
    return root


def cifar(kind: Any, transform: Any) -> Any:
    dataset = kind.__new__(kind)
    random = np.random.default_rng(2)
    dataset.data = random.integers(0, 256, (40, 32, 32, 3), dtype=np.uint8)
    dataset.targets = [int(v) for v in random.integers(0, 10, 40)]
    dataset.transform, dataset.target_transform = transform, None
    return dataset


def test_image_folder(folder: Path) -> None:
    same(datasets.ImageFolder(str(folder), FIXED))
    same(datasets.ImageFolder(folder, FIXED, loader=datasets.folder.pil_loader))


def test_own_list_has_the_last_word(folder: Path, tmp_path: Path) -> None:
    root = tmp_path / "set"
    shutil.copytree(folder, root)
    (root / "class_0" / "notes.txt").write_text("no picture")
    shutil.copy(root / "class_0" / "0.jpg", root / "class_1" / ".hidden.jpg")
    (root / "class_2").mkdir()
    same(datasets.ImageFolder(str(root), FIXED, allow_empty=True))
    same(
        datasets.ImageFolder(
            str(root), FIXED, is_valid_file=lambda p: p.endswith("png"), allow_empty=True
        )
    )
    dataset = datasets.ImageFolder(str(root), FIXED, allow_empty=True)
    dataset.samples = dataset.samples[::-1]
    same(dataset)
    loader = datasets.folder.default_loader
    same(datasets.DatasetFolder(str(folder), loader, (".jpg", ".png"), FIXED))


def test_relative_paths_and_odd_names(folder: Path, tmp_path: Path) -> None:
    odd = tmp_path / "a, b%20: c" / " class"
    odd.mkdir(parents=True)
    for k, name in enumerate(("ä ö.JPG", "#x.jpg", "a,exact.jpg", "trailing .jpg")):
        shutil.copy(folder / "class_0" / f"{4 * (k % 3)}.jpg", odd / name)
    same(datasets.ImageFolder(str(odd.parent), FIXED))
    here = os.getcwd()
    os.chdir(tmp_path)
    try:
        same(datasets.ImageFolder(odd.parent.name, FIXED))
    finally:
        os.chdir(here)


def test_fingerprint_is_of_the_data(folder: Path) -> None:
    one, two = (native_of(datasets.ImageFolder(str(folder), FIXED)).dataset for _ in range(2))
    assert one.fingerprint == two.fingerprint and one.text == two.text
    other = datasets.ImageFolder(str(folder), FIXED)
    other.samples = other.samples[1:]
    assert native_of(other).dataset.fingerprint != one.fingerprint


def test_pictures_as_pillow_opens_them(tmp_path: Path) -> None:
    """EXIF orientation is not applied, transparency is dropped, palettes and grey become RGB."""
    from PIL import Image

    root = tmp_path / "a"
    root.mkdir()
    random = np.random.default_rng(5)
    pixels = random.integers(0, 256, (40, 50, 4), dtype=np.uint8)
    Image.fromarray(pixels, "RGBA").save(root / "alpha.png")
    Image.fromarray(pixels[..., 0]).save(root / "grey.jpg")
    Image.fromarray(pixels[..., :3]).quantize(16).save(root / "palette.png")
    exif = Image.Exif()
    exif[274] = 6
    Image.fromarray(pixels[..., :3]).save(root / "turned.jpg", exif=exif)
    Image.fromarray(pixels[..., :3]).convert("CMYK").save(root / "cmyk.jpg")
    same(datasets.ImageFolder(str(tmp_path), FIXED))


@pytest.mark.parametrize("kind", ["MNIST", "FashionMNIST", "KMNIST"])
@pytest.mark.parametrize("train", [False, True])
def test_mnist(tmp_path: Path, kind: str, train: bool) -> None:
    root = mnist(tmp_path, kind)
    same(getattr(datasets, kind)(str(root), train, transform=v1.ToTensor()))
    chain = v1.Compose([v1.Pad(2), v1.RandomRotation((9, 9)), v1.Resize(20), v1.PILToTensor()])
    same(getattr(datasets, kind)(str(root), train, transform=chain))


def test_real_mnist(tmp_path: Path) -> None:
    if not DATA:
        pytest.skip("MILLRACE_TEST_DATA is not set")
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for packed in (Path(DATA) / "mnist").glob("*.gz"):
        with gzip.open(packed) as f:
            (raw / packed.stem).write_bytes(f.read())
    same(datasets.MNIST(str(tmp_path), train=False, transform=v1.ToTensor()))


@pytest.mark.parametrize("kind", [datasets.CIFAR10, datasets.CIFAR100])
def test_cifar(kind: Any) -> None:
    same(cifar(kind, v1.ToTensor()))
    same(cifar(kind, v2.Compose([v2.CenterCrop(24), v2.ToImage(), v2.RandomVerticalFlip(1)])))


def test_tensor_dataset() -> None:
    x, y = torch.randn(30, 3, 4), torch.arange(30)
    same(TensorDataset(x))
    same(TensorDataset(x, y, torch.rand(30) > 0.5, x.half(), x.to(torch.bfloat16)))


def test_subset(tmp_path: Path, folder: Path) -> None:
    tensors = TensorDataset(torch.arange(40).reshape(20, 2), torch.arange(20))
    same(Subset(tensors, [3, 1, 1, 19]))
    same(Subset(tensors, range(5, 12)))
    same(Subset(Subset(tensors, [9, 8, 7, 6]), [2, 0]))
    same(Subset(datasets.ImageFolder(str(folder), FIXED), [5, 0, 11, 0]))
    data = datasets.MNIST(str(mnist(tmp_path)), transform=v1.ToTensor())
    same(Subset(data, [7, 7, 49]))
    same(torch.utils.data.random_split(data, [30, 20], torch.Generator().manual_seed(1))[1])


class OwnFolder(datasets.ImageFolder):
    def __getitem__(self, index: int) -> Any:
        return index


def _lists(folder: Path, transform: Any, **more: Any) -> Any:
    return translate(datasets.ImageFolder(str(folder), transform, **more))


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ([], "PIL images"),
        ([v1.Resize((9, 9))], "PIL images"),
        ([v1.Resize(9), v1.ToTensor()], "different sizes"),
        ([v1.ToTensor()], "transform[0] ToTensor: of pictures of different sizes"),
        ([v1.CenterCrop(9), v1.ToTensor()], "may be smaller than 9 x 9"),
        ([v1.Resize((9, 9)), lambda image: image, v1.ToTensor()], "transform[1] <lambda>"),
        ([v1.Resize((9, 9)), v1.RandAugment(), v1.ToTensor()], "transform[1] RandAugment"),
        ([v1.Resize((9, 9), InterpolationMode.NEAREST), v1.ToTensor()], "interpolation nearest"),
        ([v1.Resize((9, 9)), v1.Grayscale(1), v1.ToTensor()], "3 channels to 1"),
        ([v1.Resize((9, 9)), v1.Pad(1, padding_mode="edge"), v1.ToTensor()], "padding_mode"),
        ([v1.Resize((9, 9)), v1.Pad(1, (1, 2, 3)), v1.ToTensor()], "for each channel"),
        ([v1.Resize((9, 9)), v1.RandomRotation(9, expand=True), v1.ToTensor()], "expand"),
        ([v1.Resize((9, 9)), v1.ToTensor(), v1.RandomErasing(value="random")], "random"),
        ([v1.Resize((9, 9)), v1.ToTensor(), v1.RandomRotation(9)], "of a tensor"),
        ([v1.Resize((9, 9)), v1.PILToTensor(), v1.Normalize(0, 1)], "of integers"),
        ([v1.Resize((9, 9)), v1.PILToTensor(), v2.ToDtype(torch.float16)], "torch.float16"),
        ([v1.Resize((9, 9)), v1.ToTensor(), v2.Resize(5, antialias=False)], "antialias"),
        ([v1.Resize((9, 9)), v1.GaussianBlur((3, 5)), v1.ToTensor()], "3 x 5"),
    ],
)
def test_transforms_without_a_twin(folder: Path, steps: list[Any], reason: str) -> None:
    reasons = _lists(folder, v1.Compose(steps) if steps else None)
    assert isinstance(reasons, list) and reason in reasons[0], reasons


def test_all_reasons_are_named(folder: Path) -> None:
    steps = v1.Compose([v1.Resize((9, 9)), v1.RandAugment(), v1.AugMix(), v1.ToTensor()])
    reasons = _lists(folder, steps)
    assert [r.split("(")[0] for r in reasons] == ["transform[1] RandAugment", "transform[2] AugMix"]


def test_changed_transforms_are_left_to_python(folder: Path) -> None:
    replaced, hooked = v2.Resize((9, 9)), v2.Resize((9, 9))
    replaced.forward = lambda image: image
    hooked.register_forward_hook(lambda *_: None)
    for step, why in ((replaced, "replaced"), (hooked, "hooks")):
        assert why in _lists(folder, v1.Compose([step, v1.ToTensor()]))[0]


def test_sets_without_a_twin(folder: Path, tmp_path: Path) -> None:
    from PIL import Image

    def own_loader(path: str) -> Any:
        return Image.open(path)

    assert "OwnFolder" in translate(OwnFolder(str(folder), FIXED))[0]
    assert "target_transform" in _lists(folder, FIXED, target_transform=lambda t: t + 1)[0]
    assert "loader" in _lists(folder, FIXED, loader=own_loader)[0]
    assert "ConcatDataset" in translate(ConcatDataset([[1], [2]]))[0]
    assert "list" in translate([1, 2, 3])[0]
    (tmp_path / "a").mkdir()
    Image.new("RGB", (9, 9)).save(tmp_path / "a" / "x.bmp")
    assert ".bmp" in _lists(tmp_path, FIXED)[0]
    sparse = torch.eye(3).to_sparse()
    for tensor, why in (
        (torch.zeros(3, requires_grad=True), "gradient"),
        (torch.zeros(3, 4).t(), "contiguous"),
        (sparse, "plain"),
        (torch.zeros(0, 3), "empty"),
    ):
        assert why in translate(TensorDataset(tensor))[0]


def test_truncated_pictures_are_bad_samples(folder: Path, tmp_path: Path) -> None:
    from millrace import BadSamples

    (tmp_path / "a").mkdir()
    data = (folder / "class_0" / "0.jpg").read_bytes()
    (tmp_path / "a" / "0.jpg").write_bytes(data[: len(data) // 2])
    with pytest.raises((BadSamples, ValueError), match="0.jpg"):
        read_all(native_of(datasets.ImageFolder(str(tmp_path), FIXED)), 1)
