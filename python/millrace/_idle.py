"""Runs that give nothing."""

from __future__ import annotations

from typing import Any

from ._run import END, Place
from .stats import BadSample


class EmptyRun:
    """The run of a data set without samples."""

    endless = False

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def next(self, timeout: float | None) -> Any:
        return END

    def begin(self, epoch: int) -> bool:
        return False

    def place(self) -> Place:
        return Place(self.epoch, 0)

    def stats(self) -> dict[str, Any]:
        return {}

    def bad(self) -> list[BadSample]:
        return []

    def close(self, wait: float | None = None) -> None:
        pass


class ClosedRun:
    """The run of an iterator whose loader was closed."""

    def next(self, timeout: float | None) -> Any:
        raise ValueError("the loader is closed")

    def begin(self, epoch: int) -> bool:
        return False

    def place(self) -> Place:
        raise ValueError("the loader is closed")

    def stats(self) -> dict[str, Any]:
        return {}

    def bad(self) -> list[Any]:
        return []

    def close(self, wait: float | None = None) -> None:
        pass
