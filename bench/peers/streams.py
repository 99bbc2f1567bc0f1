#!/usr/bin/env python3
"""PyTorch's overlap of copies and matrix products, as its users write it: n inputs copied to the GPU, multiplied by the same
weights and copied back, in one stream and in a stream for each. All host tensors are page-locked, copies are non_blocking.

Prints one JSON line for each: median wall time of --repeats runs after a warm-up, synchronised at both ends, and the peak of
device memory.
"""
import argparse
import contextlib
import json
import statistics
import time

import torch


def run(inputs, outputs, weights, streams):
    for i, (x, y) in enumerate(zip(inputs, outputs)):
        with torch.cuda.stream(streams[i % len(streams)]) if streams else contextlib.nullcontext():
            y.copy_(x.to("cuda", non_blocking=True) @ weights, non_blocking=True)
    torch.cuda.synchronize()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=32)
    parser.add_argument("--size", type=int, default=2048)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    shape = (args.size, args.size)
    inputs = [torch.rand(shape).pin_memory() for _ in range(args.n)]
    outputs = [torch.empty(shape, pin_memory=True) for _ in range(args.n)]
    weights = torch.rand(shape, device="cuda")
    print(json.dumps({"peer": "torch", "version": torch.__version__, "gpu": torch.cuda.get_device_name()}))
    for name, streams in (("one", []), ("each", [torch.cuda.Stream() for _ in range(args.n)])):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        times = []
        for _ in range(args.repeats + 1):
            begin = time.perf_counter()
            run(inputs, outputs, weights, streams)
            times.append((time.perf_counter() - begin) * 1e3)
        error = (outputs[-1][0] - (inputs[-1][:1].double() @ weights.double().cpu())[0]).abs().max().item()
        peak = torch.cuda.max_memory_allocated()
        wall = round(statistics.median(times[1:]), 3)
        print(json.dumps({"case": name, "wall_ms": wall, "device_bytes": peak, "max_error": error}), flush=True)


if __name__ == "__main__":
    main()
