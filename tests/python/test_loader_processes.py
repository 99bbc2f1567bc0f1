"""DataLoader with worker processes."""

import itertools
import os
import re
import signal
import time
import types

import numpy
import pytest
from loader_sets import Bytes, Draws, LateRagged, Raising, Squares, Unpicklable, total

import millrace
from millrace import _deaths, _start, _worker

torch = pytest.importorskip("torch")
data = torch.utils.data

FORK = {"num_workers": 2, "multiprocessing_context": "fork"}
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


class Numbers(data.IterableDataset):
    def __iter__(self):
        info = data.get_worker_info()
        return iter(range(info.id if info else 0, 20, info.num_workers if info else 1))


class Resumable(Numbers):
    """Keeps its place, as streaming data sets do."""

    at = -1

    def __iter__(self):
        for number in super().__iter__():
            if number > self.at:
                self.at = number
                yield number
        self.at = -1

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


def labels(batches):
    return [batch[1].tolist() for batch in batches]


@pytest.mark.parametrize("context", [None, "fork", "threads"])
@pytest.mark.parametrize("collate", [None, data.default_collate])
def test_same_batches_as_without(context, collate):
    expected = labels(millrace.DataLoader(Squares(), 8, True, seed=3))
    with millrace.DataLoader(
        Squares(), 8, True, seed=3, num_workers=2, multiprocessing_context=context,
        collate_fn=collate,
    ) as loader:  # fmt: skip
        assert labels(loader) == expected
        assert sorted(sum(labels(loader), [])) == list(range(100))
        assert loader.path == f"python-{'threads' if context == 'threads' else 'processes'}"


def test_objects():
    with millrace.DataLoader(Squares(20), 5, collate_fn=total, **FORK) as loader:
        assert list(loader) == list(loader) == [10, 35, 60, 85]


@pytest.mark.parametrize(
    "options", [{"sampler": [5, 2, 9, 1]}, {"batch_sampler": [[5, 2], [9, 1]]}]
)
def test_sampler_objects_with_objects(options):
    size = {"batch_size": 2} if "sampler" in options else {}
    with millrace.DataLoader(Squares(20), collate_fn=total, **size, **options, **FORK) as loader:
        assert list(loader) == list(loader) == [7, 10]


@pytest.mark.parametrize("collate", [None, data.default_collate])
def test_an_exception_has_its_type_and_the_workers_traceback(collate):
    with millrace.DataLoader(Raising(20), 4, collate_fn=collate, **FORK) as loader:
        with pytest.raises(KeyError, match="no picture 7") as caught:
            list(loader)
        assert "__getitem__" in str(caught.value.__cause__)


def test_samples_that_differ_late():
    with (
        millrace.DataLoader(LateRagged(60), 4, **FORK) as loader,
        pytest.raises(RuntimeError, match="equal size"),
    ):
        list(loader)


def test_random_numbers_do_not_depend_on_workers():
    def numbers(**more):
        with millrace.DataLoader(Draws(20), 4, seed=1, **more) as loader:
            return torch.cat([batch[2] for batch in loader])

    assert torch.equal(numbers(), numbers(**FORK))


@pytest.mark.parametrize("workers", [0, 2, 3])
def test_iterable_sets_as_torch(workers):
    more = {"num_workers": workers} | ({"multiprocessing_context": "fork"} if workers else {})
    with pytest.warns() if workers == 3 else pytest.MonkeyPatch.context():
        theirs = [b.tolist() for b in data.DataLoader(Numbers(), 3, **more)]
    with millrace.DataLoader(Numbers(), 3, **more) as loader:
        assert [b.tolist() for b in loader] == theirs
        assert [b.tolist() for b in loader] == theirs


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("dataset", [Numbers, Resumable])
def test_state_of_an_iterable_set(workers, dataset):
    more = {"num_workers": workers} | ({"multiprocessing_context": "fork"} if workers else {})
    with millrace.DataLoader(dataset(), 3, **more) as loader:
        iterator = iter(loader)
        for _ in range(3):
            next(iterator)
        state = loader.state_dict()
        rest = [batch.tolist() for batch in iterator]
        whole = [batch.tolist() for batch in loader]
    with millrace.DataLoader(dataset(), 3, **more) as other:
        other.load_state_dict(state)
        assert [batch.tolist() for batch in other] == rest
        assert [batch.tolist() for batch in other] == whole


