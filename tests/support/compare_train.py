#!/usr/bin/env python3
"""Is the CNN's loss curve PyTorch's? Runs mnist-cnn with Adadelta from several seeds on both sides and tests the difference.

usage: compare_train.py MILLRACE MNIST [--steps 300] [--seeds 5]     (a Python with torch)

A curve is the logarithm of the mean training loss of each window of steps. The statistic is the mean over the windows of
|mean of ours - mean of theirs| / pooled standard deviation; its distribution, were there no difference, is that over all ways to
deal the runs to the two sides (an exact permutation test, which looks at the curve as a whole). Beside it, Welch's t for each window.
Ends with 1 when p < 0.01.
"""
import argparse
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile

import torch
from torch.nn import functional

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bench"))
import train_cpu  # noqa: E402


def ours(args, seed):
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log.jsonl")
        subprocess.run(
            [args.millrace, "train", args.mnist, "--model", "mnist-cnn", "--optimizer", "adadelta", "--lr", "1.0"]
            + ["--batch-size", "64", "--device", args.device, "--test", "none", "--seed", str(seed)]
            + ["--max-steps", str(args.steps), "--log", log, "--log-every", str(args.window)],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        return [math.log(r["loss"]) for r in map(json.loads, open(log)) if r["kind"] == "steps"]


def theirs(args, data, seed):
    torch.manual_seed(seed)
    net = train_cpu.Cnn()
    optimizer = torch.optim.Adadelta(net.parameters(), lr=1.0)
    curve, total = [], 0.0
    for step, (x, y) in enumerate(train_cpu.in_memory(*data, 64), 1):
        optimizer.zero_grad()
        loss = functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
        if step % args.window == 0:
            curve.append(math.log(total / args.window))
            total = 0.0
        if step == args.steps:
            return curve


def statistic(one, two):
    parts = []
    for a, b in zip(zip(*one), zip(*two)):
        spread = math.sqrt((statistics.variance(a) + statistics.variance(b)) / 2)
        parts.append(abs(statistics.mean(a) - statistics.mean(b)) / spread)
    return statistics.mean(parts)


def permutation(one, two):
    runs, n = one + two, len(one)
    seen = statistic(one, two)
    ways = list(itertools.combinations(range(len(runs)), n))
    more = 0
    for way in ways:
        first = [runs[i] for i in way]
        second = [runs[i] for i in range(len(runs)) if i not in way]
        more += statistic(first, second) >= seen - 1e-12
    return seen, more / len(ways), len(ways)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("millrace")
    parser.add_argument("mnist")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--window", type=int, default=50)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    data = train_cpu.load(args.mnist)
    one, two = [], []
    for seed in range(args.seeds):
        one.append(ours(args, seed))
        two.append(theirs(args, data, seed))
    print(f"mnist-cnn, Adadelta lr 1, batches of 64, {args.seeds} seeds each, torch {torch.__version__}\n")
    print("| steps | millrace: mean loss | PyTorch: mean loss | difference | Welch's t |")
    print("|---|---:|---:|---:|---:|")
    for i, (a, b) in enumerate(zip(zip(*one), zip(*two))):
        error = math.sqrt(statistics.variance(a) / len(a) + statistics.variance(b) / len(b))
        d = statistics.mean(a) - statistics.mean(b)
        print(
            f"| {i * args.window + 1}..{(i + 1) * args.window} | {math.exp(statistics.mean(a)):.4f} "
            f"| {math.exp(statistics.mean(b)):.4f} | {100 * (math.exp(d) - 1):+.1f}% | {d / error:+.2f} |"
        )
    seen, p, ways = permutation(one, two)
    print(f"\npermutation test over {ways} ways: statistic {seen:.3f}, p = {p:.3f}")
    sys.exit(p < 0.01)


if __name__ == "__main__":
    main()
