"""Data sets for the tests of DataLoader: in a module, for worker processes to unpickle them."""

from __future__ import annotations

import os
import random

import numpy as np


class Squares:
    """n samples: an f32 array of 3 squares and the index."""

    def __init__(self, n=100):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        if not 0 <= index < self.n:
            raise IndexError(index)
        return np.full(3, index * index, np.float32), index


class Raising(Squares):
    """Some samples raise."""

    def __init__(self, n=100, bad=(7,), error=KeyError):
        super().__init__(n)
        self.bad, self.error = bad, error

    def __getitem__(self, index):
        if index in self.bad:
            raise self.error(f"no picture {index}")
        return super().__getitem__(index)


class Draws(Squares):
    """Samples with random numbers of all three generators."""

    def __getitem__(self, index):
        import torch

        return random.random(), np.random.rand(), torch.rand(2)


class Ragged(Squares):
    def __getitem__(self, index):
        return np.zeros(index % 4 + 1, np.float32)


class LateRagged(Squares):
    """Shapes that differ, but not between the samples that are looked at first."""

    def __getitem__(self, index):
        return np.zeros(5 if index == 42 else 3, np.float32)


class Unpicklable(Squares):
    def __init__(self, n=100):
        super().__init__(n)
        self.numbers = (i for i in range(n))


def total(batch):
    return sum(index for _, index in batch)


class Deadly(Squares):
    """Some samples end their process."""

    def __init__(self, n=100, bad=(7,)):
        super().__init__(n)
        self.bad = bad

    def __getitem__(self, index):
        if index in self.bad:
            os._exit(3)
        return super().__getitem__(index)


class Lists(Squares):
    """As a set over a Python list: negative indices count from the end."""

    def __getitem__(self, index):
        return list(range(self.n))[index]


class Known(Squares):
    """Refuses all samples but some."""

    def __init__(self, n, known):
        super().__init__(n)
        self.known = known

    def __getitem__(self, index):
        assert index in self.known, f"sample {index} is none of {self.known}"
        return super().__getitem__(index)


class Bytes:
    """Rows of n bytes, behind three that misalign them, and each n bytes after the last one."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return 40

    def __getitem__(self, index):
        row = np.arange(index, index + self.n, dtype=np.uint64).astype(np.uint8)
        return np.full(3, index, np.uint8), row
