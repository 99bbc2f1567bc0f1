"""What makes samples, on the engine's threads or in worker processes: picklable objects.

Rows makes samples whose leaves the engine stacks. Batches makes whole batches, for collate_fn and
for samples that are no tensors; _recipe_stream.Stream makes the batches of an iterable data set.
The last two give objects: the engine only orders them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ._bad import BadItem, file_of
from ._place import begin_epoch
from ._seeding import mix, seed_all
from ._structure import Structure
from ._where import Failed

if TYPE_CHECKING:
    from ._samplers import LeftOut, Plan

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


class Made(NamedTuple):
    """A batch of objects mode. end: there is none, the epoch is over."""

    value: Any = None
    n: int = 0
    bad: tuple[BadItem, ...] = ()
    end: bool = False
    state: Any = None


class Start:
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

    @staticmethod
    def as_one_of(info: Any, worker: int, workers: int) -> Any:
        """Tells the program that this process, the only one of its pool, is one of several."""
        from . import _worker

        info = info._replace(id=worker, num_workers=workers)
        _worker._info = info
        _worker._tell_torch(info)
        return info


class Rows(Start):
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
        dataset = self.dataset
        begin_epoch(epoch)
        if self.seeded:
            return [self._one(epoch, index) for index in indices]
        try:
            if getitems_of(dataset):
                return self.structure.flatten_all(list(dataset.__getitems__(indices)))
            return self.structure.flatten_all([dataset[index] for index in indices])
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


def _nothing(number: int, place: int) -> None:
    pass


class _At:
    """Which sample of a batch is being made; noted for when the process dies over it. -1: all."""

    def __init__(self, note: Callable[[int, int], None], number: int) -> None:
        self.note, self.number, self.place = note, number, -1

    def __call__(self, place: int) -> None:
        self.place = place
        self.note(self.number, place)


def _named(keys: Sequence[Any] | None, number: int, place: int) -> tuple[Any, str]:
    """A sample of a batch, and what it is called; see Where."""
    if keys is None:
        return None, f"batch {number}"
    if place >= 0:
        return keys[place], ""
    return list(keys), ""


class Batches(Start):
    """Whole batches of a map-style set. collate None: batch_size is None, one converted sample."""

    objects = True
    fields: Sequence[Any] = TICKET
    note: Callable[[int, int], None] = staticmethod(_nothing)  # of a worker process: see _At

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
        left_out: LeftOut,
        worker_init_fn: Callable[[int], None] | None = None,
    ) -> None:
        self.dataset, self.plan, self.collate = dataset, plan, collate
        self.left_out = left_out
        self.alone, self.bad = alone, bad
        self.seeded, self.seed = seeded, seed
        self.worker_init_fn = worker_init_fn

    def fetch(
        self, epoch: int, seed: int, indices: list[int], positions: list[int], worker: int
    ) -> list[Any]:
        del seed, positions, worker
        begin_epoch(epoch)
        return [self._make(epoch, number) for number in indices]

    def _make(self, epoch: int, number: int) -> Any:
        keys: Sequence[Any] | None = None
        at = _At(self.note, number)
        try:
            keys = self.plan.batch(epoch, number)
            if keys is None:
                return Made(end=True)
            lost = self.left_out.places(epoch, number)
            if self.bad == "fail" and not (self.seeded or self.alone) and getitems_of(self.dataset):
                samples: Sequence[Any] = self.dataset.__getitems__(keys)
                return Made(self.collate(samples), len(keys))
            return self._collated(epoch, keys, lost, at)
        except Exception as error:
            return Failed(error, *_named(keys, number, at.place))

    def _collated(self, epoch: int, keys: Sequence[Any], lost: set[int], at: _At) -> Made:
        samples: list[Any] = []
        bad: list[BadItem] = []
        for place, key in enumerate(keys):
            if place in lost:
                continue
            at(place)
            try:
                self._seed(epoch, key)
                samples.append(self._sample(key))
            except Exception as error:
                if self.bad == "fail":
                    raise
                bad.append(BadItem(key, error, file_of(self.dataset, key, error), epoch))
        at(-1)
        n_missing = len(keys) - len(samples)
        if self.bad == "replace" and samples:
            samples += list(itertools.islice(itertools.cycle(samples), n_missing))
        if not samples:
            return Made(None, 0, tuple(bad))
        value = samples[0] if self.alone else self.collate(samples)
        return Made(value, len(samples), tuple(bad))

    def _sample(self, key: Any) -> Any:
        """One sample; alone: as a batch, since what is converted is one sample."""
        if self.alone:
            return self.collate(self.dataset[key])
        return sample_of(self.dataset, key)

    def where(self, epoch: int, number: int, step: int) -> tuple[Any, str]:
        """The sample that a worker was at; see Where."""
        return _named(self.plan.batch(epoch, number), number, step)

    def _seed(self, epoch: int, key: Any) -> None:
        if self.seeded:
            seed_all(mix(self.seed, epoch, key if isinstance(key, int) else hash(key)))
