"""What makes the batches of an iterable data set; see _recipe."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ._recipe import TICKET, Made, Start
from ._where import Failed


class Stream(Start):
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
            info = self.as_one_of(info, self.worker, self.workers)
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
            return Failed(error, *self.where(epoch, number, -1))

    def where(self, epoch: int, number: int, step: int) -> tuple[Any, str]:
        """Samples of an iterable set have no index."""
        del epoch, step
        return None, f"batch {number}"

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
    """Every world-th sample; the same number on each rank, but for "exact"."""
    if world == 1:
        return samples
    return _every(samples, rank, world, remainder)


def _every(samples: Iterator[Any], rank: int, world: int, remainder: str) -> Iterator[Any]:
    while group := list(itertools.islice(samples, world)):
        if len(group) == world:
            yield group[rank]
        elif remainder == "pad":
            yield group[rank % len(group)]
        elif remainder == "exact" and rank < len(group):
            yield group[rank]
