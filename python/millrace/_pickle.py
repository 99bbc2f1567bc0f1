"""Pickles for worker processes: large buffers aside, data sets in one memfd that all workers map.

An image is the pickled object, then the large buffers of its numpy arrays and torch tensors. Who
loads it from a mapping gets arrays that are views of the mapping. Shared lists are not in an image:
they are passed as file descriptors.
"""

from __future__ import annotations

import fcntl
import functools
import importlib.util
import itertools
import mmap
import os
import pickle
import struct
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

_IN_BAND_BYTES = 4096  # smaller buffers are cheaper within the pickle
_ALIGN = 64
_HEAD = struct.Struct("<8sQQQ")  # magic, pickled bytes, buffers, place of their table
_ENTRY = struct.Struct("<QQ")  # of the table: offset, bytes
_MAGIC = b"mrpickl1"
_F_ADD_SEALS = 1033
_SEALS = 0x1 | 0x2 | 0x4 | 0x8  # seal, shrink, grow, write

attached: list[int] = []  # the descriptors of the image that is being loaded

# Types that are sent as a file descriptor, and what makes one of the k-th of `attached`.
by_descriptor: dict[type, Callable[[int], Any]] = {}


def align(offset: int) -> int:
    """The next multiple of 64."""
    return (offset + _ALIGN - 1) & -_ALIGN


class Dump(NamedTuple):
    """What pickling an object gave beside its bytes."""

    buffers: list[memoryview]  # of the large buffers, in order
    modules: set[str]  # that loading imports
    lists: list[Any]  # shared lists, which travel as file descriptors


def _dense(size: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    """Whether a tensor of this size and stride fills a range of memory once."""
    n = 1
    for step, length in sorted(zip(stride, size)):
        if length == 1:
            continue
        if step != n:
            return False
        n *= length
    return True


def _rebuild_tensor(buffer: Any, dtype: Any, size: Any, stride: Any) -> Any:
    import torch

    return torch.frombuffer(buffer, dtype=dtype).as_strided(size, stride)


def _reduce_tensor(tensor: Any, torch: Any) -> Any:
    """A CPU tensor as a buffer. torch's own way copies its whole storage, byte by byte."""
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided or tensor.is_quantized:
        return NotImplemented
    size, stride = tuple(tensor.size()), tuple(tensor.stride())
    if tensor.requires_grad or tensor.is_conj() or tensor.is_neg() or tensor.__dict__:
        return NotImplemented
    if not tensor.numel() or not _dense(size, stride):
        return NotImplemented
    try:
        flat = tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8).numpy()
    except (RuntimeError, TypeError):  # torch without numpy
        return NotImplemented
    return _rebuild_tensor, (pickle.PickleBuffer(flat), tensor.dtype, size, stride)


class _Hooks:
    """What our picklers do beside pickling: see Dump."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.modules: set[str] = set()
        self.lists: list[Any] = []

    def reducer_override(self, obj: Any) -> Any:
        kind = type(obj)
        self.modules.add(kind.__module__)
        if isinstance(obj, (type, types.FunctionType, types.BuiltinFunctionType)):
            self.modules.add(getattr(obj, "__module__", None) or "builtins")
        elif kind is types.ModuleType:
            self.modules.add(obj.__name__)
        if kind in by_descriptor:
            self.lists.append(obj)
            return by_descriptor[kind], (len(self.lists) - 1,)
        torch = sys.modules.get("torch")
        if torch is not None and kind is getattr(torch, "Tensor", None):
            reduced = _reduce_tensor(obj, torch)
            if reduced is not NotImplemented:
                return reduced
        parent = getattr(super(), "reducer_override", None)
        return NotImplemented if parent is None else parent(obj)


_Pickler: Any = type("_Pickler", (_Hooks, pickle.Pickler), {})


@functools.lru_cache(maxsize=1)
def _cloud_pickler() -> Any:
    """A pickler that sends functions and classes of __main__ by value; None: not installed."""
    if importlib.util.find_spec("cloudpickle") is None:
        return None
    import cloudpickle

    return type("_CloudPickler", (_Hooks, cloudpickle.CloudPickler), {})


def _dump_with(kind: Any, obj: Any, sink: Any) -> Dump:
    buffers: list[memoryview] = []

    def aside(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < _IN_BAND_BYTES:
            return True
        buffers.append(raw)
        return False

    pickler = kind(sink, protocol=5, buffer_callback=aside)
    pickler.dump(obj)
    if kind is not _Pickler:
        pickler.modules.discard("__main__")  # by value
        pickler.modules.add("cloudpickle")
    return Dump(buffers, pickler.modules, pickler.lists)


def dump(obj: Any, sink: Any, *, cloud_first: bool) -> Dump:
    """Pickles obj into sink, with cloudpickle if that is installed, or with pickle.

    sink: has write(), tell(), seek() and truncate(). cloud_first: which of the two comes first;
    the other one is tried when it fails. Raises what the last one raised.
    """
    cloud = _cloud_pickler()
    kinds = [kind for kind in (cloud, _Pickler) if kind is not None]
    if not cloud_first:
        kinds.reverse()
    start = sink.tell()
    for kind in kinds:
        try:
            return _dump_with(kind, obj, sink)
        except Exception:
            sink.seek(start)
            sink.truncate()
            if kind is kinds[-1]:
                raise
    raise AssertionError


def image_bytes(pickled: int, buffers: list[memoryview]) -> int:
    """The size of an image."""
    at = align(_HEAD.size + pickled)
    for buffer in buffers:
        at = align(at + buffer.nbytes)
    return at + _ENTRY.size * len(buffers)


def write_image(target: memoryview, pickled: memoryview, buffers: list[memoryview]) -> None:
    """Writes an image into target, which has image_bytes()."""
    at = _HEAD.size
    target[at : at + pickled.nbytes] = pickled
    at = align(at + pickled.nbytes)
    table = bytearray()
    for buffer in buffers:
        table += _ENTRY.pack(at, buffer.nbytes)
        target[at : at + buffer.nbytes] = buffer
        at = align(at + buffer.nbytes)
    target[at : at + len(table)] = table
    _HEAD.pack_into(target, 0, _MAGIC, pickled.nbytes, len(buffers), at)


def read_image(source: memoryview, fds: list[int] | None = None) -> tuple[Any, int]:
    """Loads what an image holds; its arrays are views of source.

    fds: of the shared lists. Returns the object, and how many buffers source has.
    """
    magic, pickled, n, table = _HEAD.unpack_from(source, 0)
    if magic != _MAGIC:
        raise pickle.UnpicklingError("no pickled image: its first bytes are %r" % magic)
    entries = [_ENTRY.unpack_from(source, table + _ENTRY.size * k) for k in range(n)]
    buffers = [source[at : at + size] for at, size in entries]
    global attached
    attached = fds or []
    try:
        return pickle.loads(source[_HEAD.size : _HEAD.size + pickled], buffers=buffers), n
    finally:
        attached = []


class MemoryFileError(OSError):
    """The system gave no anonymous file; the recipe's pickling is not to blame."""


