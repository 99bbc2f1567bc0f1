"""The side memory of worker processes: objects and exceptions, on their way to the parent.

One memfd of a pool has an area for each worker. A worker writes objects into blocks of its area;
the parent reads them in place, so that numpy arrays and torch tensors are not copied, and gives a
block back when the last of them is gone. Pages are allocated when they are first written, and a
block is used again, so that its pages are.

Who may change a block's state: the worker FREE -> WRITING -> READY or ERROR, and ERROR -> FREE;
the parent READY -> TAKEN -> FREE. A state is one byte, so that each change is atomic. The area
belongs to the parent: when a worker dies, its successor finds the blocks as they were, and frees
the ones that were being written.
"""

from __future__ import annotations

import collections
import io
import mmap
import os
import pickle
import struct
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

from . import _pickle, _where

_AREA = 1 << 38  # bytes of the file for one worker; they take memory when they are written
_PAGE = mmap.PAGESIZE
_FIRST = 1 << 17  # where an area's blocks begin
_STACK = 1 << 16  # where it has the stack of a worker that is about to be killed
_STACK_BYTES = 1 << 14
_KEPT_ERRORS = 256
_IDLE_BYTES = 64 << 20  # so much free memory is kept for later objects, and as much as is in use

FREE, WRITING, READY, TAKEN, ERROR = range(5)

# An area begins with: the end of its blocks; the run in progress: its length, epoch and indices.
_END = struct.Struct("<Q")
_RUN = struct.Struct("<QQ")
_RUN_AT = 64
_RUN_MAX = 128  # samples of a job, in the C library
# Of a batch: its number, and the place of the sample that is being made; -1: none.
_STEP = struct.Struct("<Qq")
_STEP_AT = 2048
# A block begins with: its bytes, its generation, epoch and index (of an error), its state.
_BLOCK = struct.Struct("<QQQQ")
_STATE_AT = 32
_PAYLOAD = 64
_ROOM_BITS, _GENERATION_BITS = 26, 26  # of a ticket: the block's page, how often it was used


class Run(NamedTuple):
    """The samples that a worker makes at a time."""

    epoch: int
    indices: list[int]


def create(workers: int) -> int:
    """The side memory of a pool: a memfd of fixed size without pages."""
    fd = _pickle.memfd("side")
    try:
        os.ftruncate(fd, workers * _AREA)
    except OSError as error:
        os.close(fd)
        raise OSError(error.errno, "side memory of worker processes: %s (limit of file sizes, "
                      "ulimit -f?)" % error.strerror) from None
    return fd


def _map(fd: int, worker: int) -> mmap.mmap:
    """A worker's area, or as much of it as the limit on addresses (ulimit -v) allows."""
    length = _AREA
    while True:
        try:
            return mmap.mmap(fd, length, offset=worker * _AREA)
        except (OSError, ValueError):
            length >>= 2
            if length < 1 << 28:
                raise


