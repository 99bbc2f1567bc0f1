"""Tensors that processes exchange by handle, in shared memory: nothing is copied or pickled.

A Block is memory that processes share. A Pool in it has tensors of one dtype and shape; a Ring
carries their handles, which are ints:

    block = shm.Block(shm.pool_bytes("f32", (256, 256), 64) + shm.ring_bytes(64))
    pool = block.create_pool("frames", "f32", (256, 256), 64)
    ring = block.create_ring("ready", 64)
    multiprocessing.Process(target=consume, args=(pool, ring)).start()
    ring.push(pool.put(array))              # copies an array into a free tensor
    tensor = pool.take()                    # or: writes into it
    tensor.numpy()[:] = 1
    ring.push(tensor.send())

    def consume(pool, ring):
        for handle in ring:
            array = pool.accept(handle).numpy()     # the same bytes; .torch() likewise

A tensor is free, or held by one process. A process that takes or accepts it holds it until the last
array made of it is gone, or until it is sent on: then it comes back to the pool by itself, or
belongs to who accepts its handle. Arrays keep the memory, also when the block is closed.

Any process may be killed at any moment. What it held comes back by Pool.reclaim(pid). Processes
that share a block trust each other. Blocks, pools and rings are passed by multiprocessing (as
arguments of a Process, through a Queue or Pipe), or as a descriptor: Block.fileno() and
Block.attach().
A forked child may use what it inherits; what its parent holds stays the parent's.

timeout: seconds; None: without an end; 0: do not wait. When it is over, TimeoutError is raised;
BlockingIOError with timeout=0. Any thread may call; waiting calls release the GIL, and signals
(Ctrl-C) are seen.
"""

from __future__ import annotations

import multiprocessing.reduction
import os
from collections.abc import Iterator, Sequence
from errno import EOWNERDEAD
from typing import TYPE_CHECKING, Any

from . import _core

if TYPE_CHECKING:
    import numpy  # type: ignore[import-not-found,unused-ignore]
    import torch

__all__ = ["Block", "Pool", "Ring", "Tensor", "pool_bytes", "ring_bytes"]


def pool_bytes(dtype: str, shape: Sequence[int], n: int) -> int:
    """The bytes of a block that a pool of n tensors takes.

    dtype: "u8", "i64", "f16", "bf16", "f32", ...; shape: of a tensor. ValueError: not possible.
    """
    return _core.ShmBlock.pool_bytes(("x", dtype, shape), n)


def ring_bytes(n: int) -> int:
    """The bytes of a block that a ring of n places takes, 1 <= n <= 2**24. ValueError: others."""
    return _core.ShmBlock.ring_bytes(n)


class Tensor:
    """A tensor of a pool that this process holds.

    It has DLPack (numpy.from_dlpack, torch.from_dlpack, jax.dlpack.from_dlpack), without a copy.
    It goes back to the pool when it and all arrays made of it are gone, unless it was sent.
    """

    __slots__ = ("_field", "_pool", "handle")

    def __init__(self, pool: _core.ShmPool, handle: int, field: _core.Field) -> None:
        self._pool = pool
        self._field: _core.Field | None = field
        self.handle = handle

    def _held(self) -> _core.Field:
        if self._field is None:
            raise ValueError("the tensor is closed")
        return self._field

    def numpy(self) -> numpy.ndarray[Any, Any]:
        """An array of these bytes, to read and write. ImportError without numpy; BufferError for
        bf16, which numpy has not."""
        import numpy

        return numpy.asarray(memoryview(self._held()))  # type: ignore[arg-type,unused-ignore]

    def torch(self) -> torch.Tensor:
        """A CPU tensor of these bytes, to read and write. ImportError without torch."""
        import torch

        return torch.from_dlpack(self._held())

    def __dlpack__(self, **options: Any) -> object:
        return self._held().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._held().__dlpack_device__()

    @property
    def shape(self) -> tuple[int, ...]:
        """Its dimensions."""
        return self._held().shape

    @property
    def dtype(self) -> str:
        """ "f32", "u8", ..."""
        return self._held().dtype

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return self._held().nbytes

    def send(self) -> int:
        """Its handle, for Ring.push() or whatever carries an int to another process. It is not
        given back here any more: who accepts the handle holds it. Do not write to it then.
        ValueError: it was sent before, or closed."""
        return self._pool.send(self._held())

    def close(self) -> None:
        """Ends this object's hold; arrays made of it keep theirs. More calls do nothing."""
        self._field = None

    def __enter__(self) -> Tensor:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._field is None:
            return "<millrace.shm.Tensor, closed>"
        return f"<millrace.shm.Tensor {self.dtype}{list(self.shape)}>"


