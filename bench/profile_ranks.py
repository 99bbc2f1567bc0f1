#!/usr/bin/env python3
"""A training loop of two or more ranks in which rank 1 is slow, for bench/profile_ranks.sh: its
loader sleeps 12 ms a batch (load), its step runs 24 more matrix products (compute), or nobody is
(even).

usage: torchrun --nproc-per-node 2 profile_ranks.py load|compute|even [--bare] [--kineto FOLDER]
       --bare: no NVTX ranges, and the whole program instead of cudaProfilerStart to Stop"""
import argparse
import contextlib
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.cuda import nvtx
from torch.nn import functional

BATCH, WARM_UP, STEPS = 64, 10, 40


class Digits(torch.utils.data.Dataset):
    """Its first sample of each batch sleeps."""

    def __init__(self, seconds):
        self.seconds = seconds

    def __len__(self):
        return BATCH * (WARM_UP + STEPS)

    def __getitem__(self, i):
        if i % BATCH == 0:
            time.sleep(self.seconds)
        return torch.full((1, 28, 28), float(i % 7)), i % 10


def step(batches, model, optimizer, more, mark):
    with mark("step"):
        with mark("load"):
            images, labels = next(batches)
        with mark("copy"):
            images, labels = images.cuda(non_blocking=True), labels.cuda(non_blocking=True)
        with mark("train"):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(images), labels)
            more()
            loss.backward()
            optimizer.step()


@contextlib.contextmanager
def recorded(args, rank):
    """Between cudaProfilerStart and Stop, or under torch.profiler; --bare: nothing is selected."""
    if args.kineto:
        with torch.profiler.profile() as profiler:
            yield profiler.step
        profiler.export_chrome_trace(f"{args.kineto}/{args.mode}-rank{rank}.json.gz")
    elif args.bare:
        yield lambda: None
    else:
        torch.cuda.profiler.start()
        yield lambda: None
        torch.cuda.profiler.stop()


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("mode", choices=["load", "compute", "even"])
    parser.add_argument("--bare", action="store_true")
    parser.add_argument("--kineto")
    args = parser.parse_args()
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl", device_id=torch.device("cuda", torch.cuda.current_device()))
    model = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(),
                          nn.MaxPool2d(2), nn.Flatten(), nn.Linear(9216, 512), nn.ReLU(),
                          nn.Linear(512, 10)).cuda()
    model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    square = torch.randn(2048, 2048, device="cuda")

    def more():
        for _ in range(24 if args.mode == "compute" and rank == 1 else 0):
            square.copy_(square @ square / 2048)

    def mark(name):
        return contextlib.nullcontext() if args.bare else nvtx.range(name)

    data = Digits(0.012 if args.mode == "load" and rank == 1 else 0)
    batches = iter(torch.utils.data.DataLoader(data, BATCH, pin_memory=True))
    for _ in range(WARM_UP):
        step(batches, model, optimizer, more, mark)
    torch.cuda.synchronize()
    with recorded(args, rank) as stepped:
        for _ in range(STEPS):
            step(batches, model, optimizer, more, mark)
            stepped()
        torch.cuda.synchronize()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
