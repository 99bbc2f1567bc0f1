"""torchvision's transforms that move pixels, as native ops. Each appends its op to a State."""

from __future__ import annotations

from typing import Any, Optional

from ._translate_state import Refused, State, number_of, pair_of, text_of


def _filter(state: State, mode: object, antialias: object = True) -> str:
    name = str(getattr(mode, "value", mode))
    name = {"2": "bilinear", "3": "bicubic", "0": "nearest"}.get(name, name)
    if name not in ("bilinear", "bicubic"):
        raise Refused(f"interpolation {name}: only bilinear and bicubic have the same pixels")
    if not state.pil and not antialias:
        raise Refused("antialias=False on a tensor")
    return name


def _resampling(state: State) -> list[str]:
    """Options of an op that resamples, and what differs."""
    if not state.pil:
        state.differs(
            "resize of a tensor: sums are rounded once, torchvision's more often: at most 1 of "
            "255 for u8, 1e-4 for floats"
        )
    return ["order=pillow13"] if state.pil and state.pillow >= (13,) else []


def resize(t: Any, state: State) -> None:
    if t.size is None:
        raise Refused("size=None")
    size = [t.size] if isinstance(t.size, int) else list(t.size)
    filter_name = _filter(state, t.interpolation, t.antialias)
    most = getattr(t, "max_size", None)
    if len(size) == 2:
        height, width = int(size[0]), int(size[1])
        _add_resize(state, [str(height), str(width)], filter_name)
        state.sized(height, width)
        return
    shorter = int(size[0])
    if state.height:  # one size for all
        height, width = _shorter_to(shorter, most, state.height, state.width)
        _add_resize(state, [str(height), str(width)], filter_name)
        state.sized(height, width)
        return
    limit = [f"max={most}"] if most else []
    _add_resize(state, [str(shorter), *limit], filter_name)
    state.least = (1, 1) if most else (shorter, shorter)


def _add_resize(state: State, size: list[str], filter_name: str) -> None:
    state.add("resize", *size, f"filter={filter_name}", *_resampling(state))


def _shorter_to(shorter: int, most: Optional[int], height: int, width: int) -> tuple[int, int]:
    small, large = min(height, width), max(height, width)
    longer = int(shorter * large / small)
    if most is not None and longer > most:
        shorter, longer = int(most * shorter / longer), most
    return (shorter, longer) if height <= width else (longer, shorter)


def center_crop(t: Any, state: State) -> None:
    height, width = pair_of(t.size)
    if state.least[0] < height or state.least[1] < width:
        raise Refused(
            f"pictures may be smaller than {height} x {width}: torchvision pads them; "
            "put Resize before it"
        )
    state.add("center_crop", height, width)
    state.sized(height, width)


def _fill(value: Any, state: State) -> float:
    """One value for all channels, as torchvision fills a picture of this state."""
    if isinstance(value, dict):
        raise Refused("fill by type")
    if value is None:
        return 0.0
    if isinstance(value, (list, tuple)):
        if len(set(value)) != 1:
            raise Refused("fill with another value for each channel")
        value = value[0]
    number = number_of(value)
    return float(int(number)) if state.dtype == "u8" else number


def _pad_sides(padding: Any) -> tuple[int, int, int, int]:
    """top, bottom, left, right"""
    if isinstance(padding, int):
        left = top = right = bottom = padding
    elif len(padding) == 1:
        left = top = right = bottom = padding[0]
    elif len(padding) == 2:
        left, top = padding
        right, bottom = padding
    else:
        left, top, right, bottom = padding
    return top, bottom, left, right


def _add_pad(state: State, sides: tuple[int, int, int, int], mode: str, fill: Any) -> None:
    if mode != "constant":
        raise Refused(f"padding_mode={mode!r}: only constant")
    if min(sides) < 0:
        raise Refused("negative padding")
    if not any(sides):
        return
    top, bottom, left, right = sides
    state.add("pad", f"{top}:{bottom}:{left}:{right}", text_of(_fill(fill, state)))
    tall, wide = top + bottom, left + right
    state.least = (state.least[0] + tall, state.least[1] + wide)
    if state.height:
        state.height, state.width = state.height + tall, state.width + wide


def pad(t: Any, state: State) -> None:
    _add_pad(state, _pad_sides(t.padding), t.padding_mode, t.fill)


def random_crop(t: Any, state: State) -> None:
    height, width = pair_of(t.size)
    if t.padding is not None:
        sides = _pad_sides(t.padding)
        if hasattr(t, "_fill"):  # v2 keeps left, right, top, bottom
            left, right, top, bottom = t.padding
            sides = (top, bottom, left, right)
        _add_pad(state, sides, t.padding_mode, t.fill)
    if t.pad_if_needed and (state.least[0] < height or state.least[1] < width):
        raise Refused("pad_if_needed")
    state.add("random_crop", height, width)
    state.sized(height, width)


def random_resized_crop(t: Any, state: State) -> None:
    height, width = pair_of(t.size)
    filter_name = _filter(state, t.interpolation, t.antialias)
    low, high = (float(v) for v in t.scale)
    narrow, wide = (float(v) for v in t.ratio)
    if not (0 < low <= high <= 1 and 0 < narrow <= wide):
        raise Refused(f"scale={tuple(t.scale)}, ratio={tuple(t.ratio)}")
    numbers = [text_of(v) for v in (low, high, narrow, wide)]
    state.add(
        "random_resized_crop",
        height,
        *numbers,
        f"filter={filter_name}",
        f"width={width}",
        *_resampling(state),
    )
    state.sized(height, width)


def hflip(t: Any, state: State) -> None:
    state.add("hflip", text_of(number_of(t.p)))


def vflip(t: Any, state: State) -> None:
    state.add("vflip", text_of(number_of(t.p)))


def random_rotation(t: Any, state: State) -> None:
    name = str(getattr(t.interpolation, "value", t.interpolation))
    name = {"0": "nearest", "2": "bilinear"}.get(name, name)
    if t.expand:
        raise Refused("expand=True")
    if t.center is not None:
        raise Refused("another center than the picture's")
    if name not in ("nearest", "bilinear"):
        raise Refused(f"interpolation {name}")
    if not state.pil:
        raise Refused("of a tensor: torchvision rounds places differently; put it before ToTensor")
    if name == "bilinear":
        state.differs("RandomRotation, bilinear: by 1 of 255, of less than 1 in 10,000 bytes")
    low, high = t.degrees
    fill = text_of(_fill(t.fill, state))
    state.add("rotate", f"{text_of(low)}:{text_of(high)}", fill, f"filter={name}", "like=pillow")
