#!/usr/bin/env python3
"""What recording costs, and whether the recording is right, on a machine with a GPU and PyTorch.

Worst case: a small launch-bound training loop, some 28,000 kernels and 1,000 copies a second, plain, under torch.profiler, and
under `millrace profile`. Ordinary case: bench/profile_mnist.py. Each variant is a process of its own, which runs the loop a few
times and tells the median; rounds interleave the variants; the median of the rounds' ratios counts. The loop does the same each
time, so the numbers, bytes and summed durations of kernels and copies in our recording are compared with torch.profiler's of its
own run (both cannot hold CUPTI in one process).

usage: profile_overhead.py --millrace PROGRAM [--rounds 3] [--repeats 3] [--cases 'plain|cuda-light|...'] [--out FILE.json]
       With --cases the launch-bound loop alone, in these variants.
       profile_overhead.py --compare CHROME.json RECORDING.sqlite      only the totals, of two runs of --loop
"""
import argparse
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS, WARM = 1000, 50


def loop(kind, trace, repeats):
    """The child: runs the loop, prints its seconds."""
    import torch
    from torch import nn
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, foreach=False)
    data = torch.randn(64, 64)
    pinned = torch.randn(64, 64).pin_memory()
    target = torch.randint(0, 10, (64,), device="cuda")

    def run(n):
        for i in range(n):
            torch.cuda.nvtx.range_push("step")
            images = (pinned if i % 2 else data).to("cuda", non_blocking=True)
            optimizer.zero_grad(set_to_none=True)
            nn.functional.cross_entropy(model(images), target).backward()
            optimizer.step()
            torch.cuda.nvtx.range_pop()
        torch.cuda.synchronize()

    def timed():
        begin = time.perf_counter()
        run(STEPS)
        return time.perf_counter() - begin

    run(WARM)
    if kind == "torch":
        from torch.profiler import ProfilerActivity, profile
        with profile(activities=[ProfilerActivity.CUDA]):  # its own start-up is not counted
            run(WARM)
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
            seconds = [timed() for _ in range(repeats)]
        if trace:
            profiler.export_chrome_trace(trace)
    else:
        torch.cuda.profiler.start()
        seconds = [timed() for _ in range(repeats)]
        torch.cuda.profiler.stop()
    print(json.dumps({"seconds": statistics.median(seconds)}))


def totals_of_torch(path):
    kinds = {"kernel": "kernels", "gpu_memcpy": "copies", "gpu_memset": "sets"}
    totals = {name: {"count": 0, "bytes": 0, "ns": 0} for name in kinds.values()}
    with open(path, encoding="utf-8") as file:
        for event in json.load(file)["traceEvents"]:
            name = kinds.get(event.get("cat"))
            if name and event.get("ph") == "X":
                totals[name]["count"] += 1
                totals[name]["bytes"] += event.get("args", {}).get("bytes", 0)
                totals[name]["ns"] += int(event["dur"] * 1000)
    return totals


def totals_of_ours(path):
    database = sqlite3.connect(path)
    totals = {}
    for name, table, size in (("kernels", "KERNEL", "0"), ("copies", "MEMCPY", "bytes"), ("sets", "MEMSET", "bytes")):
        row = database.execute(f"SELECT COUNT(*), COALESCE(SUM({size}), 0), COALESCE(SUM(end - start), 0) "
                               f"FROM CUPTI_ACTIVITY_KIND_{table}").fetchone()
        totals[name] = dict(zip(("count", "bytes", "ns"), row))
    database.close()
    return totals


def print_totals(totals):
    for kind in ("kernels", "copies", "sets"):
        print(f"{kind}: torch.profiler {totals['torch.profiler'][kind]}, ours {totals['ours'][kind]}")


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout.strip().splitlines()[-1])["seconds"], done.stderr


def measure(variants, rounds):
    times, said = {name: [] for name in variants}, {}
    for _ in range(rounds):
        for name, command in variants.items():
            seconds, said[name] = run(command)
            times[name].append(seconds)
    return {name: {"seconds": t, "median": statistics.median(t), "said": said[name],
                   "ratio": statistics.median(mine / plain for mine, plain in zip(t, times["plain"]))}
            for name, t in times.items()}


def print_times(title, part):
    print(title)
    for variant, row in part.items():
        print(f"  {variant:24s} {row['median']:7.3f} s   x {row['ratio']:.3f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--loop", choices=["plain", "torch"])
    parser.add_argument("--trace")
    parser.add_argument("--compare", nargs=2, metavar=("CHROME", "RECORDING"))
    parser.add_argument("--millrace", default="millrace")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cases")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--keep", help="folder for the recordings")
    parser.add_argument("--out")
    args = parser.parse_args()
    if args.loop:
        loop(args.loop, args.trace, args.repeats)
        return
    if args.compare:
        print_totals({"torch.profiler": totals_of_torch(args.compare[0]), "ours": totals_of_ours(args.compare[1])})
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.keep or scratch
        os.makedirs(folder, exist_ok=True)
        me = [sys.executable, os.path.abspath(__file__)]
        mnist = [sys.executable, os.path.join(HERE, "profile_mnist.py"), "--workers", "2", "--epochs", str(args.epochs)]
        mnist += [] if os.environ.get("MNIST") else ["--synthetic"]

        def ours(trace, name, command, *more):
            return [args.millrace, "profile", "-f", "-t", trace, "-o", os.path.join(folder, name), *more, "--", *command]

        chrome = os.path.join(scratch, "torch.json")
        once = [*me, "--loop", "plain", "--repeats", "1"]
        plain = [*me, "--loop", "plain", "--repeats", str(args.repeats)]
        variants = {
            "plain": plain,
            "torch.profiler": [*me, "--loop", "torch", "--repeats", str(args.repeats)],
            "cuda,nvtx": ours("cuda,nvtx", "loop.sqlite", plain),
            "cuda-light": ours("cuda-light", "light.sqlite", plain),
            "cuda,nvtx, all calls": ours("cuda,nvtx", "all.sqlite", plain, "--cuda-api", "all"),
        }
        if args.cases:
            print_times("launch-bound loop", measure({name: variants[name] for name in args.cases.split("|")}, args.rounds))
            return
        worst = measure(variants, args.rounds)
        # 1,000 steps each.
        run([*me, "--loop", "torch", "--trace", chrome, "--repeats", "1"])
        run(ours("cuda,nvtx", "range.sqlite", once, "-c", "cudaProfilerApi"))
        totals = {"torch.profiler": totals_of_torch(chrome), "ours": totals_of_ours(os.path.join(folder, "range.sqlite"))}
        ordinary = measure({
            "plain": mnist,
            "cuda,nvtx": ours("cuda,nvtx", "mnist.sqlite", mnist),
            "cuda,nvtx,osrt": ours("cuda,nvtx,osrt", "mnist-osrt.sqlite", mnist),
        }, args.rounds)
        result = {"launch_bound": worst, "totals": totals, "mnist": ordinary,
                  "bytes": {name: os.path.getsize(os.path.join(folder, name)) for name in sorted(os.listdir(folder))
                            if name.endswith(".sqlite")},
                  "chrome_json_bytes": os.path.getsize(chrome)}
    text = json.dumps(result, indent=1)
    if args.out:
        with open(args.out, "w", encoding="utf-8") as file:
            file.write(text + "\n")
    print_times("launch-bound loop", worst)
    print_times("MNIST training", ordinary)
    print_totals(totals)


if __name__ == "__main__":
    main()
