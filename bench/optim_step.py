#!/usr/bin/env python3
"""Optimizer steps on flat arrays: millrace beside PyTorch and beside what the memory can do, in one run. Rounds alternate, so
that a slow minute falls on all; medians are printed as one markdown table. GB/s count each array that a step has to read or
write once. PyTorch's steps are of one tensor of the same size, by the fastest of its ways that is there (fused, foreach, plain).

usage: optim_step.py [--device cpu|cuda] [--n 1e8] [--seconds 2] [--rounds 3] [--threads 0]
                     [--cases sgd,adam] [--program optim_step]
The peer is left out, with a line that says so, where this Python has no PyTorch.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

from peer import find, timed

CASES = {  # ours: PyTorch's
    "sgd:lr=1e-5": ("SGD", dict(lr=1e-5)),
    "momentum:lr=1e-5": ("SGD", dict(lr=1e-5, momentum=0.9)),
    "adagrad:lr=1e-5": ("Adagrad", dict(lr=1e-5)),
    "adam:lr=1e-5": ("Adam", dict(lr=1e-5)),
    "adamw:lr=1e-5": ("AdamW", dict(lr=1e-5)),
    "amsgrad:lr=1e-5": ("Adam", dict(lr=1e-5, amsgrad=True)),
    "lion:lr=1e-6": None,
}


def ours(program, args, threads):
    command = [program, args.device, str(args.n), str(args.seconds), str(threads), *CASES]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    best = {}
    for line in map(json.loads, lines):
        if line["case"] not in best or line["ms"] < best[line["case"]]["ms"]:
            best[line["case"]] = line
    return best


def peers(torch, args):
    """{case: {way: ms}}"""
    n, out = int(float(args.n)), {}
    p = torch.rand(n, device=args.device) - 0.45
    p.grad = torch.rand(n, device=args.device) - 0.45
    for case, how in CASES.items():
        if how is None:
            continue
        out[case] = {}
        for way in ("fused", "foreach", "plain"):
            options = dict(how[1], foreach=way == "foreach")
            if way == "fused":
                options = dict(how[1], fused=True)
            try:
                optimizer = getattr(torch.optim, how[0])([p], **options)
                out[case][way] = timed(torch, optimizer.step, args.device, args.seconds, 10)
            except (RuntimeError, TypeError, ValueError):
                continue  # this optimizer has no such way on this device
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--n", default="1e8")
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--cases", help="names of optimizers, by commas; all of them by default")
    parser.add_argument("--program")
    args = parser.parse_args()
    if args.cases:
        for case in [c for c in CASES if c.split(":")[0] not in args.cases.split(",")]:
            del CASES[case]
    program = find("optim_step", args.program)
    threads = args.threads or len(os.sched_getaffinity(0))
    try:
        import torch

        torch.set_num_threads(threads)
        name = "PyTorch " + torch.__version__.split("+")[0]
        if args.device.startswith("cuda") and not torch.cuda.is_available():
            torch = None
            print("optim_step: this PyTorch has no CUDA: the peer is left out", file=sys.stderr)
    except ImportError:
        torch = None
        print("optim_step: no PyTorch in this Python: the peer is left out", file=sys.stderr)
    rounds = [(ours(program, args, threads), peers(torch, args) if torch else {}) for _ in range(args.rounds)]

    def mid(values):
        values = list(values)
        return statistics.median(values) if values else None

    bounds = [c for c in rounds[0][0] if c.startswith("bound_")]
    rates = {c: mid(r[0][c]["gb_per_s"] for r in rounds) for c in rounds[0][0]}
    bound = max(rates[c] for c in bounds)
    print(f"device {args.device}, {float(args.n):.0e} parameters, {threads} threads; bounds: "
          + ", ".join(f"{c[6:]} {rates[c]:.1f} GB/s" for c in bounds))
    same = rates.get("bound_4r3w")
    head = ["optimizer", "bytes each", "millrace ms", "GB/s", "of the fastest bound"]
    if same:
        head += ["of 4r3w"]
    if torch:
        head += [f"{name} ms", "GB/s", "its way", "millrace / it"]
    print("| " + " | ".join(head) + " |")
    print("| --- |" + " ---: |" * (len(head) - 1))
    for case, how in CASES.items():
        line = rounds[0][0][case]
        ms = mid(r[0][case]["ms"] for r in rounds)
        row = [case.split(":")[0], f"{line['bytes_each']:.0f}", f"{ms:.3f}", f"{rates[case]:.1f}", f"{rates[case] / bound:.0%}"]
        if same:
            row += [f"{rates[case] / same:.0%}" if line["bytes_each"] == 28 else ""]
        if torch:
            ways = {w: mid(r[1][case][w] for r in rounds) for w in rounds[0][1].get(case, {})}
            if ways:
                way = min(ways, key=ways.get)
                theirs = line["bytes_each"] * float(args.n) / ways[way] * 1e-6
                row += [f"{ways[way]:.3f}", f"{theirs:.1f}", way, f"{ways[way] / ms:.2f} x"]
            else:
                row += ["", "", "", ""]
        print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
