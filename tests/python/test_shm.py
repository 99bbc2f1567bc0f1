"""millrace.shm: processes that exchange tensors by handle."""

from __future__ import annotations

import errno
import gc
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading

import numpy
import pytest

import millrace
from millrace import shm

SHAPE = (16, 9)


def make(n=8, places=8, dtype="f32", shape=SHAPE):
    block = shm.Block(shm.pool_bytes(dtype, shape, n) + shm.ring_bytes(places))
    return block.create_pool("tensors", dtype, shape, n), block.create_ring("full", places)


def numbers(i, shape=SHAPE):
    """What tensor i has."""
    size = numpy.prod(shape)
    return (numpy.arange(i, i + size, dtype="i8") * 2654435761 & 0xFFFFFF).astype("f4").reshape(shape)


def blocks_open():
    """How many blocks this process has mapped."""
    with open("/proc/self/maps") as maps:
        return sum("/memfd:" in line for line in maps)


@pytest.fixture(autouse=True)
def nothing_is_left():
    gc.collect()
    before = blocks_open()
    yield
    gc.collect()
    assert blocks_open() == before


def finish(process, code=0):
    process.join(60)
    assert process.exitcode == code
    process.close()


# ---- two processes ----


def consume(pool, ring, n):
    for i, handle in enumerate(ring):
        array = pool.accept(handle).numpy()
        assert array.tobytes() == numbers(i).tobytes(), i
        del array
    assert i == n - 1


def produce(pool, ring, n):
    for i in range(n):
        if i % 2:
            ring.push(pool.put(numbers(i)))
        else:
            tensor = pool.take()
            tensor.numpy()[:] = numbers(i)
            ring.push(tensor.send())
    ring.end()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_ten_thousand_tensors_by_handle(method):
    context, n = multiprocessing.get_context(method), 10_000
    pool, ring = make()
    process = context.Process(target=consume, args=(pool, ring, n))
    process.start()
    produce(pool, ring, n)
    finish(process)
    assert pool.free == 8


def pass_on(pool, queue, back):
    while (handle := queue.get()) is not None:
        tensor = pool.accept(handle)
        tensor.numpy()[:] *= 2
        back.put(tensor.send())


def test_handles_by_a_queue():
    context = multiprocessing.get_context("fork")
    pool, _ = make(n=3)
    queue, back = context.SimpleQueue(), context.SimpleQueue()
    process = context.Process(target=pass_on, args=(pool, queue, back))
    process.start()
    for i in range(20):
        queue.put(pool.put(numbers(i)))
        with pool.accept(back.get()) as tensor:
            assert (tensor.numpy() == 2 * numbers(i)).all()
    queue.put(None)
    finish(process)
    queue.close()
    back.close()
    assert pool.free == 3


