"""Pictures and helpers of test_translate_*.py."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

from PIL import Image
from torchvision.datasets import ImageFolder

from millrace import _core
from millrace._translate import Native, translate

DATA = os.environ.get("MILLRACE_TEST_DATA")


def make_folder(root: Path, n: int = 6) -> Path:
    """Photos-like pictures of several sizes, two classes: smooth colours with edges and noise."""
    random = np.random.default_rng(3)
    sizes = [(64, 90), (97, 71), (80, 80), (150, 60), (61, 140), (120, 100)]
    for k in range(n):
        height, width = sizes[k % len(sizes)]
        y, x = np.mgrid[0:height, 0:width]
        planes = [np.sin(x / (7 + c + k)) * 60 + y * (150 - 40 * c) / height + 40 for c in range(3)]
        pixels = np.stack(planes, 2) + random.normal(0, 12, (height, width, 3))
        pixels[: height // 3, : width // 4] = random.integers(0, 256, 3)
        folder = root / f"class_{k % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
        name = f"{k}.{('jpg', 'png', 'webp', 'jpeg')[k % 4]}"
        image.save(folder / name, **({"lossless": True} if name.endswith("webp") else {}))
    return root


def photos(n: int) -> list[str]:
    """Real photos; skips without them."""
    if not DATA:
        pytest.skip("MILLRACE_TEST_DATA is not set")
    return [str(p) for p in sorted((Path(DATA) / "imagenet-sample").glob("*.JPEG"))[:: 320 // n]]


def native_of(dataset: Any) -> Native:
    native = translate(dataset)
    assert isinstance(native, Native), native
    return native


def read_all(native: Native, n: int, **options: object) -> list[Any]:
    """All samples of one epoch in order: a tensor for each leaf."""
    loader = _core.Loader(
        native.dataset,
        transform=native.transform or None,
        options={"batch_size": n, "workers": 2, "epochs": 1, **options},
    )
    batch = loader.next()
    assert batch is not None and batch.n == n
    return [torch.from_dlpack(batch.field(name)).clone() for name in native.leaves]


def want_all(dataset: Any) -> list[Any]:
    """What torch's loader gives in one batch."""
    return list(torch.utils.data.default_collate([dataset[i] for i in range(len(dataset))]))


def difference(native: Any, want: Any) -> tuple[float, float]:
    """The largest difference, and the share of elements that differ."""
    assert native.shape == want.shape and native.dtype == want.dtype
    apart = (native.double() - want.double()).abs()
    return float(apart.max()), float((apart > 0).double().mean())


def compare(
    root: Path, transform: Callable[..., Any], files: list[str] | None = None
) -> tuple[float, float]:
    """Native against torchvision, of all pictures of an ImageFolder, or of these files."""
    dataset = ImageFolder(str(root), transform)
    if files is not None:
        dataset.samples = [(f, k % 7) for k, f in enumerate(files)]
    native = native_of(dataset)
    images, labels = read_all(native, len(dataset))
    want_images, want_labels = want_all(dataset)
    assert torch.equal(labels, want_labels) and labels.dtype == want_labels.dtype
    found = difference(images, want_images)
    assert found[0] == 0 or native.differences, "explain() says nothing of a difference"
    return found
