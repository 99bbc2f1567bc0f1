"""Transforms of test_prefix.py, in a module that worker processes can import."""

from __future__ import annotations

import random
from typing import Any

import torch
from PIL import Image


class Mark:
    """Checks what it gets, and inverts a corner. kind: "pil", "tensor" or "image"."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __call__(self, value: Any) -> Any:
        if self.kind == "pil":
            assert type(value) is Image.Image and value.mode in ("RGB", "L"), value
            corner = value.crop((0, 0, 3, 4))
            value.paste(Image.eval(corner, lambda v: 255 - v), (0, 0))
            return value
        expected = "Image" if self.kind == "image" else "Tensor"
        assert type(value).__name__ == expected, type(value)
        value[..., :4, :3] *= -1 if value.is_floating_point() else 3
        return value


class Shift:
    """Random, by Python's generator."""

    def __call__(self, value: Any) -> Any:
        return torch.roll(value, random.randrange(8), -1)


def orientation(image: Any) -> Any:
    """Turns as EXIF says: it needs the file's info."""
    turned = image.getexif().get(0x0112, 1) == 6
    return image.rotate(90, expand=True) if turned else image


def ten_more(label: int) -> int:
    return label + 10


def listed(samples: list[Any]) -> list[Any]:
    return samples


class Failing:
    def __call__(self, value: Any) -> Any:
        raise KeyError("my op")
