"""torchvision's transforms as a chain of millrace's ops, with the same pixels.

An op is translated only if the native one draws from the same distribution and gives the same
values, or values that differ by a rounding that is said in `differences`. The state of a picture is
followed through the chain: a PIL image or a tensor, its channels, dtype and size. torchvision
computes differently on PIL images than on tensors, so the native op depends on it, too.

This module imports neither torch nor torchvision: transforms are known by the name of their type.
"""

from __future__ import annotations

from typing import Any, cast, Sequence

from . import _translate_color as color, _translate_geometry as geometry
from ._translate_state import Refused, State, Translate

_V1 = "torchvision.transforms.transforms."
_V2 = "torchvision.transforms.v2."


def _nothing(t: Any, state: State) -> None:
    pass


def _preset(t: Any, state: State) -> None:
    """What weights.transforms() gives for classification."""
    size = _Made(size=t.resize_size, interpolation=t.interpolation, antialias=t.antialias)
    geometry.resize(size, state)
    geometry.center_crop(_Made(size=t.crop_size), state)
    state.pil = False
    color.to_float(state, *color.DIVIDE_255)
    color.normalize(t, state)


class _Made:
    """A transform's parameters."""

    def __init__(self, **parameters: object) -> None:
        self.__dict__.update(parameters)


_BOTH: dict[str, tuple[str, Translate]] = {
    "Resize": ("_geometry", geometry.resize),
    "CenterCrop": ("_geometry", geometry.center_crop),
    "Pad": ("_geometry", geometry.pad),
    "RandomCrop": ("_geometry", geometry.random_crop),
    "RandomResizedCrop": ("_geometry", geometry.random_resized_crop),
    "RandomHorizontalFlip": ("_geometry", geometry.hflip),
    "RandomVerticalFlip": ("_geometry", geometry.vflip),
    "RandomRotation": ("_geometry", geometry.random_rotation),
    "ColorJitter": ("_color", color.color_jitter),
    "Grayscale": ("_color", color.grayscale),
    "RandomGrayscale": ("_color", color.random_grayscale),
    "GaussianBlur": ("_misc", color.gaussian_blur),
    "RandomErasing": ("_augment", color.random_erasing),
    "PILToTensor": ("_type_conversion", color.pil_to_tensor),
    "Normalize": ("_misc", color.normalize),
}

_TWINS: dict[str, Translate] = {
    **{_V1 + name: fn for name, (_, fn) in _BOTH.items()},
    **{f"{_V2}{module}.{name}": fn for name, (module, fn) in _BOTH.items()},
    _V1 + "ToTensor": color.to_tensor,
    _V2 + "_deprecated.ToTensor": color.to_tensor,
    _V1 + "ConvertImageDtype": color.convert_v1,
    _V2 + "_misc.ConvertImageDtype": color.convert_v2,
    _V2 + "_misc.ToDtype": color.to_dtype,
    _V2 + "_misc.Identity": _nothing,
    _V2 + "_type_conversion.ToImage": color.to_image,
    _V2 + "_type_conversion.ToPureTensor": _nothing,
    "torch.nn.modules.linear.Identity": _nothing,
    "torchvision.transforms._presets.ImageClassification": _preset,
}

_CONTAINERS = (
    _V1 + "Compose",
    _V2 + "_container.Compose",
    "torch.nn.modules.container.Sequential",
)

_CALLED = ("__call__", "forward", "transform", "make_params", "get_params")


def type_name(thing: object) -> str:
    """module.Class of a thing's type."""
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def flatten(transform: object, name: str = "transform") -> list[tuple[str, Any]]:
    """The steps of nested Composes: (where it is, the transform)."""
    if type_name(transform) not in _CONTAINERS or changed(transform):
        return [(name, transform)]
    inner = getattr(transform, "transforms", transform)
    steps: list[tuple[str, Any]] = []
    for k, step in enumerate(cast("Sequence[object]", inner)):
        steps += flatten(step, f"{name}[{k}]")
    return steps


def changed(thing: object) -> str:
    """Which method of an instance was replaced, or hooks that it has; "": none."""
    own = getattr(thing, "__dict__", {})
    for name in _CALLED:
        if name in own:
            return f"its {name}() was replaced"
    if own.get("_forward_hooks") or own.get("_forward_pre_hooks"):
        return "it has hooks"
    return ""


def _short(thing: object) -> str:
    text = " ".join(str(getattr(thing, "__name__", "") or repr(thing)).split())
    return text if len(text) <= 80 else text[:77] + "..."


def without_twin(steps: list[tuple[str, Any]]) -> list[str]:
    """A sentence for each step of a type that has no native twin."""
    return [f"{w} {_short(s)}: no native op" for w, s in steps if type_name(s) not in _TWINS]


def translate_steps(steps: list[tuple[str, Any]], state: State) -> tuple[int, str]:
    """Appends the native ops of as many steps as have twins to `state`.

    Returns how many, and why the next one has none ("" if there is no next one).
    """
    for k, (where, step) in enumerate(steps):
        twin = _TWINS.get(type_name(step))
        if twin is None:
            return k, without_twin([(where, step)])[0]
        before = State(**{**vars(state), "ops": list(state.ops)})
        try:
            why = changed(step)
            if why:
                raise Refused(why)
            twin(step, state)
        except Refused as refusal:
            state.__dict__.update(vars(before))
            return k, f"{where} {type(step).__name__}: {refusal}"
    return len(steps), ""
