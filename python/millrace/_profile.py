"""The program's own ranges, and traces of this process."""

from __future__ import annotations

import ctypes
import functools
import inspect
import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar, cast

from . import _core

__all__ = ["profile", "range"]

_F = TypeVar("_F", bound=Callable[..., Any])


class _Recorder:
    """The recorder of `millrace profile` in this process, by its exported functions."""

    def __init__(self, path: str) -> None:
        library = ctypes.PyDLL(path)  # keeps the GIL: the calls are shorter than its release
        self.push, self.pop = library.mr_record_push, library.mr_record_pop
        self._range = library.mr_record_range
        self._range.argtypes, self._range.restype = [ctypes.c_char_p] * 2, ctypes.c_void_p
        self.push.argtypes, self.push.restype = [ctypes.c_void_p], ctypes.c_uint64
        self.pop.argtypes, self.pop.restype = [ctypes.c_uint64], None

    @functools.lru_cache(maxsize=4096)
    def name(self, text: str) -> ctypes.c_void_p | None:
        handle = self._range(None, text.encode())
        return ctypes.c_void_p(handle) if handle else None


@functools.lru_cache(maxsize=None)
def _recorder() -> _Recorder | None:
    """None: this process does not run under `millrace profile`."""
    path = os.environ.get("MILLRACE_RECORD_MODULE")
    if not path or not os.environ.get("MILLRACE_RECORD_DIR"):
        return None
    try:
        return _Recorder(path)
    except (OSError, AttributeError):
        return None


_span_name = functools.lru_cache(maxsize=4096)(_core.trace_name)


def _wrap(context: AbstractContextManager[object, None], function: _F) -> _F:
    """The function with each of its calls inside of the context."""
    made: Any
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def of_coroutine(*args: Any, **kwargs: Any) -> Any:
            with context:
                return await function(*args, **kwargs)

        made = of_coroutine
    elif inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def of_generator(*args: Any, **kwargs: Any) -> Any:
            with context:
                return (yield from function(*args, **kwargs))

        made = of_generator
    else:

        @functools.wraps(function)
        def of_function(*args: Any, **kwargs: Any) -> Any:
            with context:
                return function(*args, **kwargs)

        made = of_function
    return cast(_F, made)


class range:
    """A range of the program, as context manager or decorator:

        with millrace.range("load"):
            ...
        @millrace.range("evaluate")
        def evaluate(net): ...

    Under `millrace profile` it is an NVTX range of the default domain, of the calling thread. While
    millrace.profile() traces this process, it is a span of the trace. Otherwise it does nothing. A
    range ends on the thread that it began on. One object may be used by several threads and nested.
    name: at most 32 KiB.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._open = threading.local()

    def __call__(self, function: _F) -> _F:
        """The function with each of its calls inside. Of a coroutine or generator: its body, from
        the first step to the end."""
        return _wrap(self, function)

    def __enter__(self) -> range:
        stack: list[tuple[int, int]] | None = getattr(self._open, "stack", None)
        if stack is None:
            stack = self._open.stack = []
        recorder = _recorder()
        number = recorder.push(recorder.name(self.name)) if recorder else 0
        # A recorder has the engine's own spans already: mr_trace_span() would make it a second one.
        stack.append((number, 0 if recorder else _core.trace_time()))
        return self

    def __exit__(self, *unused: object) -> None:
        number, start_ns = self._open.stack.pop()
        recorder = _recorder()
        if recorder:
            recorder.pop(number)
        elif start_ns:
            _core.trace_span(_span_name(self.name), start_ns)

    def __repr__(self) -> str:
        return f"millrace.range({self.name!r})"


class profile:
    """Shows what a part of the program does, as context manager or decorator:

        with millrace.profile("run.pftrace"):
            for batch in loader: ...

    What it records depends on where the program runs:

    - Under `millrace profile` everything is recorded anyway, the device's work too: this marks the
      part as a range with the name "profile" (--range profile, -c nvtx:profile), and path is not
      written.
    - Otherwise it records this process's loaders (each stage and thread of the engine) and
      millrace.range()s, and writes a trace for ui.perfetto.dev to path. CUDA work, system calls
      and other processes are not in it: `millrace profile -- python3 train.py` records them.

    path: ends in .pftrace or .perfetto-trace. lost, after the end: spans that were overwritten, of
    threads with more than 65,536. When the part ends by an exception, the trace is written as well.
    Raises ValueError for another ending, RuntimeError if a trace is running already (at the start),
    OSError if path cannot be written (at the end).
    """

    def __init__(self, path: str | os.PathLike[str] = "millrace.pftrace") -> None:
        self.path = os.fspath(path)
        self.lost = 0
        self._range = range("profile")
        if not self.path.endswith((".pftrace", ".perfetto-trace")):
            raise ValueError(
                f"profile {self.path}: expected a name that ends in .pftrace or .perfetto-trace; "
                "for a recording of CUDA work run `millrace profile -o FILE.sqlite -- python3 ...`")

    def __call__(self, function: _F) -> _F:
        """The function with each of its calls inside. Of a coroutine or generator: its body, from
        the first step to the end."""
        return _wrap(self, function)

    def __enter__(self) -> profile:
        if _recorder() is None:
            _core.trace_start()
        self._range.__enter__()
        return self

    def __exit__(self, *unused: object) -> None:
        self._range.__exit__(*unused)
        if _recorder() is None:
            self.lost = _core.trace_stop(self.path)
