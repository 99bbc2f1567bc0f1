#!/usr/bin/env python3
"""Photos into a GPU, beside DALI, PyTorch's DataLoader and what the chip's decoder does alone.
random_resized_crop(224), flip, normalized to f32 NCHW, batches of 256. All cases take turns,
--rounds times, so that a slow minute falls on all. Prints one markdown table: rates from the first
batch on, of each round, the median's share of the bound (the chip alone, and the cores alone).

usage: bench/photos_gpu.py [DIST ...] --photos DIR [--rounds 3] [--seconds 4] [--json FILE]
  DIST: a folder that `make dist` made (with -DMILLRACE_DIST_TESTS=ON for the chip alone); several
  are compared. DIR: JPEGs, in it or in class folders in it: 16 classes of links to them are made.
environment: PYTHON=python3 for the peers, MILLRACE_NVJPEG where nvJPEG is not found by its name.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
CHAIN = ("random_resized_crop(224),hflip(0.5),cast(f32),scale(1/255),"
         "normalize([0.485,0.456,0.406],[0.229,0.224,0.225]),layout(nchw)")
CLASSES = 16  # so that an epoch is a whole number of batches of 256, of 240 photos
LOADS = (0.65, 0.75)


def class_folders(photos, into):
    found = sorted(os.path.join(at, name) for at, _, names in os.walk(photos) for name in names
                   if name.lower().endswith((".jpg", ".jpeg")))
    found = found[:len(found) // CLASSES * CLASSES]
    if not found:
        sys.exit(f"photos_gpu: {photos}: expected {CLASSES} or more files that end in .jpg or .jpeg")
    for i in range(CLASSES):
        os.makedirs(os.path.join(into, f"class{i:02}"))
        for path in found:
            to = os.path.join(into, f"class{i:02}", os.path.basename(path))
            try:
                os.link(path, to)
            except OSError:
                os.symlink(os.path.abspath(path), to)
    for path in found:
        with open(path, "rb") as f:
            f.read()
    return found


def run(command, limit, **more):
    """What it printed, or None; it may take `limit` seconds."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False,
                              **more)
    except subprocess.TimeoutExpired:
        print(f"photos_gpu: over {limit} s: {' '.join(command)}", file=sys.stderr)
        return None
    if done.returncode:
        print(f"photos_gpu: exit {done.returncode}: {' '.join(command)}\n{done.stderr[-600:]}",
              file=sys.stderr)
        return None
    return done.stdout


def thread_times(pid, name):
    """A thread: s that it ran, and waited for a processor, and how often it began to run."""
    for task in os.listdir(f"/proc/{pid}/task"):
        at = f"/proc/{pid}/task/{task}"
        with open(f"{at}/comm", encoding="utf-8") as f:
            if f.read().strip() != name:
                continue
        with open(f"{at}/schedstat", encoding="utf-8") as f:
            ran, waited, slices = f.read().split()
        return int(ran) / 1e9, int(waited) / 1e9, int(slices)
    return None


def run_watched(command, limit, name):
    """(what it printed, what its thread `name` got of the processors between 40% and its end)."""
    seen, start = [], time.time()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as at:
        while at.poll() is None and time.time() - start < limit:
            time.sleep(0.25)
            try:
                times = thread_times(at.pid, name)
            except OSError:
                times = None
            if times:
                seen.append((time.time(), *times))
        if at.poll() is None:
            at.kill()
        out, errors = at.communicate()
    if at.returncode:
        print(f"photos_gpu: exit {at.returncode}: {' '.join(command)}\n{errors[-600:]}",
              file=sys.stderr)
        return None, None
    if len(seen) < 5:
        return out, None
    first, last = seen[int(0.4 * len(seen))], seen[-1]
    over = last[0] - first[0]
    return out, {"ran": (last[1] - first[1]) / over, "waited": (last[2] - first[2]) / over,
                 "slices_s": (last[3] - first[3]) / over}


def row_of(text):
    return json.loads(text) if text and text.lstrip().startswith("{") else None


