"""How worker processes are started: by a fork server, by fork, or as programs of their own."""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing.spawn
import multiprocessing.util
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from . import _forkserver, _pickle, _worker

_mp_spawn: Any = multiprocessing.spawn  # what we use of them has no public name
_mp_util: Any = multiprocessing.util
_subprocess: Any = subprocess


class Starter(Protocol):
    """Starts workers. Calls come from any thread, also while the program waits in C."""

    method: str

    def start(self, setup: _worker.Setup, files: _worker.Files) -> int:
        """Starts a worker; returns its pid. The caller keeps its file descriptors."""
        ...

    def status(self, pid: int) -> int | None:
        """The wait status of a process that has ended; None: unknown."""
        ...


def check_main() -> None:
    """Raises RuntimeError while a child process imports the program's main module."""
    _mp_spawn._check_not_importing_main()


@contextlib.contextmanager
def _no_interrupts() -> Iterator[None]:
    """Blocks SIGINT in this thread: a process that is started now gets none until it ignores it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _program(code: str) -> list[str]:
    """The command of a Python like this one that runs code with this package on its path."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    code = "import sys; sys.path.insert(0, %r); %s" % (package, code)
    flags = _subprocess._args_from_interpreter_flags()
    executable = os.fsdecode(multiprocessing.spawn.get_executable())
    return [executable, *flags, "-c", code]


def _spawn(code: str, fds: Sequence[int]) -> int:
    command = _program(code)
    with _no_interrupts():
        pid: int = _mp_util.spawnv_passfds(
            command[0].encode(), [os.fsencode(part) for part in command], fds)
    return pid


def _wait_status(pid: int) -> int | None:
    """Reaps a child, if it has ended and was not reaped yet."""
    try:
        found, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return status if found else None


