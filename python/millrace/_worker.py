"""What runs in a worker process."""

from __future__ import annotations

import faulthandler
import multiprocessing.process
import multiprocessing.spawn
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

from . import _arena, _core, _pickle, _place, _where
from ._where import Failed

_mp_process: Any = multiprocessing.process  # what we use of it has no public name


class WorkerInfo(NamedTuple):
    """What get_worker_info() tells."""

    id: int  # 0 to num_workers - 1; the successor of a worker that died has its id
    num_workers: int
    seed: int  # differs between workers
    dataset: Any  # this process's copy


class Setup(NamedTuple):
    """What a worker is started with, beside file descriptors."""

    worker: int
    workers: int
    timeout: float  # s, of the samples that are made at a time; 0: none
    place: dict[str, Any]  # see place()
    main: bool  # the data set needs the program's main module
    copied: bool  # a copy engine reads the rows, not the program


class Files(NamedTuple):
    """A worker's file descriptors."""

    run: int  # of _core.worker_run()
    side: int  # see _arena
    recipe: int  # a sealed memfd; -1: the recipe is inherited
    lists: list[int]  # of the recipe's shared lists

    def flat(self) -> list[int]:
        return [self.run, self.side, self.recipe, *self.lists]

    @classmethod
    def from_flat(cls, fds: Sequence[int]) -> Files:
        return cls(fds[0], fds[1], fds[2], list(fds[3:]))


_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """This worker process's id, their number, its seed and its data set; None: no such process."""
    return _info


def place() -> dict[str, Any]:
    """Where this program runs and what its main module is, for another process to do the same."""
    found: dict[str, Any] = {
        "sys_path": [p or os.getcwd() for p in sys.path],
        "sys_argv": sys.argv,
        "dir": os.getcwd(),
        "environ": dict(os.environ),
    }
    main = sys.modules.get("__main__")
    name = getattr(getattr(main, "__spec__", None), "name", None)
    path = getattr(main, "__file__", None)
    if name is not None:
        found["init_main_from_name"] = name
    elif path is not None:
        start = _mp_process.ORIGINAL_DIR or os.getcwd()
        path = os.path.normpath(os.path.join(start, path))
        if os.path.isfile(path):  # a script from stdin is "<stdin>"
            found["init_main_from_path"] = path
    return found


def has_main(where: dict[str, Any]) -> bool:
    """Whether another process can import the main module: not in an interactive session, nor of a
    script from stdin."""
    return "init_main_from_name" in where or "init_main_from_path" in where


def go_to(where: dict[str, Any], main: bool) -> None:
    """Does as place() found. main: with the main module, as __mp_main__, as multiprocessing does.

    Raises what the main module raises.
    """
    os.environ.clear()
    os.environ.update(where["environ"])
    keys = {"sys_path", "sys_argv", "dir"}
    if main:
        keys |= {"init_main_from_name", "init_main_from_path"}
    process: Any = multiprocessing.process.current_process()
    process._inheriting = True  # who starts processes now is refused
    try:
        multiprocessing.spawn.prepare({k: v for k, v in where.items() if k in keys})
    finally:
        del process._inheriting


def ignore_interrupts() -> None:
    """Ctrl-C is the parent's business. It was blocked until now (_start)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def _reset_signals() -> None:
    signal.set_wakeup_fd(-1)
    ignore_interrupts()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_DFL)


def _tell_torch(info: WorkerInfo) -> bool:
    """Sets torch's get_worker_info(), too, and one thread per process, as its loader does."""
    worker: Any = sys.modules.get("torch.utils.data._utils.worker")
    if worker is None:
        return False
    fields = {"id": info.id, "num_workers": info.num_workers, "seed": info.seed}
    worker._worker_info = worker.WorkerInfo(**fields, dataset=info.dataset)
    sys.modules["torch"].set_num_threads(1)
    return True


