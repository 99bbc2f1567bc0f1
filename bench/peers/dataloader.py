#!/usr/bin/env python3
"""PyTorch's DataLoader on the cases of `millrace bench loader`, written the way its users write them: a Dataset with a
__getitem__ for one sample, transforms on one sample, shuffle=True, and the loader's own collation.

Prints one JSON line for each case and number of workers: the median of --repeats runs of --seconds each, counted from the
first batch on (so that starting the workers is not held against it; first_batch_ms tells that), over as many epochs as fit.
Workers persist between epochs, as the loader's documentation advises.
"""
import argparse
import gzip
import json
import os
import statistics
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset

try:
    from PIL import Image
    from torchvision import transforms
except ImportError:
    transforms = None


class MemoryFloats(Dataset):
    """1024 x f32 a sample, all in one tensor."""

    batch_size, sample_bytes = 256, 1024 * 4 + 8

    def __init__(self, args):
        self.x = torch.rand(args.samples, 1024)
        self.y = torch.arange(args.samples) % 10

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], int(self.y[index])


def read_idx(folder, name):
    path = os.path.join(folder, name)
    opened = gzip.open(path + ".gz") if os.path.exists(path + ".gz") else open(path, "rb")
    with opened as file:
        data = file.read()
    rank = data[3]
    shape = [int.from_bytes(data[4 + 4 * d : 8 + 4 * d], "big") for d in range(rank)]
    return torch.frombuffer(bytearray(data[4 + 4 * rank :]), dtype=torch.uint8).reshape(shape)


class Mnist(Dataset):
    """What torchvision.datasets.MNIST does: all bytes in memory, a PIL image a sample, ToTensor, Normalize."""

    batch_size, sample_bytes = 64, 28 * 28 * 4 + 8

    def __init__(self, args):
        self.data = read_idx(args.mnist, "train-images-idx3-ubyte")
        self.targets = read_idx(args.mnist, "train-labels-idx1-ubyte")
        self.transform = None
        if transforms:
            self.transform = transforms.Compose(
                [transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))]
            )

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        image, target = self.data[index], int(self.targets[index])
        if self.transform:
            return self.transform(Image.fromarray(image.numpy(), mode="L")), target
        return (image.unsqueeze(0).float() / 255 - 0.1307) / 0.3081, target


class Delay2ms(Dataset):
    """Each sample takes 2 ms to arrive, as from an object store nearby."""

    batch_size, sample_bytes = 64, 1024 * 4 + 8

    def __init__(self, args):
        self.n = args.samples
        self.x = torch.rand(1024)

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        time.sleep(0.002)
        return self.x, index % 10


CASES = {"memory_f32": MemoryFloats, "mnist": Mnist, "delay_2ms": Delay2ms}


def run_once(dataset, workers, seconds):
    """Returns (samples after the first batch, seconds they took, first batch's milliseconds)."""
    start = time.perf_counter()
    loader = DataLoader(
        dataset,
        batch_size=dataset.batch_size,
        shuffle=True,
        num_workers=workers,
        persistent_workers=workers > 0,
    )
    first = None
    samples = 0
    while True:
        for batch, _ in loader:
            now = time.perf_counter()
            if first is None:
                first = now
            else:
                samples += len(batch)
                if now - first >= seconds:
                    return samples, now - first, (first - start) * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", choices=sorted(CASES), help="only these (default: all)")
    parser.add_argument("--workers", type=int, action="append", help="numbers of workers (default: 0 and 2)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each run, from its first batch on")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each; the median counts")
    parser.add_argument("--samples", type=int, default=65536, help="in the generated sets, as many as in ours")
    parser.add_argument("--mnist", metavar="DIR", help="folder with MNIST's files, plain or .gz (default: no such case)")
    args = parser.parse_args()
    for name in args.case or CASES:
        if name == "mnist" and not args.mnist:
            print("mnist: left out: no --mnist DIR", file=sys.stderr)
            continue
        dataset = CASES[name](args)
        for workers in args.workers or (0, 2):
            runs = [run_once(dataset, workers, args.seconds) for _ in range(args.repeats)]
            rates = [samples / seconds for samples, seconds, _ in runs]
            rate = statistics.median(rates)
            row = {
                "peer": "torch.utils.data.DataLoader " + torch.__version__,
                "case": name,
                "workers": workers,
                "batch_size": dataset.batch_size,
                "samples_per_s": round(rate, 1),
                "samples_per_s_min": round(min(rates), 1),
                "samples_per_s_max": round(max(rates), 1),
                "bytes_per_s": round(rate * dataset.sample_bytes),
                "first_batch_ms": round(statistics.median(first for _, _, first in runs), 2),
                "repeats": args.repeats,
                "seconds": args.seconds,
            }
            if name == "mnist":
                row["transforms"] = "torchvision" if transforms else "torch"
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
