#!/usr/bin/env python3
"""Does `millrace tune` find the best way to feed photos into a GPU with nvJPEG? As bench/tune.py,
with a grid that a GPU host does in a minute: workers x share of the device's decoder. Then what
tune chose and the best cell in turn, three times. Prints the ratio; ends with status 1 below 95%.

usage: bench/tune_photos.py [DIST] --photos DIR [--time 2] [--limit 100] [--json FILE]
"""

import argparse
import json
import os
import sys
import tempfile
import time

import photos_gpu
import tune

SHARES = ["auto", "0.65", "0.75", "0.85"]


def main():
    ap = argparse.ArgumentParser(description=__doc__,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("dist", nargs="?", default=os.path.dirname(photos_gpu.HERE))
    ap.add_argument("--photos", required=True)
    ap.add_argument("--time", type=float, default=2.0, help="seconds of a cell")
    ap.add_argument("--limit", type=float, default=100, help="seconds: then no more cells")
    ap.add_argument("--batch-size", type=int, default=256)
    ap.add_argument("--device", default="cuda")
    ap.add_argument("--json", help="write the result to this file")
    a = ap.parse_args()
    start, cpus, grid = time.time(), len(os.sched_getaffinity(0)), {}
    build = os.path.join(a.dist, "bin") if os.path.isdir(os.path.join(a.dist, "bin")) else a.dist
    with tempfile.TemporaryDirectory(prefix="photos-", dir=os.environ.get("TMPDIR")) as scratch:
        folder = os.path.join(scratch, "links")
        photos_gpu.class_folders(a.photos, folder)
        uri = "folder:" + folder
        opts = ["-b", str(a.batch_size), "-d", a.device, "--cache", "host", "--shuffle",
                "-t", photos_gpu.CHAIN]

        def cell(workers, ahead, share, seconds):
            out, _ = tune.run(build, "feed", uri, *opts, "-e", "0", "--time", f"{seconds}s", "-w",
                              str(workers), "-p", str(ahead), "--gpu-decode", share)
            return out["warm_samples_per_s"] or 0 if out else 0

        out, why = tune.run(build, "tune", uri, *opts, "--gpu-decode", "auto")
        if not out:
            sys.exit(f"tune: {why}")
        found = out["tuning"]
        ahead = found["prefetch"]
        print(f"tune: {found['workers']} workers, {ahead} ahead, in {found['seconds']:.1f} s, "
              f"{found['tried']} tried: {found['reason']}", flush=True)
        for share in SHARES:
            for workers in sorted({max(cpus - 4, 1), max(cpus - 2, 1), max(cpus - 1, 1), cpus}):
                if time.time() - start > 0.65 * a.limit:
                    break
                grid[workers, share] = cell(workers, ahead, share, a.time)
                print(f"{workers} workers, share {share}: {grid[workers, share]:,.0f}/s",
                      flush=True)
        if not grid:
            sys.exit(f"tune_photos: no time for a cell: --limit {a.limit:g} s is too short")
        top = max(grid, key=grid.get)
        turns = []
        while len(turns) < 3 and time.time() - start < a.limit - 10:
            turns.append((cell(found["workers"], ahead, "auto", 1.5 * a.time),
                          cell(top[0], ahead, top[1], 1.5 * a.time)))
    if not turns:
        sys.exit(f"tune_photos: no time for a turn: --limit {a.limit:g} s is too short")
    tuned, best = (sorted(t[i] for t in turns)[len(turns) // 2] for i in (0, 1))
    ratio = tuned / best if best else 0
    print("\n| best cell: workers, share | photos/s | tune: workers, ahead | photos/s | of it "
          "| s of tuning |\n| --- | ---: | --- | ---: | ---: | ---: |\n"
          f"| {top[0]}, {top[1]} | {best:,.0f} | {found['workers']}, {ahead} | {tuned:,.0f} | "
          f"{100 * ratio:.1f}% | {found['seconds']:.1f} |\n\n{len(turns)} turns; "
          f"{time.time() - start:.0f} s; load average {os.getloadavg()[0]:.1f}")
    if a.json:
        with open(a.json, "w", encoding="utf-8") as f:
            json.dump({"tuning": found, "turns": turns, "ratio": ratio,
                       "grid": [[*k, v] for k, v in grid.items()]}, f, indent=1)
    return 0 if ratio >= 0.95 else 1


if __name__ == "__main__":
    sys.exit(main())
