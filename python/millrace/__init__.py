"""millrace: keeps a GPU fed with training data, and shows where the time goes when it starves."""

from __future__ import annotations

import importlib

from . import _core
from ._core import BadSamples, Cancelled, Error, FormatError, Spec

TYPE_CHECKING = False  # typing's, whose import would take a fifth of the time

if TYPE_CHECKING:
    from . import shm
    from ._processes import WorkerDied
    from ._profile import profile, range
    from ._recording import Comparison, Finding, Recording, Table, Timeline, open
    from ._serve import Attached, Server, attach
    from ._shared import shared_list
    from ._worker import get_worker_info
    from .errors import LoaderTimeout, NotNative
    from .loader import DataLoader
    from .stats import BadSample, Stats

__version__ = _core.version

# A public name: the module that has it, imported at its first use.
_LAZY = {
    "Attached": "._serve",
    "BadSample": ".stats",
    "DataLoader": ".loader",
    "Comparison": "._recording",
    "Finding": "._recording",
    "LoaderTimeout": ".errors",
    "NotNative": ".errors",
    "Recording": "._recording",
    "Server": "._serve",
    "Stats": ".stats",
    "Table": "._recording",
    "Timeline": "._recording",
    "WorkerDied": "._processes",
    "attach": "._serve",
    "get_worker_info": "._worker",
    "open": "._recording",
    "profile": "._profile",
    "range": "._profile",
    "shared_list": "._shared",
    "shm": ".shm",
}

# Not millrace.open and millrace.range: `import *` would hide Python's own.
__all__ = [
    "Attached",
    "BadSample",
    "BadSamples",
    "Cancelled",
    "DataLoader",
    "Error",
    "Comparison",
    "Finding",
    "FormatError",
    "LoaderTimeout",
    "NotNative",
    "Recording",
    "Server",
    "Spec",
    "Stats",
    "Table",
    "Timeline",
    "WorkerDied",
    "__version__",
    "attach",
    "get_worker_info",
    "profile",
    "shared_list",
    "shm",
]


def __getattr__(name: str) -> object:
    if name in _LAZY:
        module = importlib.import_module(_LAZY[name], __name__)
        value = module if name == "shm" else getattr(module, name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_LAZY})
