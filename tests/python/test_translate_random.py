"""Random ops draw from torchvision's distributions: statistics of many draws, fixed seeds."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

from torchvision import datasets, transforms as v1
from torchvision.transforms import v2

from translate_pictures import native_of, read_all

N = 600
SIDE = 32


def pictures(transform: Any) -> Any:
    """N equal pictures whose pixels tell their place: red is x, green is y, blue is 128."""
    y, x = np.mgrid[0:SIDE, 0:SIDE].astype(np.uint8)
    one = np.stack([x * 4 + 60, y * 4 + 60, np.full_like(x, 128)], 2)
    dataset = datasets.CIFAR10.__new__(datasets.CIFAR10)
    dataset.data, dataset.targets = np.stack([one] * N), [0] * N
    dataset.transform, dataset.target_transform = transform, None
    return dataset


def _x(images: Any) -> Any:
    return images[:, 0, 0, 0]


def _y(images: Any) -> Any:
    return images[:, 1, 0, 0]


def _mean(images: Any) -> Any:
    return images.mean((1, 2, 3))


def _wide(images: Any) -> Any:
    return images[:, 0].amax((1, 2)) - images[:, 0].amin((1, 2))


def _tall(images: Any) -> Any:
    return images[:, 1].amax((1, 2)) - images[:, 1].amin((1, 2))


def _slope(images: Any) -> Any:
    """How far red changes downwards at the middle: the angle of a rotation."""
    return images[:, 0, 20, 16] - images[:, 0, 12, 16]


def _spread(images: Any) -> Any:
    return images[:, 0].std((1, 2))


def _gap(images: Any) -> Any:
    return (images[:, 0] - images[:, 2]).abs().mean((1, 2))


def _erased(images: Any) -> Any:
    return (images[:, 2] == 0).float().mean((1, 2))


def _erased_top(images: Any) -> Any:
    rows = (images[:, 2] == 0).any(2).float()
    return rows.argmax(1).float() / SIDE


CASES: dict[str, tuple[Any, list[Callable[[Any], Any]]]] = {
    "RandomHorizontalFlip": (v1.RandomHorizontalFlip(0.3), [_x]),
    "RandomVerticalFlip": (v2.RandomVerticalFlip(), [_y]),
    "RandomCrop": (v1.RandomCrop((20, 25)), [_x, _y]),
    "RandomCrop, padded": (v2.RandomCrop(32, padding=4), [_mean, _x]),
    "RandomResizedCrop": (v1.RandomResizedCrop(16), [_x, _y, _wide, _tall]),
    "RandomResizedCrop, small": (
        v2.RandomResizedCrop((20, 12), (0.05, 0.3), (0.2, 0.6)),
        [_x, _y, _wide, _tall],
    ),
    "ColorJitter brightness": (v1.ColorJitter(0.5), [_mean]),
    "ColorJitter contrast": (v1.ColorJitter(contrast=(0.2, 1.5)), [_spread]),
    "ColorJitter saturation": (v2.ColorJitter(saturation=2), [_gap]),
    "ColorJitter hue": (v2.ColorJitter(hue=0.5), [_gap, _x]),
    "ColorJitter all": (v1.ColorJitter(0.4, 0.4, 0.4, 0.1), [_mean, _spread, _gap]),
    "RandomGrayscale": (v1.RandomGrayscale(0.4), [_gap]),
    "GaussianBlur": (v1.GaussianBlur(9, (0.1, 5)), [_spread]),
    "RandomRotation": (v1.RandomRotation((-20, 60)), [_slope, _mean]),
    "RandomErasing": (v1.RandomErasing(0.6), [_erased, _erased_top]),
}


@pytest.mark.parametrize("name", CASES)
def test_distribution(name: str) -> None:
    step, statistics = CASES[name]
    erasing = name == "RandomErasing"
    steps = [v1.ToTensor(), step] if erasing else [step, v1.ToTensor()]
    dataset = pictures(v1.Compose(steps))
    torch.manual_seed(1)
    want = torch.stack([dataset[i][0] for i in range(N)])
    got = read_all(native_of(dataset), N)[0]
    for statistic in statistics:
        apart = _kolmogorov(statistic(got), statistic(want))
        assert apart < 1.95 * (2 / N) ** 0.5, (statistic.__name__, apart)  # chance: 0.1%


def _kolmogorov(a: Any, b: Any) -> float:
    """The largest distance of two distribution functions; values to 1e-4, ties count once."""
    a, b = (torch.sort((v.double() * 1e4).round()).values for v in (a, b))
    places = torch.cat([a, b]).unique()
    share = [torch.searchsorted(v, places, right=True).double() / len(v) for v in (a, b)]
    return float((share[0] - share[1]).abs().max())


def test_draws_depend_on_epoch_and_index() -> None:
    native = native_of(pictures(v1.Compose([v1.RandomCrop(16), v1.ToTensor()])))
    first = read_all(native, N, seed=1)[0]
    assert torch.equal(first, read_all(native, N, seed=1, workers=1)[0])
    assert not torch.equal(first, read_all(native, N, seed=2)[0])
    assert len(first.reshape(N, -1).unique(dim=0)) > 150
