#!/usr/bin/env python3
"""Photos: random_resized_crop(224), hflip, normalize to f32 NCHW, batches of 64, in one run beside PyTorch's loader and what
libjpeg-turbo alone needs. All cases take turns, --rounds times, so that a slow minute falls on all; medians are printed as one
markdown table.

Per core is pictures a second of CPU time: ours is the whole process's, starting and reading included; the peers' are counted from
their first batch on.

Needs no compiler and no package: it runs `millrace` and `photos_limit` (made beside the tests; `make dist` with
-DMILLRACE_DIST_TESTS=ON puts it into the folder); the peers are left out, with a line that says so, where $PYTHON lacks them.

environment: PHOTOS=DIR, JPEGs in it or in class folders in it; PYTHON=python3 for the peers
"""
import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
CHAIN = (
    "random_resized_crop(224),hflip,cast(f32),scale(1/255),normalize([0.485,0.456,0.406],[0.229,0.224,0.225]),"
    "layout(nchw)"
)
GUESS = 600  # pictures a second and core: --seconds of ours are so many
ENDS = (".jpg", ".jpeg")


def find(name, given):
    """A program: as given, in the folder that `make dist` makes, or in the build."""
    root = os.path.dirname(HERE)
    places = [given, os.path.join(root, "bin", name), os.path.join(root, "build", "release", name)]
    places.append(os.path.join(root, "build", "release", "bench", name))
    for path in places:
        if path and os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    sys.exit(f"photos: no program {name}: build it, or name it with --{name.replace('_', '-')}")


def photos_below(folder):
    return sorted(
        os.path.join(at, name) for at, _, names in os.walk(folder) for name in names if name.lower().endswith(ENDS)
    )


def class_folders(photos, into):
    """Ten classes of copies, for sets that have no class folders."""
    for i, path in enumerate(photos):
        folder = os.path.join(into, f"class{i % 10}")
        os.makedirs(folder, exist_ok=True)
        shutil.copy(path, folder)
    return into


def run_feed(millrace, folder, workers, epochs, device, chain):
    """(its JSON, seconds of CPU time). Whole epochs: all that is made is counted."""
    command = [millrace, "feed", "folder:" + folder, "--batch-size", "64", "--shuffle", "--transform", chain]
    command += ["--workers", str(workers), "--epochs", str(epochs), "--device", device, "--json"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    text = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"photos: {' '.join(command)}: exit {child.returncode}")
    return json.loads(text), usage.ru_utime + usage.ru_stime


def ours(args, folder, n_photos, device, workers, chain, case):
    epochs = max(1, math.ceil(args.seconds * GUESS * workers / n_photos))
    result, cpu = run_feed(args.millrace, folder, workers, epochs, device, chain)
    row = {"case": case, "threads": workers, "per_s": result["samples_per_s"]}
    row["first_batch_ms"] = result["first_batch_ms"]
    if device == "cpu":  # elsewhere the consumer's waiting counts too
        row["per_core"] = result["samples"] / cpu
    return [row]


