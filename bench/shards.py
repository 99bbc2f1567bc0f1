#!/usr/bin/env python3
"""The first batch of a data set of very many shards, by a table of them: time, and memory of each
process.

The shards are simulated: one archive, which has as many names as there are shards. Over HTTP they
are different URLs of a server that answers after LATENCY ms; on the disk they are one file. Several
processes are the ranks of one machine. Time is from their start to the last one's end, behind its
first batch.

usage: bench/shards.py BUILD [SHARDS [LATENCY_MS]]        default: 100000000 shards, 20 ms
"""
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

build = Path(sys.argv[1]).resolve()
n_shards = int(sys.argv[2]) if len(sys.argv) > 2 else 100_000_000
latency = float(sys.argv[3]) if len(sys.argv) > 3 else 20
millrace, tools = build / "millrace", build / "bench"
SAMPLES = 1000


def run(*args):
    subprocess.run([str(a) for a in args], check=True, stdout=subprocess.DEVNULL)


def feed(uri, world, order):
    """Starts `world` ranks at once. Returns the longest time, s, and the most memory of one, MiB."""
    begin = time.monotonic()
    ranks = []
    for rank in range(world):
        out = tempfile.TemporaryFile("w+")
        ranks.append((out, subprocess.Popen(
            [millrace, "feed", uri, "--rank", str(rank), "--world", str(world), "--batches", "1",
             "-b", "64", "--workers", "2", "--sampler", order, "--json", "-q"], stdout=out)))
    longest = most = 0
    for out, process in ranks:
        _, status, usage = os.wait4(process.pid, 0)
        longest = max(longest, time.monotonic() - begin)
        most = max(most, usage.ru_maxrss / 1024)
        if status:
            sys.exit(f"shards.py: {uri}: a rank ended with {status}")
        out.seek(0)
        if json.load(out)["samples"] != 64:
            sys.exit(f"shards.py: {uri}: expected a batch of 64 samples")
    return longest, most


with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp")) as work:
    work = Path(work)
    run(millrace, "synth", "npy", work / "x.npy", "--n", SAMPLES, "--shape", "256",
        "--classes", "0", "-q")
    run(millrace, "pack", work / "x.npy", work / "set", "--shard-size", "1GiB", "-q")
    (work / "x.npy").unlink()
    shard, here, there = (work / "set" / name for name in
                          ("shard-000000.tar", "here.shards", "there.shards"))
    begin = time.monotonic()
    for table, prefix in ((here, ""), (there, "s")):
        run(tools / "shard_names", table, n_shards, shard.stat().st_size, SAMPLES, prefix,
            shard.name)
    print(f"{n_shards:,} shards of {SAMPLES:,} samples; tables of {here.stat().st_size / 1e9:.2f} "
          f"and {there.stat().st_size / 1e9:.2f} GB, written in {time.monotonic() - begin:.1f} s")
    server = subprocess.Popen([tools / "range_server", work / "set", str(latency), "1"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    base = f"http://127.0.0.1:{server.stdout.readline().split()[1]}/"
    sets = (("disk", here),
            (f"table on disk, shards {latency:g} ms away", f"tar:{there},base={base}"),
            (f"table and shards {latency:g} ms away", base + there.name))
    print("\n| shards | order | ranks | first batch, s | memory of a rank, MiB |")
    print("| --- | --- | ---: | ---: | ---: |")
    for name, uri in sets:
        for order in ("random:block=256,window=16", "random"):
            for world in (1, 4):
                seconds, memory = feed(str(uri), world, order)
                print(f"| {name} | `{order}` | {world} | {seconds:.2f} | {memory:.0f} |",
                      flush=True)
    server.stdin.close()
    server.wait()
