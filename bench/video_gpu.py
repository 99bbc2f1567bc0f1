#!/usr/bin/env python3
"""Clips from `video:` into a GPU: libavcodec on the cores beside the GPU's decoder, in turn.
Clips of 16 frames, every fourth, from random starts, to 112 x 112, each of another file: so many
links are made to each video. Prints one markdown table. The CPU time is the whole process's, and
contains its start and what the frames' index of each file takes.

usage: bench/video_gpu.py DIST FOLDER [--rounds 2] [--seconds 4] [--warmup 2] [--limit 240]
           [--json FILE] [--decoders 'cpu;gpu;gpu,exact']
  DIST: a folder that `make dist` made, with libmillrace-video.so. FOLDER: videos, each a case;
  those whose names begin with small_ are one.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time


def cases(folder, links, into):
    """{name: folder of links}"""
    groups = {}
    for name in sorted(os.listdir(folder)):
        groups.setdefault(name.rpartition("_")[0] if name.startswith("small_") else
                          os.path.splitext(name)[0], []).append(name)
    groups["all of them"] = [name for names in groups.values() for name in names]
    made = {}
    for case, names in groups.items():
        made[case] = os.path.join(into, case.replace(" ", "-"))
        os.makedirs(made[case])
        for i in range(links):
            name = names[i % len(names)]
            os.symlink(os.path.abspath(os.path.join(folder, name)),
                       os.path.join(made[case], f"{i:03}_{name}"))
    return made


def run(args, folder, decoder):
    uri = f"video:{folder},labels=none,frames=16,stride=4,size=112x112,decoder={decoder}"
    command = [os.path.join(args.dist, "bin", "millrace"), "feed", uri, "--shuffle", "-e", "0",
               "--warmup", f"{args.warmup}s", "--time", f"{args.seconds + args.warmup}s", "-b", "4",
               "-w", str(args.workers), "--device", args.device, "--bad", "skip", "--json", "-q"]
    before, start = os.times(), time.time()
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False,
                              timeout=args.seconds + args.warmup + 20)
    except subprocess.TimeoutExpired:
        print(f"video_gpu: over its time: {' '.join(command)}", file=sys.stderr)
        return None
    if done.returncode:
        print(f"video_gpu: exit {done.returncode}: {' '.join(command)}\n{done.stderr[-600:]}",
              file=sys.stderr)
        return None
    after = os.times()
    cpu = sum(after[2:4]) - sum(before[2:4])
    out = json.loads(done.stdout)
    clips = out.get("samples") or 0
    return {"per_s": out.get("warm_samples_per_s") or out.get("samples_per_s") or 0,
            "clips": clips, "cpu_ms": cpu * 1e3 / clips if clips else 0,
            "cores": cpu / (time.time() - start), "wall_s": time.time() - start,
            "bad": out.get("bad_samples", 0)}


def table(rows, decoders):
    print("| videos | " + " | ".join(f"{d}, clips/s" for d in decoders) + " | " +
          " | ".join(f"CPU per clip, {d}" for d in decoders) + " |\n| --- |" +
          " ---: |" * 2 * len(decoders))
    for case, row in rows.items():
        found = {d: [r for r in row.get(d, []) if r] for d in decoders}
        rate = {d: statistics.median([r["per_s"] for r in found[d]] or [0]) for d in decoders}
        first = rate[decoders[0]]
        cells = [", ".join(f"{r['per_s']:.1f}" for r in found[d]) +
                 (f" ({rate[d] / first:.1f} x)" if first and rate[d] and d != decoders[0] else "")
                 for d in decoders]
        cpu = [f"{statistics.median([r['cpu_ms'] for r in found[d]]):,.0f} ms" if found[d] else ""
               for d in decoders]
        print("| " + " | ".join([case, *cells, *cpu]) + " |")


def main():
    ap = argparse.ArgumentParser(description=__doc__,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("dist")
    ap.add_argument("folder")
    ap.add_argument("--rounds", type=int, default=2)
    ap.add_argument("--seconds", type=float, default=4)
    ap.add_argument("--warmup", type=float, default=2)
    ap.add_argument("--limit", type=float, default=240, help="seconds: no run begins later")
    ap.add_argument("--links", type=int, default=64, help="files of a case")
    ap.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    ap.add_argument("--decoders", default="cpu;gpu;gpu,exact")
    ap.add_argument("--device", default="cuda")
    ap.add_argument("--json", help="write all rows to this file")
    args = ap.parse_args()
    start, rows, decoders = time.time(), {}, args.decoders.split(";")
    with tempfile.TemporaryDirectory(prefix="video-", dir=os.environ.get("TMPDIR")) as scratch:
        made = cases(args.folder, args.links, scratch)
        for _ in range(args.rounds):
            for case, folder in made.items():
                for decoder in decoders:
                    if time.time() - start > args.limit:
                        print(f"left out: {case}, {decoder}: the time is over")
                        continue
                    row = run(args, folder, decoder)
                    rows.setdefault(case, {}).setdefault(decoder, []).append(row)
                    print(f"{time.time() - start:5.0f} s  {case}, {decoder}: {row}", flush=True)
    print(f"\n{args.workers} workers, {len(os.sched_getaffinity(0))} processors, load average "
          f"{os.getloadavg()[0]:.1f}, {time.time() - start:.0f} s\n")
    table(rows, decoders)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump(rows, f, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