def lines(command, **more):
    """The JSON lines that a program prints; none when it is skipped (77)."""
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False, **more)
    if done.returncode not in (0, 77):
        sys.exit(f"photos: {' '.join(command)}: exit {done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def plan(args, photos, folder):
    """The cases of one round: callables that return rows."""
    listing = "\n".join(photos).encode()
    peer = [args.python, "-W", "ignore", os.path.join(HERE, "peers", "photos.py")]
    cores, seconds, cases = len(os.sched_getaffinity(0)), str(args.seconds), []
    for threads in sorted({1, cores}):
        command = [args.photos_limit, seconds, str(threads)]
        cases.append(lambda c=command: lines(c, input=listing))
        for device in args.device:
            for name, chain in (("f32", CHAIN), ("u8", "random_resized_crop(224),hflip")):
                case = f"millrace {device} {name}"
                cases.append(lambda t=threads, d=device, c=chain, n=case: ours(args, folder, len(photos), d, t, c, n))
    if not args.no_peers:
        cases.append(lambda: lines(peer + ["pillow", folder, "--seconds", seconds]))
        for workers in sorted({0, 1, cores}):
            command = peer + ["dataloader", folder, "--seconds", seconds, "--workers", str(workers)]
            cases.append(lambda c=command: lines(c))
    return cases


def has_peers(python):
    """Which of the peers are there; says of each that is not."""
    found = False
    for module in ("PIL", "torchvision"):
        here = subprocess.run([python, "-c", f"import {module}"], stderr=subprocess.DEVNULL, check=False).returncode == 0
        found = found or here
        if not here:
            print(f"photos: SKIP {module}: {python} has none (PYTHON=... names another)", file=sys.stderr)
    return found


def medians(rows):
    groups = {}
    for row in rows:
        groups.setdefault((row["case"], row["threads"]), []).append(row)
    return {
        key: {f: statistics.median(r[f] for r in group) for f in ("per_core", "per_s", "first_batch_ms") if f in group[0]}
        for key, group in groups.items()
    }


TITLES = {
    "full": "libjpeg-turbo alone, whole pictures",
    "crops": "libjpeg-turbo alone, the same scaled and cropped decode, and our resize",
    "decoder": "the same through our decoder",
    "pillow": "Pillow alone: decode, crop, resize",
    "dataloader": "DataLoader, ImageFolder (Pillow)",
}


def print_table(table):
    def figure(case, threads, field):
        return table.get((case, threads), {}).get(field)

    def cell(value, form="{:,.0f}"):
        return "" if value is None else form.format(value)

    best, top = figure("millrace cpu f32", 1, "per_core"), max(t for _, t in table)
    best_wall = figure("millrace cpu f32", top, "per_s")
    print("| what | threads or workers | pictures/s a core (CPU time) | millrace's f32 / it | pictures/s (clock) | "
          "millrace's f32 at all cores / it | first batch ms |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for (case, threads), row in sorted(table.items(), key=lambda item: (item[0][0], item[0][1])):
        core, wall = row.get("per_core"), row.get("per_s")
        ratio = best / core if best and core else None
        ratio_wall = best_wall / wall if best_wall and wall and (threads == top or case == "dataloader") else None
        print(f"| {TITLES.get(case, case)} | {threads} | {cell(core)} | {cell(ratio, '{:.2f}')} | {cell(wall)} | "
              f"{cell(ratio_wall, '{:.2f}')} | {cell(row.get('first_batch_ms'))} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millrace", help="the program")
    parser.add_argument("--photos-limit", help="the program photos_limit")
    parser.add_argument("--device", action="append", help="cpu, cuda; may be given several times (default: cpu)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each case in each round")
    parser.add_argument("--no-peers", action="store_true")
    args = parser.parse_args()
    args.millrace, args.photos_limit = find("millrace", args.millrace), find("photos_limit", args.photos_limit)
    args.device, args.python = args.device or ["cpu"], os.environ.get("PYTHON", "python3")
    source = os.environ.get("PHOTOS", "")
    photos = photos_below(source) if source else []
    if not photos:
        print(f"photos: SKIP: no JPEGs in PHOTOS='{source}'", file=sys.stderr)
        return 77
    args.no_peers = args.no_peers or not has_peers(args.python)
    rows, loads = [], []
    with tempfile.TemporaryDirectory() as work:
        flat = any(os.path.dirname(path) == os.path.normpath(source) for path in photos)
        folder = class_folders(photos, work) if flat else source
        cases = plan(args, photos, folder)
        for n in range(args.rounds):
            print(f"photos: round {n + 1} of {args.rounds}", file=sys.stderr)
            loads.append(os.getloadavg()[0])
            for case in cases:
                rows += case()
    print_table(medians(rows))
    versions = sorted({row["versions"] for row in rows if "versions" in row})
    print(f"\n{len(photos)} photos; medians of {args.rounds} rounds of {args.seconds:g} s; {len(os.sched_getaffinity(0))} "
          f"processors, load average before each round {', '.join(f'{x:.1f}' for x in loads)}. {'; '.join(versions)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
