"""What a sample costs with worker processes: rate, CPU time by process, switches between threads.

    python3 bench/python/cpu.py [--workers 15] [--batch 256] [--bytes 3072] [--work-us 0]
        [--seconds 1.2]

Samples are ready arrays, so what is measured is the way from __getitem__ to the batch. --work-us:
so long does Python compute before.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import time

import cases

import millrace


def group() -> set[int]:
    """The processes of this one's group: this one and its workers."""
    found = set()
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and os.getpgid(int(name)) == os.getpgid(0):
                found.add(int(name))
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
    parser.add_argument("--work-us", type=float, default=0)
    parser.add_argument("--seconds", type=float, default=1.2)
    args = parser.parse_args()
    os.setpgid(0, 0)
    with millrace.DataLoader(
        cases.Ready(1 << 27, args.bytes, args.work_us),
        batch_size=args.batch,
        num_workers=args.workers,
        as_="numpy",
    ) as loader:
        batches = iter(loader)
        for _ in range(200):
            next(batches)
        pids, me = group(), os.getpid()
        cpu, before = {pid: cpu_s(pid) for pid in pids}, {pid: switches(pid) for pid in pids}
        start, n = time.perf_counter(), 0
        while time.perf_counter() - start < args.seconds:
            next(batches)
            n += 1
        took = time.perf_counter() - start
        pids &= group()  # the process that made the first samples may have ended
        used = {pid: cpu_s(pid) - cpu[pid] for pid in pids}
        per_sample = 1e6 / (n * args.batch)
        print(
            f"{args.workers} workers, batch {args.batch}, {args.bytes} bytes, {args.work_us:g} us: "
            f"{n * args.batch / took / 1e6:.2f} M samples/s; CPU us a sample: "
            f"{(sum(used.values()) - used[me]) * per_sample:.3f} in workers, "
            f"{used[me] * per_sample:.3f} in the program; {sum(used.values()) / took:.1f} cores; "
            f"{sum(switches(pid) - before[pid] for pid in pids) / n:.1f} switches a batch"
        )


if __name__ == "__main__":
    main()
