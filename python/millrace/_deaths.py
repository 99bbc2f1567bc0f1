"""How worker processes ended."""

from __future__ import annotations

import logging
import os
import signal
import time
from typing import Any

from ._arena import Run
from ._where import Where

_log = logging.getLogger("millrace")
_LINES = 5  # of a pool, one for each end;
_PAUSE_S = 10.0  # then one in this time


class WorkerDied(RuntimeError):
    """A worker process ended while it made a sample."""

    def __init__(self, text: str, where: Where, status: int | None) -> None:
        super().__init__(text, where, status)
        self.where = where
        self.status = status  # as of os.waitpid(); None: unknown
        self.step = -1  # the sample's place in its batch, if Python makes batches

    def __str__(self) -> str:
        return str(self.args[0])


class WorkerTimeout(WorkerDied, TimeoutError):  # pyright: ignore[reportUnsafeMultipleInheritance]
    """A worker process was killed because a sample took too long."""


class Death:
    """A worker that ended while it was making samples.

    step: the place in the batch of the sample that was being made; -1: unknown, or no batch.
    """

    def __init__(self, worker: int, pid: int, status: int | None, run: Run, step: int,
                 stack: str) -> None:
        self.worker, self.pid, self.status = worker, pid, status
        self.run, self.step, self.stack = run, step, stack

    def how(self) -> str:
        """How it ended, as a clause."""
        if self.stack:
            return "was killed since a sample took longer than the timeout"
        if self.status is None:
            return "ended"
        if os.WIFEXITED(self.status):
            return "ended with exit code %d" % os.WEXITSTATUS(self.status)
        number = os.WTERMSIG(self.status)
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = "signal %d" % number
        return "was killed by %s%s" % (name, ", perhaps for lack of memory" * (name == "SIGKILL"))

    def error(self, epoch: int, sample: Any, what: str, timeout: float) -> WorkerDied:
        """The exception for one of its samples; see Where."""
        where = Where(sample, epoch, self.worker, self.pid, "", 0, what)
        if self.stack:
            text = "%s: took longer than %g s; the worker was at:\n%s" % (
                where, timeout, self.stack.rstrip())
            return WorkerTimeout(text, where, self.status)
        during = "one of these samples" if isinstance(sample, list) else "this sample"
        return WorkerDied("%s: the process %s during %s" % (where, self.how(), during), where,
                          self.status)


class Replaced:
    """The workers of a pool that were replaced: their number, and lines in the log."""

    def __init__(self) -> None:
        self.n = 0
        self._told = self._lines = 0  # how many of n the log reported
        self._next_s = 0.0

    def note(self, death: Death, pid: int) -> None:
        """Process pid runs in the place of one that ended. One thread at a time."""
        self.n += 1
        now = time.monotonic()
        if self._lines >= _LINES and now < self._next_s:
            return
        others = self.n - self._told - 1
        self._told, self._lines, self._next_s = self.n, self._lines + 1, now + _PAUSE_S
        _log.warning("worker %d, process %d, %s; process %d replaces it (replaced so far: %d%s)",
                     death.worker, death.pid, death.how(), pid, self.n,
                     ", %d since the last line" % (others + 1) if others else "")
