"""Samples that fail: what errors say of them, and which samples are tried before the loop."""

import os
import sys
import traceback

import numpy as np
import pytest
from loader_sets import Deadly, Known, Lists, Raising, Squares, total

import millrace

torch = pytest.importorskip("torch")
data = torch.utils.data

FORK = {"num_workers": 2, "multiprocessing_context": "fork"}
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

MODES = {
    "rows": {"batch_size": 4},
    "collate_fn": {"batch_size": 4, "collate_fn": total},
    "alone": {"batch_size": 1},
    "sample": {"batch_size": None},
    "batch_sampler": {"batch_sampler": [[1, 2], [5, 7], [8, 9]], "collate_fn": total},
    "sampler": {"batch_size": 4, "sampler": [3, 7, 1], "collate_fn": total},
}
WORKERS = {"threads": {}, "fork": FORK, "forkserver": {"num_workers": 1}}


def text_of(error):
    return "".join(traceback.format_exception(error))


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("mode", MODES)
def test_errors_name_the_sample(mode, workers):
    with millrace.DataLoader(Raising(20), **MODES[mode], **WORKERS[workers]) as loader:
        with pytest.raises(KeyError, match="no picture 7") as caught:
            list(loader)
        assert "sample 7" in str(caught.value.__cause__)
        assert "sample 1" not in text_of(caught.value)


def refuse(samples):
    raise ValueError("these don't fit")


@pytest.mark.parametrize("workers", WORKERS)
def test_errors_of_collate_fn_name_the_samples(workers):
    with millrace.DataLoader(Squares(20), 4, collate_fn=refuse, **WORKERS[workers]) as loader:
        with pytest.raises(ValueError, match="don't fit") as caught:
            list(loader)
        assert "samples 0, 1, 2, 3" in str(caught.value.__cause__)


class Chained(Squares):
    def __getitem__(self, index):
        try:
            return {}[index]
        except KeyError as error:
            raise ValueError("no such picture") from error


def test_an_exception_keeps_its_own_cause():
    with pytest.raises(ValueError, match="no such picture") as caught:
        list(millrace.DataLoader(Chained(20), 4, collate_fn=total))
    assert isinstance(caught.value.__cause__, KeyError)
    assert sys.version_info < (3, 11) or "sample 0" in text_of(caught.value)


def test_stop_iteration_in_a_sample_does_not_end_the_loop():
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(millrace.DataLoader(Raising(20, error=StopIteration), 4, collate_fn=total))


@pytest.mark.parametrize("mode", MODES)
def test_a_sample_that_ends_its_worker_is_named(mode):
    with millrace.DataLoader(Deadly(20), **MODES[mode], **FORK) as loader:
        with pytest.raises(millrace.WorkerDied, match="sample 7, .* exit code 3") as caught:
            list(loader)
        assert caught.value.where.sample == 7 and os.WEXITSTATUS(caught.value.status) == 3
        assert "sample 1:" not in text_of(caught.value)


@pytest.mark.parametrize(("bad", "in_order"), [("skip", True), ("replace", False)])
@pytest.mark.parametrize("mode", MODES)
def test_a_sample_that_ends_its_worker_can_be_skipped(mode, in_order, bad):
    given = MODES[mode] | ({"collate_fn": list} if "collate_fn" in MODES[mode] else {})
    options = {**given, **FORK, "bad": bad, "in_order": in_order}
    with millrace.DataLoader(Deadly(20, (7, 19)), **options) as loader:
        seen = []
        for batch in loader:
            labels = [one[1] for one in batch] if isinstance(batch[0], tuple) else batch[1]
            seen += [int(i) for i in torch.as_tensor(labels).reshape(-1)]
        few = {"batch_sampler": {1, 2, 5, 8, 9}, "sampler": {1, 3}}
        assert set(seen) == few.get(mode, set(range(20)) - {7, 19})
        if bad == "skip" or mode in ("alone", "sample"):
            assert len(seen) == len(set(seen))
        assert sorted(item.index for item in loader.bad()) == ([7] if mode in few else [7, 19])
        assert all(isinstance(item.error, millrace.WorkerDied) for item in loader.bad())


def test_two_deadly_samples_in_a_batch():
    options = {"collate_fn": list, "bad": "skip", **FORK}
    with millrace.DataLoader(Deadly(8, (1, 2)), 4, **options) as loader:
        assert [[i for _, i in batch] for batch in loader] == [[0, 3], [4, 5, 6, 7]]


@pytest.mark.parametrize(("max_bad", "fails"), [(2, True), (3, False), (0.1, True), ("50%", False)])
@pytest.mark.parametrize("collate", [None, list])
def test_max_bad(collate, max_bad, fails):
    dataset = Raising(20, (3, 7, 9))
    loader = millrace.DataLoader(dataset, 4, collate_fn=collate, bad="skip", max_bad=max_bad)
    if fails:
        with pytest.raises(millrace.BadSamples, match="max_bad"):
            list(loader)
    else:
        assert len(list(loader)) == 5


