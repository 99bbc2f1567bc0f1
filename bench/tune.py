#!/usr/bin/env python3
"""Does `millrace tune` find what an exhaustive grid finds? Ten workloads: for each, `millrace feed`
in every cell of a grid of workers x batches ahead, then `millrace tune`, and the cell that it chose,
measured again in turn with the grid's best. Prints a markdown table and ends with status 1 if a goal is missed:

  rate     of the chosen cell at least 95% of the grid's best
  time     at most 10 s
  workers  at most one more than the cheapest cell within 2% of the best
  memory   at most the ceiling, where there is one

Most workloads wait (for samples that are late, for a device's step, for a link's bytes), so that
other programs on the machine matter little. The cells around the best one are measured again.

usage: bench/tune.py [BUILD] [--time 1s] [--only NAME,...] [--photos FOLDER] [--json FILE]
"""

import argparse
import json
import os
import subprocess
import sys
import time

WORKERS = [1, 2, 3, 4, 5, 6, 8]
AHEAD = [1, 2, 4, 8, 16]
MOST = ["--max-workers", "8", "--max-prefetch", "16"]

# A queue of one read a worker: the rate is that of the number of workers, as with a reader that waits.
ONE_EACH = ["--queue-depth", "1", "--read-ahead", "1"]


def late(ms, shape=256, extra=""):
    return f"synthetic:n=1e6,shape={shape},values=zero,delay={ms}{extra}"


def workloads(photos):
    yield "late 10 ms, one read each", late("10ms"), ["-b", "8", "-d", "cpu"] + ONE_EACH
    yield "late 40 ms, one read each", late("40ms"), ["-b", "4", "-d", "cpu"] + ONE_EACH
    yield "late 10 ms, steps of 20 ms", late("10ms"), ["-b", "8", "-d", "cpu", "--sink-ms", "20"] + ONE_EACH
    yield "late 10 ms, steps of 50 ms", late("10ms"), ["-b", "8", "-d", "cpu", "--sink-ms", "50"] + ONE_EACH
    yield ("late 1 to 60 ms, steps of 40 ms", f"slow:dataset=[{late('0ms')}],delay=1ms,max-delay=60ms",
           ["-b", "8", "-d", "cpu", "--sink-ms", "40"] + ONE_EACH)
    yield "late 20 ms, many in flight", late("20ms"), ["-b", "64", "-d", "cpu", "--sink-ms", "20"]
    yield "link of 0.02 GB/s", late("1ms", 1024), ["-b", "64", "-d", "sim:h2d=0.02"]
    yield ("ceiling of 2 MiB", late("10ms", 4096),
           ["-b", "16", "-d", "cpu", "--sink-ms", "30", "--max-memory", "2MiB"] + ONE_EACH)
    yield ("ceiling of 12 MiB", late("10ms", 16384),
           ["-b", "16", "-d", "cpu", "--sink-ms", "60", "--max-memory", "12MiB"] + ONE_EACH)
    yield "in memory, steps of 10 ms", "synthetic:n=1e6,shape=1024,values=zero", ["-b", "64", "-d", "cpu", "--sink-ms", "10"]
    if photos:
        yield "photos", f"folder:{photos},labels=none", ["-b", "32", "-d", "cpu", "-t", "random_resized_crop(224),hflip(0.5)"]


def run(build, *args):
    done = subprocess.run([f"{build}/millrace", *args, "--json", "-q"], capture_output=True, text=True)
    out = json.loads(done.stdout) if done.stdout else {}
    if done.returncode:
        if "max_memory" not in done.stderr:  # what the ceiling refuses is no cell of the grid
            print(done.stderr.strip(), file=sys.stderr)
        return None, out.get("error", done.stderr.strip())
    return out, None


def held(result):
    return sum(result["memory"][k] for k in ("pageable_bytes", "pinned_bytes", "device_bytes"))


