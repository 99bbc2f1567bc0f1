"""Ctrl-C while a loader makes Python samples: KeyboardInterrupt, and no worker is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

# Samples take much longer than the test lasts: processes have to be killed, threads are left behind
# in a call that does not return, and interrupted in Python code ("busy"). The exit status is that of
# the interpreter's own KeyboardInterrupt.
PROGRAM = """
import os, sys, time
import numpy as np, millrace

class Slow:
    def __len__(self): return 100000
    def __getitem__(self, i):
        probed = i in (50000, 99999)  # the loader looks at these before it starts
        long = i >= 40 and not probed
        if long and method == "busy":
            end = time.monotonic() + 30
            while time.monotonic() < end:
                pass
        time.sleep(30 if long else 0.005)
        return np.zeros(3)

method = sys.argv[1]
in_threads = method in ("threads", "none", "busy")

def is_there(path):  # zombies are, too
    return os.path.exists(path)

if __name__ == "__main__":
    loader = millrace.DataLoader(Slow(), 10, as_="numpy", seed_samples=False,
                                 num_workers=2 if method != "none" else 0,
                                 multiprocessing_context=None if method == "none" else
                                 "threads" if in_threads else method)
    try:
        for i, batch in enumerate(loader):
            if i == 0:
                if in_threads:
                    workers = []
                else:
                    workers = [f"/proc/{p}" for p in loader._source.maker.pool.pids]
                    assert len(workers) == 2 and all(map(is_there, workers))
                print("iterates", flush=True)
    except KeyboardInterrupt:
        end = time.monotonic() + 20
        while any(map(is_there, workers)) and time.monotonic() < end:
            time.sleep(0.005)
        left = [path for path in workers if is_there(path)]
        print(time.monotonic(), left, flush=True)  # of the clock that all processes share
        raise
"""


def seconds_until_gone(program: Path, method: str, to_group: bool) -> float:
    """From the signal until the program has had KeyboardInterrupt and has no worker."""
    path = os.pathsep.join(filter(None, sys.path))
    child = subprocess.Popen([sys.executable, str(program), method], start_new_session=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             env={**os.environ, "PYTHONPATH": path})
    try:
        assert child.stdout and child.stdout.readline() == "iterates\n"
        time.sleep(0.3)  # into the long samples
        start = time.monotonic()
        (os.killpg if to_group else os.kill)(child.pid, signal.SIGINT)
        out, errors = child.communicate(timeout=25)
    finally:
        child.kill()
    assert child.returncode == -signal.SIGINT, errors
    assert errors.count("Traceback") == 1 and errors.rstrip().endswith("KeyboardInterrupt"), errors
    end, left = out.split(maxsplit=1)
    assert left == "[]\n"
    return float(end) - start


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("method, to_group", [
    ("forkserver", True), ("forkserver", False), ("fork", True), ("threads", True), ("none", True),
    ("busy", True)])
def test_no_worker_is_left(method: str, to_group: bool, tmp_path: Path) -> None:
    """Within 1 s. On a busy machine a try takes longer, so that one of three has to be as quick."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    took: list[float] = []
    while not took or (min(took) >= 1 and len(took) < 3):
        took.append(seconds_until_gone(program, method, to_group))
    assert min(took) < 1, took


END = """
import sys, time
import numpy as np, millrace

class Slow:
    def __len__(self): return 1000
    def __getitem__(self, i):
        time.sleep(30 if i in range(4, 500) else 0)
        return np.zeros(3)

loader = millrace.DataLoader(Slow(), 2, as_="numpy", seed_samples=False,
                             sampler=[0, 1, 2, 3] * 2 + [4, 0])
iterator = iter(loader)
for _ in range(4):
    next(iterator)
time.sleep(0.2)  # the engine makes sample 4 ahead
if sys.argv[1] == "with":
    with loader:
        raise KeyboardInterrupt
if sys.argv[1] == "raise":
    raise KeyboardInterrupt  # in the loop's body
"""


@pytest.mark.parametrize("how", ["with", "raise", "return"])
def test_a_sample_is_not_waited_for_at_the_end(how: str) -> None:
    path = os.pathsep.join(filter(None, sys.path))
    child = subprocess.run([sys.executable, "-c", END, how], capture_output=True, text=True,
                           timeout=20, env={**os.environ, "PYTHONPATH": path})
    assert child.returncode == (0 if how == "return" else -signal.SIGINT), child.stderr
    assert child.stderr.count("Traceback") == (how != "return"), child.stderr
