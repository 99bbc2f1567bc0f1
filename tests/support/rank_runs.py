"""What tests and benches of ranks share: a checkpoint's hash, and the processes of a launcher."""
import contextlib
import hashlib
import os
import signal
import struct


def tensors(path):
    """A hash of a checkpoint's tensors: parameters, running statistics, the optimizer's state."""
    with open(path, "rb") as file:
        head = struct.unpack("<Q", file.read(8))[0]
        file.seek(8 + head)
        return hashlib.sha256(file.read()).hexdigest()[:16]


def pids(program, variable, rank):
    """The processes of a program that are this rank."""
    wanted = f"{variable}={rank}".encode()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                mine = wanted in file.read().split(b"\0")
            if mine and os.readlink(f"/proc/{pid}/exe") == os.path.realpath(program):
                yield int(pid)
        except OSError:
            pass  # it ended


def kill_session(leader):
    """A launcher that leads a session, and its ranks, which may have groups of their own."""
    groups = {leader}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.getsid(int(pid)) == leader:
                groups.add(os.getpgid(int(pid)))
    for group in groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