def cell(build, uri, opts, workers, ahead, seconds):
    """Samples a second, from the first batch on; None: refused (by the ceiling)."""
    out, why = run(build, "feed", uri, *opts, "-e", "0", "--time", f"{seconds}s", "-w", str(workers), "-p", str(ahead))
    return out["warm_samples_per_s"] if out else None


def best_of(build, uri, opts, seconds):
    grid = {}
    for workers in WORKERS:
        for ahead in AHEAD:
            rate = cell(build, uri, opts, workers, ahead, seconds)
            if rate is not None:
                grid[workers, ahead] = rate
    top = max(grid.values())
    for key in [k for k, v in grid.items() if v >= 0.95 * top]:  # noise: the highest of many is too high
        again = [grid[key]] + [cell(build, uri, opts, *key, seconds) or 0 for _ in range(2)]
        grid[key] = sorted(again)[1]
    return grid


def prove(build, name, uri, opts, seconds):
    grid = best_of(build, uri, opts, seconds)
    best = max(grid.values())
    cheapest = min(w for (w, _), v in grid.items() if v >= 0.98 * best)
    out, why = run(build, "tune", uri, *opts, *MOST)
    if not out:
        return {"name": name, "error": why, "good": False}
    found = out["tuning"]
    top = max(grid, key=grid.get)
    turns = [(cell(build, uri, opts, found["workers"], found["prefetch"], 3 * seconds) or 0,
              cell(build, uri, opts, *top, 3 * seconds) or 0) for _ in range(3)]  # in turn: other programs meet both
    again, best = (sorted(t[i] for t in turns)[1] for i in (0, 1))
    ceiling = out["config"]["max_memory_bytes"]
    row = {"name": name, "best": best, "cell": top, "cheapest": cheapest,
           "workers": found["workers"], "prefetch": found["prefetch"], "rate": again, "share": again / best,
           "seconds": found["seconds"], "tried": found["tried"], "held": held(out), "ceiling": ceiling,
           "reason": found["reason"], "load": os.getloadavg()[0]}
    row["good"] = (row["share"] >= 0.95 and row["seconds"] <= 10.5 and row["workers"] <= cheapest + 1
                   and (not ceiling or row["held"] <= ceiling))
    return row


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("build", nargs="?", default="build/release")
    ap.add_argument("--time", type=float, default=1.0, help="seconds of a cell")
    ap.add_argument("--only", help="names that contain one of these, separated by commas")
    ap.add_argument("--photos", help="a folder of pictures: one more workload, which computes")
    ap.add_argument("--json", help="write all rows to this file")
    a = ap.parse_args()
    rows, start = [], time.time()
    print("| workload | best cell: workers x ahead | samples/s | cheapest within 2% | tune: workers x ahead | of the best | "
          "s | memory |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |", flush=True)
    for name, uri, opts in workloads(a.photos):
        if a.only and not any(word in name for word in a.only.split(",")):
            continue
        r = prove(a.build, name, uri, opts, a.time)
        rows.append(r)
        if "error" in r:
            print(f"| {name} | {r['error']} |", flush=True)
            continue
        memory = f"{r['held'] / 2**20:.1f} of {r['ceiling'] / 2**20:.0f} MiB" if r["ceiling"] else ""
        print(f"| {name} | {r['cell'][0]} x {r['cell'][1]} | {r['best']:,.0f} | {r['cheapest']} | "
              f"{r['workers']} x {r['prefetch']} | {100 * r['share']:.1f}% | {r['seconds']:.1f} | {memory} |"
              + ("" if r["good"] else " <- missed"), flush=True)
    if a.json:
        with open(a.json, "w") as f:
            json.dump(rows, f, indent=1)
    print(f"\n{sum(r['good'] for r in rows)} of {len(rows)} within all goals; {time.time() - start:.0f} s; "
          f"load average {os.getloadavg()[0]:.1f}")
    sys.exit(0 if all(r["good"] for r in rows) else 1)


if __name__ == "__main__":
    main()
