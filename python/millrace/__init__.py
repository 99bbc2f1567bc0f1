"""millrace: keeps a GPU fed with training data, and shows where the time goes when it starves."""

from __future__ import annotations

import importlib

from . import _core
from ._core import BadSamples, Cancelled, Error, FormatError, Spec

__version__ = _core.version

_LAZY: dict[str, str] = {}  # public name: the module that has it, imported at its first use

__all__ = ["BadSamples", "Cancelled", "Error", "FormatError", "Spec", "__version__", *_LAZY]


def __getattr__(name: str) -> object:
    if name in _LAZY:
        value = getattr(importlib.import_module(_LAZY[name], __name__), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
