"""Where an exception of a sample was raised, and exceptions on their way between processes."""

from __future__ import annotations

import io
import os
import pickle
import sys
import traceback
from typing import Any, NamedTuple

from . import _pickle


class Where(NamedTuple):
    """Where an exception was raised."""

    sample: Any  # its index in the data set; a list: one of these; None: see what
    epoch: int
    worker: int
    pid: int
    file: str  # Python's file and line
    line: int
    what: str = ""  # the sample in words; "": by its index

    def __str__(self) -> str:
        text = "%s, epoch %d, worker process %d (pid %d)" % (
            self.what or name_of(self.sample), *self[1:4])
        return text + (', "%s", line %d' % self[4:6] if self.file else "")


class Traceback(Exception):
    """The cause of an exception that a worker process raised: where, with its traceback's text."""

    def __init__(self, text: str, where: Where) -> None:
        super().__init__(text)
        self.text = text
        self.where = where

    def __str__(self) -> str:
        return "\n%s\n%s" % (self.where, self.text.rstrip())


class Failed(Exception):
    """An exception in the place of a batch that Python makes. sample, what: see Where."""

    def __init__(self, error: BaseException, sample: Any, what: str = "") -> None:
        super().__init__("%s: %s: %s" % (what or name_of(sample), type(error).__name__, error))
        self.error, self.sample, self.what = error, sample, what


def name_of(sample: Any) -> str:
    """A sample in words, by its index, or by the list of those that it is one of."""
    if not isinstance(sample, list):
        return "sample %r" % (sample,)
    if len(sample) == 1:
        return "sample %r" % (sample[0],)
    shown = ", ".join(map(repr, sample[:8]))
    return "samples %s%s" % (shown, ", ... (%d)" % len(sample) if len(sample) > 8 else "")


def add_note(error: BaseException, text: str) -> None:
    """A line below the exception's own text, from Python 3.11 on."""
    if sys.version_info >= (3, 11):
        error.add_note("millrace: " + text)


def pack(error: BaseException, sample: Any, what: str, epoch: int, worker: int) -> tuple[Any, ...]:
    """An exception, as plain objects, with where it was raised and its traceback's text."""
    frames = traceback.extract_tb(error.__traceback__)
    file, line = (frames[-1].filename, frames[-1].lineno or 0) if frames else ("", 0)
    if not isinstance(sample, int | list | None):
        what = what or name_of(sample)
    where = Where(sample, epoch, worker, os.getpid(), file, line, what)
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    try:
        sink = io.BytesIO()
        _pickle.dump(error, sink, cloud_first=False)
        sink.seek(0)
        pickle.load(sink)
        pickled: bytes | None = sink.getvalue()
    except Exception:
        pickled = None  # what cannot travel arrives as a RuntimeError with its text
    return pickled, "%s: %s" % (type(error).__qualname__, error), text, tuple(where)


def unpack(packed: tuple[Any, ...]) -> BaseException:
    """The exception; its cause is a Traceback."""
    pickled, message, text, where = packed
    place = Where(*where)
    try:
        error = None if pickled is None else pickle.loads(pickled)
    except Exception:
        error = None
    if not isinstance(error, BaseException):
        error = RuntimeError(message)
    error.__cause__ = Traceback(text, place)
    add_note(error, str(place))
    return error