class _Maker:
    """Makes samples for _core.worker_run(), and sends what is no row to the parent."""

    def __init__(self, setup: Setup, files: Files, recipe: Any,
                 failed: BaseException | None) -> None:
        self._setup = setup
        self._area = _arena.Area(files.side, setup.worker)
        self._stack = self._area.stack_file(files.side) if setup.timeout else -1
        self._told = False  # torch about this worker
        self._failed = failed  # raised for each sample, so that it arrives as a sample's error
        self._recipe = recipe
        self._objects = False
        self.fields: Sequence[Any] = [("none", "u8", ())]  # of rows
        if failed is None:
            try:
                self._start(files)
            except BaseException as error:
                self._failed = error

    def _start(self, files: Files) -> None:
        global _info
        if self._recipe is None:
            self._recipe = _pickle.load_sealed(files.recipe, files.lists)
        setup = self._setup
        self.fields, self._objects = self._recipe.fields, bool(self._recipe.objects)
        seed = int(getattr(self._recipe, "seed", 0) or 0) + setup.worker
        dataset = _place.original_of(getattr(self._recipe, "dataset", None))
        _info = WorkerInfo(setup.worker, setup.workers, seed, dataset)
        self._told = _tell_torch(_info)
        if hasattr(self._recipe, "note"):
            self._recipe.note = self._area.step
        self._recipe.start(_info)

    def _make(self, epoch: int, seed: int, indices: list[int], positions: list[int],
              worker: int) -> list[Any]:
        if self._failed is not None:
            return [self._failed] * len(indices)
        if not self._told and _info is not None:
            self._told = _tell_torch(_info)
        try:
            rows = self._recipe.fetch(epoch, seed, indices, positions, worker)
            if len(rows) != len(indices):
                raise ValueError("asked for %d samples, got %d" % (len(indices), len(rows)))
            return list(rows)
        except BaseException as error:
            return [error] * len(indices)

    def _put(self, row: Any) -> Any:
        try:
            return row if isinstance(row, BaseException) else self._area.put(row)
        except BaseException as error:
            return error

    def _report(self, epoch: int, index: int, error: BaseException) -> BaseException:
        """Sends an exception. Returns the sample's own."""
        sample, what = index, ""
        if isinstance(error, Failed):
            sample, what, error = error.sample, error.what, error.error
        packed = _where.pack(error, sample, what, epoch, self._setup.worker)
        self._area.put_error(epoch, index, packed)
        return error

    def fetch(self, epoch: int, seed: int, indices: list[int], positions: list[int],
              worker: int) -> list[Any]:
        """The rows of some samples, as _core.Dataset.python() wants them."""
        self._area.note(epoch, indices)
        if self._stack >= 0:
            self._area.rewind_stack(self._stack)
            faulthandler.dump_traceback_later(self._setup.timeout * 0.9, file=self._stack)
        try:
            rows = self._make(epoch, seed, indices, positions, worker)
            if self._objects:
                rows = [self._put(row) for row in rows]
            # The engine asks again for a bad sample of several, alone: it is reported then.
            if len(rows) == 1 and isinstance(rows[0], BaseException):
                rows[0] = self._report(epoch, indices[0], rows[0])
            return rows
        finally:
            if self._stack >= 0:
                faulthandler.cancel_dump_traceback_later()
            self._area.done()


def run(setup: Setup, files: Files, recipe: Any = None,
        failed: BaseException | None = None) -> NoReturn:
    """Makes samples until the parent is done or has ended. The process ends with this call.

    recipe: None: read from files. failed: why there is none.
    """
    code = 1
    try:
        _reset_signals()
        maker = _Maker(setup, files, recipe, failed)
        _core.worker_run(files.run, maker.fields, maker.fetch, setup.copied)
        code = 0
    except BaseException:
        sys.stderr.write("millrace: worker process %d:\n" % setup.worker)
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


def spawned(fds: str) -> NoReturn:
    """The main function of a worker that is a program of its own."""
    ignore_interrupts()
    numbers = list(map(int, fds.split(",")))
    failed: BaseException | None = None
    with open(numbers[0], "rb") as file:
        setup = Setup(*pickle.load(file))
    try:
        go_to(setup.place, setup.main)
    except BaseException as error:  # such as a main module that starts the pool again
        failed = error
    run(setup, Files.from_flat(numbers[1:]), failed=failed)
