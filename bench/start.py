#!/usr/bin/env python3
"""How long a program that feeds a GPU takes to its first batch, beside a CUDA context alone.

`context` (bench/context.c) only asks the driver for a context; `millrace feed --device cuda` also
opens the data set, makes page-locked slots, starts its workers, makes a batch and copies it. Both
count from main(). They run in turn, --rounds times; the first round, which reads the programs from
the disk, does not count.

usage: bench/start.py [DIST] [--rounds 7] [--profile FILE]
  DIST: a folder that `make dist` made with -DMILLRACE_DIST_TESTS=ON, or a release build.
  --profile FILE: also records one start with `millrace profile` and prints what it says.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

from peer import ROOT


def program(dist, name):
    for sub in ("bin", "", "bench"):
        path = os.path.join(dist, sub, name)
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    sys.exit(f"start: no program {name} under {dist}")


def printed(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        sys.exit(f"start: exit {done.returncode}: {' '.join(command)}\n{done.stderr[-600:]}")
    return json.loads(done.stdout)


def spread(values):
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dist", nargs="?", default=os.path.join(ROOT, "build", "release"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--profile", metavar="FILE")
    args = parser.parse_args()
    millrace, context = program(args.dist, "millrace"), program(args.dist, "context")
    with tempfile.TemporaryDirectory() as work:
        digits = os.path.join(work, "digits")
        subprocess.run([millrace, "synth", "digits", digits, "--n", "10000", "-q"], check=True,
                       stdout=subprocess.DEVNULL)
        feed = [millrace, "feed", "--device", args.device, "--batches", "1", "--json"]
        sets = {
            "digits, batches of 64": [digits, "-b", "64", "-s"],
            "1,024 floats, batches of 256": ["synthetic:n=1e5,shape=1024", "-b", "256"],
            "600 KB, batches of 64": ["synthetic:n=1e4,shape=600000,dtype=u8", "-b", "64"],
        }
        alone, inits = [], []
        starts = {name: [] for name in sets}
        for i in range(args.rounds + 1):
            floor = printed([context])
            ours = {name: printed([*feed, *what]) for name, what in sets.items()}
            if i == 0:
                continue
            alone.append(floor["context_ms"])
            inits.append(floor["init_ms"])
            for name, got in ours.items():
                starts[name].append(got)
        floor = statistics.median(alone)
        print(f"a context alone: {spread(alone)} ms, of it cuInit {spread(inits)} ms; "
              f"medians of {args.rounds} starts (least to most)\n")
        print("| feed | first batch after, ms | / a context | opening the device, ms | "
              "the loader, ms |\n| --- | ---: | ---: | ---: | ---: |")
        for name, got in starts.items():
            of = {key: [g[key] for g in got] for key in ("start_ms", "device_open_ms",
                                                         "first_batch_ms")}
            print(f"| {name} | {spread(of['start_ms'])} | "
                  f"{statistics.median(of['start_ms']) / floor:.2f} | "
                  f"{spread(of['device_open_ms'])} | {spread(of['first_batch_ms'])} |")
        if args.profile:
            subprocess.run([millrace, "profile", "-q", "-f", "-o", args.profile, "--", *feed,
                            *sets["digits, batches of 64"]], check=False,
                           stdout=subprocess.DEVNULL)
            subprocess.run([millrace, "report", args.profile, "-r", "cuda_api_sum"], check=False)


if __name__ == "__main__":
    main()
