"""What runs a recipe: the engine's threads, or a pool of worker processes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from . import _core
from ._arguments import Settings
from ._arrays import mover, taker
from ._recipe import Recipe
from ._run import Place, state_text
from ._threads import Threads

NUMBERS = 1 << 40  # of batches that are objects: more than there will be


class Maker:
    """What runs a recipe: threads, or a pool of processes. dataset: the engine's."""

    def __init__(
        self, settings: Settings, recipe: Recipe, n: int, workers: int, quiet: bool = False
    ) -> None:
        self.settings, self.pool, self.threads = settings, None, None
        if workers > 0:
            from ._processes import Pool

            copied = settings.pinned is not None or settings.device not in (None, "cpu")
            self.pool = Pool(recipe, n, workers=workers, context=settings.context, quiet=quiet,
                             copied=copied)
            self.dataset: _core.Dataset = self.pool.dataset
            return
        seeded = bool(getattr(recipe, "seeded", False))
        self.threads = Threads(recipe, keep_random=seeded)
        self.dataset = _core.Dataset.python(n, recipe.fields, self.threads.fetch)

    pool: Any
    threads: Threads | None
    users = 0  # runs that are open

    def leave(self) -> None:
        """A run is closed: what it did not take is freed, once no other one can want it."""
        self.users -= 1
        if self.users == 0 and self.threads is not None:
            self.threads.forget()
        elif self.users == 0:
            self.pool.drop()

    def abort(self) -> None:
        """Ends worker processes, also while they make samples; interrupts those of threads."""
        if self.pool is not None:
            self.pool.abort()
        elif self.threads is not None:
            self.threads.abort()

    @property
    def replaced(self) -> int:
        """Worker processes that ended and were replaced."""
        return self.pool.replaced if self.pool is not None else 0

    def take(self, epoch: int, number: int, batch: _core.Batch) -> Any:
        if self.threads is not None:
            return self.threads.take(epoch, number)
        return self.pool.take(int(_first(self.settings.as_)(batch.field(0))[0]))

    def error(self, epoch: int, index: int) -> BaseException | None:
        owner = self.threads if self.threads is not None else self.pool
        return owner.error(epoch, index)

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):  # in use: it closes itself behind its last loader
            (self.pool or self.dataset).close()


def _first(as_: str) -> Callable[[Any], Any]:
    return taker(as_ if as_ == "torch" else "numpy")


def processes(settings: Settings) -> int:
    """Worker processes; 0: threads."""
    return 0 if settings.context == "threads" else settings.num_workers


def moved(s: Settings, take: Callable[..., Any]) -> Callable[..., Any]:
    """take, with the tensors of its batch copied to the loader's device."""
    move = mover(s.device, s.pinned is not None)
    if move is None:
        return take

    def take_and_move(epoch: int, number: int, batch: _core.Batch) -> Any:
        made = take(epoch, number, batch)
        return made if isinstance(made, BaseException) else made._replace(value=move(made.value))

    return take_and_move


def open_ticket_engine(
    s: Settings, maker: Maker, epoch: int, first: int, in_order: bool, options: dict[str, Any]
) -> _core.Loader:
    """An engine that hands out the numbers of batches from `first` on, without an end."""
    sampler = _core.Sampler("sequential", NUMBERS)
    at = Place(epoch, first)
    state = state_text(maker.dataset, sampler, s.seed, at, 1, 1) if epoch or first else None
    options = {**options, "seed": s.seed, "epochs": 0, "batch_size": 1, "in_order": in_order}
    options["prefetch"] = options.get("prefetch") or max(2, 2 * options["workers"])
    if state:
        options["force_state"] = True
    maker.users += 1  # before its threads make something, which leave() of another run would free
    try:
        return _core.Loader(maker.dataset, sampler=sampler, options=options, state=state)
    except BaseException:
        maker.leave()
        raise


