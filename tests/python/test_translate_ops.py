"""Native ops against torchvision's, pixel by pixel."""

from __future__ import annotations

import random
import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

from torchvision import transforms as v1
from torchvision.transforms import InterpolationMode, v2

from translate_pictures import compare, make_folder, photos

BICUBIC = InterpolationMode.BICUBIC
BILINEAR = InterpolationMode.BILINEAR
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
ULP = 5e-7  # of Normalize's results, two units in the last place at most

# name: steps, largest difference, largest share of elements that differ
TABLE: dict[str, tuple[list[Any], float, float]] = {
    "Resize((h, w))": ([v1.Resize((40, 56)), v1.PILToTensor()], 0, 0),
    "Resize((h, w), bicubic)": ([v1.Resize((40, 56), BICUBIC), v1.PILToTensor()], 0, 0),
    "Resize larger": ([v1.Resize((200, 170)), v1.PILToTensor()], 0, 0),
    "Resize flat": ([v1.Resize((20, 100), BICUBIC), v1.PILToTensor()], 0, 0),
    "Resize(n), CenterCrop": ([v1.Resize(48), v1.CenterCrop(40), v1.PILToTensor()], 0, 0),
    "Resize(n, max_size)": (
        [v1.Resize(40, max_size=60), v1.Resize((33, 33)), v1.PILToTensor()],
        0,
        0,
    ),
    "Pad": ([v1.Resize((30, 40)), v1.Pad((1, 2, 3, 4), 77), v1.PILToTensor()], 0, 0),
    "flips": (
        [v1.Resize((30, 41)), v1.RandomHorizontalFlip(1), v2.RandomVerticalFlip(1), v1.ToTensor()],
        0,
        0,
    ),
    "RandomCrop of all": ([v1.Resize((30, 40)), v1.RandomCrop((30, 40)), v1.ToTensor()], 0, 0),
    "RandomResizedCrop of all": (
        [v1.Resize((60, 60)), v1.RandomResizedCrop(40, (1, 1), (1, 1)), v1.ToTensor()],
        0,
        0,
    ),
    "brightness": ([v1.Resize((40, 40)), v1.ColorJitter((1.3, 1.3)), v1.PILToTensor()], 0, 0),
    "contrast": ([v1.Resize((40, 40)), v1.ColorJitter(0, (0.4, 0.4)), v1.PILToTensor()], 0, 0),
    "saturation": (
        [v1.Resize((40, 40)), v2.ColorJitter(saturation=(1.7, 1.7)), v2.PILToTensor()],
        0,
        0,
    ),
    "hue": ([v1.Resize((40, 40)), v1.ColorJitter(hue=(0.1, 0.1)), v1.PILToTensor()], 0, 0),
    "Grayscale(3)": ([v1.Resize((40, 40)), v1.Grayscale(3), v1.PILToTensor()], 0, 0),
    "RandomGrayscale(1)": ([v1.Resize((40, 40)), v2.RandomGrayscale(1), v1.PILToTensor()], 0, 0),
    "RandomRotation(90)": (
        [v1.Resize((40, 56)), v1.RandomRotation((90, 90)), v1.PILToTensor()],
        0,
        0,
    ),
    "RandomRotation(12.5), filled": (
        [v1.Resize((40, 56)), v1.RandomRotation((12.5, 12.5), fill=9), v1.PILToTensor()],
        0,
        0,
    ),
    "RandomRotation(-30), bilinear": (
        [v1.Resize((40, 56)), v2.RandomRotation((-30, -30), BILINEAR), v1.PILToTensor()],
        1,
        1e-4,
    ),
    "GaussianBlur": ([v1.Resize((60, 60)), v1.GaussianBlur(5, 1.3), v1.PILToTensor()], 1, 1e-3),
    "ToTensor": ([v1.Resize((40, 40)), v1.ToTensor()], 0, 0),
    "ConvertImageDtype": (
        [v1.Resize((40, 40)), v1.PILToTensor(), v1.ConvertImageDtype(torch.float32)],
        0,
        0,
    ),
    "ToImage, ToDtype": (
        [v2.Resize((40, 40)), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)],
        0,
        0,
    ),
    "ToDtype(scale=False)": ([v2.Resize((40, 40)), v2.ToImage(), v2.ToDtype(torch.float32)], 0, 0),
    "Normalize": ([v1.Resize((40, 40)), v1.ToTensor(), v1.Normalize(MEAN, STD)], ULP, 0.5),
    "Normalize by one": ([v1.Resize((40, 40)), v1.ToTensor(), v1.Normalize(0.5, 0.5)], 0, 0),
    "Resize of u8": (
        [v2.ToImage(), v2.Resize((40, 56)), v2.ToDtype(torch.uint8, scale=True)],
        1,
        0.2,
    ),
    "Resize of f32": (
        [v1.Resize((80, 90)), v1.ToTensor(), v1.Resize((40, 56), antialias=True)],
        1e-4,
        1,
    ),
    **{
        f"ColorJitter {k} of {name}": (
            [v1.Resize((40, 56)), convert, v2.ColorJitter(**{k: (v, v)})],
            most,
            share,
        )
        for name, convert, most, share in (
            ("u8", v2.ToImage(), 1, 0.05),
            ("f32", v1.ToTensor(), 1e-4, 1),
        )
        for k, v in (("brightness", 1.2), ("contrast", 0.7), ("saturation", 1.4), ("hue", 0.1))
    },
    "Grayscale of u8": ([v1.Resize((40, 56)), v1.PILToTensor(), v1.Grayscale(3)], 1, 0.01),
    "GaussianBlur of f32": (
        [v1.Resize((40, 56)), v1.ToTensor(), v1.GaussianBlur(3, 0.7)],
        1e-6,
        1,
    ),
    "RandomErasing(0)": ([v1.Resize((40, 56)), v1.ToTensor(), v1.RandomErasing(0)], 0, 0),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("pictures"))


