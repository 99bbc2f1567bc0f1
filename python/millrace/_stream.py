"""Iterable data sets."""

from __future__ import annotations

from typing import Any

from . import _core
from ._arguments import Settings
from ._collate import default_collate, default_convert
from ._maker import NUMBERS, Maker, moved, open_ticket_engine, processes
from ._recipe_stream import Stream
from ._objects import ObjectRun
from ._run import END, Place, Run, parse_sample
from .stats import BadSample


class StreamSource:
    """An iterable data set: each worker iterates its copy."""

    mode = "objects"
    n: int | None = None

    def __init__(self, settings: Settings, dataset: Any, collate_fn: Any, why: list[str]) -> None:
        self.settings, self.python, self.why = settings, dataset, why
        self.path = "python-processes" if processes(settings) else "python-threads"
        alone = settings.alone
        default = default_convert if alone else default_collate
        self.collate = collate_fn or default(settings.as_)
        if settings.transform:
            raise ValueError("transform= is for native and map-style sets, not for iterable ones")
        self.makers: list[Maker] = []
        self._replaced = 0  # by makers that were closed

    def open(self, at: Place, epochs: int) -> Run:
        s = self.settings
        workers = processes(s)
        n = max(workers, 1)
        data = at.data or {"done": [0] * n, "turn": 0, "states": [None] * n}
        if len(data["done"]) != n:
            raise ValueError(
                f"the state was made with {len(data['done'])} workers, this loader has {n}; each "
                "worker iterates its own copy of an iterable set, so the number can't change"
            )
        if at.data or workers == 0:  # threads: iterators share nothing
            self.close()
        if not self.makers:
            for w in range(n):
                resume = (at.epoch, data["done"][w], data["states"][w])
                recipe = self._recipe(w, n, resume if data["states"][w] is not None else None)
                self.makers.append(Maker(s, recipe, NUMBERS, min(workers, 1)))
        pairs = zip(self.makers, data["done"], strict=True)
        runs = [self._run(maker, at, done) for maker, done in pairs]
        return StreamRun(runs, at, data["turn"])

    def _run(self, maker: Maker, at: Place, done: int) -> ObjectRun:
        s = self.settings
        options = {"workers": 1, "prefetch": s.prefetch_factor or 2}

        def opener(first: int) -> _core.Loader:
            return open_ticket_engine(s, maker, at.epoch, first, True, options)

        return ObjectRun(opener, at, moved(s, maker.take), maker.leave, first=done)

    def _recipe(self, worker: int, workers: int, resume: Any) -> Stream:
        s = self.settings
        return Stream(
            self.python,
            self.collate,
            batch_size=s.batch_size,
            drop_last=s.drop_last,
            rank=s.rank,
            world=s.world,
            remainder=s.remainder,
            seed=s.seed,
            worker=worker,
            workers=workers,
            resume=resume,
            worker_init_fn=s.worker_init_fn,
        )

    def switch(self, error: BaseException) -> bool:
        return False

    def error(self, error: BaseException, epoch: int) -> BaseException | None:
        index = parse_sample(error)
        found = (maker.error(epoch, index) for maker in self.makers if index is not None)
        return next((error for error in found if error is not None), None)

    def describe(self) -> list[str]:
        kind = f"{type(self.python).__module__}.{type(self.python).__qualname__}"
        return [f"data set: {kind}, iterable: each worker iterates its own copy"]

    def abort(self) -> None:
        for maker in self.makers:
            maker.abort()

    def replaced(self) -> int:
        return self._replaced + sum(maker.replaced for maker in self.makers)

    def close(self) -> None:
        self._replaced = self.replaced()
        for maker in self.makers:
            maker.close()
        self.makers = []


class StreamRun:
    """An iterable set: a run for each worker, taken in turn until all are at their end."""

    def __init__(self, runs: list[ObjectRun], at: Place, turn: int = 0) -> None:
        self.runs, self.epoch, self.turn = runs, at.epoch, turn
        self._live = [True] * len(runs)

    def next(self, timeout: float | None) -> Any:
        while any(self._live):
            worker = self.turn % len(self.runs)
            self.turn += 1
            if not self._live[worker]:
                continue
            value = self.runs[worker].next(timeout)
            if value is not END:
                return value
            self._live[worker] = False
        return END

    def begin(self, epoch: int) -> bool:
        return False

    def place(self) -> Place:
        done = [run.done for run in self.runs]
        data = {
            "done": done,
            "turn": self.turn % len(self.runs),
            "states": [run.data for run in self.runs],
        }
        return Place(self.epoch, sum(done), data=data)

    def stats(self) -> dict[str, Any]:
        return self.runs[0].stats()

    def bad(self) -> list[BadSample]:
        return [item for run in self.runs for item in run.bad()]

    def close(self, wait: float | None = None) -> None:
        for run in self.runs:
            run.close(wait)


