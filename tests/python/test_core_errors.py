"""millrace._core: bad input gives a Python exception of the right type that says what to do."""

from __future__ import annotations

import gc
import os
import threading
import time
import weakref

import millrace
import numpy as np
import pytest
from core_sets import FIELDS, batches, fetch, labels, loader, python_set
from millrace import _core as c


def test_types():
    with pytest.raises(FileNotFoundError, match="/nowhere") as missing:
        c.Dataset.open("idx:/nowhere")
    assert missing.value.errno == 2
    with pytest.raises(ValueError, match="unknown format 'what'") as option:
        c.Dataset.open("what:x")
    assert option.value.code == -10003  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="batch"):
        loader(python_set(), batch_sise=3)
    with pytest.raises(MemoryError):
        loader(python_set(), max_memory=10)
    assert issubclass(millrace.FormatError, (millrace.Error, ValueError))


def test_format_error(tmp_path):  # type: ignore[no-untyped-def]
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY\x01\x00\xff")
    with pytest.raises(millrace.FormatError, match="a.npy") as e:
        c.Dataset.open(f"npy:{tmp_path}/a.npy")
    assert e.value.code in (-10000, -10001)


def test_arguments():
    with pytest.raises(TypeError):
        c.Loader("folder:x")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        c.Loader(python_set(), sampler=[1, 2])  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        c.Dataset()
    with pytest.raises(TypeError):
        python_set(10, "no callable")
    with pytest.raises(ValueError, match="field x: .*f31"):
        python_set(10, fetch, [("x", "f31", ())])
    with pytest.raises(ValueError, match="9 dimensions, expected at most 8"):
        python_set(10, fetch, [("x", "f32", (1,) * 9)])
    with pytest.raises(ValueError, match="0 fields, expected 1 to 32"):
        python_set(10, fetch, [])
    with pytest.raises(ValueError, match="1 to 23 bytes"):
        python_set(10, fetch, [("x" * 24, "f32", ())])
    with pytest.raises(OverflowError):
        python_set(10, fetch, [("x", "f32", (-1,))])


@pytest.mark.parametrize("workers", [1, 8])
def test_callback_that_raises(workers: int):
    def bad(epoch, seed, indices, positions, worker):  # type: ignore[no-untyped-def]
        if 77 in indices:
            raise KeyError("no such picture")
        return fetch(epoch, seed, indices, positions, worker)

    l = loader(python_set(1000, bad), workers=workers)
    with pytest.raises(RuntimeError, match="sample 77.*KeyError: 'no such picture'") as e:
        labels(l)
    assert e.value.code == -10012  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="sample 77"):
        l.next()


def test_exceptions_as_items_are_bad_samples():
    def some(epoch, seed, indices, positions, worker):  # type: ignore[no-untyped-def]
        items = fetch(epoch, seed, indices, positions, worker)
        return [ValueError(f"rotten {i}") if i % 100 == 7 else x for i, x in zip(indices, items)]

    l = loader(python_set(1000, some, name="mine"), bad="skip")
    assert sorted(labels(l)) == [i for i in range(1000) if i % 100 != 7]
    bad = l.bad()
    assert sorted(b[0] for b in bad) == list(range(7, 1000, 100))
    assert all(b[3] == "callback: mine" and f"ValueError: rotten {b[0]}" in b[5] for b in bad)
    with pytest.raises(millrace.BadSamples):
        labels(loader(python_set(1000, some), bad="skip", max_bad=3))


