"""A value that the program sets and its worker processes read."""

from __future__ import annotations

import mmap
import os
import pickle
from typing import Any


class Told:
    """A value; with `shared` in memory that worker processes read, too."""

    _map: int | None = None
    _cached: Any = None
    _seen = 0

    def __init__(self, value: Any, shared: bool) -> None:
        self._path, self._fd, self._version, self._pid = "", -1, 0, os.getpid()
        if shared:
            self._fd = os.memfd_create("millrace-order", os.MFD_CLOEXEC)
            self._path = f"/proc/{os.getpid()}/fd/{self._fd}"
        self.set(value)

    def set(self, value: Any) -> None:
        """Another value, for all processes. None of them may be reading."""
        self._value = value
        if self._fd < 0:
            return
        self._version += 1
        data = pickle.dumps(value, protocol=5)
        os.ftruncate(self._fd, 8 + len(data))
        os.pwrite(self._fd, data, 8)
        os.pwrite(self._fd, self._version.to_bytes(8, "little"), 0)

    def get(self) -> Any:
        if not self._path or self._pid == os.getpid():
            return self._value
        if self._map is None:
            self._map = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        version = int.from_bytes(os.pread(self._map, 8, 0), "little")
        if self._seen != version:
            with mmap.mmap(self._map, 0, prot=mmap.PROT_READ) as view:
                self._cached = pickle.loads(view[8:])
            self._seen = version
        return self._cached

    def __getstate__(self) -> dict[str, Any]:
        shared = bool(self._path)
        value = None if shared else self._value
        return {"_value": value, "_path": self._path, "_fd": -1, "_pid": -1, "_version": 0}

    def close(self) -> None:
        if self._fd >= 0 and self._pid == os.getpid():
            os.close(self._fd)
            self._fd = -1
