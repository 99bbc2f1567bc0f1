"""Samples that batches made by Python are made without."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from . import _where
from ._place import original_of


class BadItem(NamedTuple):
    """A bad sample that a batch was made without. It travels with its traceback."""

    key: Any
    error: BaseException
    file: str = ""
    epoch: int = 0

    def __reduce__(self) -> tuple[Any, ...]:
        from ._worker import get_worker_info

        info = get_worker_info()
        worker = info.id if info is not None else 0
        packed = _where.pack(self.error, self.key, "", self.epoch, worker)
        return _load, (self.key, packed, self.file, self.epoch)


def _load(key: Any, packed: tuple[Any, ...], file: str, epoch: int) -> BadItem:
    return BadItem(key, _where.unpack(packed), file, epoch)


def file_of(dataset: Any, key: Any, error: BaseException | None) -> str:
    """The file that a sample is in: the one that the error names, or the one in the list `samples`
    of a data set like torchvision's DatasetFolder. "": unknown."""
    name = getattr(error, "filename", None) if isinstance(error, OSError) else None
    if isinstance(name, str | os.PathLike):
        return os.fspath(name)
    dataset = original_of(dataset)
    try:
        while hasattr(dataset, "indices") and hasattr(dataset, "dataset"):  # torch's Subset
            dataset, key = dataset.dataset, dataset.indices[key]
        entry = getattr(dataset, "samples", None)[key]  # type: ignore[index]
        return entry[0] if isinstance(entry, tuple) and isinstance(entry[0], str) else ""
    except Exception:  # another kind of data set
        return ""
