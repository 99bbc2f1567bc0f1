#!/usr/bin/env python3
"""An ordinary PyTorch training script on MNIST's digits, for the profiler to look at: NVTX ranges around loading, copy and
compute, cudaProfilerStart/Stop around all epochs but the first. Prints one line of JSON.

MNIST=FOLDER holds train-images-idx3-ubyte and train-labels-idx1-ubyte, plain or .gz; or use --synthetic.
"""
import argparse
import gzip
import json
import os
import time

import numpy as np
import torch
from torch import nn


def read_idx(folder, name, header):
    path = os.path.join(folder, name)
    opener = open if os.path.exists(path) else gzip.open
    with opener(path if opener is open else path + ".gz", "rb") as file:
        return np.frombuffer(file.read(), np.uint8, offset=header).copy()


class Digits(torch.utils.data.Dataset):
    """A sample is made when it is asked for, as most people's are."""

    def __init__(self, n, synthetic):
        if synthetic:
            rng = np.random.default_rng(1)
            self.images = rng.integers(0, 256, (60000, 28, 28), np.uint8)
            self.labels = rng.integers(0, 10, 60000, np.uint8)
        else:
            folder = os.environ["MNIST"]
            self.images = read_idx(folder, "train-images-idx3-ubyte", 16).reshape(-1, 28, 28)
            self.labels = read_idx(folder, "train-labels-idx1-ubyte", 8)
        self.n = min(n, len(self.labels)) if n else len(self.labels)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        image = torch.from_numpy(self.images[i]).float().div_(255).sub_(0.1307).div_(0.3081)
        return image.unsqueeze(0), int(self.labels[i])


def model_of():
    return nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                         nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--pin", action="store_true", help="page-locked batches and non_blocking copies")
    parser.add_argument("--synthetic", action="store_true")
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--samples", type=int, default=0, help="of an epoch; 0: all")
    args = parser.parse_args()
    torch.manual_seed(1)
    nvtx = torch.cuda.nvtx
    loader = torch.utils.data.DataLoader(Digits(args.samples, args.synthetic), args.batch, shuffle=True,
                                         num_workers=args.workers, pin_memory=args.pin,
                                         persistent_workers=args.workers > 0)
    model = model_of().cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    begin, steps, loss = 0.0, 0, None
    for epoch in range(args.epochs):
        if epoch == min(1, args.epochs - 1):
            torch.cuda.synchronize()
            torch.cuda.profiler.start()
            begin, steps = time.perf_counter(), 0
        batches = iter(loader)
        while True:
            nvtx.range_push("step")
            nvtx.range_push("load")
            batch = next(batches, None)
            nvtx.range_pop()
            if batch is None:
                nvtx.range_pop()
                break
            nvtx.range_push("copy")
            images = batch[0].to("cuda", non_blocking=args.pin)
            labels = batch[1].to("cuda", non_blocking=args.pin)
            nvtx.range_pop()
            nvtx.range_push("train")
            optimizer.zero_grad(set_to_none=True)
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            nvtx.range_pop()
            nvtx.range_pop()
            steps += 1
    torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    torch.cuda.profiler.stop()
    print(json.dumps({"seconds": seconds, "steps": steps, "loss": float(loss), "workers": args.workers, "pin": args.pin}))


if __name__ == "__main__":
    main()
