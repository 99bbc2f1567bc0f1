"""Rows a second of Arrow tables, Parquet files and datasets.Dataset, in turn with the producer's.

    python3 bench/python/arrow.py [--rows 200000] [--floats 256] [--batch 256] [--workers 2]
        [--rounds 5] [--folder DIR]

The set is generated: a float32 list of --floats, an int64 label and a short string a row. "words"
has two strings a row, "dictionary" the same two as dictionaries. Producers: table:
`table.take(indices)` batch by batch; lists: that and `to_pylist()` of the strings, since our
batches have lists of str; parquet: `ParquetFile.read_row_group()` one after the other with its
own threads; copied: that, and each batch's rows copied into arrays and lists of str; kept: copied,
with all row groups kept, as ours are for the next epoch; taken: each group's rows in a random order
by `take()`, and batches of them as arrays and lists of str; datasets: `iter(batch_size)` in the
format "numpy". Ours: the first epoch of a new loader, opening included; streamed: with 4 row groups
in memory, as of a set that is too large to be kept.
The page cache is warm. Prints medians of the rounds, with the least and the most, and the ratio of
the medians; then the CPU time of the process for each row, all threads, and its ratio.
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
from millrace import _arrow_sources


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


def make_words(rows: int) -> Any:
    words = np.array([f"word {k}" for k in range(1000)])
    rng = np.random.default_rng(2)
    return pa.table({name: pa.array(words[rng.integers(0, 1000, rows)]) for name in ("a", "b")})


def encoded(table: Any) -> Any:
    columns = [column.combine_chunks().dictionary_encode() for column in table.columns]
    return pa.table(dict(zip(table.column_names, columns, strict=True)))


def timed(read: Callable[[], int]) -> tuple[float, float]:
    """Rows a second, and nanoseconds of CPU for each."""
    start, cpu = time.perf_counter(), time.process_time_ns()
    n = read()
    return n / (time.perf_counter() - start), (time.process_time_ns() - cpu) / n


def loader_of(given: Any, args: argparse.Namespace, shuffle: bool) -> Callable[[], int]:
    """A new loader each time: one that is kept would have row groups in memory."""

    def read() -> int:
        with millrace.DataLoader(
            given, args.batch, shuffle, num_workers=args.workers, as_="numpy", path="native", seed=1
        ) as loader:
            return sum(len(next(iter(batch.values()))) for batch in loader)

    return read


def take(table: Any, batch: int) -> int:
    order = np.random.default_rng(1).permutation(len(table))
    return sum(len(table.take(order[k : k + batch])) for k in range(0, len(table), batch))


def take_lists(table: Any, batch: int) -> int:
    order = np.random.default_rng(1).permutation(len(table))
    n = 0
    for k in range(0, len(table), batch):
        part = table.take(order[k : k + batch])
        n += len(part)
        for column in part.columns:
            if pa.types.is_string(column.type) or pa.types.is_dictionary(column.type):
                column.to_pylist()
    return n


def read_groups(path: str) -> int:
    file = pq.ParquetFile(path)
    return sum(len(file.read_row_group(k)) for k in range(file.num_row_groups))


def batches_of(table: Any, batch: int) -> int:
    """Copies rows into arrays, and lists texts."""
    for at in range(0, len(table), batch):
        for column in table.slice(at, batch).columns:
            chunk = column.chunk(0)
            if pa.types.is_string(column.type):
                chunk.to_pylist()
            elif pa.types.is_fixed_size_list(column.type):
                np.array(chunk.flatten().to_numpy(zero_copy_only=True))
            else:
                np.array(chunk.to_numpy(zero_copy_only=True))
    return len(table)


def copy_groups(path: str, batch: int, keep: bool = False) -> int:
    """The minimum that makes batches in order."""
    file = pq.ParquetFile(path)
    n, kept = 0, []
    for k in range(file.num_row_groups):
        table = file.read_row_group(k).combine_chunks()
        n += batches_of(table, batch)
        if keep:
            kept.append(table)
    return n


def take_groups(path: str, batch: int) -> int:
    """The minimum that makes shuffled batches: groups, and rows in each, in a random order."""
    file = pq.ParquetFile(path)
    rng = np.random.default_rng(1)
    n = 0
    for k in rng.permutation(file.num_row_groups):
        table = file.read_row_group(int(k))
        n += batches_of(table.take(rng.permutation(len(table))).combine_chunks(), batch)
    return n


def streamed(read: Callable[[], int]) -> Callable[[], int]:
    def with_few() -> int:
        before = _arrow_sources._KEPT_BYTES
        _arrow_sources._KEPT_BYTES = 0
        try:
            return read()
        finally:
            _arrow_sources._KEPT_BYTES = before

    return with_few


def cases_of(args: argparse.Namespace, folder: str) -> list[tuple[str, Any, Any]]:
    table = make_table(args.rows, args.floats)
    path = os.path.join(folder, "rows.parquet")
    group = max(1, (16 << 20) // (4 * args.floats))
    pq.write_table(table, path, row_group_size=group, compression="none", use_dictionary=False)
    words = make_words(args.rows)
    coded = encoded(words)
    text = os.path.join(folder, "words.parquet")
    pq.write_table(words, text, row_group_size=group, compression="none")
    cases = [
        ("table, shuffled", lambda: take(table, args.batch), loader_of(table, args, True)),
        ("table, lists", lambda: take_lists(table, args.batch), loader_of(table, args, True)),
        ("words, shuffled", lambda: take(words, args.batch), loader_of(words, args, True)),
        ("words, lists", lambda: take_lists(words, args.batch), loader_of(words, args, True)),
        ("dictionary, shuffled", lambda: take(coded, args.batch), loader_of(coded, args, True)),
        ("dictionary, lists", lambda: take_lists(coded, args.batch), loader_of(coded, args, True)),
        ("parquet words, in order", lambda: read_groups(text), loader_of(text, args, False)),
        (
            "parquet words, copied",
            lambda: copy_groups(text, args.batch),
            loader_of(text, args, False),
        ),
        ("parquet, in order", lambda: read_groups(path), loader_of(path, args, False)),
        ("parquet, copied", lambda: copy_groups(path, args.batch), loader_of(path, args, False)),
        (
            "parquet, kept",
            lambda: copy_groups(path, args.batch, True),
            loader_of(path, args, False),
        ),
        ("parquet, shuffled", lambda: read_groups(path), loader_of(path, args, True)),
        ("parquet, taken", lambda: take_groups(path, args.batch), loader_of(path, args, True)),
        (
            "parquet streamed, in order",
            lambda: read_groups(path),
            streamed(loader_of(path, args, False)),
        ),
        (
            "parquet streamed, copied",
            lambda: copy_groups(path, args.batch),
            streamed(loader_of(path, args, False)),
        ),
        (
            "parquet streamed, taken",
            lambda: take_groups(path, args.batch),
            streamed(loader_of(path, args, True)),
        ),
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
    parser.add_argument("--only", default="", help="cases whose names contain this")
    args = parser.parse_args()
    load = os.getloadavg()[0]
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, load {load:.1f}")
    print(f"pyarrow {pa.__version__}, {args}")
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        for name, producer, ours in cases_of(args, folder):
            if args.only not in name:
                continue
            pairs = [(timed(producer), timed(ours)) for _ in range(args.rounds)]
            theirs, mine = [p[0][0] for p in pairs], [p[1][0] for p in pairs]
            a, b = statistics.median(theirs), statistics.median(mine)
            cpu_a = statistics.median(p[0][1] for p in pairs)
            cpu_b = statistics.median(p[1][1] for p in pairs)
            print(
                f"{name}: producer {a:,.0f} ({min(theirs):,.0f} to {max(theirs):,.0f}) rows/s, "
                f"millrace {b:,.0f} ({min(mine):,.0f} to {max(mine):,.0f}): {b / a:.2f}; "
                f"CPU {cpu_a:,.0f} and {cpu_b:,.0f} ns a row: {cpu_a / cpu_b:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
