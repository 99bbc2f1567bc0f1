"""Memory of worker processes that all read a list of 2 million strings.

    PYTHONPATH=build/python python bench/python/rss.py [--workers 4] [--items 2000000]

Each case runs in a process of its own, in which every worker reads every item. Reported are MiB of
proportional set size (PSS: a page that k processes share counts 1/k in each), summed over the
program and its workers, and what is private to a worker. The last column divides by the case
"one process", which has a plain list and no workers.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from typing import Any


class Reads:
    """Sample i of n: reads the i-th part of the list; the last ones end when all were read."""

    fields = [("pid", "i64", ()), ("length", "i64", ())]
    objects = False

    def __init__(self, items: Any) -> None:
        self.dataset = items

    def start(self, info: Any) -> None:
        """Reads all items, once in each worker."""
        self.length = sum(map(len, self.dataset))

    def fetch(self, epoch: int, seed: int, indices: list[int], positions: list[int],
              worker: int) -> list[tuple[int, int]]:
        """Rows: who read how much."""
        time.sleep(0.01)  # so that all workers get some
        return [(os.getpid(), self.length) for _ in indices]


class TorchReads:
    """The same for torch's loader."""

    def __init__(self, items: Any, n: int) -> None:
        self.items, self.n, self.length = items, n, 0

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> tuple[int, int]:
        if not self.length:
            self.length = sum(map(len, self.items))
        time.sleep(0.01)
        return os.getpid(), self.length


def kib(pid: int, *names: str) -> int:
    """The sum of some lines of smaps_rollup."""
    with open("/proc/%d/smaps_rollup" % pid) as file:
        lines = dict(line.split(":", 1) for line in file if line.count(":") == 1)
    return sum(int(lines[name].split()[0]) for name in names)


def report(pids: set[int]) -> None:
    """Prints the figures of this process and its workers."""
    pss = sum(kib(pid, "Pss") for pid in pids | {os.getpid()})
    private = max((kib(pid, "Private_Clean", "Private_Dirty") for pid in pids), default=0)
    print(pss / 1024, private / 1024)


def ours(items: Any, workers: int, method: str) -> None:
    """Worker processes of millrace."""
    import numpy

    from millrace import _core
    from millrace._processes import Pool

    pool = Pool(Reads(items), 200 * workers, workers=workers, context=method)
    loader = _core.Loader(pool.dataset, options={"batch_size": workers, "epochs": 1})
    seen: set[int] = set()
    while len(seen) < workers:
        batch = loader.next()
        assert batch is not None, "not all workers took part"
        seen.update(numpy.from_dlpack(batch.field(0)).tolist())
        batch.release()
    report(seen)
    loader.close()
    pool.close()


def torchs(items: Any, workers: int) -> None:
    """Worker processes of torch, which it forks."""
    from torch.utils.data import DataLoader

    batches = iter(DataLoader(TorchReads(items, 100_000), workers, num_workers=workers))
    seen: set[int] = set()
    while len(seen) < workers:
        seen.update(next(batches)[0].tolist())
    report(seen)
    os._exit(0)


def case(name: str, n: int, workers: int) -> None:
    """Runs one case in this process."""
    from millrace._shared import shared_list

    words = ("photos/train/%09d.jpg" % k for k in range(n))
    if name == "one process":
        items: Any = list(words)
        assert sum(map(len, items))
        report(set())
    elif name == "shared_list":
        ours(shared_list(words), workers, "forkserver")
    elif name.startswith("torch"):
        torchs(list(words), workers)
    else:
        ours(list(words), workers, name.rsplit(" ", 1)[1])


def main() -> None:
    """Runs all cases in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--items", type=int, default=2_000_000)
    parser.add_argument("--case")
    args = parser.parse_args()
    if args.case:
        return case(args.case, args.items, args.workers)
    one = 0.0
    print("%d workers, %d strings         MiB PSS   private per worker   / one process"
          % (args.workers, args.items))
    for name in ("one process", "shared_list", "list, fork", "list, forkserver", "torch, list"):
        command = [sys.executable, __file__, "--workers", str(args.workers), "--items",
                   str(args.items), "--case", name]
        pss, private = map(float, subprocess.check_output(command, text=True).split())
        one = one or pss
        print("%-32s %10.0f %20.0f %15.2f" % (name, pss, private, pss / one), flush=True)
    return None


if __name__ == "__main__":
    main()
