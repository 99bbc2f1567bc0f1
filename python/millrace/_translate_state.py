"""A picture's state on its way through torchvision's transforms."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable

# The decoder makes the picture's window; until its size is known nothing else can be done with it.
_WINDOWS = ("resize", "center_crop", "random_crop", "random_resized_crop")


class Refused(Exception):
    """This op has no native twin; the text says why."""


@dataclass
class State:
    """What torchvision would have at this point of the chain.

    height, width: 0 if pictures differ. least: no picture is smaller than these heights and widths.
    each: the ops are bound to each picture's own size, and need no size that all have.
    """

    pil: bool
    channels: int
    dtype: str = "u8"
    height: int = 0
    width: int = 0
    least: tuple[int, int] = (1, 1)
    layout: str = "nhwc"  # of the native picture; tensors become planes at the end
    pillow: tuple[int, ...] = (0,)
    ops: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    each: bool = False

    def add(self, op: str, *arguments: object) -> None:
        """Appends an op on pictures."""
        self.add_values(op, *arguments, f"layout={self.layout}")

    def add_values(self, op: str, *arguments: object) -> None:
        """Appends an op, which may be on single values."""
        if not (self.height or self.each or op in _WINDOWS):
            raise Refused("of pictures of different sizes: put a crop or Resize before it")
        self.ops.append(f"{op}({','.join(str(a) for a in arguments)})")

    def to_planes(self) -> None:
        if self.layout == "nhwc":
            self.ops.append("layout(nchw)")
            self.layout = "nchw"

    def differs(self, text: str) -> None:
        if text not in self.differences:
            self.differences.append(text)

    def sized(self, height: int, width: int) -> None:
        self.height, self.width, self.least = height, width, (height, width)


def number_of(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Refused(f"{value!r} is no number")
    return float(value)


def text_of(value: float) -> str:
    """The shortest text that is read back as the same number."""
    return repr(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))


def pair_of(size: Any) -> tuple[int, int]:
    """Height and width of a size as torchvision takes it."""
    values = [size, size] if isinstance(size, int) else list(size)
    values = values * 2 if len(values) == 1 else values
    return int(values[0]), int(values[1])


Translate = Callable[[Any, State], None]
