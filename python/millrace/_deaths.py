"""How worker processes ended."""

from __future__ import annotations

import os
import signal
from typing import Any

from ._arena import Run
from ._where import Where


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

    def _how(self) -> str:
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
        return WorkerDied("%s: the process %s during %s" % (where, self._how(), during), where,
                          self.status)
