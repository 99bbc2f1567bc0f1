"""millrace._core: lifetimes, threads, state."""

from __future__ import annotations

import gc
import json
import os
import threading
import time
import weakref

import numpy as np
import pytest
from core_sets import FIELDS, batches, fetch, labels, loader, python_set
from millrace import _core as c


def test_uri():
    ds = c.Dataset.open("synthetic:n=1000,shape=28x28,dtype=u8,classes=10,values=index")
    assert (ds.length, ds.format) == (1000, "synthetic")
    assert ds.fields == [("image", "u8", (28, 28), 0), ("label", "i64", (), 0)]
    assert ds.fields[0].shape == (28, 28)
    l = loader(ds, None, batch_size=64)
    assert (l.batches, l.samples, l.fields) == (16, 1000, ds.fields)
    first = l.next()
    assert first is not None
    assert (first.n, first.epoch, first.index, first.last, len(first)) == (64, 0, 0, False, 2)
    assert first.names == ["image", "label"]
    assert list(first.indices) == list(first.positions) == list(range(64))
    rest = batches(l)
    assert [b.n for b in rest] == [64] * 14 + [40]
    assert rest[-1].last
    assert l.next() is None


def test_arrays_are_borrowed():
    x = np.arange(1200, dtype=np.float32).reshape(100, 12)
    y = np.arange(100)
    gone = weakref.ref(x)
    l = loader(c.Dataset.arrays([("x", x), ("y", y)]), batch_size=7)
    del x
    gc.collect()
    assert gone() is not None
    seen = []
    for b in batches(l):
        rows, which = np.from_dlpack(b.field(0)), np.from_dlpack(b.field(1))
        assert (rows[:, 0] == which * 12).all()
        seen += which.tolist()
    assert sorted(seen) == list(range(100))
    del l, b
    gc.collect()
    assert gone() is None


def test_arrays_refused():
    with pytest.raises(ValueError, match="field y has 4 samples, field x 5"):
        c.Dataset.arrays([("x", np.zeros((5, 2))), ("y", np.zeros(4))])
    with pytest.raises(ValueError, match="field x: expected a C-contiguous array"):
        c.Dataset.arrays([("x", np.zeros((5, 6))[:, ::2])])
    with pytest.raises(TypeError, match="elements of format 'O'"):
        c.Dataset.arrays([("x", np.array([{}, None]))])
    with pytest.raises(TypeError, match="'>i4'|format '>i'"):
        c.Dataset.arrays([("x", np.zeros(3, ">i4"))])


@pytest.mark.parametrize("workers", [1, 2, 8, 16])
def test_python_samples(workers: int):
    for _ in range(3):
        assert sorted(labels(loader(python_set(), workers=workers))) == list(range(1000))


def test_same_order_for_all_worker_counts():
    orders = [labels(loader(python_set(), workers=w)) for w in (1, 3, 8)]
    assert orders[0] == orders[1] == orders[2] != sorted(orders[0])


