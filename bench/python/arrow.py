"""Rows a second of Arrow tables, Parquet files and datasets.Dataset, in turn with the producer's.

    python3 bench/python/arrow.py [--rows 200000] [--floats 256] [--batch 256] [--workers 2]
        [--rounds 5] [--folder DIR]

The set is generated: a float32 list of --floats, an int64 label and a short string a row.
Producers: table: `table.take(indices)` batch by batch; parquet: `ParquetFile.read_row_group()` one
after the other with its own threads; datasets: `iter(batch_size)` in the format "numpy". Ours: the
first epoch of a new loader, opening included. The page cache is warm. Prints medians of the rounds,
with the least and the most, and the ratio of the medians.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import millrace


def make_table(rows: int, floats: int) -> Any:
    rng = np.random.default_rng(1)
    values = pa.array(rng.random(rows * floats, np.float32))
    return pa.table(
        {
            "x": pa.FixedSizeListArray.from_arrays(values, floats),
            "label": pa.array(np.arange(rows)),
            "word": pa.array([f"word {k % 1000}" for k in range(rows)]),
        }
    )


def timed(read: Callable[[], int]) -> float:
    """Rows a second."""
    start = time.perf_counter()
    n = read()
    return n / (time.perf_counter() - start)


def loader_of(given: Any, args: argparse.Namespace, shuffle: bool) -> Callable[[], int]:
    """A new loader each time: one that is kept would have row groups in memory."""

    def read() -> int:
        with millrace.DataLoader(
            given, args.batch, shuffle, num_workers=args.workers, as_="numpy", path="native", seed=1
        ) as loader:
            return sum(len(batch["label"]) for batch in loader)

    return read


def take(table: Any, batch: int) -> int:
    order = np.random.default_rng(1).permutation(len(table))
    return sum(len(table.take(order[k : k + batch])) for k in range(0, len(table), batch))


def read_groups(path: str) -> int:
    file = pq.ParquetFile(path)
    return sum(len(file.read_row_group(k)) for k in range(file.num_row_groups))


def cases_of(args: argparse.Namespace, folder: str) -> list[tuple[str, Any, Any]]:
    table = make_table(args.rows, args.floats)
    path = os.path.join(folder, "rows.parquet")
    group = max(1, (16 << 20) // (4 * args.floats))
    pq.write_table(table, path, row_group_size=group, compression="none", use_dictionary=False)
    cases = [
        ("table, shuffled", lambda: take(table, args.batch), loader_of(table, args, True)),
        ("parquet, in order", lambda: read_groups(path), loader_of(path, args, False)),
        ("parquet, shuffled", lambda: read_groups(path), loader_of(path, args, True)),
    ]
    try:
        import datasets
    except ModuleNotFoundError:
        print("no datasets: left out")
        return cases
    held = datasets.Dataset(table).with_format("numpy")
    count = lambda: sum(len(b["label"]) for b in held.iter(args.batch))  # noqa: E731
    return [*cases, ("datasets, in order", count, loader_of(held, args, False))]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=200000)
    parser.add_argument("--floats", type=int, default=256)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder")
    args = parser.parse_args()
    load = os.getloadavg()[0]
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, load {load:.1f}")
    print(f"pyarrow {pa.__version__}, {args}")
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        for name, producer, ours in cases_of(args, folder):
            theirs, mine = [], []
            for _ in range(args.rounds):
                theirs.append(timed(producer))
                mine.append(timed(ours))
            a, b = statistics.median(theirs), statistics.median(mine)
            print(
                f"{name}: producer {a:,.0f} ({min(theirs):,.0f} to {max(theirs):,.0f}) rows/s, "
                f"millrace {b:,.0f} ({min(mine):,.0f} to {max(mine):,.0f}): {b / a:.2f}"
            )


if __name__ == "__main__":
    main()
