"""What a sample costs with worker processes: rate, CPU time by process, switches between threads.

    python3 bench/python/cpu.py [--workers 15] [--batch 256] [--bytes 3072] [--work-us 0]
        [--ahead 2] [--threads 1] [--read | --device sim] [--seconds 1.2] [--rounds 1]

Samples are ready arrays, so what is measured is the way from __getitem__ to the batch. --work-us:
so long does Python compute before. --rounds: the least CPU time of so many rounds, each of at
least 100 batches: on a busy machine 40 rounds of 0.03 s say more than one that others disturb.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

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
    tasks = pathlib.Path(f"/proc/{pid}/task").iterdir()
    return sum(int(t.joinpath("schedstat").read_text().split()[0]) for t in tasks) * 1e-9


def switches(pid: int) -> int:
    status = [t.joinpath("status").read_text() for t in pathlib.Path(f"/proc/{pid}/task").iterdir()]
    return sum(int(line.split()[1]) for text in status for line in text.splitlines() if "_ctxt_" in line)


def set_threads(each: float) -> None:
    """Gives the engine so many threads per worker process: more than one keep jobs queued."""
    from millrace._python import PythonSource

    given = PythonSource.options

    def options(self: Any) -> dict[str, Any]:
        found = given(self)
        return {**found, "workers": int(each * found["workers"])}

    PythonSource.options = options  # type: ignore[method-assign]


class Round(NamedTuple):
    batches: int
    seconds: float
    cpu: dict[int, float]  # seconds by process
    switches: int


def measure(batches: Iterator[Any], pids: set[int], seconds: float, read: bool) -> Round:
    cpu, before = {pid: cpu_s(pid) for pid in pids}, {pid: switches(pid) for pid in pids}
    start, n = time.perf_counter(), 0
    while time.perf_counter() - start < seconds or n < 100:
        batch = next(batches)
        if read:
            batch[0].max()
        n += 1
    took = time.perf_counter() - start
    used = {pid: cpu_s(pid) - cpu[pid] for pid in pids}
    return Round(n, took, used, sum(switches(pid) - before[pid] for pid in pids))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=15)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--bytes", type=int, default=3072)
    parser.add_argument("--work-us", type=float, default=0)
    parser.add_argument("--ahead", type=int, default=2, help="batches prefetched per worker")
    parser.add_argument("--read", action="store_true", help="the program reads all bytes")
    parser.add_argument("--device", help="sim or cuda: a copy engine reads the rows")
    parser.add_argument("--threads", type=float, default=1, help="of the engine, per worker")
    parser.add_argument("--seconds", type=float, default=1.2)
    parser.add_argument("--rounds", type=int, default=1)
    args = parser.parse_args()
    if args.read and args.device:
        parser.error("--read: with --device the program has no arrays to read")
    os.setpgid(0, 0)
    set_threads(args.threads)
    with millrace.DataLoader(
        cases.Ready(1 << 27, args.bytes, args.work_us),
        batch_size=args.batch,
        num_workers=args.workers,
        prefetch_factor=args.ahead if args.workers else None,
        as_="dlpack" if args.device else "numpy",
        device=args.device,
    ) as loader:
        batches, me = iter(loader), os.getpid()
        for _ in range(200):
            next(batches)
        time.sleep(1)  # the process that made the first samples ends
        pids = group()
        rounds = [measure(batches, pids, args.seconds, args.read) for _ in range(args.rounds)]
        workers = min((sum(r.cpu.values()) - r.cpu[me]) / r.batches for r in rounds)
        program = min(r.cpu[me] / r.batches for r in rounds)
        n, took = sum(r.batches for r in rounds), sum(r.seconds for r in rounds)
        per_sample = 1e6 / args.batch
        print(
            f"{args.workers} workers, batch {args.batch}, {args.bytes} bytes, {args.work_us:g} us: "
            f"{n * args.batch / took / 1e6:.2f} M samples/s; CPU us a sample: "
            f"{workers * per_sample:.3f} in workers, {program * per_sample:.3f} in the program; "
            f"{sum(sum(r.cpu.values()) for r in rounds) / took:.1f} cores; "
            f"{sum(r.switches for r in rounds) / n:.1f} switches a batch"
        )


if __name__ == "__main__":
    main()
