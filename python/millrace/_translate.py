"""torch's and torchvision's data sets and samplers as native ones, without loss.

    native = translate(torchvision.datasets.ImageFolder("photos/", transform))
    if isinstance(native, list):
        print("not native:", *native, sep="\\n")

A data set is translated only if the batches have torchvision's shapes, dtypes, order of samples and
values; what differs by a rounding is in `Native.differences`. Sub-classes, replaced methods and
transforms without a native twin are left to Python.

This module imports neither torch nor torchvision.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

from . import _core
from ._translate_ops import flatten, translate_steps, without_twin
from ._translate_sets import NotNative, Source, find_source
from ._translate_samplers import sampler_options, translate_sampler
from ._translate_state import State

__all__ = ["Native", "sampler_options", "translate", "translate_sampler"]


class Native(NamedTuple):
    """A data set that the engine reads itself.

    leaves: the fields whose tensors, in this order, are an element of torchvision's loader.
    differences: each a sentence; [] if all bytes are equal.
    rest: Python callables that torchvision would run behind the native ops; [] if none.
    """

    dataset: _core.Dataset
    transform: str
    leaves: tuple[str, ...]
    differences: list[str]
    rest: list[Callable[[Any], Any]] = []


def translate(dataset: object) -> Native | list[str]:
    """A native data set and chain that give what `dataset` gives.

    dataset: of torchvision (ImageFolder, DatasetFolder, the MNIST family, CIFAR), a TensorDataset,
    or a Subset of one of these.
    Returns the reasons, each a sentence, if there is none. Raises OSError or MillraceError only if
    files that the data set lists cannot be read.
    """
    try:
        source = find_source(dataset)
        if source.state is None:
            return Native(source.open(), "", source.leaves, source.differences)
        return _with_transform(source, source.state)
    except NotNative as reasons:
        return list(reasons.args)


def _with_transform(source: Source, state: State) -> Native:
    transform: Any = source.transform
    if transform is None:
        raise NotNative("the data set gives PIL images: add ToTensor() or pass transform=")
    steps = flatten(transform)
    done, why = translate_steps(steps, state)
    if why:
        raise NotNative(why, *without_twin(steps[done + 1 :]))
    if state.pil:
        raise NotNative("the transforms give PIL images: add ToTensor() or pass transform=")
    state.to_planes()
    if not state.height:
        raise NotNative(
            "the pictures keep different sizes: add a crop, or Resize((height, width))"
        )
    return Native(
        source.open(), ",".join(state.ops), source.leaves, source.differences + state.differences
    )