class _Children:
    """The wait statuses of this process's children, for all who ask. The engine reaps a worker
    only after it has started the next one, so that there is time to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended: dict[int, int] = {}

    def started(self, pid: int) -> int:
        self._ended.pop(pid, None)
        return pid

    def status(self, pid: int) -> int | None:
        """See Starter."""
        with self._lock:
            if pid not in self._ended:
                status = _wait_status(pid)
                if status is None:
                    return None
                self._ended[pid] = status
            return self._ended[pid]


class Spawn(_Children):
    """Each worker is a new Python, which imports what it needs: seconds, but nothing inherited."""

    method = "spawn"

    def start(self, setup: _worker.Setup, files: _worker.Files) -> int:
        """See Starter."""
        fd = _pickle.memfd("setup")
        try:
            with open(fd, "wb", closefd=False) as file:
                file.write(pickle.dumps(tuple(setup)))
            fds = [fd, *files.flat()]
            os.lseek(fd, 0, os.SEEK_SET)
            text = ",".join(map(str, fds))
            code = "from millrace import _worker; _worker.spawned(%r)" % text
            return self.started(_spawn(code, fds))
        finally:
            os.close(fd)


class Fork(_Children):
    """Each worker is a copy of this process and inherits the data set: nothing is pickled."""

    method = "fork"

    def __init__(self, recipe: Any) -> None:
        super().__init__()
        self._recipe = recipe

    def start(self, setup: _worker.Setup, files: _worker.Files) -> int:
        """See Starter."""
        _mp_util._flush_std_streams()
        with warnings.catch_warnings(), _no_interrupts():
            # Python 3.12 warns that this process has threads. Who forks has chosen it.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
            if not pid:
                _worker.run(setup, files, self._recipe)
        return self.started(pid)


class _Client:
    """This program's fork server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sock: socket.socket | None = None
        self._pid = -1
        self._unread = 0  # answers of prepare()

    def _open(self) -> socket.socket:
        if self._sock is not None:
            return self._sock
        ours, theirs = socket.socketpair()
        parent = os.pidfd_open(os.getpid())
        try:
            fds = [theirs.fileno(), parent]
            self._pid = _spawn("from millrace import _forkserver; _forkserver.main(%d, %d)"
                               % (fds[0], fds[1]), fds)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(parent)
        self._sock, self._unread = ours, 0
        return ours

    def _ask(self, message: dict[str, Any], fds: Sequence[int]) -> dict[str, Any]:
        sock = self._open()
        _forkserver.send(sock, message, fds)
        while self._unread:
            _forkserver.receive(sock)
            self._unread -= 1
        return _forkserver.receive(sock)[0]

    def ask(self, message: dict[str, Any], fds: Sequence[int] = ()) -> dict[str, Any]:
        """Sends a message, and returns the answer. A server that was killed is started again."""
        with self._lock:
            for last in (False, True):
                try:
                    return self._ask({**message, "fds": len(fds)}, fds)
                except (OSError, EOFError) as error:
                    self._close()
                    if last:
                        raise RuntimeError("the server that forks worker processes does not run "
                                           "(%r)" % error) from error
                except BaseException:  # KeyboardInterrupt: an answer would be left unread
                    self._close()
                    raise
        raise AssertionError

    def prepare(self, message: dict[str, Any]) -> None:
        """Sends a message and does not wait for the answer."""
        with self._lock:
            try:
                _forkserver.send(self._open(), {**message, "fds": 0})
                self._unread += 1
            except OSError:
                self._close()  # ask() tries again

    def _close(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None
        pid, self._pid = self._pid, -1
        for _ in range(100):  # it ends at once, unless it is importing
            if pid < 0 or _wait_status(pid) is not None:
                return
            time.sleep(0.001)
        try:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except OSError:
            pass  # reaped by another

    def close(self) -> None:
        """Ends the server and the workers it has forked."""
        with self._lock:
            self._close()

    def forget(self) -> None:
        """In a forked child: the server is the parent's."""
        self._lock = threading.Lock()
        if self._sock is not None:
            self._sock.close()
        self._sock, self._pid, self._unread = None, -1, 0


_client = _Client()
atexit.register(_client.close)
os.register_at_fork(after_in_child=_client.forget)


class ForkServer:
    """Workers are forked from a process that has imported what they need, and nothing else."""

    method = "forkserver"

    def __init__(self, modules: Iterable[str] = ()) -> None:
        self._modules = sorted(modules)

    def start(self, setup: _worker.Setup, files: _worker.Files) -> int:
        """See Starter."""
        fds = files.flat()
        if len(fds) > _forkserver.MAX_FDS:
            raise ValueError("the data set has %d shared lists; at most %d can be passed to worker "
                             "processes" % (len(files.lists), _forkserver.MAX_FDS - 3))
        answer = _client.ask({"do": "start", "setup": tuple(setup), "modules": self._modules,
                              "main": setup.main, "place": setup.place}, fds)
        if "error" in answer:
            _raise(answer)
        return int(answer["pid"])

    def status(self, pid: int) -> int | None:
        """See Starter."""
        return _client.ask({"do": "status", "pid": pid}).get("status")


def _raise(answer: dict[str, Any]) -> None:
    if answer["errno"]:
        raise OSError(answer["errno"], answer["error"])
    _client.close()  # it has imported half of a module
    if "freeze_support" in answer["error"] or "freeze_support" in answer["traceback"]:
        raise RuntimeError(
            "worker processes could not be started: the process that starts them imports the "
            "script, and the script starts workers while it is imported. Put what it does behind "
            "`if __name__ == '__main__':`, or install cloudpickle, or pass "
            "multiprocessing_context=\"fork\".")
    raise RuntimeError("worker processes could not be started: %s\nIn the process that starts "
                       "them:\n%s" % (answer["error"], answer["traceback"]))


def prepare(dataset: object = None) -> None:
    """Starts the fork server, if it is not running, and does not wait for it.

    dataset: the server imports the modules of its class and that class's bases, such as torch,
    while the program goes on. A program's first pool then starts faster.
    """
    modules = sorted({kind.__module__ for kind in type(dataset).__mro__})
    message = {"do": "import", "modules": modules, "main": False, "place": _worker.place()}
    _client.prepare(message)
