"""Iterating: epochs, iterators, order, ranks, state."""

import gc
import itertools
import random

import numpy as np
import pytest
from loader_sets import Draws, Ragged, Squares, total

import millrace

torch = pytest.importorskip("torch")

N = 50
ARRAYS = (np.arange(N * 3, dtype=np.float32).reshape(N, 3), np.arange(N))


def make(kind, **more):
    """A loader on each of the ways samples can take."""
    options = {"batch_size": 4, "seed": 5, "shuffle": True} | more
    if kind == "objects":
        options["collate_fn"] = _collate
    if kind == "listed":
        options.pop("shuffle")
        options["sampler"] = Shuffler(N)
    if kind == "batches":
        for name in ("shuffle", "batch_size"):
            options.pop(name)
        options["batch_sampler"] = Batches(N)
    return millrace.DataLoader(ARRAYS if kind == "native" else Squares(N), **options)


def _collate(batch):
    return torch.utils.data.default_collate(batch)


class Shuffler:
    """A sampler of the old form: it draws from random's global generator."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __iter__(self):
        return iter(random.sample(range(self.n), self.n))


class Batches:
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return 10

    def __iter__(self):
        indices = random.sample(range(self.n), self.n)
        return iter([indices[i : i + 5] for i in range(0, self.n, 5)])


KINDS = ["native", "rows", "objects", "listed", "batches"]


def labels(batches):
    return [batch[1].tolist() for batch in batches]


@pytest.mark.parametrize("kind", KINDS)
def test_epochs_are_whole_and_differ(kind):
    with make(kind) as loader:
        first, second = labels(loader), labels(loader)
    assert sorted(sum(first, [])) == sorted(sum(second, [])) == list(range(N))
    assert first != second
    assert len(first) == len(loader)


@pytest.mark.parametrize("kind", ["native", "rows", "objects"])
def test_order_is_a_function_of_seed_and_epoch(kind):
    with make(kind) as one, make("native") as other:
        assert labels(one) == labels(other)
        other.set_epoch(7)
        one.set_epoch(7)
        assert labels(one) == labels(other)


@pytest.mark.parametrize("kind", ["native", "rows", "objects"])
def test_epochs_in_one_loop(kind):
    with make(kind, epochs=3) as loader, make(kind) as single:
        assert len(loader) == 3 * len(single)
        assert labels(loader) == labels(single) + labels(single) + labels(single)


@pytest.mark.parametrize("kind", ["native", "rows", "objects"])
def test_endless(kind):
    with make(kind, epochs=0) as loader:
        got = labels(itertools.islice(loader, 40))
        assert len(got) == 40
        with pytest.raises(TypeError):
            len(loader)


@pytest.mark.parametrize("kind", KINDS)
def test_two_live_iterators_are_independent(kind):
    with make(kind) as loader:
        pairs = [(a[1].tolist(), b[1].tolist()) for a, b in zip(loader, loader, strict=True)]
    first, second = zip(*pairs, strict=True)
    assert sorted(sum(first, [])) == sorted(sum(second, [])) == list(range(N))
    assert first != second


@pytest.mark.parametrize("kind", KINDS)
def test_a_dropped_iterator_ends_and_the_next_loop_is_whole(kind):
    with make(kind) as loader:
        for _ in loader:
            break
        assert sorted(sum(labels(loader), [])) == list(range(N))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dropped", [False, True])
def test_state_continues_in_mid_epoch(kind, dropped):
    random.seed(3)
    with make(kind) as loader:
        iterator = iter(loader)
        done = labels(itertools.islice(iterator, 3))
        if dropped:
            del iterator
            gc.collect()
        state = loader.state_dict()
        rest = None if dropped else labels(iterator)
    with make(kind, seed=99) as other:
        other.load_state_dict(state)
        again = labels(other)
        assert len(again) + 3 == len(other)
        assert sorted(sum(done + again, [])) == list(range(N))
        assert rest is None or again == rest
        assert len(labels(other)) == len(other)  # the next epoch is whole


@pytest.mark.parametrize("kind", ["native", "rows", "objects"])
def test_state_in_another_world(kind):
    with make(kind) as loader:
        iterator = iter(loader)
        done = sum(labels(itertools.islice(iterator, 3)), [])
        state = loader.state_dict()
    rest = []
    for rank in range(2):
        with make(kind, rank=rank, world=2, batch_size=3, remainder="drop") as part:
            part.load_state_dict(state)
            rest += sum(labels(part), [])
    assert sorted(done + rest) == list(range(N))


@pytest.mark.parametrize("kind", ["native", "rows", "objects"])
def test_state_before_and_after_an_epoch(kind):
    with make(kind) as loader:
        before = loader.state_dict()
        first = labels(loader)
        after = loader.state_dict()
        second = labels(loader)
        loader.load_state_dict(before)
        assert labels(loader) == first
        loader.load_state_dict(after)
        assert labels(loader) == second


@pytest.mark.parametrize("kind", ["native", "rows", "objects"])
@pytest.mark.parametrize("remainder", ["pad", "drop", "exact"])
def test_ranks_share_an_epoch(kind, remainder):
    parts = []
    for rank in range(3):
        with make(kind, rank=rank, world=3, remainder=remainder) as loader:
            parts.append(labels(loader))
            assert len(parts[-1]) == len(loader)
    seen = sum(sum(parts, []), [])
    samples = [sum(map(len, part)) for part in parts]
    assert samples == {"pad": [17, 17, 17], "drop": [16, 16, 16], "exact": [17, 17, 16]}[remainder]
    assert len(set(seen)) == (48 if remainder == "drop" else 50)


def test_sampler_without_end():
    class Endless:
        def __iter__(self):
            return itertools.cycle([3, 1, 2])

    loader = millrace.DataLoader(Squares(), 2, sampler=Endless())
    assert labels(itertools.islice(loader, 3)) == [[3, 1], [2, 3], [1, 2]]
    with pytest.raises(TypeError):
        len(loader)


def test_samples_are_seeded_by_index():
    def numbers(**more):
        loader = millrace.DataLoader(Draws(20), 4, seed=1, **more)
        return [torch.cat([b[0][:, None], b[1][:, None], b[2].double()], 1) for b in loader]

    torch.manual_seed(1)
    random.seed(1)
    one = torch.cat(numbers())
    two = torch.cat(numbers(collate_fn=torch.utils.data.default_collate))
    assert torch.equal(one, two)
    assert len({tuple(row) for row in one.tolist()}) == 20
    left, right = torch.rand(1), random.random()
    torch.manual_seed(1)
    random.seed(1)
    assert torch.equal(left, torch.rand(1))  # the program's own generators are left alone
    assert right == random.random()


def test_numpy_batches():
    loader = millrace.DataLoader(Squares(10), 4, as_="numpy")
    batch = next(iter(loader))
    assert isinstance(batch, list) and isinstance(batch[0], np.ndarray)
    assert batch[0].tolist() == [[0] * 3, [1] * 3, [4] * 3, [9] * 3]
    objects = millrace.DataLoader(Squares(10), 4, as_="numpy", batch_sampler=None, sampler=[2, 1])
    assert next(iter(objects))[1].tolist() == [2, 1]


def test_dlpack_batches():
    batch = next(iter(millrace.DataLoader(ARRAYS[0], 4, as_="dlpack")))
    assert torch.equal(torch.from_dlpack(batch), torch.from_numpy(ARRAYS[0][:4]))
    assert np.from_dlpack(batch).tolist() == ARRAYS[0][:4].tolist()


@pytest.mark.parametrize("workers", [0, 2])
def test_jax_batches(workers):
    jax = pytest.importorskip("jax")
    with millrace.DataLoader(Squares(10), 4, as_="jax", num_workers=workers) as loader:
        batches = list(loader)
    assert all(isinstance(part, jax.Array) for batch in batches for part in batch)
    theirs = list(torch.utils.data.DataLoader(Squares(10), 4))
    assert [[part.tolist() for part in b] for b in batches] == [
        [part.tolist() for part in b] for b in theirs
    ]
    assert jax.jit(lambda x: x.sum())(batches[1][0]) == sum(theirs[1][0].flatten().tolist())


def test_batches_outlive_the_loader():
    loader = millrace.DataLoader(Squares(), 10)
    batches = list(loader)
    loader.close()
    del loader
    gc.collect()
    assert [int(b[0][3, 0]) for b in batches] == [(10 * i + 3) ** 2 for i in range(10)]


def test_transform_runs_on_rows():
    loader = millrace.DataLoader(ARRAYS[0], 4, transform="scale(2)")
    assert torch.equal(next(iter(loader)), 2 * torch.from_numpy(ARRAYS[0][:4]))
    rows = millrace.DataLoader(Squares(), 4, transform="scale(2)")
    assert next(iter(rows))[0][3].tolist() == [18] * 3


def test_collate_fn_and_ragged_samples():
    assert list(millrace.DataLoader(Squares(10), 4, collate_fn=total)) == [6, 22, 17]
    shapes = [tuple(batch.shape) for batch in millrace.DataLoader(Ragged(4))]
    assert shapes == [(1, 1), (1, 2), (1, 3), (1, 4)]


def test_stats_and_explain():
    with millrace.DataLoader(ARRAYS, 4) as loader:
        assert repr(loader.stats()) == "no batches yet"
        list(loader)
        stats = loader.stats()
        assert (stats.samples, stats.batches) >= (N, 13)
        assert "batches" in repr(stats) and "<table>" in stats._repr_html_()
        assert loader.path == "native" and loader.why == []
        assert "path: native" in loader.explain()
    with pytest.raises(AttributeError, match="samples"):
        stats.nothing  # noqa: B018


def test_one_log_line(caplog):
    with caplog.at_level("INFO", "millrace"), millrace.DataLoader(Squares(), 4) as loader:
        list(loader)
        list(loader)
    assert [record.message for record in caplog.records] == [
        "DataLoader: python-threads path (loader_sets.Squares: a data set without a native twin)"
    ]


def test_tqdm():
    tqdm = pytest.importorskip("tqdm")
    bar = tqdm.tqdm(millrace.DataLoader(ARRAYS, 4), disable=True)
    assert len(bar) == 13 and sum(1 for _ in bar) == 13


def test_states_of_other_data():
    """Of data sets in Python, too, whose contents the engine does not know."""
    state = millrace.DataLoader(Squares(32), 4, shuffle=True, seed=3)
    next(iter(state))
    saved = state.state_dict()
    with pytest.raises(ValueError, match="32 samples, this one has 10"):
        millrace.DataLoader(Squares(10), 4, shuffle=True).load_state_dict(saved)
    with pytest.raises(ValueError, match="order is shuffled, this loader's is sequential"):
        millrace.DataLoader(Squares(32), 4).load_state_dict(saved)