class Files(Squares):
    def __init__(self, n):
        super().__init__(n)
        self.samples = [(f"/photos/{i}.jpg", 0) for i in range(n)]

    def __getitem__(self, index):
        if index == 5:
            raise FileNotFoundError(2, "No such file", "/elsewhere/5.jpg")
        if index == 7:
            raise ValueError("truncated")
        return super().__getitem__(index)


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("mode", ["rows", "collate_fn"])
def test_bad_samples_tell_file_and_error(mode, workers):
    with millrace.DataLoader(Files(20), bad="skip", **MODES[mode], **WORKERS[workers]) as loader:
        list(loader)
        bad = sorted(loader.bad())
    assert [item.index for item in bad] == [5, 7]
    assert [item.file for item in bad] == ["/elsewhere/5.jpg", "/photos/7.jpg"]
    assert [type(item.error) for item in bad] == [FileNotFoundError, ValueError]
    assert bad[1].reason == "ValueError: truncated"


def test_bad_samples_of_a_subset_tell_the_file():
    subset = data.Subset(Files(20), [1, 7, 2])
    loader = millrace.DataLoader(subset, 3, bad="skip")
    list(loader)
    assert [(item.index, item.file) for item in loader.bad()] == [(1, "/photos/7.jpg")]


# ---- what is tried first ----


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize(
    "order", [{"batch_size": 2, "sampler": [3, 4, 8]}, {"batch_sampler": [[3, 4], [8]]}]
)
def test_only_samples_of_the_sampler_are_tried(order, workers):
    dataset = Known(20, {3, 4, 8})
    with millrace.DataLoader(dataset, **order, **WORKERS[workers]) as loader:
        assert [batch[1].tolist() for batch in loader] == [[3, 4], [8]]
        assert "the engine stacks them" in loader.explain()


@pytest.mark.parametrize("mode", ["rows", "collate_fn"])
def test_samples_that_end_their_process_end_no_program(mode):
    """The first, the middle and the last one are tried."""
    dataset = Deadly(20, (0, 10, 19))
    with millrace.DataLoader(dataset, bad="skip", **MODES[mode], **FORK) as loader:
        list(loader)
        assert sorted(item.index for item in loader.bad()) == [0, 10, 19]


def test_a_bad_sample_among_the_tried_ones_changes_no_path():
    loader = millrace.DataLoader(Raising(20, (0,)), 4, bad="skip")
    assert sum(len(labels) for _, labels in loader) == 19
    assert "the engine stacks them" in loader.explain()


def test_the_first_epochs_random_order_is_not_drawn_twice():
    def orders(kind):
        sampler = data.RandomSampler(range(20), generator=torch.Generator().manual_seed(5))
        return [[b[1].tolist() for b in epoch] for loader in [kind(Squares(20), 4, sampler=sampler)]
                for epoch in (list(loader), list(loader))]  # fmt: skip

    assert orders(millrace.DataLoader) == orders(data.DataLoader)


@pytest.mark.parametrize("collate", [None, list])
def test_forked_workers_see_each_epochs_order(collate):
    sampler = data.RandomSampler(range(20), generator=torch.Generator().manual_seed(5))
    with millrace.DataLoader(Lists(20), 4, sampler=sampler, collate_fn=collate, **FORK) as loader:
        epochs = [torch.cat([torch.as_tensor(b) for b in loader]).tolist() for _ in range(3)]
    assert all(sorted(epoch) == list(range(20)) for epoch in epochs)
    assert len(set(map(tuple, epochs))) == 3


# ---- keys outside of the set ----


@pytest.mark.parametrize("workers", [{}, FORK])
@pytest.mark.parametrize("order", [{"sampler": [-1, 2]}, {"batch_sampler": [[-1, 2]]}])
def test_negative_indices_are_the_sets_own(order, workers):
    size = {"batch_size": 2} if "sampler" in order else {}
    with millrace.DataLoader(Lists(5), **size, **order, **workers) as loader:
        assert [batch.tolist() for batch in loader] == [[4, 2]]
    with millrace.DataLoader(Squares(5), **size, **order, **workers) as loader:
        with pytest.raises(IndexError, match="-1"):
            list(loader)
    with millrace.DataLoader(np.arange(5), **size, **order, path="native") as loader:
        assert [batch.tolist() for batch in loader] == [[4, 2]]


@pytest.mark.parametrize("dataset", [Lists(5), Squares(5), np.arange(5), torch.arange(5)])
@pytest.mark.parametrize("index", [9, -6])
def test_indices_outside_of_the_set(dataset, index):
    for order in ({"sampler": [index]}, {"batch_sampler": [[0, index]]}):
        with pytest.raises(IndexError):
            list(millrace.DataLoader(dataset, **order))
    with pytest.raises(IndexError, match=f"index {index}, the data set has 5 samples"):
        list(millrace.DataLoader(np.arange(5), 2, sampler=[0, index]))
