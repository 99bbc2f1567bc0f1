#!/usr/bin/env python3
"""A tutorial's MNIST training under torch.autograd.profiler.emit_nvtx(): a range per operator, here
and in the loader's workers, which are forked inside of it. Digits are made up. Prints how many
seconds the training took."""
import argparse
import time

import numpy as np
import torch
from torch import nn
from torchvision import transforms


class Digits(torch.utils.data.Dataset):
    def __init__(self, n):
        rng = np.random.default_rng(1)
        self.images = rng.integers(0, 256, (n, 28, 28), np.uint8)
        self.labels = rng.integers(0, 10, n)
        self.transform = transforms.Compose([transforms.ToTensor(),
                                             transforms.Normalize((0.1307,), (0.3081,))])

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.transform(self.images[i][:, :, None]), int(self.labels[i])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--samples", type=int, default=60000)
    parser.add_argument("--workers", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(),
                          nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten(), nn.Linear(9216, 128),
                          nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10)).cuda()
    optimizer = torch.optim.Adadelta(model.parameters(), 1.0)
    loader = torch.utils.data.DataLoader(Digits(args.samples), 64, shuffle=True,
                                         num_workers=args.workers, pin_memory=True)
    begin = time.perf_counter()
    with torch.autograd.profiler.emit_nvtx():
        for _ in range(args.epochs):
            for images, labels in loader:
                images = images.cuda(non_blocking=True)
                labels = labels.cuda(non_blocking=True)
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(images), labels)
                loss.backward()
                optimizer.step()
    torch.cuda.synchronize()
    print(f"{time.perf_counter() - begin:.3f} s, loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
