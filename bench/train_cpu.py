#!/usr/bin/env python3
"""Training on the host beside PyTorch: samples a second of four nets on MNIST, in turn, medians of the rounds.

usage: train_cpu.py MILLRACE MNIST [--threads 2] [--batch-size 64] [--rounds 5]     (a Python with torch)

millrace reads MNIST's files through its loader, with as many workers as threads; PyTorch is measured with its batches cut from
tensors in memory that are normalised already ("in memory": no loader at all), and with a DataLoader of torchvision's kind
("DataLoader": a Dataset that normalises a picture, as many workers as threads). Both sides: Adam, the same nets, f32.
"""
import argparse
import gzip
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

import torch
from torch import nn
from torch.nn import functional

NETS = {"softmax": 900, "mlp:100s": 900, "mlp:300s,100r,50s": 900, "mnist-cnn": 60}  # steps a round


class Cnn(nn.Module):
    """PyTorch's example for MNIST."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.conv2(functional.relu(self.conv1(x)))), 2)
        x = functional.relu(self.fc1(torch.flatten(self.dropout1(x), 1)))
        return self.fc2(self.dropout2(x))


def make(model):
    if model == "mnist-cnn":
        return Cnn()
    widths = [w for w in model.removeprefix("mlp:").split(",") if w != "softmax"]
    layers, inputs = [nn.Flatten()], 784
    for width in widths:
        layers += [nn.Linear(inputs, int(width[:-1])), nn.Sigmoid() if width[-1] == "s" else nn.ReLU()]
        inputs = int(width[:-1])
    return nn.Sequential(*layers, nn.Linear(inputs, 10))


def read_idx(folder, name):
    for path in (pathlib.Path(folder) / name, pathlib.Path(folder) / (name + ".gz")):
        if path.exists():
            data = (gzip.open if path.suffix == ".gz" else open)(path, "rb").read()
            return torch.frombuffer(bytearray(data[4 + 4 * data[3] :]), dtype=torch.uint8)
    raise SystemExit(f"{folder}: no {name}")


def load(folder):
    images = read_idx(folder, "train-images-idx3-ubyte").view(-1, 1, 28, 28)
    return images, read_idx(folder, "train-labels-idx1-ubyte").long()


class Pictures(torch.utils.data.Dataset):
    def __init__(self, images, labels):
        self.images, self.labels = images, labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return (self.images[i].float() / 255 - 0.1307) / 0.3081, self.labels[i]


def in_memory(images, labels, batch):
    images = (images.float() / 255 - 0.1307) / 0.3081
    while True:
        order = torch.randperm(len(labels))
        for i in range(0, len(order) - batch + 1, batch):
            yield images[order[i : i + batch]], labels[order[i : i + batch]]


def by_loader(images, labels, batch, workers):
    while True:
        yield from torch.utils.data.DataLoader(
            Pictures(images, labels), batch, shuffle=True, num_workers=workers, drop_last=True, persistent_workers=False
        )


def theirs(model, batches, batch, steps):
    net = make(model)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    start = None
    for step, (x, y) in enumerate(batches):
        if step == steps // 5:
            start = time.perf_counter()
        if step == steps:
            break
        optimizer.zero_grad()
        functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    return (steps - steps // 5) * batch / (time.perf_counter() - start)


def ours(args, model, steps):
    """From the rows of its log: without the start."""
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log.jsonl")
        subprocess.run(
            [args.millrace, "train", args.mnist, "--model", model, "--optimizer", "adam", "--device", "cpu", "--test", "none"]
            + ["--batch-size", str(args.batch_size), "--threads", str(args.threads), "--workers", str(args.threads)]
            + ["--max-steps", str(steps + 1), "--epochs", "100", "--log", log, "--log-every", str(steps // 5)],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        rows = [json.loads(line) for line in open(log)]
    rows = [r for r in rows if r["kind"] == "steps" and r["epoch"] == 1]
    return (rows[-1]["step"] - rows[0]["step"]) * args.batch_size / (rows[-1]["seconds"] - rows[0]["seconds"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("millrace")
    parser.add_argument("mnist")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    images, labels = load(args.mnist)
    print(f"torch {torch.__version__}, {args.threads} threads, batches of {args.batch_size}, medians of {args.rounds} rounds in turn\n")
    print("| net | millrace | PyTorch, in memory | PyTorch, DataLoader | ratio | ratio |")
    print("|---|---:|---:|---:|---:|---:|")
    for model, steps in NETS.items():
        rates = ([], [], [])
        for _ in range(args.rounds):
            rates[0].append(ours(args, model, steps))
            rates[1].append(theirs(model, in_memory(images, labels, args.batch_size), args.batch_size, steps))
            rates[2].append(
                theirs(model, by_loader(images, labels, args.batch_size, args.threads), args.batch_size, steps)
            )
        a, b, c = (statistics.median(r) for r in rates)
        print(f"| {model} | {a:,.0f} | {b:,.0f} | {c:,.0f} | {a / b:.2f} | {a / c:.2f} |", flush=True)


if __name__ == "__main__":
    main()
