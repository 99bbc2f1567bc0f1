"""What makes samples, on the engine's threads or in worker processes: picklable objects.

Rows makes samples whose leaves the engine stacks. Batches makes whole batches, for collate_fn and
for samples that are no tensors; Stream makes the batches of an iterable data set. The last two give
objects: the engine only orders them.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ._seeding import mix, seed_all
from ._structure import Structure

if TYPE_CHECKING:
    from ._samplers import Plan

TICKET = [("ticket", "u64", ())]


class Recipe(Protocol):
    """fields: of a row. objects: fetch gives Python objects instead of rows."""

    fields: Sequence[Any]
    objects: bool

    def start(self, info: Any) -> None:
        """Called once in each worker process with its WorkerInfo; with threads once, with None."""

    def fetch(
        self, epoch: int, seed: int, indices: list[int], positions: list[int], worker: int
    ) -> list[Any]:
        """One item for each index: a row, an object, or an Exception for a bad sample."""
        ...


class BadItem(NamedTuple):
    """A bad sample that a batch was made without."""

    key: object
    error: BaseException


class Made(NamedTuple):
    """A batch of objects mode. end: there is none, the epoch is over."""

    value: Any = None
    n: int = 0
    bad: tuple[BadItem, ...] = ()
    end: bool = False
    state: Any = None


class _Start:
    """What every recipe does first in a worker process."""

    dataset: Any
    worker_init_fn: Callable[[int], None] | None
    seed: int

    def start(self, info: Any) -> None:
        if info is None:
            return
        seed_all(mix(self.seed, info.id))
        if self.worker_init_fn is not None:
            self.worker_init_fn(info.id)


class Rows(_Start):
    """Samples of fixed shapes."""

    objects = False

    def __init__(
        self,
        dataset: Any,
        structure: Structure,
        *,
        seeded: bool,
        seed: int,
        worker_init_fn: Callable[[int], None] | None = None,
    ) -> None:
        self.dataset = dataset
        self.structure = structure
        self.fields: Sequence[Any] = list(structure.leaves)
        self.seeded = seeded
        self.seed = seed
        self.worker_init_fn = worker_init_fn

    def fetch(
        self, epoch: int, seed: int, indices: list[int], positions: list[int], worker: int
    ) -> list[Any]:
        del seed, positions, worker
        dataset, flatten = self.dataset, self.structure.flatten
        if self.seeded:
            return [self._one(epoch, index) for index in indices]
        try:
            if getitems_of(dataset):
                return [flatten(sample) for sample in dataset.__getitems__(indices)]
            return [flatten(dataset[index]) for index in indices]
        except Exception as error:
            if len(indices) == 1:
                return [error]
            return [self._one(epoch, index) for index in indices]

    def _one(self, epoch: int, index: int) -> Any:
        if self.seeded:
            seed_all(mix(self.seed, epoch, index))
        try:
            return self.structure.flatten(sample_of(self.dataset, index))
        except Exception as error:
            return error


def getitems_of(dataset: Any) -> Any:
    return getattr(dataset, "__getitems__", None)


def sample_of(dataset: Any, key: Any) -> Any:
    """One sample: by __getitems__ where the set has it, as torch does."""
    return dataset.__getitems__([key])[0] if getitems_of(dataset) else dataset[key]


class Batches(_Start):
    """Whole batches of a map-style set. collate None: batch_size is None, one converted sample."""

    objects = True
    fields: Sequence[Any] = TICKET

    def __init__(
        self,
        dataset: Any,
        plan: Plan,
        collate: Callable[[Any], Any],
        *,
        alone: bool,
        bad: str,
        seeded: bool,
        seed: int,
        worker_init_fn: Callable[[int], None] | None = None,
    ) -> None:
        self.dataset, self.plan, self.collate = dataset, plan, collate
        self.alone, self.bad = alone, bad
        self.seeded, self.seed = seeded, seed
        self.worker_init_fn = worker_init_fn

    def fetch(
        self, epoch: int, seed: int, indices: list[int], positions: list[int], worker: int
    ) -> list[Any]:
        del seed, positions, worker
        return [self._make(epoch, number) for number in indices]

    def _make(self, epoch: int, number: int) -> Any:
        try:
            keys = self.plan.batch(epoch, number)
            if keys is None:
                return Made(end=True)
            if self.alone:
                return self._alone(epoch, keys[0])
            if self.bad == "fail" and not self.seeded and getitems_of(self.dataset):
                samples: Sequence[Any] = self.dataset.__getitems__(keys)
                return Made(self.collate(samples), len(keys))
            return self._collated(epoch, keys)
        except Exception as error:
            return error

    def _alone(self, epoch: int, key: Any) -> Made:
        try:
            self._seed(epoch, key)
            return Made(self.collate(self.dataset[key]), 1)
        except Exception as error:
            if self.bad == "fail":
                raise
            return Made(None, 0, (BadItem(key, error),))

    def _collated(self, epoch: int, keys: Sequence[Any]) -> Made:
        samples: list[Any] = []
        bad: list[BadItem] = []
        for key in keys:
            try:
                self._seed(epoch, key)
                samples.append(sample_of(self.dataset, key))
            except Exception as error:
                if self.bad == "fail":
                    raise
                bad.append(BadItem(key, error))
        if self.bad == "replace" and samples:
            samples += list(itertools.islice(itertools.cycle(samples), len(bad)))
        return Made(self.collate(samples) if samples else None, len(samples), tuple(bad))

    def _seed(self, epoch: int, key: Any) -> None:
        if self.seeded:
            seed_all(mix(self.seed, epoch, key if isinstance(key, int) else hash(key)))


class Stream(_Start):
    """The batches of an iterable set. Batch b of an epoch is the b-th one of a pass: who asks for a
    later one, after a resume or a worker's death, gets it by reading up to it."""

    objects = True
    fields: Sequence[Any] = TICKET

    def __init__(
        self,
        dataset: Any,
        collate: Callable[[Any], Any],
        *,
        batch_size: int | None,
        drop_last: bool,
        rank: int,
        world: int,
        remainder: str,
        seed: int,
        worker: int = 0,
        workers: int = 1,
        resume: tuple[int, int, Any] | None = None,
        worker_init_fn: Callable[[int], None] | None = None,
    ) -> None:
        self.dataset, self.collate = dataset, collate
        self.batch_size, self.drop_last = batch_size, drop_last
        self.rank, self.world, self.remainder = rank, world, remainder
        self.seed, self.resume = seed, resume
        self.worker, self.workers = worker, workers
        self.worker_init_fn = worker_init_fn
        self._place: tuple[int, int] = (-1, 0)
        self._samples: Iterator[Any] = iter(())
        self._lock: Any = None

    def start(self, info: Any) -> None:
        if info is not None:
            from . import _worker  # this process is the only one of its pool: say its number

            info = info._replace(id=self.worker, num_workers=self.workers)
            _worker._info = info
            _worker._tell_torch(info)
        super().start(info)
        self._lock = threading.Lock()

    def fetch(
        self, epoch: int, seed: int, indices: list[int], positions: list[int], worker: int
    ) -> list[Any]:
        del seed, positions, worker
        with self._lock:
            return [self._make(epoch, number) for number in indices]

    def _make(self, epoch: int, number: int) -> Any:
        try:
            self._go_to(epoch, number)
            samples = self._read()
            full = len(samples) == (self.batch_size or 1)
            if not samples or (self.drop_last and not full):
                self._samples = iter(())
                return Made(end=True)
            value = self.collate(samples if self.batch_size is not None else samples[0])
            return Made(value, len(samples), state=self._state())
        except Exception as error:
            return error

    def _go_to(self, epoch: int, number: int) -> None:
        if self._place[0] != epoch or self._place[1] > number:
            self._begin(epoch, number)
        while self._place[1] < number:
            self._read()

    def _begin(self, epoch: int, number: int) -> None:
        at = 0
        if self.resume and self.resume[0] == epoch and self.resume[1] <= number:
            at = self.resume[1]
            self.dataset.load_state_dict(self.resume[2])
        elif hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(epoch)
        self._samples = shard(iter(self.dataset), self.rank, self.world, self.remainder)
        self._place = (epoch, at)

    def _read(self) -> list[Any]:
        self._place = (self._place[0], self._place[1] + 1)
        return list(itertools.islice(self._samples, self.batch_size or 1))

    def _state(self) -> Any:
        set_ = self.dataset
        if not (hasattr(set_, "state_dict") and hasattr(set_, "load_state_dict")):
            return None
        return set_.state_dict()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_samples": iter(()), "_place": (-1, 0), "_lock": None}


def shard(samples: Iterator[Any], rank: int, world: int, remainder: str) -> Iterator[Any]:
    """Every world-th sample, the same number on each rank."""
    if world == 1:
        return samples
    return _every(samples, rank, world, remainder)


def _every(samples: Iterator[Any], rank: int, world: int, remainder: str) -> Iterator[Any]:
    while group := list(itertools.islice(samples, world)):
        if len(group) == world:
            yield group[rank]
        elif remainder == "pad":
            yield group[rank % len(group)]
