#!/usr/bin/env python3
"""A program without PyTorch for the profiler to look at: CuPy, two streams, copies of page-locked and pageable memory, products."""
import time

import cupy as cp
import cupyx
import numpy as np

N, STEPS = 1024, 60


def main():
    compute, copies = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
    weights = cp.random.rand(N, N, dtype=cp.float32)
    pinned = cupyx.empty_pinned((N, N), np.float32)
    pinned[:] = 1
    pageable = np.ones((N, N), np.float32)
    here = cp.empty((N, N), np.float32)
    begin = time.perf_counter()
    for step in range(STEPS):
        cp.cuda.nvtx.RangePush("step")
        with copies:
            here.set(pinned if step % 2 else pageable, stream=copies)
            ready = copies.record()
        compute.wait_event(ready)
        with compute:
            out = here
            for _ in range(4):
                out = cp.tanh(out @ weights)
            total = float(out.sum())  # waits
        cp.cuda.nvtx.RangePop()
    print(f"{STEPS} steps, {time.perf_counter() - begin:.3f} s, {total:.1f}")


if __name__ == "__main__":
    main()
