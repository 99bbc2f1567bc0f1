#!/usr/bin/env python3
"""Is what advice predicts what comes? A recording of bench/profile_cupy.py, whose even steps copy pageable memory and whose odd ones
copy page-locked memory, holds both: the saving that `millrace analyze` predicts for pageable_copies, and what the odd steps are
shorter by, spread over all steps.

usage: profile_saving.py PROGRAM RECORDING.sqlite
"""
import json
import sqlite3
import statistics
import subprocess
import sys

WARM = 10


def main():
    program, recording = sys.argv[1:]
    done = subprocess.run([program, "analyze", "--json", recording], stdout=subprocess.PIPE, check=True)
    finding = next(f for f in json.loads(done.stdout)["findings"] if f["rule"] == "pageable_copies")
    database = sqlite3.connect(recording)
    starts = [row[0] for row in database.execute(
        "SELECT start FROM NVTX_EVENTS LEFT JOIN StringIds ON id = textId WHERE COALESCE(text, value) = 'step' ORDER BY start")]
    steps = [(b - a) * 1e-6 for a, b in zip(starts, starts[1:])]
    pageable, locked = (statistics.mean(steps[first::2]) for first in (WARM, WARM + 1))
    actual = (pageable - locked) / 2
    print(f"steps: pageable {pageable:.3f} ms, page-locked {locked:.3f} ms")
    print(f"saving a step: predicted {finding['saving_ms']:.3f} ms, come {actual:.3f} ms: {actual / finding['saving_ms']:.2f} times as much")


if __name__ == "__main__":
    main()
