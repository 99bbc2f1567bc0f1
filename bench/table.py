#!/usr/bin/env python3
"""Turns the JSON lines of bench/run.sh into one markdown table: medians over the rounds.

usage: table.py OURS.jsonl PEER.jsonl
  OURS   one object a line, as `millrace bench loader --json` prints it: {"cases": [{"case", "samples_per_s", "bytes_per_s",
         "memcpy_bytes_per_s", "first_batch_ms", ...}]}
  PEER   one object a line, as bench/peers/dataloader.py prints it; may be empty
"""
import json
import statistics
import sys


def read(path):
    with open(path) as file:
        return [json.loads(line) for line in file if line.strip()]


def medians(rows, key):
    """{key(row): {field: median}} over the numeric fields of all rows of that key."""
    groups = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return {
        k: {
            field: statistics.median(row[field] for row in group if isinstance(row.get(field), (int, float)))
            for field, value in group[0].items()
            if isinstance(value, (int, float)) and not isinstance(value, bool)
        }
        for k, group in groups.items()
    }


def number(value, form="{:,.0f}"):
    return "" if value is None else form.format(value)


def main():
    ours = medians([case for run in read(sys.argv[1]) for case in run["cases"]], lambda row: row["case"])
    peer_rows = read(sys.argv[2])
    peer = medians(peer_rows, lambda row: (row["case"], row["workers"]))
    workers = sorted({w for _, w in peer})

    head = ["case", "millrace samples/s", "GB/s", "memcpy GB/s", "of it", "memcpy in cache GB/s", "of it"]
    head += ["CPU ns/sample", "heap growth B/sample", "first batch ms"]
    head += [f"DataLoader samples/s, {w} workers" for w in workers]
    if workers:
        head += ["its first batch ms", "millrace / its best"]
    print("| " + " | ".join(head) + " |")
    print("| --- " + "| ---: " * (len(head) - 1) + "|")
    for case, row in ours.items():
        if "samples_per_s" not in row:
            continue
        bytes_per_s, near = row.get("bytes_per_s"), row.get("memcpy_bytes_per_s")
        far = row.get("memcpy_to_memory_bytes_per_s")
        cells = [
            case,
            number(row.get("samples_per_s")),
            number(bytes_per_s and bytes_per_s / 1e9, "{:.2f}"),
            number(far and far / 1e9, "{:.2f}"),
            number(100 * bytes_per_s / far if far and bytes_per_s else None, "{:.0f}%"),
            number(near and near / 1e9, "{:.2f}"),
            number(100 * bytes_per_s / near if near and bytes_per_s else None, "{:.0f}%"),
            number(row.get("cpu_ns_per_sample")),
            number(row.get("heap_growth_bytes_per_sample"), "{:.3f}"),
            number(row.get("first_batch_ms"), "{:.1f}"),
        ]
        theirs = [peer.get((case, w), {}) for w in workers]
        cells += [number(t.get("samples_per_s")) for t in theirs]
        if workers:
            best = max((t.get("samples_per_s", 0) for t in theirs), default=0)
            first = min((t["first_batch_ms"] for t in theirs if "first_batch_ms" in t), default=None)
            cells += [number(first, "{:.1f}"), number(row["samples_per_s"] / best if best else None, "{:,.1f} x")]
        print("| " + " | ".join(cells) + " |")
    for case, row in ours.items():
        if "samples_per_s" not in row:
            print(f"\n{case}: " + ", ".join(f"{field} {value:,.6g}" for field, value in row.items()) + ".")
    print(
        "\nmemcpy: as many threads, as many bytes as an epoch delivers, from memory to memory; in cache: into a ring of 4 MiB "
        "that each thread has a part of its own of, over and over."
    )
    if peer_rows:
        print(f"\nPeer: {peer_rows[0]['peer']}, a per-sample Dataset, shuffle=True, persistent workers.")


if __name__ == "__main__":
    main()
