"""Data sets for the tests of millrace._core."""

from __future__ import annotations

import numpy as np
from millrace import _core as c

FIELDS = [("x", "f32", (3, 4)), ("y", "i64", ())]


def fetch(
    epoch: int, seed: int, indices: list[int], positions: list[int], worker: int
) -> list[object]:
    """Sample i: an array full of i, and i."""
    return [(np.full((3, 4), i, np.float32), i) for i in indices]


def python_set(n: int = 1000, fetch: object = fetch, fields: object = FIELDS, **more: object) -> c.Dataset:
    return c.Dataset.python(n, fields, fetch, **more)  # type: ignore[arg-type]


def loader(dataset: c.Dataset, shuffle: int | None = 3, **options: object) -> c.Loader:
    """A loader of 2 threads, in random order."""
    state, device = options.pop("state", None), options.pop("device", None)
    sampler = None if shuffle is None else c.Sampler("random", dataset.length or 0, seed=shuffle)
    return c.Loader(
        dataset,
        sampler=sampler,
        state=state,  # type: ignore[arg-type]
        device=device,  # type: ignore[arg-type]
        options={"batch_size": 32, "workers": 2, **options},
    )


def batches(loader: c.Loader) -> list[c.Batch]:
    """All that are left, held."""
    return list(iter(lambda: loader.next(), None))


def labels(loader: c.Loader) -> list[int]:
    """The labels of all that are left, after a look at whether the arrays fit them."""
    out: list[int] = []
    while (batch := loader.next()) is not None:
        x, y = np.from_dlpack(batch.field("x")), np.from_dlpack(batch.field("y"))
        assert (x == y[:, None, None]).all()
        out += y.tolist()
    return out
