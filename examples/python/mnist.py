#!/usr/bin/env python3
"""Trains a small net on MNIST.

An ordinary PyTorch script. With millrace's DataLoader instead of torch's, by the changed import
below, the engine reads, converts and batches the pictures itself.

usage: mnist.py [--data FOLDER] [--epochs N] [--batch-size N] [--workers N]

FOLDER is the root of torchvision.datasets.MNIST. Without it, digits are made up.
"""

import argparse
import struct
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader  # or: from millrace import DataLoader
from torchvision import datasets, transforms


def make_digits(root: Path, n: int) -> None:
    """Files of MNIST's format: each class is a bar at a place of its own, with noise."""
    raw = root / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for split, many in (("train", n), ("t10k", n // 6)):
        labels = (torch.arange(many) % 10).byte()
        images = torch.randint(0, 80, (many, 28, 28), dtype=torch.uint8)
        for k in range(10):
            images[k::10, 4:24, 2 * k + 3 : 2 * k + 6] = 220
        for name, tensor in (("images-idx3", images), ("labels-idx1", labels)):
            head = struct.pack(f">HBB{tensor.ndim}I", 0, 8, tensor.ndim, *tensor.shape)
            (raw / f"{split}-{name}-ubyte").write_bytes(head + tensor.numpy().tobytes())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, help="root of torchvision.datasets.MNIST")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--workers", type=int, default=0)
    args = parser.parse_args()

    made = tempfile.TemporaryDirectory()
    if args.data is None:
        make_digits(Path(made.name), 6000)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    transform = transforms.Compose(
        [transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))]
    )
    dataset = datasets.MNIST(args.data or made.name, train=True, transform=transform)
    loader = DataLoader(
        dataset, batch_size=args.batch_size, shuffle=True, num_workers=args.workers
    )

    torch.manual_seed(1)
    net = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    net.to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(args.epochs):
        start, right, total = time.perf_counter(), torch.zeros((), device=device), 0
        for images, labels in loader:
            images, labels = images.to(device), labels.to(device)
            optimizer.zero_grad()
            output = net(images)
            loss = nn.functional.cross_entropy(output, labels)
            loss.backward()
            optimizer.step()
            right += (output.argmax(1) == labels).sum()
            total += len(labels)
        seconds = time.perf_counter() - start
        print(
            f"epoch {epoch}: loss {loss.item():.3f}, {100 * right.item() / total:.1f}% right, "
            f"{total / seconds:,.0f} samples/s"
        )
    made.cleanup()


if __name__ == "__main__":
    main()
