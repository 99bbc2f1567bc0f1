"""One engine at work: batches of the data set from a place in an epoch on."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from . import _core
from ._recipe import BadItem, Made
from ._samplers import CHUNK, Drawn
from .stats import BadSample

END: Any = type("End", (), {"__repr__": lambda self: "END"})()


class Place(NamedTuple):
    """A place in the order: `position` samples of epoch `epoch` are done, all ranks together; of a
    batch sampler: batches. engine: the engine's own state, or None."""

    epoch: int
    position: int
    engine: str | None = None
    random: Any = None
    data: Any = None


class Run(Protocol):
    """Hands out the batches of an epoch, then END."""

    def next(self, timeout: float | None) -> Any: ...
    def begin(self, epoch: int) -> bool:
        """Goes on with this epoch, if it is the one that comes next anyway."""
        ...

    def place(self) -> Place: ...
    def stats(self) -> dict[str, Any]: ...
    def bad(self) -> list[BadSample]: ...
    def close(self) -> None: ...


def state_text(
    dataset: _core.Dataset, sampler: Any, seed: int, at: Place, batch_size: int, world: int
) -> str:
    """A state for the engine that continues at a place (with force_state: any chain)."""
    state = {
        "millrace_state": 1,
        "dataset": f"{dataset.fingerprint:016x}",
        "sampler": sampler.text,
        "chain": "",
        "seed": str(seed),
        "samples": sampler.length,
        "epoch": at.epoch,
        "position": at.position,
        "next_batch": at.position // world // batch_size,
        "batch_size": batch_size,
        "world": world,
        "bad_samples": 0,
    }
    return json.dumps(state)


class EngineRun:
    """Batches that the engine makes of samples.

    convert: makes the program's batch of a _core.Batch. stream: see _arrays.current_stream().
    endless: the engine goes on with the next epoch by itself.
    """

    def __init__(
        self,
        engine: _core.Loader,
        at: Place,
        convert: Callable[[_core.Batch], Any],
        stream: Callable[[], int] | None,
        endless: bool,
    ) -> None:
        self.engine, self.convert, self.stream, self.endless = engine, convert, stream, endless
        self.epoch, self._over, self._closed = at.epoch, False, False
        self._early: _core.Batch | None = None  # of the next epoch

    def next(self, timeout: float | None) -> Any:
        if self._over:
            return END
        batch = self._early or self.engine.next(
            self.stream() if self.stream is not None else None, timeout
        )
        self._early = None
        if batch is None:
            self._over = True
            return END
        if batch.epoch != self.epoch:
            self._early, self._over = batch, True
            return END
        self._over = batch.last
        return self.convert(batch)

    def begin(self, epoch: int) -> bool:
        if not (self._over and self.endless and epoch == self.epoch + 1):
            return False
        self.epoch, self._over = epoch, False
        return True

    def place(self) -> Place:
        text = self.engine.state()
        state = json.loads(text)
        if self._early is not None:
            return Place(self.epoch + 1, 0)
        return Place(int(state["epoch"]), int(state["position"]), text)

    def stats(self) -> dict[str, Any]:
        return dict(self.engine.stats())

    def bad(self) -> list[BadSample]:
        return [] if self._closed else [BadSample(*item) for item in self.engine.bad()]

    def close(self) -> None:
        self._early, self._closed = None, True
        self.engine.close()


class ListedRun:
    """Batches in the order of a sampler object, which is asked for each epoch.

    open_list: opens a run over a list of indices, or of batches of them. unit: list items that all
    ranks' next batch takes; batch_size * world, or world for a batch sampler.
    """

    def __init__(
        self, sampler: Any, open_list: Callable[[int, list[Any]], Run], unit: int, at: Place
    ) -> None:
        self.drawn = Drawn(sampler, at.position, at.random)
        self.open_list, self.unit, self.epoch = open_list, unit, at.epoch
        self.position, self.inner = at.position, None
        self._earlier_bad: list[BadSample] = []

    inner: Run | None

    def next(self, timeout: float | None) -> Any:
        while True:
            if self.inner is None:
                items = self.drawn.next(CHUNK * self.unit)
                if not items:
                    return END
                self.inner = self.open_list(self.epoch, items)
            value = self.inner.next(timeout)
            if value is not END:
                self.position += self.unit
                return value
            self._earlier_bad += self.inner.bad()
            self.inner.close()
            self.inner = None

    def begin(self, epoch: int) -> bool:
        return False

    def place(self) -> Place:
        return Place(self.epoch, self.position, None, self.drawn.random)

    def stats(self) -> dict[str, Any]:
        return self.inner.stats() if self.inner is not None else {}

    def bad(self) -> list[BadSample]:
        return self._earlier_bad + (self.inner.bad() if self.inner is not None else [])

    def close(self) -> None:
        if self.inner is not None:
            with contextlib.suppress(ValueError):  # another thread has closed the engine
                self._earlier_bad += self.inner.bad()
            self.inner.close()
            self.inner = None


class ObjectRun:
    """Batches that are Python objects, which the engine only orders.

    engine: over the batches' numbers. take(epoch, number, batch): the object. n: batches of the
    epoch, if known. leave(): called once, when the engine is closed. unit: samples of all ranks
    that a batch stands for; start: before batch 0. max_bad: more bad samples end the run.
    """

    def __init__(
        self,
        engine: _core.Loader,
        at: Place,
        take: Callable[[int, int, _core.Batch], Any],
        leave: Callable[[], None],
        *,
        first: int = 0,
        n: int | None = None,
        unit: int = 1,
        start: int = 0,
        max_bad: float | None = None,
    ) -> None:
        self.engine, self.epoch, self.take, self.leave = engine, at.epoch, take, leave
        self.done, self.n, self.unit, self.start = first, n, unit, start
        self.max_bad, self.data, self._bad = max_bad, None, []

    _bad: list[BadSample]
    data: Any

    def next(self, timeout: float | None) -> Any:
        while self.n is None or self.done < self.n:
            batch = self.engine.next(None, timeout)
            assert batch is not None, "an endless engine has ended"
            number = int(batch.indices[0])
            made = self.take(self.epoch, number, batch)
            batch.release()
            if isinstance(made, BaseException):
                self.done += 1
                raise made
            if made.end:
                self.n = self.done
                break
            self.done += 1
            self._note(made)
            if made.n > 0:
                return made.value
        return END

    def _note(self, made: Made) -> None:
        if made.state is not None:
            self.data = made.state
        for item in made.bad:
            self._bad.append(self._bad_sample(item))
        if self.max_bad is not None and len(self._bad) > self.max_bad:
            last = self._bad[-1]
            raise _core.BadSamples(
                f"{len(self._bad)} bad samples, max_bad allows {self.max_bad}; the last one is "
                f"sample {last.index}: {last.reason}"
            ) from last.error

    def _bad_sample(self, item: BadItem) -> BadSample:
        reason = f"{type(item.error).__name__}: {item.error}"
        return BadSample(item.key, self.epoch, self.done - 1, "", 0, reason, item.error)

    def begin(self, epoch: int) -> bool:
        return False

    def place(self) -> Place:
        return Place(self.epoch, self.start + self.done * self.unit, data=self.data)

    def stats(self) -> dict[str, Any]:
        return dict(self.engine.stats())

    def bad(self) -> list[BadSample]:
        return list(self._bad)

    def close(self) -> None:
        self.engine.close()
        leave, self.leave = self.leave, _nothing
        leave()


def _nothing() -> None:
    pass


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

    def close(self) -> None:
        for run in self.runs:
            run.close()