@pytest.mark.parametrize(
    "sample, text",
    [
        ((np.zeros((3, 5), np.float32), 1), r"f32\[3,5\], expected x f32\[3,4\]"),
        ((np.zeros((3, 4)), 1), r"f64\[3,4\], expected x f32\[3,4\]"),
        ((np.zeros((3, 4), np.float32), 1.5), "a float, expected y i64"),
        ((np.zeros((3, 4), np.float32), 2**63), "OverflowError"),
        ((np.zeros((3, 4), np.float32), "1"), "a str, expected y i64"),
        ((np.zeros((3, 4), np.float32), None), "NoneType.*expected an array, tensor, number"),
        ((np.array([{}] * 12).reshape(3, 4), 1), "elements of format 'O'"),
        ((np.zeros((3, 4), ">f4"), 1), "format '>f'"),
        ((np.zeros((3, 4), "datetime64[s]"), 1), "ValueError"),
        ((np.zeros((3, 4), np.float32),), "1 value, expected a tuple of 2"),
        (np.zeros((3, 4), np.float32), "1 value, expected a tuple of 2"),
        ((np.zeros((3, 4), np.float32), 1, 2), "3 values, expected a tuple of 2"),
    ],
)
def test_samples_that_differ(sample: object, text: str):
    def differ(epoch, seed, indices, positions, worker):  # type: ignore[no-untyped-def]
        items = fetch(epoch, seed, indices, positions, worker)
        return [sample if i == 777 else x for i, x in zip(indices, items)]

    with pytest.raises(ValueError, match=f"sample 777.*{text}") as e:
        labels(loader(python_set(1000, differ)))
    assert e.value.code == -10004  # type: ignore[attr-defined]


def test_too_few_items():
    l = loader(python_set(1000, lambda *call: fetch(*call)[:-1]))
    with pytest.raises(RuntimeError, match="fetch gave 0 items for 1 samples"):
        labels(l)


def test_closed():
    l = loader(python_set())
    l.close()
    l.close()
    for use in (l.next, l.state, l.stats, l.bad, l.fileno):
        with pytest.raises(ValueError, match="loader is closed"):
            use()
    l.cancel()
    assert l.batches == 32 and l.fields[0].name == "x"

    ds = python_set()
    l = loader(ds)
    with pytest.raises(RuntimeError, match="close its loaders first"):
        ds.close()
    l.close()
    ds.close()
    for use in (lambda: ds.length, lambda: ds.read(0), lambda: loader(ds, None)):
        with pytest.raises(ValueError, match="data set is closed"):
            use()


def test_close_while_another_thread_waits():
    block = threading.Event()

    def wait(*call):  # type: ignore[no-untyped-def]
        block.wait(20)
        return fetch(*call)

    l = loader(python_set(1000, wait))
    got: list[object] = []

    def consume() -> None:
        try:
            got.append(l.next())
        except Exception as e:
            got.append(e)

    t = threading.Thread(target=consume)
    t.start()
    time.sleep(0.1)
    closer = threading.Thread(target=l.close)
    closer.start()
    t.join(10)
    assert isinstance(got[0], millrace.Cancelled)
    block.set()
    closer.join(10)
    assert not closer.is_alive()


class Cycle:
    """Garbage that only a collection finds, with all that it refers to."""

    def __init__(self, *kept: object) -> None:
        self.kept = (self, *kept)


def abandon(kind: str, go: threading.Event, collected: threading.Event, calls: list[int]):  # type: ignore[no-untyped-def]
    """Leaves a running loader as garbage, whose callable collects garbage once `go` is set."""

    def collect() -> None:
        calls[0] += 1
        time.sleep(0.001)
        if go.is_set() and not collected.is_set():
            gc.collect()
            collected.set()

    def own_fetch(*args):  # type: ignore[no-untyped-def]
        collect()
        return fetch(*args)

    def own_batches(epoch: int) -> list[list[int]]:
        collect()
        return [[epoch % 7, 1], [2]]

    options = {"epochs": 0, "prefetch": 64, "batch_size": 2}
    if kind == "fetch":
        made = c.Loader(c.Dataset.python(100, FIELDS, own_fetch), options=options)
    else:
        sampler = c.Sampler("batches", 100, batches=own_batches, max_batch=2)
        made = c.Loader(c.Dataset.python(100, FIELDS, fetch), sampler=sampler, options=options)
    made.next()
    return weakref.ref(Cycle(made))