def ours(dist, folder, seconds, batch, more):
    command = [os.path.join(dist, "bin", "millrace"), "feed", "folder:" + folder, "--shuffle", "-e",
               "0", "--time", f"{seconds}s", "-b", str(batch), "--device", "cuda", "--transform",
               CHAIN, "--json", "-q", *more]
    text, thread = run_watched(command, seconds + 20, "mr-jpeg")
    out = row_of(text)
    if not out:
        return None
    used = out["config"]["resolved"]
    row = {"per_s": out["warm_samples_per_s"] or 0, "first_batch_ms": out["first_batch_ms"],
           "with_start": out["samples_per_s"], "workers": used.get("workers"),
           "prefetch": used.get("prefetch")}
    if thread:
        row["thread"] = thread
    if out.get("gpu_decode"):
        row["gpu"] = {k: out["gpu_decode"].get(k) for k in ("fraction", "gpu_rate", "cpu_rate",
                                                            "refused", "why_not")}
    return row


def chip(dist, photos):
    """nvJPEG called directly, the largest first, and our own call: batches of 256, one thread."""
    bench = os.path.join(dist, "bin", "bench_nvjpeg")
    if not os.access(bench, os.X_OK):
        bench = os.path.join(dist, "bin", "tests", "gpu", "bench_nvjpeg")
    try:  # its first three cases; what comes behind them is not waited for
        text = subprocess.run(["timeout", "8", "stdbuf", "-oL", bench, "0.8"], text=True,
                              input="\n".join(photos), capture_output=True, check=False).stdout
    except OSError as error:
        print(f"photos_gpu: {error}", file=sys.stderr)
        return None
    rates = dict(re.findall(r"^(nvJPEG alone, by size|ours) +batch 256, 1 thread: +(\d+)", text,
                            re.MULTILINE))
    if not rates:
        return None
    return {"per_s": float(rates.get("nvJPEG alone, by size", 0)),
            "ours": float(rates.get("ours", 0))}


def dali(python, folder, seconds, *more):
    command = [python, os.path.join(HERE, "peers", "dali.py"), folder, "--seconds", str(seconds)]
    return row_of(run(command + [str(word) for word in more], seconds + 25))


def torch(python, folder, seconds, workers):
    command = [python, "-W", "ignore", os.path.join(HERE, "peers", "photos.py"), "dataloader",
               folder, "--device", "cuda", "--batch-size", "256", "--seconds", str(seconds),
               "--workers", str(workers)]
    return row_of(run(command, seconds + 40))


def tuned(python, folder):
    """The best of a few settings of DALI, one short run each."""
    tried = {}
    for more in [("--load", x) for x in LOADS] + [("--load", 0.75, "--read-ahead",
                                                   "--preallocate")]:
        row = dali(python, folder, 2, *more)
        if row:
            tried[more] = row["per_s"]
            print(f"DALI {' '.join(map(str, more))}: {row['per_s']:,.0f}/s", flush=True)
    return max(tried, key=tried.get) if tried else None


def cases(args, folder, photos):
    """(name, what runs it): the order of a round."""
    cpus = len(os.sched_getaffinity(0))
    plan = []
    for dist in args.dist:
        at = f" [{os.path.basename(os.path.normpath(dist))}]" if len(args.dist) > 1 else ""
        held = ["--cache", "host", *(["--warmup", f"{args.warmup}s"] if args.warmup else [])]
        for share in args.shares.split(","):
            plan.append((f"ours, --gpu-decode {share}{at}", lambda d=dist, s=share: ours(
                d, folder, args.seconds, args.batch_size, ["--gpu-decode", s, *held])))
        for workers in args.workers.split(",") if args.workers else []:
            plan.append((f"ours, --gpu-decode auto, {workers} workers{at}",
                         lambda d=dist, w=workers: ours(d, folder, args.seconds, args.batch_size, [
                             "--gpu-decode", "auto", "-w", w, *held])))
        if not args.no_peers:
            plan.append((f"ours, --gpu-decode auto, no cache{at}", lambda d=dist: ours(
                d, folder, args.seconds, args.batch_size, ["--gpu-decode", "auto"])))
    plan.append(("the chip alone, whole pictures", lambda: chip(args.dist[0], photos)))
    if args.no_peers:
        return plan
    plan.append(("DALI, its default share", lambda: dali(args.python, folder, args.seconds)))
    best = tuned(args.python, folder)
    if best:
        plan.append((f"DALI, {' '.join(map(str, best))}",
                     lambda: dali(args.python, folder, args.seconds, *best)))
    for workers in sorted({cpus - 1, cpus}):
        if workers == cpus or args.rounds < 3:
            plan.append((f"PyTorch, {workers} workers", lambda w=workers: torch(
                args.python, folder, args.seconds, w)))
    return plan


