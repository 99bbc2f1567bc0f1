"""Worker processes that make samples in Python, as a data set of the engine.

A pool sends its recipe to the workers once, in a sealed memfd. The engine hands out runs of
samples, and workers write their fields where the loader reads them (millrace/workers.h). What is
no tensor travels by a side memory: see _arena.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import pickle
import signal
import sys
import weakref
from collections.abc import Sequence
from typing import Any, Protocol

from . import _arena, _core, _pickle, _start, _worker
from ._deaths import Death, Replaced, WorkerDied, WorkerTimeout
from ._worker import WorkerInfo, get_worker_info

__all__ = ["Pool", "Recipe", "WorkerDied", "WorkerInfo", "WorkerTimeout", "get_worker_info",
           "prepare"]

_log = logging.getLogger("millrace")
_METHODS = ("forkserver", "fork", "spawn")
_KEPT_DEATHS = 256

prepare = _start.prepare


class Recipe(Protocol):
    """What workers do. Picklable, or inherited by fork. `seed` and `dataset` are optional."""

    fields: Sequence[Any]  # of a row; with objects: one field, a u64
    objects: bool  # fetch() gives any Python objects, and a row is the ticket of one

    def start(self, info: Any) -> None:
        """Called once in each worker, before its first sample."""

    def fetch(self, epoch: int, seed: int, indices: list[int], positions: list[int],
              worker: int) -> Sequence[object]:
        """Makes some samples: an item for each index; an exception as an item is a bad sample."""
        ...


def _cuda_is_up() -> bool:
    """Whether this process has initialized CUDA, which does not survive a fork."""
    torch = sys.modules.get("torch")
    if torch is not None and getattr(torch, "cuda", None) and torch.cuda.is_initialized():
        return True
    for fd in os.listdir("/proc/self/fd"):
        try:
            if os.readlink("/proc/self/fd/" + fd).startswith("/dev/nvidia-uvm"):
                return True
        except OSError:
            continue
    return False


def _method(context: object) -> str | None:
    """The start method that a program asked for; None: it did not."""
    if context is None:
        return None
    get = getattr(context, "get_start_method", None)
    name = get() if get is not None else context
    if name not in _METHODS:
        raise ValueError("multiprocessing_context: %r: expected one of %s, or a context of "
                         "multiprocessing" % (context, ", ".join(map(repr, _METHODS))))
    return str(name)


class _NoMain(pickle.PicklingError):
    """Workers can't import the program's main module."""


class _Plan:
    """How the workers of a pool are started, and what they are sent."""

    def __init__(self, recipe: Recipe, method: str | None, quiet: bool) -> None:
        self.place = _worker.place()
        self.quiet = quiet
        self.fd, self.main = -1, False
        self.lists: list[Any] = []
        self.starter: _start.Starter
        if method == "fork":
            self.starter = _start.Fork(recipe)
            return
        try:
            modules = self._seal(recipe)
        except _pickle.MemoryFileError:
            raise  # forked workers would lack it as well
        except Exception as error:
            self.starter = self._fallback(recipe, method, error)
            return
        self.starter = _start.Spawn() if method == "spawn" else _start.ForkServer(modules)

    def _seal(self, recipe: Recipe) -> set[str]:
        sealed = _pickle.dump_sealed(recipe)
        self.fd, self.lists = sealed.fd, sealed.lists
        self.main = bool(sealed.modules & {"__main__", "__mp_main__"})
        if self.main and not _worker.has_main(self.place):
            self.close()
            raise _NoMain("a class or function that they need is defined in this program, which "
                          "is no file (but an interactive session, or a script from stdin)")
        return sealed.modules

    def _fallback(self, recipe: Recipe, method: str | None, error: Exception) -> _start.Starter:
        """What is done with a recipe that does not pickle."""
        if isinstance(error, _NoMain) and (method is not None or _cuda_is_up()):
            raise TypeError("worker processes: %s: save it as a file and run that, or install "
                            "cloudpickle" % error) from error
        dataset = getattr(recipe, "dataset", None)
        path, cause = _pickle.find_refusal(recipe, "recipe")
        if dataset is not None:
            path = path.removeprefix("recipe.")
        if path.startswith("collate"):
            path = "collate_fn" + path.removeprefix("collate")
        text = "%s cannot be pickled (%s)" % (path, str(cause) or type(cause).__name__)
        text = str(error) if isinstance(error, _NoMain) else text
        if method is not None or _cuda_is_up():
            why = "and a process that has initialized CUDA cannot be forked"
            raise TypeError("worker processes: %s, %s; make it in worker_init_fn or in "
                            "__setstate__, or leave it out in __getstate__" % (
                                text, why if method is None else
                                "which start method %r needs" % method)) from error
        if not self.quiet:
            _log.warning("%s; its worker processes are forked instead, which is unsafe if other "
                         "threads hold locks", text)
        return _start.Fork(recipe)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class _Starts:
    """Starts the workers of a pool, again when they died. Refers to nothing that owns it."""

    def __init__(self, plan: _Plan, side: _arena.Side, workers: int, timeout: float,
                 copied: bool) -> None:
        self.plan, self.side, self.workers, self.timeout = plan, side, workers, timeout
        self.copied = copied
        self.pids: dict[int, int] = {}
        self.pidfds: dict[int, int] = {}  # a pid may be another process's by now
        self.deaths: list[Death] = []
        self.ended: dict[int, Death] = {}  # workers that were not started again yet
        self.replaced = Replaced()
        self.failed: BaseException | None = None  # why the last start failed
        self.owner = os.getpid()
        self.aborted = False
        _live.add(self)

    def __call__(self, worker: int, fd: int) -> int:
        """Called by the library, on a thread of its own, too."""
        if self.aborted or self.side.fd < 0:
            raise _core.Cancelled("worker processes: the pool was aborted")
        if worker in self.pids and worker not in self.ended:
            death = self.ended[worker] = self.death(worker, self.pids[worker])
            self.deaths.append(death)
            del self.deaths[:-_KEPT_DEATHS]
        plan = self.plan
        lists = [shared._fd for shared in plan.lists]
        files = _worker.Files(fd, self.side.fd, plan.fd, lists)
        setup = _worker.Setup(worker, self.workers, self.timeout, plan.place, plan.main,
                              self.copied)
        try:
            pid = self.pids[worker] = plan.starter.start(setup, files)
        except BaseException as error:
            self.failed = error
            raise
        self._watch(worker, pid)
        if worker in self.ended:
            self.replaced.note(self.ended.pop(worker), pid)
        return pid

    def _watch(self, worker: int, pid: int) -> None:
        before = self.pidfds.pop(worker, -1)
        if before >= 0:
            os.close(before)
        with contextlib.suppress(OSError):  # it has ended already
            self.pidfds[worker] = os.pidfd_open(pid)

    def death(self, worker: int, pid: int) -> Death:
        """How a worker died."""
        run, stack = self.side.run(worker), self.side.stack(worker)
        status = self.plan.starter.status(pid)
        step = self.side.step(worker, run.indices[0]) if len(run.indices) == 1 else -1
        return Death(worker, pid, status, run, step, stack)

    def abort(self) -> None:
        """Kills the workers; no others are started."""
        if os.getpid() != self.owner:
            return
        self.aborted = True
        for fd in list(self.pidfds.values()):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, signal.SIGKILL)

    def close(self) -> None:
        """Closes files."""
        self.plan.close()
        self.side.close()
        while self.pidfds:
            os.close(self.pidfds.popitem()[1])

    def __del__(self) -> None:  # the last to refer to this may be the data set
        self.close()


_live: weakref.WeakSet[_Starts] = weakref.WeakSet()


def _end() -> None:
    """At the interpreter's end: loaders, which are closed next, do not wait for samples."""
    _core.workers_end()
    for starts in list(_live):
        starts.abort()