def test_many_loaders_on_many_threads():
    """Each with engine threads of its own that call Python."""
    failed: list[BaseException] = []

    def one() -> None:
        try:
            for _ in range(3):
                assert sorted(labels(loader(python_set(200), workers=4))) == list(range(200))
        except BaseException as e:
            failed.append(e)

    threads = [threading.Thread(target=one) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert failed == []


def test_one_loader_on_many_threads():
    l = loader(python_set(), workers=2)
    seen: list[int] = []

    def one() -> None:
        seen.extend(labels(l))

    threads = [threading.Thread(target=one) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(seen) == list(range(1000))


def test_fetch_is_told_what_it_makes():
    calls: list[tuple[int, int, list[int], list[int], int]] = []

    def spy(*call):  # type: ignore[no-untyped-def]
        calls.append(call)
        return fetch(*call)

    l = loader(python_set(100, spy), workers=2, seed=42, epochs=2)
    assert sorted(labels(l)) == sorted(list(range(100)) * 2)
    order = {e: c.Sampler("random", 100, seed=3).map(e, 0, 100) for e in (0, 1)}
    for epoch, seed, indices, positions, worker in calls:
        assert seed == 42 and worker in (0, 1) and 1 <= len(indices) <= 32
        assert indices == [order[epoch][p] for p in positions]
    assert sum(len(indices) for _, _, indices, _, _ in calls) == 200


def test_all_held():
    """list(loader): more batches than the engine has slots."""
    held = batches(loader(python_set(3200), prefetch=4))
    assert len(held) == 100
    y = np.concatenate([np.from_dlpack(b.field("y")) for b in held])
    assert sorted(y.tolist()) == list(range(3200))
    assert (np.concatenate([b.indices for b in held]) == y).all()


def test_loader_dropped_first():
    l = loader(python_set())
    held = batches(l)
    fields = [(b.field(0), b.field(1)) for b in held]
    views = [b.indices for b in held]
    del l, held
    gc.collect()
    for (x, y), view in zip(fields, views):
        rows, which = np.from_dlpack(x), np.from_dlpack(y)
        assert (rows == which[:, None, None]).all()
        assert (np.asarray(y) == view).all()


def test_tensors_outlive_a_closed_loader():
    l = loader(python_set())
    kept = [np.from_dlpack(l.next().field("y")) for _ in range(3)]  # type: ignore[union-attr]
    copies = [k.copy() for k in kept]
    l.close()
    # Memory that had been given back would be taken by these.
    for _ in range(3):
        labels(loader(python_set()))
    assert all((a == b).all() for a, b in zip(kept, copies))


def test_tensors_end_on_other_threads():
    l = loader(python_set(3200), prefetch=4)
    todo: list[object] = []
    ended = threading.Event()

    def end() -> None:
        while not ended.is_set() or todo:
            if todo:
                todo.pop()

    threads = [threading.Thread(target=end) for _ in range(4)]
    for t in threads:
        t.start()
    n = 0
    while (b := l.next()) is not None:
        n += b.n
        todo.append(np.from_dlpack(b.field(0)))
    l.close()
    ended.set()
    for t in threads:
        t.join()
    assert n == 3200


def test_released():
    l = loader(python_set())
    b = l.next()
    assert b is not None
    y = b.field("y")
    b.release()
    b.release()
    assert np.from_dlpack(y).shape == (32,)  # it keeps the batch
    for use in (lambda: b.n, lambda: b.field(0), lambda: len(b), lambda: b.indices):
        with pytest.raises(ValueError, match="was released"):
            use()


def test_slots_come_back():
    """A loop that holds nothing takes no more memory than its slots."""
    l = loader(python_set(64000), prefetch=4)
    most = 0
    while (b := l.next()) is not None:
        np.from_dlpack(b.field(0))
        most = max(most, l.stats()["pageable_bytes"] + l.stats()["pinned_bytes"])
    assert most < 16 * 32 * 64 * 8


@pytest.mark.parametrize("workers", [1, 2, 8])
@pytest.mark.parametrize("at", [0, 1, 7, 31])
def test_resume_is_exact(workers: int, at: int):
    whole = labels(loader(python_set(), workers=2, epochs=2))
    l = loader(python_set(), workers=3, epochs=2)
    begun = []
    for _ in range(at):
        b = l.next()
        assert b is not None
        begun += np.from_dlpack(b.field("y")).tolist()
    state = l.state()
    assert json.loads(state)["millrace_state"] == 1
    l.close()
    rest = labels(loader(python_set(), workers=workers, epochs=2, state=state))
    assert begun + rest == whole


def test_state_released_repeats_what_is_held():
    l = loader(python_set())
    first, second = l.next(), l.next()
    assert first is not None and second is not None
    state = l.state_released()
    wanted = list(first.indices)
    del first
    again = loader(python_set(), state=state).next()
    assert again is not None and list(again.indices) == wanted


def test_state_of_another_set():
    l = loader(python_set())
    with pytest.raises(ValueError) as e:
        loader(python_set(999), state=l.state())
    assert e.value.code == -10009  # type: ignore[attr-defined]


def test_stats():
    l = loader(python_set())
    labels(l)
    s = l.stats()
    assert (s["samples"], s["batches"], s["workers"], s["bad_samples"]) == (1000, 32, 2, 0)
    assert set(s["stage_ns"]) == {"read", "decode", "transform", "collate", "slot"}
    assert s["wait"]["n"] == 32 and s["bottleneck"] and s["reason"]


def test_iterable():
    def rewind(epoch: int) -> None:
        passes.append(epoch)

    def read(number: int) -> object:
        if number % 100 == 0 and number > 0 and len(ended) < len(passes):
            ended.append(number)
            raise StopIteration
        return np.full((3, 4), number % 100, np.float32), number % 100

    passes: list[int] = []
    ended: list[int] = []
    ds = c.Dataset.iterable(FIELDS, read, rewind)
    assert ds.length is None
    l = loader(ds, None)
    assert l.batches is None and l.samples is None
    assert labels(l) == list(range(100))
    assert passes == [0]


def test_batches_from_python():
    lists = [[5, 3], [1], [2, 4, 0]]
    sampler = c.Sampler("batches", 6, batches=lambda epoch: lists, max_batch=3, name="mine")
    l = c.Loader(python_set(6), sampler=sampler, options={"workers": 2, "epochs": 2})
    assert [list(b.indices) for b in batches(l)] == lists * 2


def test_samplers():
    assert c.Sampler("subset", 10, indices=[7, 1, 7]).map(0, 0, 3) == [7, 1, 7]
    weighted = c.Sampler("weighted", 3, weights=[0, 1, 0], n_draws=5)
    assert (weighted.length, weighted.map(1, 0, 5)) == (5, [1] * 5)
    assert c.Sampler("random", 10, seed=7).text == "random(seed=7)"
    with pytest.raises(ValueError, match="sampler 'fair', expected sequential"):
        c.Sampler("fair", 10)
    with pytest.raises(ValueError, match="10|range|index"):
        c.Sampler("subset", 10, indices=[10])
    with pytest.raises(IndexError):
        c.Sampler("random", 10).map(0, 5, 6)


def test_cycles_are_collected():
    """What refers to a loader in use by its own fetch() stays until the loader is closed."""

    class Owner:
        def __init__(self) -> None:
            self.loader = loader(python_set(100000, self.fetch))

        def fetch(self, *call):  # type: ignore[no-untyped-def]
            return fetch(*call)

    owner = Owner()
    engine = owner.loader
    assert engine.next() is not None
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is not None
    engine.close()
    del engine
    gc.collect()
    assert gone() is None


def test_garbage_is_closed():
    """A loader that is part of a cycle, but not of one through its own fetch()."""
    threads = len(os.listdir("/proc/self/task"))
    box: list[object] = [loader(python_set(100000))]
    box.append(box)
    assert len(os.listdir("/proc/self/task")) > threads
    del box
    gc.collect()
    end = time.monotonic() + 5
    while len(os.listdir("/proc/self/task")) > threads and time.monotonic() < end:
        time.sleep(0.01)  # join() returns before the kernel takes the task out of the list
    assert len(os.listdir("/proc/self/task")) == threads


def test_nothing_leaks():
    def all_of_it() -> None:
        l = loader(python_set(320))
        b = l.next()
        assert b is not None
        b.field(0).__dlpack__()  # nobody takes it
        b.field(0).__dlpack__(max_version=(1, 0))
        memoryview(b.field(0))
        labels(l)
        l.bad()
        with pytest.raises(ValueError):
            loader(python_set(), workers=-1)

    def resident() -> int:
        with open("/proc/self/statm") as f:
            return int(f.read().split()[1])

    for _ in range(5):
        all_of_it()
    before, files = resident(), len(os.listdir("/proc/self/fd"))
    for _ in range(100):
        all_of_it()
    assert len(os.listdir("/proc/self/fd")) == files
    assert resident() - before < 4096  # pages: 16 MiB
