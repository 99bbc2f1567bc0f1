#!/usr/bin/env python3
"""What recording costs, as one table: a program plain and recorded, how long until its recording
is ready, and its size.

Cases: mnist, bench/profile_cost_mnist.py (millions of ranges whose texts come once, in five
processes); loop, the launch-bound loop of bench/profile_overhead.py; events, without a GPU: a
command of yours. Variants run in turn, round by round. Each figure is the median of the rounds;
"running" is the median of the rounds' own ratios to plain.

usage: profile_cost.py --millrace PROGRAM [--before PROGRAM] [--floor FILE] [--cases mnist,loop]
                       [--rounds 3] [--epochs 3] [--out FILE.json]
       profile_cost.py --millrace PROGRAM --cases events --events CMD...
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


def run_plain(command, **environment):
    begin = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False, env={**os.environ, **environment})
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: exit status {done.returncode}\n"
                         f"{done.stdout}{done.stderr}")
    seconds = time.perf_counter() - begin
    found = re.search(r"cupti_floor: (\d+) bytes", done.stderr)
    said = [line for line in done.stderr.splitlines() if line.startswith("cupti_floor")]
    return {"seconds": seconds, "own": own_seconds(done.stdout),
            "floor_bytes": int(found[1]) if found else 0, "floor_said": said}


def own_seconds(stdout):
    """What the program says of its inner part: the loop's seconds, when it prints JSON."""
    for line in stdout.splitlines():
        if line.startswith('{"seconds"'):
            return json.loads(line)["seconds"]
    return None


def run_recorded(program, trace, command):
    with tempfile.TemporaryDirectory() as folder:
        recording = os.path.join(folder, "r.sqlite")
        begin = time.perf_counter()
        done = subprocess.run(
            [program, "profile", "--json", "-f", "-t", trace, "-o", recording, "--", *command],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        whole = time.perf_counter() - begin
        if done.returncode:
            raise SystemExit(f"profile {' '.join(command)}: exit status {done.returncode}\n"
                             f"{done.stdout}{done.stderr}")
        said = json.loads(done.stdout[done.stdout.rindex('{\n  "command"'):])
        return {"seconds": said["seconds"], "own": own_seconds(done.stdout),
                "ready": whole - said["seconds"], "mb": said["bytes"] / 1e6,
                "records": said["records"], "dropped": said["dropped"]}


def measure(command, variants, rounds):
    rows = {name: [] for name, _, _ in variants}
    for _ in range(rounds):
        for name, program, trace in variants:
            if name.startswith("CUPTI alone"):
                row = run_plain(command, CUDA_INJECTION64_PATH=program, MILLRACE_FLOOR=trace)
                if not row["floor_bytes"]:
                    raise SystemExit(f"{name}: {program} recorded nothing: {row['floor_said']}")
            else:
                row = run_recorded(program, trace, command) if trace else run_plain(command)
            row["counted"] = row["own"] or row["seconds"]
            rows[name].append(row)
            print(f"  {name}: {row}", file=sys.stderr, flush=True)
    return rows


def table(case, rows):
    print(f"{case:10s} {'variant':24s} {'seconds':>9s} {'running':>8s} {'ready s':>8s} {'MB':>7s} "
          f"{'records':>10s}")

    def median(runs, key):
        return statistics.median(run[key] for run in runs)

    for name, runs in rows.items():
        ratio = statistics.median(run["counted"] / plain["counted"]
                                  for run, plain in zip(runs, rows["plain"]))
        line = f"{case:10s} {name:24s} {median(runs, 'counted'):9.3f} {ratio:8.3f}"
        if "ready" in runs[0]:
            line += (f" {median(runs, 'ready'):8.2f} {median(runs, 'mb'):7.1f}"
                     f" {runs[0]['records']:10d}")
        print(line, flush=True)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--millrace", default="millrace")
    parser.add_argument("--before", help="an older program, to compare with")
    parser.add_argument("--floor", help="libcupti_floor.so (bench/cupti_floor.c): CUPTI alone")
    parser.add_argument("--cases", default="mnist,loop")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--out")
    parser.add_argument("--events", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    commands = {
        "mnist": ([sys.executable, os.path.join(HERE, "profile_cost_mnist.py"),
                   "--epochs", str(args.epochs)], ["cuda,nvtx", "cuda,nvtx,osrt"]),
        "loop": ([sys.executable, os.path.join(HERE, "profile_overhead.py"), "--loop", "plain"],
                 ["cuda,nvtx", "cuda-light"]),
        "events": (args.events, ["nvtx", "nvtx,osrt"]),
    }
    result = {}
    for case in args.cases.split(","):
        command, traces = commands[case]
        variants = [("plain", None, None)] + [(trace, args.millrace, trace) for trace in traces]
        if args.floor:
            for trace in traces:
                light = "light" if trace.endswith("light") else "cuda"
                variants.append((f"CUPTI alone, {light}", os.path.abspath(args.floor), light))
        if args.before:
            variants.append((f"{traces[0]}, before", args.before, traces[0]))
        result[case] = measure(command, variants, args.rounds)
        table(case, result[case])
    if args.out:
        with open(args.out, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