atexit.register(_end)


class Pool:
    """Worker processes, and the data set whose samples they make.

    recipe: what they do. n: samples. workers: processes. context: "forkserver" (None: this, and
    fork for a recipe that does not pickle), "fork", "spawn", or a multiprocessing context, of
    which the start method is used. timeout: s; a worker that takes longer for the up to 32 samples
    that it makes at a time is killed; 0: none. name, version: see _core.Dataset.python(). quiet:
    no warning that workers are forked. copied: a GPU's copy engine reads the rows, not the program.
    Raises TypeError for a recipe that does not pickle where it must, ValueError, OSError, and
    RuntimeError if a worker, importing the program, comes here.
    """

    def __init__(self, recipe: Recipe, n: int, *, workers: int, context: object = None,
                 timeout: float = 0, name: str = "python", version: int = 0,
                 quiet: bool = False, copied: bool = False) -> None:
        _start.check_main()
        if workers < 1:
            raise ValueError("workers: %d: expected 1 or more processes" % workers)
        plan = _Plan(recipe, _method(context), quiet)
        try:
            self._starts = _Starts(plan, _arena.Side(workers), workers, timeout, copied)
        except BaseException:
            plan.close()
            raise
        try:
            self.dataset: _core.Dataset = _core.Dataset.workers(
                n, recipe.fields, self._starts, workers=workers, timeout=timeout, name=name,
                version=version)
        except BaseException as error:
            self._starts.close()
            raise self._starts.failed or error from None
        self.method: str = plan.starter.method
        self._recipe = recipe

    @property
    def pids(self) -> list[int]:
        """The workers' process ids."""
        pids = self._starts.pids
        return [pids[worker] for worker in sorted(pids)]

    @property
    def replaced(self) -> int:
        """How many workers ended and were replaced."""
        return self._starts.replaced.n

    def take(self, ticket: int) -> object:
        """The object of a row's ticket, once; with objects only. Raises ValueError.

        Numpy arrays and CPU tensors of 4 KiB or more are views of memory that the worker uses
        again when they are gone; a forked child must not use them longer than its parent.
        """
        return self._starts.side.take(ticket)

    def drop(self) -> None:
        """Frees the objects that were not taken. No loader may be reading from the data set."""
        self._starts.side.drop()

    def error(self, epoch: int, index: int) -> BaseException | None:
        """Why a sample failed: its exception, with the worker's traceback as its cause.

        WorkerDied or WorkerTimeout if the worker did not survive it. None: unknown; the newest 256
        of each worker are known.
        """
        starts = self._starts
        if starts.side.fd < 0:
            return None
        for death in reversed(starts.deaths):
            if death.run == (epoch, [index]):
                return self._error_of(death, epoch, index)
        found = starts.side.error(epoch, index)
        if found is not None:
            return found
        for worker, pid in list(starts.pids.items()):  # that died now
            if starts.side.run(worker) == (epoch, [index]):
                return self._error_of(starts.death(worker, pid), epoch, index)
        return None

    def _error_of(self, death: Death, epoch: int, index: int) -> WorkerDied:
        where = getattr(self._recipe, "where", None)
        sample, what = (index, "") if where is None else where(epoch, index, death.step)
        error = death.error(epoch, sample, what, self._starts.timeout)
        error.step = death.step
        return error

    def abort(self) -> None:
        """Ends the workers now; samples that are being made fail.

        For a KeyboardInterrupt and other exceptions: a loader's close() waits for the samples that
        are being made. The pool can only be closed then.
        """
        self._starts.abort()

    def close(self) -> None:
        """Ends the workers. Objects that were taken stay valid. Loaders must be closed before."""
        if os.getpid() == self._starts.owner:
            self.dataset.close()
        self._starts.close()
