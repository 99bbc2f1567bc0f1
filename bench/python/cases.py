"""The data sets that the Python benchmarks share. Imports no torch: see processes.py."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np


class Ready:
    """Samples that are ready arrays of n_bytes, after work_us microseconds of Python."""

    def __init__(self, n: int, n_bytes: int, work_us: float = 0) -> None:
        self.n, self.n_bytes = n, n_bytes
        self.work_s = work_us * 1e-6
        rng = np.random.default_rng(1)
        self.rows = rng.integers(0, 255, (64, n_bytes), dtype=np.uint8)

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> tuple[Any, int]:
        if self.work_s:
            end = time.perf_counter() + self.work_s
            while time.perf_counter() < end:
                pass
        return self.rows[i & 63], i % 10


class Case(NamedTuple):
    """Ready samples in batches. batches: so many take about a second."""

    title: str
    n_bytes: int
    work_us: int
    batch_size: int
    batches: int

    def data(self, n: int) -> Ready:
        return Ready(n, self.n_bytes, self.work_us)


READY = {
    "array3k": Case("3 KB array", 3072, 0, 64, 4000),
    "array600k": Case("600 KB array", 600_000, 0, 64, 100),
    "python50us": Case("3 KB array, 50 us of Python", 3072, 50, 64, 400),
}