def test_state_with_other_workers():
    with millrace.DataLoader(Squares(), 8, True, **FORK) as loader:
        iterator = iter(loader)
        done = labels(itertools.islice(iterator, 5))
        state = loader.state_dict()
        rest = labels(iterator)
    assert len(done + rest) == 13
    with millrace.DataLoader(Squares(), 8, True) as other:
        other.load_state_dict(state)
        assert labels(other) == rest


def test_stats_count_processes():
    """The engine's threads are fewer: one hands out what several processes make."""
    with millrace.DataLoader(Squares(), 8, num_workers=3, multiprocessing_context="fork") as loader:
        list(loader)
        assert loader.stats()["workers"] == 3


def test_stats_count_the_start_of_workers(monkeypatch):
    start = _start.Fork.start
    monkeypatch.setattr(_start.Fork, "start", lambda *args: (time.sleep(0.2), start(*args))[1])
    with millrace.DataLoader(Squares(), 8, **FORK) as loader:
        begin = time.monotonic()
        next(iter(loader))
        took_ms = 1000 * (time.monotonic() - begin)
        stats = loader.stats()
        assert 200 <= stats.start_ms < stats.first_batch_ms <= took_ms
        assert "of it to start" in repr(stats)


class OneLate(Squares):
    """A sample that is not made before the batches in front of it were handed out."""

    def __init__(self, handed_out):
        super().__init__()
        self.handed_out = handed_out

    def __getitem__(self, index):
        until = time.monotonic() + 20
        while index == 60 and not self.handed_out.exists():
            assert time.monotonic() < until, "the batches before this one were held back"
            time.sleep(0.001)
        return super().__getitem__(index)


def test_a_late_sample_holds_no_earlier_batch(tmp_path):
    late = OneLate(tmp_path / "handed_out")
    with millrace.DataLoader(late, 8, **FORK) as loader:
        for i, _ in enumerate(loader):
            if i == 6:
                late.handed_out.touch()


def pids_of(loader):
    return loader._source.maker.pool.pids


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def gone(pids, seconds=5):
    end = time.monotonic() + seconds
    while any(map(is_alive, pids)) and time.monotonic() < end:
        time.sleep(0.01)
    return not any(map(is_alive, pids))


@pytest.mark.parametrize("persistent", [None, False])
def test_workers_end_with_the_loader(persistent):
    loader = millrace.DataLoader(Squares(), 8, persistent_workers=persistent, **FORK)
    iterator = iter(loader)
    next(iterator)
    pids = pids_of(loader)
    assert len(pids) == 2
    list(iterator)
    if persistent is None:
        assert all(map(is_alive, pids))
    else:
        assert gone(pids)
    loader.close()
    assert gone(pids)


def test_a_killed_worker_costs_nothing():
    class Slow(Squares):
        def __getitem__(self, index):
            time.sleep(0.002)
            return super().__getitem__(index)

    with millrace.DataLoader(Slow(400), 8, **FORK) as loader:
        iterator = iter(loader)
        got = labels(itertools.islice(iterator, 3))
        os.kill(pids_of(loader)[0], signal.SIGKILL)
        got += labels(iterator)
    assert sum(got, []) == list(range(400))


def test_unpicklable_sets(caplog):
    with millrace.DataLoader(Unpicklable(), 8, num_workers=2) as loader:
        assert len(list(loader)) == 13
    assert "dataset.numbers cannot be pickled" in caplog.text


def test_worker_init_fn(tmp_path):
    def init(worker):
        (tmp_path / str(worker)).touch()

    with millrace.DataLoader(Squares(), 8, worker_init_fn=init, **FORK) as loader:
        list(loader)
    assert {path.name for path in tmp_path.iterdir()} <= {"0", "1"}
    assert list(tmp_path.iterdir())