def memfd(name: str) -> int:
    """An anonymous file in memory; MemoryFileError where the system gives none."""
    try:
        return os.memfd_create("millrace-" + name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError as error:
        raise MemoryFileError(error.errno, "memfd_create: %s (memory that processes share)"
                              % error.strerror) from None


def seal(fd: int) -> None:
    """Makes a memfd constant."""
    fcntl.fcntl(fd, _F_ADD_SEALS, _SEALS)


class Sealed(NamedTuple):
    """An object in a sealed memfd."""

    fd: int
    modules: set[str]
    lists: list[Any]


def dump_sealed(obj: Any) -> Sealed:
    """Pickles obj once, for any number of processes. Raises what pickling raises."""
    fd = memfd("recipe")
    try:
        with open(fd, "w+b", buffering=1 << 20, closefd=False) as file:
            file.write(bytes(_HEAD.size))
            made = dump(obj, file, cloud_first=True)
            pickled = file.tell() - _HEAD.size
            table = bytearray()
            for buffer in made.buffers:
                file.seek(align(file.tell()))
                table += _ENTRY.pack(file.tell(), buffer.nbytes)
                file.write(buffer)
            file.seek(align(file.tell()))
            at = file.tell()
            file.write(table or b"\0")
            file.seek(0)
            file.write(_HEAD.pack(_MAGIC, pickled, len(made.buffers), at))
        seal(fd)
    except BaseException:
        os.close(fd)
        raise
    return Sealed(fd, made.modules, made.lists)


def load_sealed(fd: int, fds: list[int]) -> Any:
    """Loads what dump_sealed() wrote. Arrays share its pages until this process writes to them."""
    view = memoryview(mmap.mmap(fd, 0, access=mmap.ACCESS_COPY))
    return read_image(view, fds)[0]


def copy_of(obj: Any) -> Any:
    """A copy of obj as a worker gets it; large arrays share pages until one of them is written."""
    sealed = dump_sealed(obj)
    try:
        return load_sealed(sealed.fd, [shared._fd for shared in sealed.lists])
    finally:
        os.close(sealed.fd)


class _Nowhere:
    def write(self, data: Any) -> int:
        return memoryview(data).nbytes

    def tell(self) -> int:
        return 0

    def seek(self, *_: Any) -> int:
        return 0

    def truncate(self, *_: Any) -> int:
        return 0


def _refusal(obj: Any) -> Exception | None:
    try:
        dump(obj, _Nowhere(), cloud_first=True)
    except Exception as error:
        return error
    return None


def _parts(obj: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(obj, dict):
        for key, value in itertools.islice(obj.items(), 1000):
            yield "%s[%r]" % (path, key), value
    elif isinstance(obj, (list, tuple)):
        for k, value in enumerate(obj[:1000]):
            yield "%s[%d]" % (path, k), value
    elif isinstance(obj, types.FunctionType):
        for name, cell in zip(obj.__code__.co_freevars, obj.__closure__ or ()):
            yield "%s.<%s>" % (path, name), cell.cell_contents
    elif isinstance(obj, types.MethodType):
        yield path + ".__self__", obj.__self__
    else:
        for name, value in getattr(obj, "__dict__", {}).items():
            yield "%s.%s" % (path, name), value


def find_refusal(obj: Any, path: str) -> tuple[str, Exception]:
    """Which part of obj does not pickle: its path, such as "dataset.lock", and the error."""
    error = _refusal(obj) or pickle.PicklingError("it pickles alone")
    seen: set[int] = set()
    for _ in range(32):
        seen.add(id(obj))
        for part_path, part in _parts(obj, path):
            refused = None if id(part) in seen else _refusal(part)
            if refused is not None:
                path, obj, error = part_path, part, refused
                break
        else:
            return path, error
    return path, error
