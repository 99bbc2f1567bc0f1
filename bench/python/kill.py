"""From the SIGKILL of a worker process until the rows that it held are made again.

    python3 bench/python/kill.py [--workers N] [--kills 50] [--work-us 200] [--context forkserver]

Each epoch kills one worker at a random moment. Workers note in a shared file when they begin and
end each sample. A sample that the killed worker began and did not end is the one that it held: the
time until another one begins it is what is printed. PyTorch's DataLoader ends with an error.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import tempfile
import threading
import time
from typing import Any

import numpy as np

import millrace

FIELDS = np.dtype([("pid", "i8"), ("begun", "i8"), ("ended", "i8"), ("again", "i8")])


class Noted:
    """Samples of 3 KB after some Python, noted in the file."""

    def __init__(self, path: str, n: int, work_us: float) -> None:
        self.path, self.n, self.work_s = path, n, work_us * 1e-6
        self.row = np.zeros(3072, np.uint8)
        self.notes: Any = None

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> tuple[Any, int]:
        if self.notes is None:
            self.notes = np.memmap(self.path, FIELDS, "r+")
        now = time.monotonic_ns()
        if self.notes["begun"][i]:
            self.notes["again"][i] = now
        else:
            self.notes["pid"][i] = os.getpid()
            self.notes["begun"][i] = now
        while time.monotonic_ns() < now + self.work_s * 1e9:
            pass
        if not self.notes["again"][i]:  # the next epoch begins before the last batch of this one
            self.notes["ended"][i] = time.monotonic_ns()
        return self.row, i


def kill_one(notes: Any, moment: float, choice: random.Random, out: list[int]) -> None:
    time.sleep(moment)
    while not (pids := sorted({int(pid) for pid in notes["pid"]} - {0, os.getpid()})):
        time.sleep(0.001)
    out.append(choice.choice(pids))
    out.append(time.monotonic_ns())
    os.kill(out[0], signal.SIGKILL)


def one_epoch(loader: Any, path: str, n: int, seconds: float, run: int) -> float | None:
    """Milliseconds until the row is made again; None: the worker held none just then."""
    notes = np.memmap(path, FIELDS, "r+")
    notes[:] = np.zeros(1, FIELDS)
    choice, killed = random.Random(run), []
    moment = choice.uniform(0.2, 0.8) * seconds
    thread = threading.Thread(target=kill_one, args=(notes, moment, choice, killed))
    thread.start()
    seen = np.concatenate([np.asarray(index) for _, index in loader])
    thread.join()
    if sorted(seen.tolist()) != list(range(n)):
        raise SystemExit(f"epoch {run}: samples are missing or twice")
    again = notes["again"][(notes["pid"] == killed[0]) & (notes["ended"] == 0)]
    return (int(min(again)) - killed[1]) / 1e6 if len(again) else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--work-us", type=float, default=200)
    parser.add_argument("--context", default="forkserver")
    a = parser.parse_args()
    n, seconds = a.workers * 1500, 1500 * a.work_us * 1e-6
    found: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "notes")
        np.zeros(n, FIELDS).tofile(path)
        with millrace.DataLoader(
            Noted(path, n, a.work_us),
            batch_size=64,
            num_workers=a.workers,
            persistent_workers=True,
            multiprocessing_context=a.context,
            as_="numpy",
        ) as loader:
            for run in range(a.kills):
                ms = one_epoch(loader, path, n, seconds, run)
                if ms is not None:
                    found.append(ms)
    found.sort()
    print(
        f"{a.workers} workers ({a.context}), {a.kills} kills, {len(found)} while rows were made: "
        f"made again after {statistics.median(found):.2f} ms (median), "
        f"{found[int(len(found) * 0.95)]:.2f} (95%), {found[-1]:.2f} (most)"
    )


if __name__ == "__main__":
    main()