CTRL_C = """
import os, signal, sys, threading, time
import numpy as np, millrace
class Slow:
    def __len__(self): return 100
    def __getitem__(self, i):
        time.sleep(0.01 if i < 10 or i in (50, 99) else 30); return np.zeros(3)
loader = millrace.DataLoader(Slow(), 10, as_="numpy", seed_samples=False, num_workers=2,
                             multiprocessing_context="fork", timeout=0)
try:
    batches = iter(loader)
    pids = loader._source.maker.pool.pids
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    list(batches)
except KeyboardInterrupt:
    start = time.monotonic()
    while any(os.path.exists(f"/proc/{p}/stat") for p in pids) and time.monotonic() - start < 10:
        time.sleep(0.01)
    print("interrupted", [p for p in pids if os.path.exists(f"/proc/{p}/stat")])
"""


def test_ctrl_c_ends_the_workers(clean):
    assert clean(CTRL_C) == "interrupted []\n"


class Held(Squares):
    """Its samples say whether the array is still the one that all share."""

    def __init__(self) -> None:
        super().__init__(40)
        self.names = millrace.shared_list(f"name {i}" for i in range(40))
        self.array = numpy.arange(40 * 1024).reshape(40, 1024)
        self.opened = False

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        assert self.names[index] == f"name {index}"
        if not self.opened:  # by the first sample of a process
            self.opened = True
            self.array += 1
        return self.array[index, 0], type(self.names).__name__ == "SharedList"


def test_trying_samples_changes_nothing():
    """Nor are arrays and shared lists copied into each worker."""
    dataset = Held()
    with millrace.DataLoader(dataset, 4, num_workers=2, as_="numpy") as loader:
        for number, (values, shared) in enumerate(loader):
            rows = numpy.arange(4 * number, 4 * number + 4)
            assert (values == rows * 1024 + 1).all() and shared.all()
    assert not dataset.opened and dataset.array[0, 0] == 0


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("n", [1023, 1024, 1025, 1087, 3072, 4099, 65535, 65536, 70001])
def test_rows_of_any_length_arrive_whole(n, copied, monkeypatch):
    """For a copy engine long ones are written past the caches, in aligned pieces of 64 bytes."""
    made = _worker.Setup
    monkeypatch.setattr(_worker, "Setup", lambda *a: made(*a)._replace(copied=copied))
    dataset = Bytes(n)
    with millrace.DataLoader(dataset, 8, as_="numpy", **FORK) as loader:
        for number, (heads, rows) in enumerate(loader):
            for i in range(8):
                head, row = dataset[8 * number + i]
                assert (heads[i] == head).all() and (rows[i] == row).all()


class KillsOnce(Squares):
    """Sample 30 kills its process, until a file is there."""

    def __init__(self, path):
        super().__init__()
        self.path = path

    def __getitem__(self, index):
        if index == 30 and not self.path.exists():
            self.path.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


@pytest.mark.parametrize("context", ["fork", "forkserver"])
@pytest.mark.parametrize("collate", [None, data.default_collate])
def test_a_replaced_worker_is_reported(context, collate, tmp_path, caplog):
    with millrace.DataLoader(
        KillsOnce(tmp_path / "killed"), 10, num_workers=2, multiprocessing_context=context,
        collate_fn=collate,
    ) as loader:  # fmt: skip
        assert sorted(sum(labels(loader), [])) == list(range(100))
        end = time.monotonic() + 20  # the other worker may have made the rest already
        while not caplog.records and time.monotonic() < end:
            time.sleep(0.01)
        stats = loader.stats()
    assert stats.workers_replaced == 1 and "workers replaced" in repr(stats)
    (line,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert re.match(r"worker [01], process \d+, was killed by SIGKILL, perhaps for lack of memory; "
                    r"process \d+ replaces it \(replaced so far: 1\)$", line)


def test_few_lines_for_many_replaced_workers(monkeypatch, caplog):
    now = 100.0
    monkeypatch.setattr(_deaths, "time", types.SimpleNamespace(monotonic=lambda: now))
    replaced = _deaths.Replaced()
    death = _deaths.Death(3, 1000, signal.SIGKILL, _deaths.Run(0, []), -1, "")
    for _ in range(200):
        replaced.note(death, 1001)
    assert replaced.n == 200 and len(caplog.records) == 5
    now += 11
    replaced.note(death, 1001)
    assert caplog.messages[5].endswith("(replaced so far: 201, 196 since the last line)")
