"""torchvision's picture folders with millrace's ops behind the decoder."""

from __future__ import annotations

from typing import Any

from ._translate import Native
from ._translate_ops import flatten, translate_steps
from ._translate_sets import NotNative, find_source


def translate_pictures(dataset: Any) -> Native | None:
    """A native set of a data set whose samples are PIL images, for a chain of ops to run on.

    The chain gets what the image has: u8[height,width,3]. None: its samples are no PIL images, or
    are made by something without a native twin.
    """
    try:
        source = find_source(dataset)
    except NotNative:
        return None
    state, transform = source.state, source.transform
    if state is None:
        return None
    if transform is not None and translate_steps(flatten(transform), state)[1]:
        return None
    if not state.pil:
        return None
    differences = source.differences + state.differences
    return Native(source.open(), ",".join(state.ops), source.leaves, differences)
