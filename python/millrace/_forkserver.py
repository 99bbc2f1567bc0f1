"""The server that forks worker processes: a small process which has imported what they need.

It is started once for a program, has one thread, and never runs the program's code beyond its
imports, so that forking it is safe and takes milliseconds. It ends with the program.

A message is its length (8 bytes), with file descriptors beside it, and a pickled dict.
"""

from __future__ import annotations

import array
import gc
import importlib
import os
import pickle
import select
import signal
import socket
import struct
import sys
import time
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

_LENGTH = struct.Struct("<Q")
_YOUNG_S = 1
MAX_FDS = 250  # of a message; Linux's limit is 253


def send(sock: socket.socket, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
    """Sends a message."""
    body = pickle.dumps(message)
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    sock.sendmsg([_LENGTH.pack(len(body))], rights)
    sock.sendall(body)


def _receive_bytes(sock: socket.socket, n: int) -> bytes:
    data = bytearray()
    while len(data) < n:
        more = sock.recv(n - len(data))
        if not more:
            raise EOFError
        data += more
    return bytes(data)


def receive(sock: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Receives a message. Raises EOFError when the other side is gone."""
    fds = array.array("i")
    space = socket.CMSG_SPACE(MAX_FDS * fds.itemsize)
    data, rights, _, _ = sock.recvmsg(_LENGTH.size, space, socket.MSG_CMSG_CLOEXEC)
    for level, kind, sent in rights:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(sent[: len(sent) - len(sent) % fds.itemsize])
    if not data:
        raise EOFError
    data += _receive_bytes(sock, _LENGTH.size - len(data))
    return pickle.loads(_receive_bytes(sock, _LENGTH.unpack(data)[0])), list(fds)


class _Server:
    def __init__(self, sock: socket.socket, parent: int) -> None:
        self._sock = sock
        self._parent = parent
        self._children: dict[int, float] = {}  # pid: when it was forked
        self._ended: dict[int, int] = {}  # pid: wait status
        self._wakeup = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._imported: set[str] = set()

    def _reap(self, asked: int = 0) -> None:
        """Reaps children that ended, except young ones: the parent may yet have to find them."""
        for pid, born in list(self._children.items()):
            if pid != asked and time.monotonic() - born < _YOUNG_S:
                continue
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                del self._children[pid]
                self._ended[pid] = status
        while len(self._ended) > 1000:
            del self._ended[next(iter(self._ended))]

    def _until_grown_ms(self) -> float | None:
        """Milliseconds until the next young child may be reaped; None: no child is young."""
        ages = [time.monotonic() - born for born in self._children.values()]
        left = [_YOUNG_S - age for age in ages if age < _YOUNG_S]
        return 1000 * min(left) + 1 if left else None

    def _import(self, message: dict[str, Any]) -> None:
        from . import _worker

        before = len(self._imported)
        sys.path[:] = message["place"]["sys_path"]
        for name in message["modules"]:
            if name not in self._imported and name not in ("__main__", "__mp_main__"):
                self._imported.add(name)
                try:
                    importlib.import_module(name)
                except BaseException:
                    pass  # the worker raises it, if it needs the module at all
        if message["main"] and "__main__" not in self._imported:
            self._imported.add("__main__")
            _worker.go_to(message["place"], True)
        if len(self._imported) > before:
            gc.collect()
            gc.freeze()  # so that the workers' collections leave shared pages alone

    def _fork(self, message: dict[str, Any], fds: list[int]) -> int:
        pid = os.fork()
        if not pid:
            self._child(message, fds)
        self._children[pid] = time.monotonic()
        return pid

    def _child(self, message: dict[str, Any], fds: list[int]) -> NoReturn:
        from . import _worker

        failed: BaseException | None = None
        signal.set_wakeup_fd(-1)
        for fd in (self._sock.detach(), self._parent, *self._wakeup):
            os.close(fd)
        setup = _worker.Setup(*message["setup"])
        try:
            _worker.go_to(setup.place, False)
        except BaseException as error:  # such as a working directory that is gone
            failed = error
        _worker.run(setup, _worker.Files.from_flat(fds), failed=failed)

    def _answer(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        try:
            if message["do"] == "status":
                self._reap(message["pid"])
                return {"status": self._ended.get(message["pid"])}
            if len(fds) != message["fds"]:
                raise OSError(24, "of %d file descriptors, %d arrived: the limit is too low "
                              "(ulimit -n)" % (message["fds"], len(fds)))
            self._import(message)
            return {"pid": self._fork(message, fds) if message["do"] == "start" else 0}
        except BaseException as error:
            return {"error": "%s: %s" % (type(error).__name__, error),
                    "traceback": traceback.format_exc(), "errno": getattr(error, "errno", None)}

    def _serve(self) -> bool:
        """Answers one message. Returns False when the parent is gone."""
        try:
            message, fds = receive(self._sock)
        except (EOFError, OSError):
            return False
        answer = self._answer(message, fds)
        for fd in fds:
            os.close(fd)
        try:
            send(self._sock, answer)
        except OSError:
            return False
        return True

    def run(self) -> None:
        """Serves until the parent closes its socket or dies, then kills what it has forked."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # it was blocked until now (_start)
        # A thread of the library, which blocks most signals, may have started this process.
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakeup[1], warn_on_full_buffer=False)
        poll = select.poll()
        for fd in (self._sock.fileno(), self._parent, self._wakeup[0]):
            poll.register(fd, select.POLLIN)
        while True:
            ready = dict(poll.poll(self._until_grown_ms()))
            if self._wakeup[0] in ready:
                os.read(self._wakeup[0], 4096)
            self._reap()
            if self._parent in ready or self._sock.fileno() in ready and not self._serve():
                break
        for pid in self._children:
            os.kill(pid, signal.SIGKILL)


def main(sock: int, parent: int) -> None:
    """The main function. sock: a stream socket; parent: a pidfd."""
    _Server(socket.socket(fileno=sock), parent).run()
    os._exit(0)