@pytest.mark.parametrize("name", TABLE)
def test_pixels(folder: Path, name: str) -> None:
    steps, most, share = TABLE[name]
    found = compare(folder, v1.Compose(steps))
    assert found[0] <= most and found[1] <= share, found


@pytest.mark.parametrize("name", TABLE)
def test_pixels_of_photos(folder: Path, name: str) -> None:
    steps, most, share = TABLE[name]
    found = compare(folder, v2.Compose(steps), photos(16))
    print(f"{name}: {found[0]:.3g}, {found[1]:.2%}")
    assert found[0] <= most and found[1] <= share, found


def test_presets(folder: Path) -> None:
    from torchvision.transforms._presets import ImageClassification

    preset = ImageClassification(crop_size=48, resize_size=52, interpolation=BICUBIC)
    assert compare(folder, preset)[0] <= ULP


def _random_chain(draw: random.Random) -> list[Any]:
    """Steps without chance that torchvision takes, in an order that it takes."""
    size = (draw.randint(20, 90), draw.randint(20, 90))
    steps: list[Any] = [draw.choice([v1, v2]).Resize(size, draw.choice([BILINEAR, BICUBIC]))]
    on_pictures = [
        lambda: v1.Resize((draw.randint(9, 120), draw.randint(9, 120))),
        lambda: v2.Pad(draw.randint(0, 5), draw.randint(0, 255)),
        lambda: v1.RandomHorizontalFlip(draw.randint(0, 1)),
        lambda: v2.RandomVerticalFlip(draw.randint(0, 1)),
        lambda: v1.Grayscale(3),
        lambda: v2.ColorJitter((1.25, 1.25)),
        lambda: v1.ColorJitter(contrast=(0.5, 0.5)),
        lambda: v1.CenterCrop(draw.randint(5, 9)),
        lambda: v1.RandomRotation((draw.choice([0, 90, 11]),) * 2),
    ]
    steps += [draw.choice(on_pictures)() for _ in range(draw.randint(0, 4))]
    if draw.random() < 0.5:
        steps += [v1.ToTensor()]
    else:
        steps += [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
    on_tensors = [
        lambda: v1.Normalize(0.5, 0.25),
        lambda: v2.RandomHorizontalFlip(draw.randint(0, 1)),
        lambda: v2.Pad(draw.randint(0, 3)),
        lambda: v1.CenterCrop(5),
    ]
    return steps + [draw.choice(on_tensors)() for _ in range(draw.randint(0, 3))]


@pytest.mark.parametrize("seed", range(60))
def test_random_chains(folder: Path, seed: int) -> None:
    steps = _random_chain(random.Random(seed))
    nested = [v1.Compose(steps[:2]), torch.nn.Sequential(), *steps[2:]] if seed % 3 == 0 else steps
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = compare(folder, (v1 if seed % 2 else v2).Compose(nested))
    assert found[0] <= 1e-6, (found, steps)
