"""PyTorch as the peer of millrace's ranks on GPUs: sums over NCCL by size, launched and in a CUDA
graph, and DistributedDataParallel on mnist-cnn, plain and with the whole step as a CUDA graph.

usage: torchrun --nproc-per-node N ranks.py sums BYTES... | ddp BATCH_OF_A_GPU...
Prints JSON lines on rank 0: medians of 5, the slowest rank's.
"""
import contextlib
import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

REPEATS, GRAPH_SUMS = 5, 8
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def slowest(seconds):
    t = torch.tensor([seconds], device="cuda")
    dist.all_reduce(t, op=dist.ReduceOp.MAX)
    return t.item()


def clock(fn, calls):
    """Seconds of one call, the median of the repeats."""
    all_times = []
    for _ in range(REPEATS):
        dist.barrier()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            fn()
        torch.cuda.synchronize()
        all_times.append(slowest((time.perf_counter() - start) / calls))
    return statistics.median(all_times)


def say(**members):
    if RANK == 0:
        print(json.dumps(members), flush=True)


def sums(sizes):
    for size in sizes:
        x = torch.zeros(size // 4, device="cuda")
        calls = max(8, min(400, 2 * 10**9 // size))
        for _ in range(5):
            dist.all_reduce(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(GRAPH_SUMS):
                dist.all_reduce(x)
        graph.replay()
        for way, seconds in (("launched", clock(lambda x=x: dist.all_reduce(x), calls)),
                             ("graph", clock(graph.replay, calls // GRAPH_SUMS) / GRAPH_SUMS)):
            say(bytes=size, way=way, us=seconds * 1e6,
                bus_gb_per_s=size / seconds * 2 * (WORLD - 1) / WORLD / 1e9)


def net():
    return nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten(), nn.Linear(9216, 128),
                         nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10)).cuda()


class Run:
    """Samples stay on the GPU; each step gathers a batch by drawn numbers."""

    def __init__(self, batch):
        self.x = torch.rand(20000, 1, 28, 28, device="cuda")
        self.y = torch.randint(10, (20000,), device="cuda")
        self.rows = torch.zeros(batch, dtype=torch.long, device="cuda")
        # A graph needs the reducer's set-up on the capturing stream: torch's own recipe.
        self.side = torch.cuda.Stream()
        with torch.cuda.stream(self.side):
            self.model = nn.parallel.DistributedDataParallel(net(), gradient_as_bucket_view=True)
        self.optimizer = torch.optim.Adadelta(self.model.parameters(), lr=1.0, capturable=True)
        self.side.wait_stream(torch.cuda.current_stream())

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        self.rows.random_(20000)
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            loss = nn.functional.cross_entropy(self.model(self.x[self.rows]), self.y[self.rows])
        loss.backward()
        self.optimizer.step()

    def graph(self):
        with torch.cuda.stream(self.side):
            for _ in range(15):
                self.step()
        torch.cuda.current_stream().wait_stream(self.side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.side):
            self.step()
        return graph


def ddp(batches):
    for batch in batches:
        run = Run(batch)
        graph = run.graph()
        graph.replay()
        torch.cuda.synchronize()
        for way, fn in (("graph", graph.replay), ("plain", run.step)):
            with torch.cuda.stream(run.side) if way == "plain" else contextlib.nullcontext():
                seconds = clock(fn, 150)
            say(batch=batch, world=WORLD, way=way, ms=seconds * 1e3,
                samples_per_s=batch * WORLD / seconds)


if __name__ == "__main__":
    os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"  # its watchdog breaks captures off
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.backends.cudnn.benchmark = True
    dist.init_process_group("nccl")
    {"sums": sums, "ddp": ddp}[sys.argv[1]]([int(a) for a in sys.argv[2:]])
    torch.cuda.synchronize()
    sys.stdout.flush()
    os._exit(0)  # destroying a group that graphs still use hangs
