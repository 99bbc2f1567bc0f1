"""torch's samplers as native ones: the same sets of indices, and the same shares by chance."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from millrace import _core
from millrace._translate import sampler_options, translate_sampler

N = 100
DATA = list(range(N))


def order(sampler: Any, epoch: int = 0, n: int = N, seed: int = 7) -> list[int]:
    native = translate_sampler(sampler, n, seed)
    assert isinstance(native, _core.Sampler), native
    assert native.length == len(sampler)
    return native.map(epoch, 0, native.length)


def test_sequential() -> None:
    assert order(SequentialSampler(DATA)) == DATA
    native = translate_sampler(None, N, 7)
    assert isinstance(native, _core.Sampler) and native.map(3, 0, N) == DATA


def test_random() -> None:
    first, second = order(RandomSampler(DATA)), order(RandomSampler(DATA), epoch=1)
    assert sorted(first) == sorted(second) == DATA and first != second != DATA
    assert first == order(RandomSampler(DATA)) != order(RandomSampler(DATA), seed=8)


def test_some_without_replacement() -> None:
    drawn = [i for e in range(300) for i in order(RandomSampler(DATA, num_samples=30), e)]
    assert all(len(set(drawn[k : k + 30])) == 30 for k in range(0, len(drawn), 30))
    shares = Counter(drawn)
    assert len(shares) == N and 50 < min(shares.values()) and max(shares.values()) < 140


def test_with_replacement() -> None:
    drawn = order(RandomSampler(DATA, replacement=True, num_samples=20000))
    shares = Counter(drawn)
    assert len(shares) == N and 130 < min(shares.values()) and max(shares.values()) < 280


def test_subset() -> None:
    chosen = [5, 2, 99, 40, 41]
    orders = {tuple(order(SubsetRandomSampler(chosen), e)) for e in range(40)}
    assert len(orders) > 20 and all(sorted(o) == sorted(chosen) for o in orders)


@pytest.mark.parametrize("make", [list, tuple, np.array, torch.tensor])
def test_lists(make: Any) -> None:
    assert order(make([5, 2, 2, 99])) == [5, 2, 2, 99]
    assert order(range(0, 100, 7)) == list(range(0, 100, 7))


def test_weighted() -> None:
    weights = [0.0] * 50 + [1.0] * 25 + [3.0] * 25
    drawn = Counter(order(WeightedRandomSampler(weights, 40000)))
    heavy = sum(v for k, v in drawn.items() if k >= 75)
    assert min(drawn) >= 50 and abs(heavy / 40000 - 0.75) < 0.02
    once = order(WeightedRandomSampler(weights, 50, replacement=False))
    assert sorted(once) == DATA[50:]


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("drop", [False, True])
def test_distributed(shuffle: bool, drop: bool) -> None:
    fields = [("x", torch.arange(103, dtype=torch.int64))]
    seen = []
    for rank in range(4):
        sampler = DistributedSampler(range(103), 4, rank, shuffle, seed=3, drop_last=drop)
        native = translate_sampler(sampler, 103, 7)
        assert isinstance(native, _core.Sampler)
        loader = _core.Loader(
            _core.Dataset.arrays(fields),
            sampler=native,
            options={"batch_size": 50, "epochs": 1, **sampler_options(sampler)},
        )
        batch = loader.next()
        assert batch is not None and batch.n == len(sampler)
        seen += torch.from_dlpack(batch.field(0)).tolist()
        if not shuffle:
            assert seen[-batch.n :] == list(sampler)
    assert len(set(seen)) == (100 if drop else 103)


class Own(Sampler):  # type: ignore[type-arg]
    def __iter__(self) -> Any:
        return iter(DATA)

    def __len__(self) -> int:
        return N


@pytest.mark.parametrize(
    ("sampler", "reason"),
    [
        (Own(), "Own"),
        (BatchSampler(SequentialSampler(DATA), 4, False), "BatchSampler"),
        (RandomSampler(DATA, num_samples=250), "250 of 100"),
        (RandomSampler(range(99)), "99 samples"),
        ([5, 100], "list"),
        ([-1], "list"),
        ([], "list"),
        (WeightedRandomSampler([1.0] * 101, 5), "101 weights"),
    ],
)
def test_reasons(sampler: Any, reason: str) -> None:
    got = translate_sampler(sampler, N, 7)
    assert isinstance(got, str) and reason in got
    assert sampler_options(sampler) == {}
