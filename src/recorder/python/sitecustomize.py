"""Runs at the start of each Python under `millrace profile`: PYTHONPATH begins with this folder.

It prepares the automatic ranges (_millrace_ranges.py) and the sampling of stacks
(_millrace_stacks.py), as far as they are asked for, then runs the sitecustomize that it hides.
Any Python from 2.7 on may come here.
"""
import os
import sys


def _begin():
    if sys.version_info < (3, 8) or not os.environ.get("MILLRACE_RECORD_DIR"):
        return
    try:
        if os.environ.get("MILLRACE_RECORD_PYTHON_RANGES") != "0":
            import _millrace_ranges

            _millrace_ranges.begin()
    except Exception:  # the program comes first
        pass
    try:
        hz = int(os.environ.get("MILLRACE_RECORD_STACKS_HZ") or 0)
        if hz > 0 and sys.implementation.name == "cpython":
            import _millrace_stacks

            _millrace_stacks.begin(hz)
    except Exception:
        pass


def _leave_path():
    """The program finds sys.path as it would be without us."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]


def _is_there():
    """Whether this Python has another sitecustomize."""
    if sys.version_info >= (3, 4):
        import importlib.util

        return importlib.util.find_spec("sitecustomize") is not None
    import imp

    try:
        found = imp.find_module("sitecustomize")
    except ImportError:
        return False
    if found[0]:
        found[0].close()
    return True


def _run_hidden():
    """Its errors are site's to report, as always."""
    own = sys.modules.pop("sitecustomize", None)
    if _is_there():
        import sitecustomize  # noqa: F401
    elif own is not None:
        sys.modules["sitecustomize"] = own


_begin()
_leave_path()
_run_hidden()
