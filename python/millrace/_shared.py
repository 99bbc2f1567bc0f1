"""shared_list: a list in memory that all processes share."""

from __future__ import annotations

import array
import io
import mmap
import multiprocessing.reduction
import operator
import os
import pickle
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar, overload

from . import _pickle

T = TypeVar("T")

_HEAD = struct.Struct("<8sQQ")  # magic, items, place of the offsets
_MAGIC = b"mrlist01"
# An item begins with its kind. The kinds without pickle are for what long lists are made of.
_STR, _BYTES, _INT, _PICKLE, _IMAGE = range(5)


class SharedList(Sequence[T]):
    """A constant sequence whose items are in one sealed memfd. Made by shared_list()."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        # Private: who writes to an array of an item has its own copy of the page from then on.
        self._map = mmap.mmap(fd, 0, access=mmap.ACCESS_COPY)
        self._view = memoryview(self._map)
        magic, n, at = _HEAD.unpack_from(self._map, 0)
        if magic != _MAGIC:
            raise ValueError("no shared list: its first bytes are %r" % magic)
        self._n: int = n
        self._offsets = self._view[at : at + 8 * (n + 1)].cast("Q")

    @classmethod
    def _from_fd(cls, fd: int) -> SharedList[Any]:
        """Attaches to the list of another process. Owns fd."""
        try:
            return cls(fd)
        except BaseException:
            os.close(fd)
            raise

    def __len__(self) -> int:
        return self._n

    def _item(self, k: int) -> Any:
        start, end = self._offsets[k], self._offsets[k + 1]
        kind = self._map[start]
        if kind == _STR:
            return self._map[start + 1 : end].decode("utf-8", "surrogatepass")
        if kind == _BYTES:
            return self._map[start + 1 : end]
        if kind == _INT:
            return int.from_bytes(self._view[start + 1 : end], "little", signed=True)
        if kind == _PICKLE:
            return pickle.loads(self._view[start + 1 : end])
        return _pickle.read_image(self._view[_pickle.align(start + 1) : end])[0]

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        """An item, a new object for each call; of a slice, a list. Arrays view the memory."""
        if isinstance(index, slice):
            return [self._item(k) for k in range(*index.indices(self._n))]
        k = operator.index(index)
        if not -self._n <= k < self._n:
            raise IndexError("shared list: index %d of %d items" % (k, self._n))
        item: T = self._item(k + self._n if k < 0 else k)
        return item

    def __iter__(self) -> Iterator[T]:
        return map(self._item, range(self._n))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SharedList):
            return NotImplemented
        return self is other or (len(self) == len(other) and all(map(operator.eq, self, other)))

    @property
    def nbytes(self) -> int:
        """The bytes of the memory that processes share."""
        return len(self._map)

    def __repr__(self) -> str:
        return "shared_list(%d items, %.1f MiB)" % (self._n, self.nbytes / 2**20)

    def __copy__(self) -> SharedList[T]:
        return self

    def __deepcopy__(self, memo: object) -> SharedList[T]:
        return self

    def __reduce__(self) -> Any:
        """By value: for files. Worker processes and multiprocessing pass the memory itself."""
        return shared_list, (list(self),)

    def __del__(self) -> None:
        fd, self._fd = getattr(self, "_fd", -1), -1
        if fd >= 0:
            os.close(fd)


def _encode(item: object, at: int) -> bytes:
    if type(item) is str:
        return b"\0" + item.encode("utf-8", "surrogatepass")
    if type(item) is bytes:
        return b"\1" + item
    if type(item) is int:
        return b"\2" + item.to_bytes(item.bit_length() // 8 + 1, "little", signed=True)
    sink = io.BytesIO()
    made = _pickle.dump(item, sink, cloud_first=False)
    if made.lists:
        raise TypeError("a shared list cannot be an item of another one")
    if not made.buffers:
        return b"\3" + sink.getvalue()
    pickled = sink.getbuffer()
    gap = _pickle.align(at + 1) - at
    encoded = bytearray(gap + _pickle.image_bytes(pickled.nbytes, made.buffers))
    encoded[0] = _IMAGE
    _pickle.write_image(memoryview(encoded)[gap:], pickled, made.buffers)
    return bytes(encoded)


def _fill(fd: int, items: Iterable[Any]) -> None:
    offsets, at = array.array("Q"), _pickle.align(_HEAD.size)
    with open(fd, "wb", buffering=1 << 20, closefd=False) as file:
        file.write(bytes(at))
        for item in items:
            encoded = _encode(item, at)
            offsets.append(at)
            file.write(encoded)
            at += len(encoded)
        offsets.append(at)
        table = _pickle.align(at)
        file.write(bytes(table - at))
        file.write(offsets)
        file.seek(0)
        file.write(_HEAD.pack(_MAGIC, len(offsets) - 1, table))


def shared_list(items: Iterable[T]) -> SharedList[T]:
    """Copies items into memory that worker processes share: one copy for all of them.

    A list of Python objects grows in every worker that reads it, because reading an object changes
    its count of references, and a forked process then needs pages of its own. Keep long lists of
    file names, captions or small records in a shared_list instead:

        self.files = millrace.shared_list(sorted(root.rglob("*.jpg")))

    items: anything that pickles; they are consumed one by one. Returns a sequence with len(),
    indexing, slices and iteration. Each access makes a new object from the stored bytes. Numpy
    arrays and CPU tensors of 4 KiB or more are views of the memory; writing to one changes it in
    this process only.
    The memory is freed with the last process that uses it. It is passed as a file descriptor to
    worker processes and by multiprocessing; copy.copy() and copy.deepcopy() return the list
    itself; pickle.dumps() stores the items.
    Raises what pickling an item raises, and OSError where the system has no memfd or no memory.
    """
    fd = _pickle.memfd("list")
    try:
        _fill(fd, items)
        _pickle.seal(fd)
    except BaseException:
        os.close(fd)
        raise
    return SharedList._from_fd(fd)


def _attach_sent(k: int) -> SharedList[Any]:
    return SharedList._from_fd(os.dup(_pickle.attached[k]))


_pickle.by_descriptor[SharedList] = _attach_sent


def _attach(duplicate: Any) -> SharedList[Any]:
    return SharedList._from_fd(duplicate.detach())


def _reduce(shared: SharedList[Any]) -> Any:
    return _attach, (multiprocessing.reduction.DupFd(shared._fd),)


multiprocessing.reduction.ForkingPickler.register(SharedList, _reduce)