class Area:
    """A worker's side. One thread uses it."""

    def __init__(self, fd: int, worker: int) -> None:
        self.worker = worker
        self._map = _map(fd, worker)
        self._view = memoryview(self._map)
        self._end: int = max(_END.unpack_from(self._map, 0)[0], _FIRST)
        self._blocks: dict[int, int] = {}  # place: bytes
        self._touched: dict[int, int] = {}  # free blocks that have pages
        self._errors: collections.deque[int] = collections.deque()
        self._adopt()

    def _adopt(self) -> None:
        """Takes over what the worker before left."""
        at = _FIRST
        while at < self._end:
            size = _BLOCK.unpack_from(self._map, at)[0]
            self._blocks[at] = size
            if self._map[at + _STATE_AT] == WRITING:
                self._map[at + _STATE_AT] = FREE
            elif self._map[at + _STATE_AT] == ERROR:
                self._errors.append(at)
            at += size
        self._trim(0)

    def note(self, epoch: int, indices: Sequence[int]) -> None:
        """Notes which samples come now, for when this process dies over them."""
        n = min(len(indices), _RUN_MAX)
        _RUN.pack_into(self._map, _RUN_AT, 0, epoch)
        struct.pack_into("<%dQ" % n, self._map, _RUN_AT + _RUN.size, *indices[:n])
        _STEP.pack_into(self._map, _STEP_AT, 0, -1)
        _RUN.pack_into(self._map, _RUN_AT, n, epoch)

    def step(self, number: int, at: int) -> None:
        """Notes which sample of a batch comes now."""
        _STEP.pack_into(self._map, _STEP_AT, number, at)

    def done(self) -> None:
        """No samples are being made now."""
        _RUN.pack_into(self._map, _RUN_AT, 0, 0)

    def _free(self) -> list[int]:
        return [at for at in self._blocks if self._map[at + _STATE_AT] == FREE]

    def _trim(self, keep: int) -> None:
        """Gives the pages of free blocks back to the system, the largest first."""
        free = [at for at in self._free() if at in self._touched]
        idle = sum(self._blocks[at] for at in free)
        for at in sorted(free, key=self._blocks.__getitem__, reverse=True):
            if idle <= keep:
                return
            idle -= self._blocks[at]
            del self._touched[at]
            if self._blocks[at] > _PAGE:
                self._map.madvise(mmap.MADV_REMOVE, at + _PAGE, self._blocks[at] - _PAGE)

    def _take(self, size: int) -> int:
        """A block for so many bytes, WRITING."""
        free = [at for at in self._free() if size <= self._blocks[at] <= 2 * size + _PAGE]
        at: int = min(free, key=self._blocks.__getitem__, default=0) or self._extend(size)
        bytes_, generation, _, _ = _BLOCK.unpack_from(self._map, at)
        self._map[at + _STATE_AT] = WRITING
        _BLOCK.pack_into(self._map, at, bytes_, generation + 1, 0, 0)
        self._touched[at] = self._blocks[at]
        return at

    def _extend(self, size: int) -> int:
        """A new block. Sizes are rounded so that objects of like size share blocks."""
        step = max(_PAGE, 1 << max(size.bit_length() - 3, 0))
        size = (size + step - 1) & -step
        at: int = self._end
        if at + size > len(self._map):
            raise MemoryError(
                "worker %d: its objects that are in use or on their way take %.1f GiB, and there "
                "are addresses for %.1f GiB" % (self.worker, at / 2**30, len(self._map) / 2**30))
        idle = sum(self._touched[at] for at in self._free() if at in self._touched)
        self._trim(max(_IDLE_BYTES, sum(self._touched.values()) - idle))
        _BLOCK.pack_into(self._map, at, size, 0, 0, 0)
        self._map[at + _STATE_AT] = FREE
        self._blocks[at] = size
        self._end = at + size
        _END.pack_into(self._map, 0, self._end)  # the last step: then a successor finds the block
        return at

    def _write(self, obj: Any) -> tuple[int, int]:
        sink = io.BytesIO()
        made = _pickle.dump(obj, sink, cloud_first=False)
        if made.lists:
            raise TypeError("a shared list cannot be part of a sample")
        pickled = sink.getbuffer()
        size = _pickle.image_bytes(pickled.nbytes, made.buffers)
        at = self._take(size + _PAYLOAD)
        start = at + _PAYLOAD
        _pickle.write_image(self._view[start : start + size], pickled, made.buffers)
        generation: int = _BLOCK.unpack_from(self._map, at)[1]
        return at, generation

    def put(self, obj: Any) -> int:
        """Sends an object to the parent: the ticket for Side.take()."""
        at, generation = self._write(obj)
        self._map[at + _STATE_AT] = READY
        generation &= (1 << _GENERATION_BITS) - 1
        return ((self.worker << _ROOM_BITS) | at // _PAGE) << _GENERATION_BITS | generation

    def put_error(self, epoch: int, index: int, packed: tuple[Any, ...]) -> None:
        """Sends an exception. It is kept until there are 256 newer ones. packed: see _where."""
        while len(self._errors) >= _KEPT_ERRORS:
            self._map[self._errors.popleft() + _STATE_AT] = FREE
        at, generation = self._write(packed)
        _BLOCK.pack_into(self._map, at, self._blocks[at], generation, epoch, index)
        self._map[at + _STATE_AT] = ERROR
        self._errors.append(at)

    def stack_file(self, fd: int) -> int:
        """A file, for faulthandler, whose start is this area's space for a stack."""
        file = os.open("/proc/self/fd/%d" % fd, os.O_RDWR | os.O_CLOEXEC)
        os.lseek(file, self.worker * _AREA + _STACK, os.SEEK_SET)
        return file

    def rewind_stack(self, file: int) -> None:
        """Empties the space for a stack."""
        self._map[_STACK] = 0
        os.lseek(file, self.worker * _AREA + _STACK, os.SEEK_SET)


def _release(area: mmap.mmap, at: int, pid: int) -> None:
    if os.getpid() == pid:  # a forked child's copies are not ours
        area[at + _STATE_AT] = FREE


class Side:
    """The parent's side. Any thread that holds the GIL may use it."""

    def __init__(self, workers: int) -> None:
        self.fd = create(workers)
        self._workers = workers
        self._areas: dict[int, mmap.mmap] = {}
        self._pid = os.getpid()

    def _area(self, worker: int) -> mmap.mmap:
        if not 0 <= worker < self._workers or self.fd < 0:
            raise ValueError("a ticket of another pool, or of a closed one")
        if worker not in self._areas:
            self._areas[worker] = _map(self.fd, worker)
        return self._areas[worker]

    def take(self, ticket: int) -> Any:
        """The object of a ticket, once. Its arrays and tensors are views of the side memory."""
        place, generation = divmod(ticket, 1 << _GENERATION_BITS)
        worker, page = divmod(place, 1 << _ROOM_BITS)
        area, at = self._area(worker), page * _PAGE
        size, found = (0, -1) if at < _FIRST else _BLOCK.unpack_from(area, at)[:2]
        mask = (1 << _GENERATION_BITS) - 1
        if found & mask != generation or area[at + _STATE_AT] != READY:
            raise ValueError("ticket %#x: taken before, or dropped" % ticket)
        area[at + _STATE_AT] = TAKEN
        return self._load(area, at, size)

    def _load(self, area: mmap.mmap, at: int, size: int) -> Any:
        import ctypes  # an array of it can be watched, and lends its memory to any view

        block = (ctypes.c_ubyte * (size - _PAYLOAD)).from_buffer(area, at + _PAYLOAD)
        weakref.finalize(block, _release, area, at, self._pid).atexit = False
        return _pickle.read_image(memoryview(block).cast("B"))[0]

    def drop(self) -> None:
        """Frees the objects that were not taken. No loader may be reading from the pool."""
        for area in list(self._areas.values()):
            for at in _places(area):
                if area[at + _STATE_AT] == READY:
                    area[at + _STATE_AT] = FREE

    def error(self, epoch: int, index: int) -> BaseException | None:
        """The newest exception that was raised for a sample."""
        best: tuple[int, BaseException] | None = None
        for worker in range(self._workers):
            area = self._area(worker)
            for at in _places(area):
                size, generation, *key = _BLOCK.unpack_from(area, at)
                if area[at + _STATE_AT] != ERROR or key != [epoch, index]:
                    continue
                found = _load_error(bytes(area[at + _PAYLOAD : at + size]))
                same = _BLOCK.unpack_from(area, at) == (size, generation, epoch, index)
                if found and same and (best is None or generation >= best[0]):
                    best = generation, found
        return best and best[1]

    def run(self, worker: int) -> Run:
        """What a worker that died was making."""
        area = self._area(worker)
        n, epoch = _RUN.unpack_from(area, _RUN_AT)
        n = min(n, _RUN_MAX)
        return Run(epoch, list(struct.unpack_from("<%dQ" % n, area, _RUN_AT + _RUN.size)))

    def step(self, worker: int, number: int) -> int:
        """Which sample of a batch it was making then; -1: unknown."""
        found, at = _STEP.unpack_from(self._area(worker), _STEP_AT)
        return int(at) if found == number else -1

    def stack(self, worker: int) -> str:
        """The Python stack that a worker left before its time was over; "": none."""
        area = self._area(worker)
        text = bytes(area[_STACK : _STACK + _STACK_BYTES]).split(b"\0", 1)[0]
        area[_STACK] = 0
        return text.decode(errors="replace")

    def close(self) -> None:
        """Closes the file. Arrays that were taken stay valid."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        self._areas.clear()


def _places(area: mmap.mmap) -> list[int]:
    """Where the blocks of an area are."""
    at, end, places = _FIRST, _END.unpack_from(area, 0)[0], []
    while at < end:
        places.append(at)
        at += _BLOCK.unpack_from(area, at)[0]
    return places


def _load_error(image: bytes) -> BaseException | None:
    try:
        packed = _pickle.read_image(memoryview(image))[0]
    except Exception:  # the worker was overwriting it
        return None
    return _where.unpack(packed)
