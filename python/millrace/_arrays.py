"""Data sets that are arrays, and batches as arrays of the program's library."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from typing import Any

from . import _core
from ._structure import leaf_of, map_leaves

LIBRARIES = ("torch", "numpy", "jax", "dlpack")
_COPY_BYTES = 64 << 20  # an array that is not contiguous is copied up to this size


def default_library() -> str:
    """torch where it is installed, else numpy, else raw DLPack objects. Imports none of them."""
    for name in ("torch", "numpy"):
        if name in sys.modules or importlib.util.find_spec(name) is not None:
            return name
    return "dlpack"


def taker(as_: str) -> Callable[[Any], Any]:
    """What makes the program's array of a _core.Field, without a copy."""
    if as_ == "torch":
        from torch.utils.dlpack import from_dlpack

        # A capsule in next()'s stream: from_dlpack(field) takes three times as long to find it. And
        # of a capsule, it only calls this.
        convert: Any = getattr(sys.modules["torch"]._C, "_from_dlpack", from_dlpack)
        return lambda field: convert(field.capsule())
    if as_ == "numpy":
        import numpy

        return numpy.from_dlpack
    if as_ == "jax":
        jax: Any = importlib.import_module("jax.dlpack")
        return jax.from_dlpack
    return _same


def _same(field: Any) -> Any:
    return field


def value_of(batch: Any, i: int, take: Callable[[Any], Any]) -> Any:
    """Field i of a batch: a list of str or bytes, or an array."""
    field = batch.field(i)
    if field.dtype in ("string", "bytes"):
        return field.texts()
    return take(field)


def mover(device: str | None, pinned: bool = False) -> Callable[[Any], Any] | None:
    """What copies the tensors of a Python object to the device or, as torch does, to page-locked
    memory; None: they stay."""
    if pinned:

        def pin(value: Any) -> Any:
            return value.pin_memory() if hasattr(value, "pin_memory") else value

        return lambda batch: map_leaves(batch, pin)
    if device is None or device == "cpu" or device.startswith("sim"):
        return None

    def move(value: Any) -> Any:
        return value.to(device, non_blocking=True) if hasattr(value, "to") else value

    return lambda batch: map_leaves(batch, move)


def current_stream(device: str | None) -> Callable[[], int] | None:
    """What gives torch's current CUDA stream as a number; None: batches don't go to CUDA."""
    if not device or not device.startswith("cuda"):
        return None
    import torch

    where = torch.device(device)
    raw: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    current: Any = getattr(torch._C, "_cuda_getDevice", None)

    def whole() -> int:
        return int(torch.cuda.current_stream(where).cuda_stream)

    def quick() -> int:
        """What current_stream() asks, without an object for the stream."""
        if not torch.cuda.is_initialized():
            return whole()
        return int(raw(where.index if where.index is not None else current()))

    return whole if raw is None or current is None else quick


# ---- data sets ----


class Arrays:
    """Arrays whose first dimension is the samples': what default_collate would give of them.

    dataset: of the engine, which borrows the arrays. example: sample 0, for the structure.
    """

    def __init__(self, arrays: list[Any], example: Any) -> None:
        self.dataset = _core.Dataset.arrays([(f"f{i}", array) for i, array in enumerate(arrays)])
        self.example = example


def arrays_of(dataset: Any) -> Arrays | str | None:
    """The arrays that a data set is; the reason why they can't be used; None: it is no arrays."""
    torch = sys.modules.get("torch")
    example: type | None
    if torch is not None and type(dataset) is torch.utils.data.TensorDataset:
        parts, example = list(dataset.tensors), tuple
    elif is_array(dataset):
        parts, example = [dataset], None
    elif type(dataset) is tuple and dataset and all(is_array(item) for item in dataset):
        parts, example = list(dataset), tuple
    elif isinstance(dataset, Mapping) and dataset and all(map(is_array, dataset.values())):
        parts, example = list(dataset.values()), dict
    else:
        return None
    ready = []
    for part in parts:
        array = _usable(part)
        if isinstance(array, str):
            return array
        ready.append(array)
    if len({len(array) for array in ready}) != 1:
        raise ValueError(f"arrays of different lengths: {[len(array) for array in ready]}")
    firsts = [array[0] for array in ready]
    if example is dict:
        return Arrays(ready, dict(zip(dataset, firsts, strict=True)))
    return Arrays(ready, tuple(firsts) if example is tuple else firsts[0])


def is_array(value: Any) -> bool:
    """Whether it is a numpy array or torch tensor with at least one dimension."""
    for module, name in (("numpy", "ndarray"), ("torch", "Tensor")):
        library = sys.modules.get(module)
        if library is not None and isinstance(value, getattr(library, name)):
            return bool(value.ndim >= 1)
    return False


def _usable(array: Any) -> Any:
    """The array, or a contiguous copy of a small one, or why the engine can't read it."""
    if leaf_of(array) is None:
        return f"an array of {array.dtype}, shape {tuple(array.shape)}: not in the engine's form"
    if leaf_of(array[0]) is None:
        return f"rows of {array.dtype}, shape {tuple(array.shape[1:])}, have no bytes"
    numpy_like = hasattr(array, "flags")
    contiguous = array.flags.c_contiguous if numpy_like else array.is_contiguous()
    if contiguous:
        return array
    if array.nbytes > _COPY_BYTES:
        return "the array is not C-contiguous and too large to copy"
    return array.copy() if numpy_like else array.contiguous()
