"""default_collate and default_convert: torch's where torch is there, else the same for numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ._structure import _fill_list, _fill_map


def numpy_collate(batch: Sequence[Any]) -> Any:
    """Stacks samples as torch's default_collate does, but into numpy arrays.

    Numbers become int64, float64 and bool arrays [len(batch)], arrays [len(batch), ...], texts
    lists. Raises ValueError when shapes differ, TypeError for other objects.
    """
    import numpy

    first = batch[0]
    if isinstance(first, str | bytes):
        return list(batch)
    if isinstance(first, bool | int | float):
        return numpy.asarray(batch)
    if isinstance(first, numpy.generic | numpy.ndarray) or hasattr(first, "__dlpack__"):
        return _stack(numpy, batch)
    if isinstance(first, Mapping):
        return _fill_map(first, {key: numpy_collate([d[key] for d in batch]) for key in first})
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(numpy_collate(items) for items in zip(*batch, strict=False)))
    if isinstance(first, Sequence):
        if any(len(item) != len(first) for item in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        items = [numpy_collate(column) for column in zip(*batch, strict=False)]
        return items if isinstance(first, tuple) else _fill_list(first, items)
    raise TypeError(
        "the default collate_fn takes tensors, numpy arrays, numbers, texts, dicts and lists; "
        f"found {type(first)}"
    )


def _stack(numpy: Any, batch: Sequence[Any]) -> Any:
    arrays = [numpy.asarray(item) for item in batch]
    if arrays[0].dtype.kind in "OSUV":
        raise TypeError(f"the default collate_fn can't stack arrays of {arrays[0].dtype}")
    return numpy.stack(arrays)


def default_collate(as_: str) -> Callable[[Any], Any]:
    """What makes a batch from a list of samples if the program gives no collate_fn."""
    if as_ != "torch":
        return numpy_collate
    from torch.utils.data import default_collate as collate

    return collate


def default_convert(as_: str) -> Callable[[Any], Any]:
    """What torch applies to a sample when batch_size is None."""
    if as_ != "torch":
        return _as_is
    from torch.utils.data import default_convert as convert

    return convert


def _as_is(sample: Any) -> Any:
    return sample
