"""Closing engines where that is possible: not on one of the engine's own threads.

Python's garbage collector runs on whichever thread allocates, so also on an engine's thread that
makes a sample. An engine can't wait for that thread to end; another one closes it then.
"""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable

_active: dict[int, threading.Thread] = threading._active  # type: ignore[attr-defined]
_dummy: type = threading._DummyThread


def is_foreign_thread() -> bool:
    """Whether this thread was not started by Python."""
    thread = _active.get(threading.get_ident())
    return thread is None or isinstance(thread, _dummy)


def close_elsewhere(close: Callable[[], None]) -> None:
    """Calls close(); on a thread of its own if this may be an engine's."""
    if is_foreign_thread():
        _thread.start_new_thread(close, ())  # threading's own locks may be held here
    else:
        close()
