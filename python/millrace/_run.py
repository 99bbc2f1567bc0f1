"""One engine at work: batches of the data set from a place in an epoch on."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from . import _core
from ._samplers import CHUNK, Drawn
from .stats import BadSample

END: Any = type("End", (), {"__repr__": lambda self: "END"})()


def parse_sample(error: BaseException) -> int | None:
    """The index of the sample that an error of the engine names."""
    found = re.search(r"\bsample (\d+)", str(error))
    return int(found.group(1)) if found else None


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
    def close(self, wait: float | None = None) -> None:
        """Returns when no sample is being made any more, or after `wait` seconds."""
        ...


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
    endless: the engine goes on with the next epoch by itself. tell: adds what is known of a bad
    sample.
    """

    tell: Callable[[BadSample], BadSample] | None = None

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
        found = [] if self._closed else [BadSample(*item) for item in self.engine.bad()]
        return found if self.tell is None else [self.tell(item) for item in found]

    def close(self, wait: float | None = None) -> None:
        self._early, self._closed = None, True
        self.engine.close(wait)


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

    def close(self, wait: float | None = None) -> None:
        if self.inner is not None:
            with contextlib.suppress(ValueError):  # another thread has closed the engine
                self._earlier_bad += self.inner.bad()
            self.inner.close(wait)
            self.inner = None
