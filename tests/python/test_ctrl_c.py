"""Ctrl-C while a loader makes Python samples: KeyboardInterrupt, and no worker is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

# Processes sleep for much longer than the test lasts: they have to be killed. Threads can't be, so
# that their samples are short. The exit status is that of the interpreter's own KeyboardInterrupt.
PROGRAM = """
import os, sys, time
import numpy as np, millrace

class Slow:
    def __len__(self): return 100000
    def __getitem__(self, i):
        probed = i in (50000, 99999)  # the loader looks at these before it starts
        time.sleep(30 if i >= 40 and not probed and sys.argv[1] != "threads" else 0.005)
        return np.zeros(3)

def is_there(path):  # zombies are, too
    return os.path.exists(path)

if __name__ == "__main__":
    loader = millrace.DataLoader(Slow(), 10, as_="numpy", seed_samples=False, num_workers=2,
                                 multiprocessing_context=sys.argv[1])
    try:
        for i, batch in enumerate(loader):
            if i == 0:
                if sys.argv[1] == "threads":
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
@pytest.mark.parametrize("method, to_group", [("forkserver", True), ("forkserver", False), ("fork", True),
                                              ("threads", True)])
def test_no_worker_is_left(method: str, to_group: bool, tmp_path: Path) -> None:
    """Within 1 s. On a busy machine a try takes longer, so that one of three has to be as quick."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    took: list[float] = []
    while not took or (min(took) >= 1 and len(took) < 3):
        took.append(seconds_until_gone(program, method, to_group))
    assert min(took) < 1, took
