"""The epoch of the samples that a thread makes, which __getitem__ is not told, and data sets that
need it because they replace the program's."""

from __future__ import annotations

import threading
from typing import Any


class _Now(threading.local):
    epoch = 0


_now = _Now()


def begin_epoch(number: int) -> None:
    """Samples that this thread makes from now on are of this epoch."""
    _now.epoch = number


def epoch() -> int:
    """The epoch of the sample that this thread makes; 0: it makes none."""
    return _now.epoch


class StandIn:
    """A data set that a loader uses in the place of the program's, which is `original`."""

    def __init__(self, original: Any) -> None:
        self.original = original

    def __len__(self) -> int:
        return len(self.original)

    def __getitem__(self, index: Any) -> Any:
        return self.original[index]

    def describe(self) -> list[str]:
        """Lines of explain()."""
        return []


def original_of(dataset: Any) -> Any:
    """The program's data set."""
    return dataset.original if isinstance(dataset, StandIn) else dataset
