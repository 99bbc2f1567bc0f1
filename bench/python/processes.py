"""Worker processes against torch's DataLoader: cost of a sample, first batch, a killed worker.

    PYTHONPATH=build/python python bench/python/processes.py [--workers 2] [--rounds 5]

Peers run in turn; medians of the rounds. CPU time is that of all processes. torch's cases run in
processes of their own, without millrace, and millrace's without torch unless they say so.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy
from cases import READY, Ready

N = 1 << 20


class Rows:
    """The recipe of Ready."""

    objects = False

    def __init__(self, dataset: Ready) -> None:
        self.dataset = dataset
        self.fields = [("x", "u8", (dataset.n_bytes,)), ("y", "i64", ())]

    def start(self, info: Any) -> None:
        """Nothing to do."""

    def fetch(self, epoch: int, seed: int, indices: list[int], positions: list[int],
              worker: int) -> list[Any]:
        """Rows."""
        get = self.dataset.__getitem__
        return [get(index) for index in indices]


def cpu_s(pids: list[int]) -> float:
    """CPU seconds of this process and others."""
    tick = os.sysconf("SC_CLK_TCK")
    total = time.process_time()
    for pid in pids:
        with open("/proc/%d/stat" % pid) as file:
            fields = file.read().rsplit(")", 1)[1].split()
        total += (int(fields[11]) + int(fields[12])) / tick
    return total


def ours(data: Ready, batch: int, batches: int, workers: int) -> tuple[float, ...]:
    """First batch (ms), samples/s, CPU us a sample."""
    from millrace import _core
    from millrace._processes import Pool

    start = time.perf_counter()
    pool = Pool(Rows(data), N, workers=workers)
    loader = _core.Loader(pool.dataset, options={"batch_size": batch, "epochs": 1})
    loader.next().release()
    first = time.perf_counter()
    cpu = cpu_s(pool.pids)
    for _ in range(batches):
        found = loader.next()
        numpy.from_dlpack(found.field(0))
        found.release()
    end = time.perf_counter()
    cpu = cpu_s(pool.pids) - cpu
    loader.close()
    pool.close()
    n = batch * batches
    return 1e3 * (first - start), n / (end - first), 1e6 * cpu / n


def killed(n: int) -> float:
    """From the SIGKILL of one of two workers to the batch after it, ms; the median of n kills.

    Samples take 200 us and batches have two, so that no batch is ready when the worker dies.
    """
    from millrace import _core
    from millrace._processes import Pool

    pool = Pool(Rows(Ready(N, 64, 200)), N, workers=2)
    loader = _core.Loader(pool.dataset, options={"batch_size": 2, "prefetch": 2})
    waits = []
    for _ in range(n):
        for _ in range(100):
            loader.next().release()
        time.sleep(0.02)
        os.kill(pool.pids[0], signal.SIGKILL)
        start, longest = time.perf_counter(), 0.0
        for _ in range(20):
            loader.next().release()
            now = time.perf_counter()
            start, longest = now, max(longest, now - start)
        waits.append(1e3 * longest)
    loader.close()
    pool.close()
    return statistics.median(waits)


def torchs(data: Ready, batch: int, batches: int, workers: int) -> tuple[float, ...]:
    """The same of torch's loader."""
    from torch.utils.data import DataLoader

    start = time.perf_counter()
    loader = iter(DataLoader(data, batch, num_workers=workers, shuffle=False))
    next(loader)
    first = time.perf_counter()
    pids = [worker.pid for worker in getattr(loader, "_workers", [])]
    cpu = cpu_s(pids)
    for _ in range(batches):
        next(loader)
    end = time.perf_counter()
    n = batch * batches
    return 1e3 * (first - start), n / (end - first), 1e6 * (cpu_s(pids) - cpu) / n


def run(name: str, case: str, workers: int) -> None:
    """Runs a case of cases.READY in this process, and prints its figures."""
    data, batch, batches = READY[case].data(N), READY[case].batch_size, READY[case].batches
    if name.startswith("torch"):
        import torch  # noqa: F401 (before the clock runs)

        found = torchs(data, batch, batches // 4, 0 if name.endswith("0") else workers)
    elif name.startswith("warm"):
        from millrace._processes import Pool

        Pool(Rows(data), N, workers=1).close()
        found = ours(data, batch, batches, workers)
    else:
        found = ours(data, batch, batches, workers)
    print(*found)
    sys.stdout.flush()
    os._exit(0)


def main() -> None:
    """Runs all cases in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--run", nargs=2)
    parser.add_argument("--kills", type=int, default=20)
    args = parser.parse_args()
    if args.run:
        return run(*args.run, args.workers)
    print("one of 2 workers killed, longest wait for a batch: %.1f ms" % killed(args.kills))
    names = ["cold millrace", "warm millrace", "torch", "torch 0"]
    for case, about in READY.items():
        print("%s, %d workers    first batch ms   samples/s   CPU us/sample"
              % (about.title, args.workers))
        found: dict[str, list[list[float]]] = {name: [] for name in names}
        for _ in range(args.rounds):
            for name in names:
                command = [sys.executable, __file__, "--workers", str(args.workers), "--run"]
                text = subprocess.check_output([*command, name, case], text=True)
                found[name].append(list(map(float, text.split())))
        for name in names:
            medians = [statistics.median(column) for column in zip(*found[name])]
            print("  %-24s %12.1f %12.0f %15.2f" % (name, *medians), flush=True)
    return None


if __name__ == "__main__":
    main()