@pytest.mark.parametrize("kind", ["fetch", "batches"])
def test_collected_on_its_own_thread(kind: str):
    """A worker's collection meets the loader that it works for, and the function that it is in."""
    for _ in range(10):
        go, collected, calls = threading.Event(), threading.Event(), [0]
        gc.disable()
        try:
            garbage = abandon(kind, go, collected, calls)
            assert garbage() is not None
            go.set()
            assert collected.wait(30)
            assert garbage() is None
            before = -1
            while before != calls[0]:  # another thread closes it
                before = calls[0]
                time.sleep(0.05)
        finally:
            gc.enable()


def test_batches_that_end_on_the_loaders_own_threads():
    """A worker's collection frees batches; their slots are used again."""

    def collects(*args):  # type: ignore[no-untyped-def]
        gc.collect(0)
        return fetch(*args)

    options = {"epochs": 0, "prefetch": 2, "batch_size": 4, "max_memory": 200_000, "workers": 1}
    made = c.Loader(c.Dataset.python(100, FIELDS, collects), options=options)
    gc.disable()
    try:
        for _ in range(1000):
            Cycle(made.next())
    finally:
        gc.enable()
    made.close()


def test_cancelled():
    l = loader(python_set())
    assert l.next() is not None
    l.cancel()
    with pytest.raises(millrace.Cancelled):
        l.next()


def test_timeout():
    block = threading.Event()

    def wait(*call):  # type: ignore[no-untyped-def]
        block.wait(20)
        return fetch(*call)

    l = loader(python_set(1000, wait))
    with pytest.raises(TimeoutError, match="python|sample"):
        l.next(timeout=0.2)
    with pytest.raises(TimeoutError):
        l.next(timeout=0)
    with pytest.raises(ValueError, match="timeout"):
        l.next(timeout=-1)
    block.set()
    assert sorted(labels(l)) == list(range(1000))


def in_child(act) -> str:  # type: ignore[no-untyped-def]
    """Runs act in a forked child; gives what it returned, as text."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            text = str(act())
        except BaseException as e:
            text = repr(e)
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as f:
        text = f.read()
    assert os.waitpid(pid, 0)[1] == 0
    return text


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_child():
    l = loader(python_set())
    held = l.next()
    assert held is not None

    def inherited() -> object:
        assert l.forked
        try:
            return l.next()
        finally:
            l.close()

    def own() -> object:
        assert (np.from_dlpack(held.field("y")) == list(held.indices)).all()
        return sorted(labels(loader(python_set()))) == list(range(1000))

    text = in_child(inherited)
    assert text.startswith("RuntimeError(") and "fork" in text
    assert in_child(own) == "True"
    assert not l.forked
    assert len(labels(l)) == 1000 - 32


def test_no_gpu():
    why = [text for name, _, text in gpu() if name == "cuda"]
    if not why or not why[0]:
        pytest.skip("there is a GPU")
    with pytest.raises(RuntimeError, match="cuda|libcuda|GPU|NVIDIA"):
        c.Loader(python_set(), device="cuda")


def gpu() -> list[tuple[str, str, str]]:
    """Whether a GPU can be used, by the file that its driver makes."""
    return [("cuda", "", "" if os.path.exists("/dev/nvidiactl") else "none")]


def test_unknown_device():
    with pytest.raises(ValueError, match="tpu"):
        c.Loader(python_set(), device="tpu")


def test_names_of_options():
    l = c.Loader(python_set(), options={"batch-size": 10, "in_order": False, "bad": "skip"})
    b = l.next()
    assert b is not None and b.n == 10
    with pytest.raises(ValueError, match="workers"):
        c.Loader(python_set(), options={"workers": "many"})
    with pytest.raises(IndexError):
        b.field(2)
    with pytest.raises(KeyError, match="z"):
        b.field("z")


def test_fields_of_another_kind_of_read():
    ds = python_set()
    with pytest.raises(Exception):
        ds.read(1000)
    x, y = ds.read(7)
    assert (np.from_dlpack(x) == 7).all() and np.from_dlpack(y) == 7
    assert (x.name, x.dtype, x.shape, x.nbytes, x.device) == ("x", "f32", (3, 4), 48, "cpu")
    assert FIELDS[0][0] == x.name and batches(loader(python_set(1)))[0].n == 1
