#!/usr/bin/env python3
"""Trains a small net on photos in folders, one per class, with the usual augmentation.

An ordinary PyTorch script. With millrace's DataLoader instead of torch's, by the changed import
below, the engine decodes and augments the photos itself.

usage: imagefolder.py [--data FOLDER] [--epochs N] [--batch-size N] [--workers N] [--size N]

Without FOLDER, photos are made up.
"""

import argparse
import tempfile
import time
from pathlib import Path

import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader  # or: from millrace import DataLoader
from torchvision import datasets, transforms

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def make_photos(root: Path, n: int) -> None:
    """JPEG files of 400 x 300 pixels: clouds of noise, tinted by class."""
    random = torch.Generator().manual_seed(1)
    for k, name in enumerate(("red", "green", "blue")):
        (root / name).mkdir()
        for i in range(n // 3):
            coarse = torch.rand(1, 3, 15, 20, generator=random)
            coarse[0, k] += 0.5
            pixels = nn.functional.interpolate(coarse, (300, 400), mode="bicubic")[0]
            pixels = (pixels.clamp(0, 1.5) * 170).byte().permute(1, 2, 0)
            Image.fromarray(pixels.numpy()).save(root / name / f"{i:05}.jpg", quality=90)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, help="a folder with one sub-folder per class")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--size", type=int, default=128, help="of a picture in a batch")
    args = parser.parse_args()

    made = tempfile.TemporaryDirectory()
    if args.data is None:
        make_photos(Path(made.name), 300)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    transform = transforms.Compose(
        [
            transforms.RandomResizedCrop(args.size),
            transforms.RandomHorizontalFlip(),
            transforms.ColorJitter(0.2, 0.2, 0.2),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )
    dataset = datasets.ImageFolder(args.data or made.name, transform)
    loader = DataLoader(
        dataset,
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=args.workers,
        drop_last=len(dataset) >= args.batch_size,
    )

    torch.manual_seed(1)
    net = nn.Sequential(
        nn.Conv2d(3, 16, 7, stride=4),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, len(dataset.classes)),
    ).to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
    for epoch in range(args.epochs):
        start, total = time.perf_counter(), 0
        for images, labels in loader:
            images = images.to(device, non_blocking=True)
            labels = labels.to(device, non_blocking=True)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(images), labels)
            loss.backward()
            optimizer.step()
            total += len(labels)
        seconds = time.perf_counter() - start
        print(f"epoch {epoch}: loss {loss.item():.3f}, {total / seconds:,.0f} samples/s")
    made.cleanup()


if __name__ == "__main__":
    main()
