"""What millrace plan predicts for 2 and 4 ranks from 1, beside what they do: mpirun on this machine.

Steps and loaders sleep (tests/support/slow_step.c), so that few processors are enough; waiting for
each other, and the sums, are real. Runs are repeated in turn; the shortest step counts, since other
programs only lengthen it. Exit status 1 if a prediction is off by more than 10%.

usage: plan.py PROGRAM SLOW_STEP_MODULE [REPEATS]
"""
import json
import os
import subprocess
import sys
import tempfile

PROGRAM, SLOW = map(os.path.abspath, sys.argv[1:3])
REPEATS = int(sys.argv[3]) if len(sys.argv) > 3 else 3
LIMIT = 0.10
MAKE = {"SLOW_MAKE_MS": 36, "SLOW_MAKE_SIGMA": 0.6}
# name, what slows the steps, what plan is told besides the run of one rank
CASES = [
    ("equal steps of 40 ms", {"SLOW_MS": 40}, []),
    ("steps of 40 ms, sigma 0.3", {"SLOW_MS": 40, "SLOW_SIGMA": 0.3}, ["--step-sigma", "0.3"]),
    ("the same, a loader of 36 ms, sigma 0.6, 2 slots",
     {"SLOW_MS": 40, **MAKE, "SLOW_MAKE_SLOTS": 2},
     ["--make", "36ms", "--make-sigma", "0.6", "--prefetch", "2"]),
    ("a loader of 60 ms, sigma 0.6, 4 slots", {"SLOW_MS": 40, **MAKE, "SLOW_MAKE_MS": 60,
                                               "SLOW_MAKE_SLOTS": 4},
     ["--make", "60ms", "--make-sigma", "0.6", "--prefetch", "4"]),
]


def run(words, slow):
    environment = {**os.environ, "LD_PRELOAD": SLOW, "OMPI_ALLOW_RUN_AS_ROOT": "1",
                   "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                   **{name: str(value) for name, value in slow.items()}}
    return subprocess.run(words, env=environment, check=True, capture_output=True, text=True,
                          timeout=300).stdout


def train(ranks, slow):
    """The object that --json prints, of some 100 steps."""
    start = ["mpirun.openmpi", "-q", "--oversubscribe", "--bind-to", "none", "-n", str(ranks)]
    return json.loads(run([*(start if ranks > 1 else []), PROGRAM, "train",
                           "synthetic:n=1e6,shape=16,classes=4", "--classes", "4", "--test", "none",
                           "--model", "mlp:8r,4s", "-b", str(8 * ranks), "--workers", "1",
                           "--threads", "1", "-d", "cpu", "--json", "--max-steps", "100",
                           "--report-dir", f"reports{ranks}"], slow))


def plan(one, ranks, words):
    with open("one.json", "w") as file:
        json.dump(one, file)
    out = subprocess.run([PROGRAM, "plan", "one.json", "--no-overlap", "--json", "--ranks",
                          str(ranks), *words], check=True, capture_output=True, text=True).stdout
    return json.loads(out)["rows"][-1]["step_ms"]


def main():
    off = False
    print("| case | ranks | predicted, ms | measured, ms | off |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, slow, words in CASES:
        measured = {1: [], 2: [], 4: []}
        predicted = {1: [], 2: [], 4: []}
        for _ in range(REPEATS):
            one = train(1, slow)
            for ranks in measured:
                found = one if ranks == 1 else train(ranks, slow)
                measured[ranks].append(found["ranks"]["step_ms"])
                predicted[ranks].append(plan(one, ranks, words))
        for ranks in measured:
            want, have = min(predicted[ranks]), min(measured[ranks])
            off |= abs(want / have - 1) > LIMIT
            row = f"{want:.1f} | {have:.1f} | {100 * (want / have - 1):+.1f}%"
            print(f"| {name} | {ranks} | {row} |", flush=True)
    return off


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        sys.exit(main())