def table(rows, order):
    def median(name):
        found = [r["per_s"] for r in rows.get(name, []) if r]
        return statistics.median(found) if found else 0

    off = [name for name in order if "decode off" in name]
    bound = median("the chip alone, whole pictures") + median(off[0]) if off else 0
    if bound:
        print(f"\nbound: {bound:,.0f}/s: the chip alone and, on all processors, the cores alone")
    print()
    print("| | photos/s, from the first batch on | median | of the bound | first batch ms | |\n"
          "| --- | ---: | ---: | ---: | ---: | --- |")
    for name in order:
        found = [r for r in rows.get(name, []) if r]
        if not found:
            print(f"| {name} | none | | | | |")
            continue
        rates = ", ".join(f"{r['per_s']:,.0f}" for r in found)
        firsts = sorted(r["first_batch_ms"] for r in found if "first_batch_ms" in r)
        first = f"{firsts[0]:,.0f} to {firsts[-1]:,.0f}" if firsts else ""
        more = "; ".join(f"{k} {found[-1][k]}" for k in ("workers", "prefetch", "versions", "ours")
                         if k in found[-1])
        gpu = found[-1].get("gpu")
        if gpu:
            more += f"; share {gpu['fraction']:.3f}" + "".join(
                f", {k[:3]} {gpu[k]:,.0f}/s" for k in ("gpu_rate", "cpu_rate") if gpu.get(k))
            more += f"; {gpu['why_not']}" if gpu.get("why_not") else ""
        thread = found[-1].get("thread")
        if thread:
            more += (f"; its thread ran {100 * thread['ran']:.0f}%, waited for a processor "
                     f"{100 * thread['waited']:.1f}%, {thread['slices_s']:,.0f} slices/s")
        share = f"{100 * median(name) / bound:.0f}%" if bound else ""
        print(f"| {name} | {rates} | {median(name):,.0f} | {share} | {first} | {more} |")


def main():
    ap = argparse.ArgumentParser(description=__doc__,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("dist", nargs="*", default=[os.path.dirname(HERE)])
    ap.add_argument("--photos", required=True)
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--seconds", type=float, default=4)
    ap.add_argument("--limit", type=float, default=240, help="seconds: no round begins that "
                    "would end later")
    ap.add_argument("--shares", default="auto,off,0.7,0.75")
    ap.add_argument("--warmup", type=float, default=0, help="leave so many seconds out of the rates "
                    "of ours, in which the decoder opens and `auto` looks for its share")
    ap.add_argument("--workers", help="auto with so many, too: 14,16")
    ap.add_argument("--batch-size", type=int, default=256, help="ours; the peers have 256")
    ap.add_argument("--no-peers", action="store_true")
    ap.add_argument("--python", default=os.environ.get("PYTHON", "python3"))
    ap.add_argument("--json", help="write all rows to this file")
    args = ap.parse_args()
    start, rows, longest = time.time(), {}, 0
    with tempfile.TemporaryDirectory(prefix="photos-", dir=os.environ.get("TMPDIR")) as scratch:
        folder = os.path.join(scratch, "links")
        photos = class_folders(args.photos, folder)
        print(f"{len(photos)} photos, {sum(map(os.path.getsize, photos)) / 1e6:.1f} MB; {CLASSES} "
              f"classes; {len(os.sched_getaffinity(0))} processors", flush=True)
        plan = cases(args, folder, photos)
        for i in range(args.rounds):
            begin = time.time()
            if i and begin + longest - start > args.limit:
                print(f"stopped after {i} rounds: the time is over")
                break
            for name, call in plan:
                row = call()
                rows.setdefault(name, []).append(row)
                print(f"{time.time() - start:5.0f} s  {name}: "
                      f"{row['per_s'] if row else float('nan'):,.0f}/s", flush=True)
            longest = max(longest, time.time() - begin)
            table(rows, [name for name, _ in plan])
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump(rows, f, indent=1)
    print(f"\n{time.time() - start:.0f} s; load average {os.getloadavg()[0]:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
