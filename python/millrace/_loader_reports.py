"""What a loader tells of itself: its length, and what it measured."""

from __future__ import annotations

from typing import Any

from ._lengths import batches, share_of
from ._loader_path import LoaderPath
from ._run import Run
from .stats import BadSample, PythonWork, Stats


class LoaderReports(LoaderPath):
    """The part of DataLoader that tells what happened."""

    _epochs: int
    _runs: list[Run]
    _old_bad: list[BadSample]
    _old_stats: dict[str, Any]
    _first_ns: tuple[int, int]  # of the latest run: until its first batch; of it, starting workers
    num_workers: int

    def __len__(self) -> int:
        """Batches of a `for` loop on this rank. TypeError where it is not known, as torch."""
        if self._epochs == 0:
            raise TypeError("epochs=0: an endless loader has no length")
        return self._epochs * self._epoch_length()

    def _epoch_length(self) -> int:
        s = self._settings
        sampler: Any = self._given[0]
        batch_sampler: Any = self._given[1]
        if self._iterable:
            return batches(len(self.dataset), s)
        if batch_sampler is not None:
            return share_of(len(batch_sampler), s.rank, s.world, s.remainder)
        if sampler is not None:
            return batches(len(sampler), s)
        n = self._dataset_length()
        if n is None:
            raise TypeError("the number of samples is not known before the end")
        return batches(n, s)

    def stats(self) -> Stats:
        """Counters and rates of the latest run; see Stats."""
        counters = self._runs[-1].stats() if self._runs else self._old_stats
        path = self.path if self._source_ is not None else ""
        if counters and self._source_ is not None and path.endswith("processes"):
            # The engine counts its threads: a few hand out what all the processes make.
            counters = {**counters, "workers": self.num_workers,
                        "workers_replaced": self._source_.replaced()}
        if counters and self._first_ns[0]:
            counters = {**counters, **{
                "first_batch_ms": self._first_ns[0] / 1e6, "start_ms": self._first_ns[1] / 1e6}}
        unit = "sample" if self._source_ is None or self._source_.mode != "objects" else "batch"
        threads = 0 if path.endswith("processes") else max(self.num_workers, 1)
        work = PythonWork(counters.get("workers", 1), unit, threads)
        return Stats(counters, path, None if self._iterable else work)

    def bad(self) -> list[BadSample]:
        """The samples that could not be made, so far."""
        return self._old_bad + [item for run in self._runs for item in run.bad()]
