"""What a sample costs with worker processes: rate, CPU time by process, switches between threads.

    python3 bench/python/cpu.py [--workers 15] [--batch 256] [--bytes 3072] [--seconds 1.2]

Samples are ready arrays, so what is measured is the way from __getitem__ to the batch.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import time

import numpy as np

import millrace


class Ready:
    """Endless enough: arrays of n_bytes that are there."""

    def __init__(self, n_bytes: int) -> None:
        self.rows = np.random.default_rng(1).integers(0, 255, (64, n_bytes), dtype=np.uint8)

    def __len__(self) -> int:
        return 1 << 27

    def __getitem__(self, i: int) -> tuple[np.ndarray, int]:
        return self.rows[i & 63], i % 10


def group() -> list[int]:
    """The processes of this one's group: this one and its workers."""
    found = []
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and os.getpgid(int(name)) == os.getpgid(0):
                found.append(int(name))
        except ProcessLookupError:
            pass
    return found


def cpu_s(pid: int) -> float:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def switches(pid: int) -> int:
    status = [t.joinpath("status").read_text() for t in pathlib.Path(f"/proc/{pid}/task").iterdir()]
    return sum(int(line.split()[1]) for text in status for line in text.splitlines() if "_ctxt_" in line)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=15)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--bytes", type=int, default=3072)
    parser.add_argument("--seconds", type=float, default=1.2)
    args = parser.parse_args()
    os.setpgid(0, 0)
    with millrace.DataLoader(
        Ready(args.bytes), batch_size=args.batch, num_workers=args.workers, as_="numpy"
    ) as loader:
        batches = iter(loader)
        for _ in range(200):
            next(batches)
        pids, me = group(), os.getpid()
        cpu, before = {pid: cpu_s(pid) for pid in pids}, sum(map(switches, pids))
        start, n = time.perf_counter(), 0
        while time.perf_counter() - start < args.seconds:
            next(batches)
            n += 1
        took = time.perf_counter() - start
        used = {pid: cpu_s(pid) - cpu[pid] for pid in pids}
        per_sample = 1e6 / (n * args.batch)
        print(
            f"{args.workers} workers, batch {args.batch}, {args.bytes} bytes: "
            f"{n * args.batch / took / 1e6:.2f} M samples/s; CPU us a sample: "
            f"{(sum(used.values()) - used[me]) * per_sample:.3f} in workers, "
            f"{used[me] * per_sample:.3f} in the program; {sum(used.values()) / took:.1f} cores; "
            f"{(sum(map(switches, pids)) - before) / n:.1f} switches a batch"
        )


if __name__ == "__main__":
    main()
