"""Recipes on the engine's threads."""

from __future__ import annotations

import itertools
from typing import Any

from ._recipe import Recipe
from ._seeding import RandomState


class Threads:
    """Runs a recipe on the engine's threads; keeps its objects, and the exceptions of samples, by
    epoch and index. A bad sample, which the engine asks for twice, is made once."""

    def __init__(self, recipe: Recipe, keep_random: bool = False) -> None:
        self.recipe = recipe
        self.keep_random = keep_random
        self.kept: dict[tuple[int, int], Any] = {}
        recipe.start(None)

    def fetch(
        self, epoch: int, seed: int, indices: list[int], positions: list[int], worker: int
    ) -> list[Any]:
        if len(indices) == 1 and (epoch, indices[0]) in self.kept:
            error = self.kept[epoch, indices[0]]
            if isinstance(error, BaseException):
                return [error]
        state = RandomState() if self.keep_random else None
        try:
            items = self.recipe.fetch(epoch, seed, indices, positions, worker)
        finally:
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

    def forget(self) -> None:
        self.kept.clear()
