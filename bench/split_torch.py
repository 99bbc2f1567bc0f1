#!/usr/bin/env python3
"""The peer of `millrace bench split`: PyTorch's model-parallel tutorial on two GPUs.

A net whole on one GPU, split over two, and pipelined by the tutorial's loop: while the second GPU
works on one part of a batch, the first one has the next. Nets: ResNet-50 as in the tutorial (batch
120, 128x128, split behind layer2), written out here, since torchvision may be missing; and the wide
net of `millrace bench split`. A line of JSON for each row: net, how, micro_batches, step_ms (median
of the rounds), speedup.
"""
import argparse
import json
import statistics
import time

import torch
from torch import nn


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True),
            nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.side = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.side = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                                      nn.BatchNorm2d(outputs))

    def forward(self, x):
        return torch.relu(self.body(x) + self.side(x))


def group(inputs, width, n, stride):
    blocks = [Bottleneck(inputs, width, stride)]
    return blocks + [Bottleneck(4 * width, width, 1) for _ in range(n - 1)]


def resnet50():
    """The two halves of the tutorial: up to layer2, and from layer3 on."""
    first = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(True),
             nn.MaxPool2d(3, 2, 1)] + group(64, 64, 3, 1) + group(256, 128, 4, 2)
    second = group(512, 256, 6, 2) + group(1024, 512, 3, 2)
    second += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000)]
    return nn.Sequential(*first), nn.Sequential(*second)


def wide():
    layers = []
    for i in range(9):
        layers += [nn.Conv2d(256 if i else 3, 256, 3, padding=1), nn.ReLU(True)]
    layers += [nn.AvgPool2d(4), nn.Flatten(), nn.Linear(256 * 64, 10)]
    return nn.Sequential(*layers[:10]), nn.Sequential(*layers[10:])


NETS = {"resnet50": (resnet50, (120, 3, 128, 128), 1000, [1, 2, 4, 6, 10]),
        "wide": (wide, (256, 3, 32, 32), 10, [1, 2, 4, 8, 16])}


def pipelined(first, second, x, micro):
    """The tutorial's PipelineParallelResNet50.forward."""
    parts = iter(x.split(max(1, x.shape[0] // micro)))
    previous = first(next(parts)).to("cuda:1")
    out = []
    for part in parts:
        out.append(second(previous))
        previous = first(part).to("cuda:1")
    out.append(second(previous))
    return torch.cat(out)


def measure(forward, params, x, labels, steps, amp):
    """ms a step: as the tutorial, with cross entropy instead of squared errors of one-hot labels."""
    optimizer = torch.optim.SGD(params, lr=0.001)

    def step():
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=amp == "bf16"):
            out = forward(x)
            loss = nn.functional.cross_entropy(out, labels.to(out.device))
        loss.backward()
        optimizer.step()

    def wait():
        torch.cuda.synchronize(0)
        torch.cuda.synchronize(1)

    for _ in range(3):
        step()
    wait()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    wait()
    return 1e3 * (time.perf_counter() - start) / steps


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--net", choices=list(NETS), default="resnet50")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--amp", choices=["tf32", "bf16"], default="tf32")
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    make, shape, classes, counts = NETS[args.net]
    x = torch.randn(shape, device="cuda:0").to(memory_format=torch.channels_last)
    labels = torch.randint(classes, (shape[0],), device="cuda:0")
    times = {}
    for _ in range(args.rounds):
        first, second = (half.to("cuda:0", memory_format=torch.channels_last) for half in make())
        params = list(first.parameters()) + list(second.parameters())
        times.setdefault(0, []).append(
            measure(lambda x: second(first(x)), params, x, labels, args.steps, args.amp))
        second = second.to("cuda:1")
        params = list(first.parameters()) + list(second.parameters())
        for m in counts:
            times.setdefault(m, []).append(
                measure(lambda x: pipelined(first, second, x, m), params, x, labels, args.steps,
                        args.amp))
    whole = statistics.median(times[0])
    for m, all_of in times.items():
        ms = statistics.median(all_of)
        how = "whole, on one" if m == 0 else "split" if m == 1 else "pipelined"
        print(json.dumps({"net": args.net, "amp": args.amp, "how": how, "micro_batches": m,
                          "step_ms": round(ms, 3), "speedup": round(whole / ms, 3)}), flush=True)


if __name__ == "__main__":
    main()