def hold_some(pool, ring, ready):
    kept = [pool.accept(ring.pop()) for _ in range(3)]
    ready.send(len(kept))
    signal.pause()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_what_a_killed_consumer_held_comes_back(method):
    context = multiprocessing.get_context(method)
    pool, ring = make(n=5)
    here, there = context.Pipe(False)
    process = context.Process(target=hold_some, args=(pool, ring, there))
    process.start()
    for i in range(5):
        ring.push(pool.put(numbers(i)))
    assert here.recv() == 3 and pool.free == 0
    with pytest.raises(OSError) as busy:
        pool.reclaim(process.pid)
    assert busy.value.errno == errno.EBUSY
    os.kill(process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert pool.reclaim(process.pid) == 3 and pool.free == 3
    assert (pool.accept(ring.pop()).numpy() == numbers(3)).all()
    finish(process, -signal.SIGKILL)
    here.close()
    there.close()


def test_a_killed_producer_s_handles_are_stale():
    pool, ring = make(n=4)
    pid = os.fork()
    if pid == 0:
        ring.push(pool.put(numbers(0)))
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    handle = ring.pop()
    assert pool.reclaim(pid) == 1
    with pytest.raises(RuntimeError, match="stale|given back"):
        pool.accept(handle)


def test_by_descriptor():
    """Another program attaches to the block by an inherited descriptor, and its parts by name."""
    pool, ring = make()
    code = """if True:
        import sys
        from millrace import shm
        with shm.Block.attach(int(sys.argv[1])) as block:
            pool, ring = block.pool("tensors"), block.ring("full")
        tensor = pool.accept(ring.pop())
        tensor.numpy()[0, 0] = 7
        ring.push(tensor.send())
        """
    ring.push(pool.put(numbers(1)))
    fd = pool._block.fileno()
    subprocess.run([sys.executable, "-c", code, str(fd)], pass_fds=[fd], check=True,
                   env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    array = pool.accept(ring.pop()).numpy()
    assert array[0, 0] == 7 and (array[1:] == numbers(1)[1:]).all()


def test_a_forked_child_gives_nothing_back():
    pool, _ = make(n=2)
    tensor = pool.take()
    pid = os.fork()
    if pid == 0:
        del tensor
        os._exit(pool.free)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1 and pool.free == 1


# ---- lifetimes ----


def test_arrays_keep_their_tensor_and_the_memory():
    pool, ring = make(n=2)
    tensor = pool.take()
    array, again = tensor.numpy(), numpy.from_dlpack(tensor)
    assert numpy.shares_memory(array, again) and array.ctypes.data % 64 == 0
    assert array.flags.writeable and array.dtype == "f4" and array.shape == SHAPE
    array[:] = 3
    tensor.close()
    assert pool.free == 1
    with pytest.raises(ValueError, match="closed"):
        tensor.numpy()
    del array
    assert pool.free == 1
    part = again[1:3, ::2]
    del again
    assert pool.free == 1
    pool._block.close()
    del pool, ring, tensor
    gc.collect()
    assert (part == 3).all()


def test_the_last_array_gives_the_tensor_back():
    pool, _ = make(n=1)
    array = pool.take().numpy()
    with pytest.raises(BlockingIOError):
        pool.take(0)
    with pytest.raises(TimeoutError, match="free"):
        pool.take(0.01)
    held = [array]
    del array
    thread = threading.Thread(target=held.clear)
    thread.start()
    assert pool.take(30).nbytes == 4 * 16 * 9
    thread.join()


def test_what_was_sent_is_not_given_back():
    pool, _ = make(n=2)
    tensor = pool.take()
    handle = tensor.send()
    assert handle == tensor.handle
    with pytest.raises(ValueError, match="already"):
        tensor.send()
    del tensor
    assert pool.free == 1
    pool.give(handle)
    assert pool.free == 2
    for call in (pool.give, pool.accept):
        with pytest.raises(RuntimeError, match="stale|given back"):
            call(handle)


def test_a_signal_ends_the_wait():
    pool, ring = make(n=1)
    kept = pool.take()

    def handler(number, frame):
        raise InterruptedError("by a signal")

    before = signal.signal(signal.SIGALRM, handler)
    try:
        for wait in (pool.take, ring.pop):
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            with pytest.raises(InterruptedError):
                wait()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert kept.shape == SHAPE


# ---- arrays ----


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i4", "i8", "f2", "f4", "f8", "?"])
def test_numpy_arrays_of_any_strides(dtype):
    name = "bool" if dtype == "?" else f"{dtype[0]}{8 * int(dtype[1])}"
    pool, _ = make(dtype=name, shape=(4, 6))
    array = numpy.arange(96).reshape(12, 8).astype(dtype)[::3, 1:7]
    assert (pool.accept(pool.put(array)).numpy() == array).all()
    assert (pool.accept(pool.put(array.T.copy().T)).numpy() == array).all()
    assert pool.accept(pool.put(array)).numpy().dtype == numpy.dtype(dtype)


def test_arrays_that_do_not_fit():
    pool, _ = make()
    for array in (numbers(0).astype("f8"), numbers(0)[:3], numbers(0)[None]):
        with pytest.raises(ValueError, match=r"expected f32\[16,9\]"):
            pool.put(array)
    with pytest.raises(TypeError):
        pool.put("text")
    assert pool.free == 8


def test_torch():
    torch = pytest.importorskip("torch")
    pool, _ = make(dtype="bf16", shape=(3, 4))
    given = torch.arange(12, dtype=torch.bfloat16).view(4, 3).t()
    tensor = pool.accept(pool.put(given))
    shown = tensor.torch()
    assert torch.equal(shown, given) and shown.data_ptr() == tensor.torch().data_ptr()
    with pytest.raises(BufferError, match="bf16"):
        tensor.numpy()
    shown[0, 0] = 5
    tensor.close()
    assert pool.free == 7 and shown[0, 0] == 5
    del shown
    assert pool.free == 8


# ---- errors ----


def test_names_sizes_and_descriptors():
    pool, ring = make()
    block = pool._block
    with pytest.raises(RuntimeError, match="already"):
        block.create_ring("tensors", 1)
    with pytest.raises(RuntimeError, match="31"):
        block.create_ring("x" * 32, 1)
    with pytest.raises(MemoryError):
        block.create_pool("more", "u8", (1 << 20,), 4)
    for find, name in ((block.pool, "full"), (block.ring, "tensors"), (block.pool, "none")):
        with pytest.raises(FileNotFoundError, match=name):
            find(name)
    with pytest.raises(ValueError, match="dtype|f33"):
        shm.pool_bytes("f33", (2,), 1)
    with pytest.raises(ValueError, match="numbers"):
        shm.pool_bytes("string", (2,), 1)
    for n in (0, 1 << 25):
        with pytest.raises(ValueError, match="not possible"):
            shm.ring_bytes(n)
    fd = os.memfd_create("other")
    os.ftruncate(fd, 1 << 20)
    with pytest.raises(millrace.FormatError, match="not a block"):
        shm.Block.attach(fd)
    os.close(fd)
    with pytest.raises(OSError):
        shm.Block.attach(1000000)
    with pytest.raises(TypeError, match="multiprocessing"):
        pickle.dumps(pool)
    block.close()
    block.close()
    with pytest.raises(ValueError, match="closed"):
        block.fileno()
    assert "'tensors': f32[16, 9]" in repr(pool) and "full" in repr(ring)


def test_the_end_of_a_ring():
    _, ring = make(places=2)
    ring.push(1)
    ring.push(2**64 - 1)
    with pytest.raises(BlockingIOError):
        ring.push(3, timeout=0)
    with pytest.raises(TimeoutError, match="full"):
        ring.push(3, timeout=0.01)
    with pytest.raises(ValueError, match="at least 0"):
        ring.push(3, timeout=-1)
    ring.end()
    with pytest.raises(BrokenPipeError):
        ring.push(3)
    assert list(ring) == [1, 2**64 - 1] and ring.pop() is None


def test_none_is_counted():
    """Before Python 3.12 None has a count, which a module made with later headers must keep, too."""
    _, ring = make()
    before = sys.getrefcount(None)
    for _ in range(10_000):
        ring.end()
    assert sys.getrefcount(None) > before - 1000


def test_page_locked():
    with shm.Block(shm.pool_bytes("u8", (8,), 1), device="sim") as block:
        pool = block.create_pool("x", "u8", (8,), 1)
        assert pool.accept(pool.put(numpy.arange(8, dtype="u1"))).numpy().sum() == 28
    with pytest.raises((ValueError, OSError, RuntimeError)):
        shm.Block(8, device="no such device")
