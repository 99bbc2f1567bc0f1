"""millrace.shared_list."""

import copy
import gc
import multiprocessing
import os
import pickle
import subprocess
import sys

import numpy
import pytest

from millrace._shared import SharedList, shared_list

ITEMS = ["", "a.jpg", "ä", "\ud800", b"", b"raw\0", 0, -1, 255, -(2**80), True, 1.5, None,
         ("a", 3), {"k": [1, 2]}, ["x"]]


def test_items_come_back_as_they_were():
    shared = shared_list(ITEMS)
    assert isinstance(shared, SharedList)
    assert len(shared) == len(ITEMS)
    assert list(shared) == ITEMS
    assert [type(item) for item in shared] == [type(item) for item in ITEMS]
    assert shared[1] == "a.jpg" and shared[-1] == ["x"] and shared[numpy.int64(2)] == "ä"
    assert shared[2:6] == ITEMS[2:6] and shared[::-3] == ITEMS[::-3]
    assert "a.jpg" in shared and "b.jpg" not in shared
    assert shared.index(b"raw\0") == 5 and shared.count(0) == 1


def test_bounds_and_types_of_indices():
    shared = shared_list(["a", "b"])
    for index in (2, -3, 10**20):
        with pytest.raises(IndexError, match="2 items"):
            shared[index]
    with pytest.raises(TypeError):
        shared["0"]
    with pytest.raises(TypeError):
        shared[0] = "c"


def test_empty_and_generator():
    assert list(shared_list([])) == []
    assert list(shared_list(str(k) for k in range(3))) == ["0", "1", "2"]


def test_large_arrays_are_views():
    arrays = [numpy.arange(5000, dtype="f4") + k for k in range(3)]
    shared = shared_list(arrays)
    first, again = shared[1], shared[1]
    assert (first == arrays[1]).all() and first.dtype == "f4"
    assert numpy.shares_memory(first, again)
    assert first.ctypes.data % 64 == 0
    del shared
    gc.collect()
    assert first[7] == 8  # the memory lives as long as the array


def test_writing_stays_in_this_process():
    shared = shared_list([numpy.zeros(5000)])
    shared[0][0] = 1
    with multiprocessing.get_context("spawn").Pool(1) as workers:
        assert workers.apply(_first, (shared,)) == 0.0
    assert shared[0][0] == 1


def _first(shared):
    return float(shared[0][0])


def _inode(shared):
    return os.fstat(shared._fd).st_ino, list(shared)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing_passes_the_memory(method):
    shared = shared_list(ITEMS)
    with multiprocessing.get_context(method).Pool(1) as workers:
        inode, items = workers.apply(_inode, (shared,))
    assert inode == os.fstat(shared._fd).st_ino
    assert items == ITEMS


def test_pickle_stores_items_and_copy_is_the_list():
    shared = shared_list(ITEMS)
    loaded = pickle.loads(pickle.dumps(shared))
    assert loaded == shared and loaded is not shared
    assert os.fstat(loaded._fd).st_ino != os.fstat(shared._fd).st_ino
    assert copy.copy(shared) is shared and copy.deepcopy(shared) is shared


def test_the_memory_is_constant():
    shared = shared_list(["a"])
    with pytest.raises(PermissionError):
        os.write(shared._fd, b"x")
    with pytest.raises(PermissionError):
        os.ftruncate(shared._fd, 1)


def test_descriptors_are_closed():
    before = len(os.listdir("/proc/self/fd"))
    shared = shared_list(ITEMS)
    assert len(os.listdir("/proc/self/fd")) > before
    del shared
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_does_not_pickle():
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(TypeError, match="generator"):
        shared_list([1, (k for k in range(3))])
    with pytest.raises(TypeError, match="cannot be an item"):
        shared_list([[shared_list([])]])
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


def test_torch_tensors():
    pytest.importorskip("torch")
    # In another process: importing torch here would slow all later forks of this one.
    code = """if True:
        import torch
        from millrace._shared import shared_list
        t = torch.arange(6000, dtype=torch.bfloat16).reshape(60, 100)
        last = torch.rand(2, 3, 40, 40).to(memory_format=torch.channels_last)
        s = shared_list([t, last, t[:, ::2], torch.tensor(3), torch.empty(0, 3)])
        assert torch.equal(s[0], t) and s[0].dtype is t.dtype
        assert s[0].data_ptr() == s[0].data_ptr()
        assert torch.equal(s[1], last) and s[1].stride() == last.stride()
        assert torch.equal(s[2], t[:, ::2]) and s[3].item() == 3 and s[4].shape == (0, 3)
        """
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
