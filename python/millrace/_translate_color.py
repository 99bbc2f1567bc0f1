"""torchvision's transforms of values, as native ops. Each appends its op to a State."""

from __future__ import annotations

from typing import Any, Sequence

from ._translate_state import Refused, State, number_of, pair_of, text_of

# Of a picture's bytes, x / 255 rounded once: x * (1/255) has another rounding for 126 of 256
# values, (x * 3) * (1/765) for none.
DIVIDE_255 = ("scale(3)", "scale(1/765)")
_TIMES_1_255 = ("scale(1/255)",)  # v2.ToDtype multiplies



def _like(state: State) -> list[str]:
    return ["like=pillow"] if state.pil else []


def color_jitter(t: Any, state: State) -> None:
    ranges = [getattr(t, name) for name in ("brightness", "contrast", "saturation", "hue")]
    names = ("brightness", "contrast", "saturation", "hue")
    if state.channels != 3:
        raise Refused("of pictures with one channel")
    given = [
        f"{name}={text_of(float(r[0]))}:{text_of(float(r[1]))}"
        for name, r in zip(names, ranges)
        if r is not None
    ]
    if not given:
        return
    if not state.pil:
        state.differs("ColorJitter of a tensor: at most 1 of 255 a step for u8, 1e-4 for floats")
    state.add("color_jitter", *given, *_like(state))


def grayscale(t: Any, state: State) -> None:
    wanted = int(t.num_output_channels)
    if wanted == state.channels == 1:
        return
    if wanted != 3 or state.channels != 3:
        raise Refused(f"{state.channels} channels to {wanted}: only 3 to 3")
    _add_gray(state, 1)


def random_grayscale(t: Any, state: State) -> None:
    if state.channels == 3:
        _add_gray(state, number_of(t.p))


def _add_gray(state: State, p: float) -> None:
    if not state.pil:
        state.differs("grey of a tensor: at most 1 of 255 for u8, 1e-6 for floats")
    state.add("to_gray", text_of(p), *_like(state))


def gaussian_blur(t: Any, state: State) -> None:
    height, width = pair_of(t.kernel_size)
    low, high = (float(v) for v in t.sigma)
    if height != width:
        raise Refused(f"kernel {height} x {width}: only square ones")
    if height > 255:
        raise Refused(f"kernel {height}: at most 255")
    state.differs("GaussianBlur: at most 1 of 255, of about 1 in 100,000 bytes; 1e-6 for floats")
    state.add("gaussian_blur", height, text_of(low), text_of(high))


def random_erasing(t: Any, state: State) -> None:
    value = t.value
    if state.pil:
        raise Refused("of a PIL image")
    if value is None or isinstance(value, str):
        raise Refused("value='random'")
    if isinstance(value, (list, tuple)):
        if len(set(value)) != 1:
            raise Refused("another value for each channel")
        value = value[0]
    (low, high), (tall, wide) = t.scale, t.ratio
    if not (0 < low <= high and 0 < tall <= wide):
        raise Refused(f"scale={tuple(t.scale)}, ratio={tuple(t.ratio)}")
    numbers = [text_of(float(v)) for v in (t.p, low, high, tall, wide, number_of(value))]
    state.add("erase", *numbers)


def to_tensor(t: Any, state: State) -> None:
    if not state.pil:
        raise Refused("of a tensor, which torchvision refuses")
    state.pil = False
    to_float(state, *DIVIDE_255)


def to_float(state: State, *scales: str) -> None:
    state.add_values("cast", "f32")
    state.ops += scales
    state.dtype = "f32"


def pil_to_tensor(t: Any, state: State) -> None:
    if not state.pil:
        raise Refused("of a tensor, which torchvision refuses")
    state.pil = False


def to_image(t: Any, state: State) -> None:
    state.pil = False


def _convert_dtype(t: Any, state: State, scales: tuple[str, ...]) -> None:
    name = str(t.dtype)
    if state.pil:
        raise Refused("of a PIL image: put ToImage or PILToTensor before it")
    if isinstance(t.dtype, dict):
        raise Refused("dtypes by type: only one dtype")
    if (name, state.dtype) in (("torch.float32", "f32"), ("torch.uint8", "u8")):
        return
    if (name, state.dtype) != ("torch.float32", "u8"):
        raise Refused(f"{state.dtype} to {name}: only uint8 to float32")
    to_float(state, *scales)


def convert_v1(t: Any, state: State) -> None:
    _convert_dtype(t, state, DIVIDE_255)


def convert_v2(t: Any, state: State) -> None:
    _convert_dtype(t, state, _TIMES_1_255)


def to_dtype(t: Any, state: State) -> None:
    _convert_dtype(t, state, _TIMES_1_255 if t.scale else ())


def _list_text(values: Sequence[float]) -> str:
    return f"[{','.join(text_of(v) for v in values)}]" if len(values) > 1 else text_of(values[0])


def _floats(values: Any) -> list[float]:
    if hasattr(values, "tolist"):
        values = values.tolist()
    return [float(v) for v in values] if isinstance(values, (list, tuple)) else [float(values)]


def normalize(t: Any, state: State) -> None:
    if state.pil or state.dtype != "f32":
        raise Refused("of integers, which torchvision refuses: put ToTensor before it")
    mean, std = _floats(t.mean), _floats(t.std)
    if len(mean) not in (1, state.channels) or len(std) not in (1, state.channels):
        raise Refused(f"{len(mean)} means and {len(std)} deviations for {state.channels} channels")
    if min(std) <= 0:
        raise Refused(f"std={std}")
    axis = [f"axis={2 if state.layout == 'nhwc' else 0}"] if max(len(mean), len(std)) > 1 else []
    state.differs("Normalize: multiplies by 1 / std: at most 2 units in the last place (2.5e-7)")
    state.add_values("normalize", _list_text(mean), _list_text(std), *axis)
