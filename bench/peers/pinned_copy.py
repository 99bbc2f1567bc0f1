#!/usr/bin/env python3
"""PyTorch's copies between page-locked memory and the GPU, as its users write them: tensor.copy_(other, non_blocking=True).

Prints one JSON line for each size and direction: median GB/s of --repeats timings by CUDA events, each over enough copies to
move about --bytes, after a warm-up. And the time that page-locking a tensor takes, per GiB.
"""
import argparse
import json
import statistics
import time

import torch


def rate(copy, size, total, repeats):
    n = max(1, min(2000, total // size))
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    rates = []
    for _ in range(repeats + 1):
        start.record()
        for _ in range(n):
            copy()
        end.record()
        end.synchronize()
        rates.append(n * size / (start.elapsed_time(end) * 1e6))
    return statistics.median(rates[1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, default=1 << 30)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    print(json.dumps({"peer": "torch", "version": torch.__version__, "gpu": torch.cuda.get_device_name()}))
    for size in (4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20):
        host = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        pageable = torch.zeros(size, dtype=torch.uint8)
        device = torch.empty(size, dtype=torch.uint8, device="cuda")
        cases = {
            "h2d": lambda: device.copy_(host, non_blocking=True),
            "d2h": lambda: host.copy_(device, non_blocking=True),
            "h2d_pageable": lambda: device.copy_(pageable),
        }
        for name, copy in cases.items():
            total = args.bytes if name != "h2d_pageable" else args.bytes // 8
            gb_per_s = rate(copy, size, total, args.repeats)
            print(json.dumps({"case": name, "bytes": size, "gb_per_s": round(gb_per_s, 3)}), flush=True)
    begin = time.perf_counter()
    torch.empty(1 << 30, dtype=torch.uint8, pin_memory=True)
    print(json.dumps({"case": "pin", "s_per_gib": round(time.perf_counter() - begin, 3)}))


if __name__ == "__main__":
    main()