class Pool:
    """Tensors of one dtype and shape. Made by Block.create_pool(), found by Block.pool()."""

    def __init__(self, block: Block, name: str, core: _core.ShmPool) -> None:
        self._block, self._core = block, core
        self.name = name

    def take(self, timeout: float | None = None) -> Tensor:
        """A free tensor, which this process holds then. Its bytes are what the last holder left."""
        return Tensor(self._core, *self._core.take(timeout))

    def put(self, array: object, timeout: float | None = None) -> int:
        """Copies an array into a free tensor. Returns the handle, as send() does.

        array: of numpy, torch or what else has the buffer protocol or DLPack, in host memory, with
        the pool's dtype and shape, of any strides. ValueError, TypeError: another one.
        """
        return self._core.put(array, timeout)

    def accept(self, handle: int) -> Tensor:
        """The tensor of a handle, which this process holds then.

        RuntimeError: the handle is stale, as the tensor was given back or reclaimed.
        """
        return Tensor(self._core, handle, self._core.accept(handle))

    def give(self, handle: int) -> None:
        """Returns a sent tensor that no process will accept. RuntimeError: as above."""
        self._core.give(handle)

    def reclaim(self, pid: int) -> int:
        """Frees the tensors that a process held when it ended, and those that it sent and that no
        process has accepted; their handles become stale. Returns how many. OSError (EBUSY): the
        process is still running."""
        return self._core.reclaim(pid)

    @property
    def free(self) -> int:
        """How many tensors are free now."""
        return self._core.free()

    @property
    def dtype(self) -> str:
        """Of its tensors: "f32", "u8", ..."""
        return self._core.spec().dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Of its tensors."""
        return self._core.spec().shape

    def __reduce__(self) -> Any:
        return _find, (self._block, "pool", self.name)

    def __repr__(self) -> str:
        return f"<millrace.shm.Pool {self.name!r}: {self.dtype}{list(self.shape)}>"


class Ring:
    """A queue of ints of 64 bits without a sign, for any number of producers and consumers.

    Made by Block.create_ring(), found by Block.ring(). Iterating over it gives values until the
    ring has ended; what killed producers were about to push is passed over.
    """

    def __init__(self, block: Block, name: str, core: _core.ShmRing) -> None:
        self._block, self._core = block, core
        self.name = name

    def push(self, value: int, timeout: float | None = None) -> None:
        """Appends a value; waits for a place. BrokenPipeError: the ring has ended."""
        self._core.push(value, timeout)

    def pop(self, timeout: float | None = None) -> int | None:
        """The next value; waits for it. None: the ring has ended, and is empty.

        OSError (EOWNERDEAD): a producer was killed while it wrote a value, which is lost. Go on.
        """
        return self._core.pop(timeout)

    def end(self) -> None:
        """Nothing more comes: push() fails from now on, pop() ends when the ring is empty."""
        self._core.end()

    def __iter__(self) -> Iterator[int]:
        while True:
            try:
                value = self.pop()
            except OSError as error:
                if error.errno == EOWNERDEAD:
                    continue
                raise
            if value is None:
                return
            yield value

    def __reduce__(self) -> Any:
        return _find, (self._block, "ring", self.name)

    def __repr__(self) -> str:
        return f"<millrace.shm.Ring {self.name!r}>"


class Block:
    """Memory that processes share. It is gone with the last process that uses it.

    nbytes: the sum of pool_bytes() and ring_bytes() of what will be in it. device: page-locks it
    for copies to that device ("cuda:0"); None: ordinary memory.
    Raises OSError (no memfd), MemoryError (too many bytes; the limit of locked memory),
    RuntimeError (the device).
    """

    def __init__(self, nbytes: int, *, device: str | None = None) -> None:
        self._core = _core.ShmBlock(nbytes, device=device)

    @classmethod
    def attach(cls, fd: int, *, device: str | None = None) -> Block:
        """The block of another process. fd: its fileno(), inherited or sent; it is duplicated.

        device: as above; page-locking is each process's own. millrace.FormatError: not a block.
        """
        block = cls.__new__(cls)
        block._core = _core.ShmBlock(fd=fd, device=device)
        return block

    def fileno(self) -> int:
        """The descriptor, closed on exec. ValueError: the block is closed."""
        return self._core.fileno()

    def create_pool(self, name: str, dtype: str, shape: Sequence[int], n: int) -> Pool:
        """Makes n tensors. name: new in this block, at most 31 bytes; 1 <= n < 2**32.

        Pools and rings are made by one process at a time. At most 64 are in a block.
        RuntimeError: the name; MemoryError: no space; ValueError: dtype or shape, or closed.
        """
        return Pool(self, name, self._core.pool(name, ("x", dtype, shape), n))

    def pool(self, name: str) -> Pool:
        """A pool that some process has made. FileNotFoundError: there is none of that name."""
        return Pool(self, name, self._core.pool(name))

    def create_ring(self, name: str, n: int) -> Ring:
        """Makes a ring of n places, 1 <= n <= 2**24. Errors as create_pool()."""
        return Ring(self, name, self._core.ring(name, n))

    def ring(self, name: str) -> Ring:
        """A ring that some process has made. FileNotFoundError: there is none of that name."""
        return Ring(self, name, self._core.ring(name))

    def close(self) -> None:
        """Ends this object; pools, rings and arrays keep their memory. More calls do nothing."""
        self._core.close()

    def __enter__(self) -> Block:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("a shared block is passed by multiprocessing only, not by pickle")


def _find(block: Block, kind: str, name: str) -> Pool | Ring:
    return block.pool(name) if kind == "pool" else block.ring(name)


def _attach(duplicate: Any) -> Block:
    fd = duplicate.detach()
    try:
        return Block.attach(fd)
    finally:
        os.close(fd)


def _reduce(block: Block) -> Any:
    return _attach, (multiprocessing.reduction.DupFd(block.fileno()),)


multiprocessing.reduction.ForkingPickler.register(Block, _reduce)
