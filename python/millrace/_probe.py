"""What some samples tell: their structure, and whether they draw random numbers.

With worker processes a worker makes them: a sample may open files, start threads or end its
process, and the program's own is not the place for that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from . import _core
from ._arguments import Settings
from ._maker import Maker, processes
from ._recipe import TICKET, Start, sample_of
from ._seeding import kept_random_state
from ._structure import Structure, merged
from .errors import LoaderTimeout, SampleMismatch


class _Seen(NamedTuple):
    structure: Structure | str | None  # str: why there is none
    drew: bool


class Found(NamedTuple):
    """structure: that all samples have; else why says what is in the way."""

    structure: Structure | None
    drew: bool
    why: str


class _Probe(Start):
    """The recipe. structured: whether the samples' structure is wanted."""

    objects = True
    fields: Sequence[Any] = TICKET

    def __init__(
        self,
        dataset: Any,
        keys: list[Any],
        structured: bool,
        seed: int,
        workers: int,
        worker_init_fn: Callable[[int], None] | None,
    ) -> None:
        self.dataset, self.keys, self.structured = dataset, keys, structured
        self.seed, self.workers, self.worker_init_fn = seed, workers, worker_init_fn

    def start(self, info: Any) -> None:
        super().start(self.as_one_of(info, info.id, self.workers))

    def fetch(
        self, epoch: int, seed: int, indices: list[int], positions: list[int], worker: int
    ) -> list[Any]:
        del epoch, seed, positions, worker
        return [self.look(index) for index in indices]

    def look(self, index: int) -> _Seen | Exception:
        with kept_random_state() as state:
            try:
                sample = sample_of(self.dataset, self.keys[index])
            except Exception as error:
                return error
            drew = not state.unchanged()
        if not self.structured:
            return _Seen(None, drew)
        try:
            return _Seen(Structure(sample), drew)
        except SampleMismatch as error:
            return _Seen(str(error), drew)

    def where(self, epoch: int, index: int, step: int) -> tuple[Any, str]:
        del epoch, step
        return self.keys[index], ""


def look(settings: Settings, dataset: Any, keys: list[Any], structured: bool) -> Found:
    """Makes the samples of some keys. Those that fail are left to the loop, which tells why."""
    s, workers = settings, processes(settings)
    probe = _Probe(dataset, keys, structured, s.seed, workers, s.worker_init_fn)
    results = _in_worker(s, probe) if workers else [probe.look(k) for k in range(len(keys))]
    seen = [result for result in results if isinstance(result, _Seen)]
    drew = any(one.drew for one in seen)
    if not structured:
        return Found(None, drew, "")
    if not seen:
        return Found(None, drew, f"sample {keys[0]!r}: {results[0]}" if results else "no samples")
    found = merged([one.structure for one in seen if one.structure is not None])
    return Found(None, drew, found) if isinstance(found, str) else Found(found, drew, "")


def _in_worker(s: Settings, probe: _Probe) -> list[Any]:
    n = len(probe.keys)
    maker = Maker(s, probe, n, 1, quiet=True)
    options = {"batch_size": 1, "workers": 1, "epochs": 1, "bad": "skip"}
    engine = None
    try:
        order = _core.Sampler("sequential", n)
        engine = _core.Loader(maker.dataset, sampler=order, options=options)
        results = _take(engine, maker, s.timeout)
        return [results.get(k, maker.error(0, k)) for k in range(n)]
    except TimeoutError as error:
        maker.abort()
        raise LoaderTimeout(f"DataLoader timed out after {s.timeout:g} seconds: {error}") from None
    except BaseException:
        maker.abort()
        raise
    finally:
        if engine is not None:
            engine.close()
        maker.close()


def _take(engine: _core.Loader, maker: Maker, timeout: float) -> dict[int, Any]:
    results: dict[int, Any] = {}
    while (batch := _next(engine, timeout)) is not None:
        index = int(batch.indices[0])
        try:
            results[index] = maker.take(0, index, batch)
        except Exception as error:  # a structure that can't be unpickled here
            results[index] = error
        batch.release()
    return results


def _next(engine: _core.Loader, timeout: float) -> _core.Batch | None:
    try:
        return engine.next(None, timeout or None)
    except _core.BadSamples:  # not one of them is good
        return None
