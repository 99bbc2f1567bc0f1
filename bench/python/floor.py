"""The least that a sample of cpu.py's data set can cost: floor.c's loop in N processes at a time.

    cc -O2 -shared -fPIC $(python3-config --includes) bench/python/floor.c -o floor.so
    python3 bench/python/floor.py floor.so [--workers 15] [--bytes 3072] [--rows 7680]
        [--work-us 0] [--seconds 1.2] [--shared]

No order, no batches, no other process that waits. --rows: that many rows are written in turn; as
many as the loader's slots have (30 batches of 256, shared by all workers). Each process has its
share of them to itself, which may fit its caches. --shared: each writes any of them, 128 at a time
in a random order, as the loader's workers do: the last to write a row was mostly another one.
"""

from __future__ import annotations

import argparse
import ctypes
import mmap
import multiprocessing
import random
import time
from typing import Any

import cases


JOB = 128  # rows


def run(path: str, args: argparse.Namespace, shared: mmap.mmap, ready: Any, out: Any) -> None:
    data = cases.Ready(1 << 27, args.bytes, args.work_us)
    rows = max(1, args.rows // (1 if args.shared else args.workers))
    memory = shared if args.shared else mmap.mmap(-1, rows * args.bytes)
    call = ctypes.PyDLL(path).floor_run
    call.argtypes = [ctypes.py_object, ctypes.c_long, ctypes.c_long, ctypes.c_void_p,
                     ctypes.c_long, ctypes.c_long]  # fmt: skip
    at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    call(data, 4 * rows, 0, at, rows, args.bytes)
    jobs = [at + args.bytes * first for first in range(0, max(rows - JOB, 0) + 1, JOB)]
    random.shuffle(jobs)
    ready.wait()
    cpu, start, n = time.process_time(), time.perf_counter(), 0
    while time.perf_counter() - start < args.seconds:
        for to in jobs if args.shared else [at]:
            count = min(JOB, rows) if args.shared else 4096
            call(data, count, n, to, count if args.shared else rows, args.bytes)
            n += count
    out.put((n, time.perf_counter() - start, time.process_time() - cpu))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("--workers", type=int, default=15)
    parser.add_argument("--bytes", type=int, default=3072)
    parser.add_argument("--rows", type=int, default=30 * 256)
    parser.add_argument("--work-us", type=float, default=0)
    parser.add_argument("--seconds", type=float, default=1.2)
    parser.add_argument("--shared", action="store_true")
    args = parser.parse_args()
    fork = multiprocessing.get_context("fork")
    ready, out = fork.Barrier(args.workers), fork.Queue()
    shared = mmap.mmap(-1, args.rows * args.bytes)
    all_ = [fork.Process(target=run, args=(args.library, args, shared, ready, out))
            for _ in range(args.workers)]  # fmt: skip
    for process in all_:
        process.start()
    found = [out.get() for _ in all_]
    for process in all_:
        process.join()
    print(f"floor: {args.workers} workers, {args.bytes} bytes, {args.work_us:g} us"
          f"{', shared rows' if args.shared else ''}: "
          f"{sum(n / s for n, s, _ in found) / 1e6:.2f} M samples/s; CPU us a sample: "
          f"{sum(cpu for *_, cpu in found) / sum(n for n, *_ in found) * 1e6:.3f}")


if __name__ == "__main__":
    main()
