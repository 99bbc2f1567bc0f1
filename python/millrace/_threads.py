"""Recipes on the engine's threads."""

from __future__ import annotations

import contextlib
import itertools
import threading
from typing import Any

from . import _core
from ._recipe import Recipe
from ._seeding import RandomState


class Threads:
    """Runs a recipe on the engine's threads; keeps its objects, and the exceptions of samples, by
    epoch and index. A bad sample, which the engine asks for twice, is made once."""

    def __init__(self, recipe: Recipe, keep_random: bool = False) -> None:
        self.recipe = recipe
        self.keep_random = keep_random
        self.kept: dict[tuple[int, int], Any] = {}
        self._making: set[int] = set()  # threads
        self._aborted = False
        recipe.start(None)

    def fetch(
        self, epoch: int, seed: int, indices: list[int], positions: list[int], worker: int
    ) -> list[Any]:
        if len(indices) == 1 and (epoch, indices[0]) in self.kept:
            error = self.kept[epoch, indices[0]]
            if isinstance(error, BaseException):
                return [error]
        state = RandomState() if self.keep_random else None
        thread = threading.get_ident()
        self._making.add(thread)
        try:
            if self._aborted:  # looked at behind add(): abort() interrupts it, or it sees this
                raise _core.Cancelled("the loader was interrupted")
            items = self.recipe.fetch(epoch, seed, indices, positions, worker)
        finally:
            self._making.discard(thread)
            if state:
                state.restore()
        if self.recipe.objects:
            self.kept.update(zip(zip(itertools.repeat(epoch), indices), items, strict=False))
            return list(indices)
        for index, item in zip(indices, items, strict=True):
            if isinstance(item, BaseException):
                self.kept[epoch, index] = item
        return items

    def take(self, epoch: int, index: int) -> Any:
        return self.kept.pop((epoch, index))

    def error(self, epoch: int, index: int) -> BaseException | None:
        error = self.kept.get((epoch, index))
        return error if isinstance(error, BaseException) else None

    def abort(self) -> None:
        """Raises KeyboardInterrupt in the samples that are being made, which reaches them when they
        next run Python code. No others are begun."""
        self._aborted = True
        with contextlib.suppress(ImportError):  # a Python without ctypes: they are made
            import ctypes

            for thread in list(self._making):
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(thread), ctypes.py_object(KeyboardInterrupt)
                )

    def forget(self) -> None:
        self.kept.clear()
