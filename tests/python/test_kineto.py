"""Kineto traces of real programs: millrace's tables against sums made here from the JSON itself."""

from __future__ import annotations

import gzip
import json
import os
import pathlib
import subprocess
import sys
from collections import Counter, defaultdict
from decimal import Decimal
from typing import Any

import millrace
import pytest

DATA = os.environ.get("MILLRACE_TEST_DATA", "")
KINETO = sorted(pathlib.Path(DATA, "kineto").glob("*.json.gz")) if DATA else []
RANKS = sorted(pathlib.Path(DATA, "ranks").glob("*.json.gz")) if DATA else []

Sums = dict[str, tuple[int, int]]


def sums(events: list[dict[str, Any]], *categories: str) -> Sums:
    """(count, ns) by name, of the events of these categories; decimal numbers lose nothing."""
    out: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for event in events:
        if event.get("ph") == "X" and event.get("cat") in categories:
            out[event["name"]][0] += 1
            out[event["name"]][1] += round(Decimal(event["dur"]) * 1000)
    return {name: (n, ns) for name, (n, ns) in out.items()}


def rows(recording: Any, report: str, name: str, count: str) -> Sums:
    return {row[name]: (row[count], row["Total Time"]) for row in recording.report(report)}


def bare(name: str) -> str:
    """A call without the version of its parameters, as reports name it."""
    head, mark, digits = name.rpartition("_v")
    return head if mark and digits.isdigit() else name


@pytest.mark.skipif(not KINETO, reason="MILLRACE_TEST_DATA has no kineto/")
@pytest.mark.parametrize("path", KINETO + RANKS, ids=lambda path: path.name)
def test_sums_are_those_of_the_file(path: pathlib.Path) -> None:
    events = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)["traceEvents"]
    copies = [e for e in events if e.get("cat") in ("gpu_memcpy", "gpu_memset")]
    ranges = sums(events, "user_annotation") | {
        "cpu_op:" + name: sum_ for name, sum_ in sums(events, "cpu_op").items()}
    with millrace.open(str(path)) as recording:
        assert rows(recording, "cuda_gpu_kern_sum", "Name", "Instances") == sums(events, "kernel")
        assert rows(recording, "cuda_api_sum", "Name", "Num Calls") == {
            bare(name): sum_ for name, sum_ in sums(events, "cuda_runtime", "cuda_driver").items()}
        found = rows(recording, "nvtx_sum", "Range", "Instances")
        assert {name.removeprefix(":"): sum_ for name, sum_ in found.items()} == ranges
        moved = recording.report("mem_ops")
        assert Counter(row["Bytes"] for row in moved) == Counter(
            e["args"].get("bytes") for e in copies)  # None: the trace does not say
        assert sum(row["Duration"] for row in moved) == sum(
            round(Decimal(e["dur"]) * 1000) for e in copies)
        assert len(recording.report("osrt_sum")) == 0
        assert recording.report("osrt_sum").note == "this Kineto trace records no OS runtime calls"
        assert recording.summary


def per_step(recording: Any, n_steps: float) -> dict[str, int]:
    """How often the steps of a rank run each kernel."""
    return {row["Name"]: round(row["Instances"] / n_steps)
            for row in recording.report("cuda_gpu_kern_sum")}


def loads(recording: Any) -> set[tuple[int, str, str]]:
    """Size and memory of the copies to the device."""
    return {(row["Bytes"], row["SrcMemKd"], row["DstMemKd"])
            for row in recording.report("mem_ops") if row["Operation"] == "Host-to-Device"}


@pytest.mark.skipif(not RANKS, reason="MILLRACE_TEST_DATA has no ranks/")
@pytest.mark.parametrize("case", ["load", "compute"])
def test_agrees_with_our_own_recording(case: str, tmp_path: pathlib.Path) -> None:
    """Two runs of one program: 40 steps by millrace (39 of one rank), 24 by torch.profiler."""
    folder = pathlib.Path(DATA, "ranks")
    ours = tmp_path / "ours.sqlite"
    ours.write_bytes(gzip.decompress((folder / f"{case}.sqlite.gz").read_bytes()))
    wanted: defaultdict[str, int] = defaultdict(int)
    with millrace.open(str(folder / f"{case}-rank0.json.gz")) as zero, \
            millrace.open(str(folder / f"{case}-rank1.json.gz")) as one:
        for rank in zero, one:
            for name, n in per_step(rank, 24).items():
                wanted[name] += n
        copies = loads(zero) | loads(one)
    with millrace.open(str(ours)) as recording:
        assert per_step(recording, 39.5) == dict(wanted)
        assert loads(recording) == copies


@pytest.mark.skipif(not RANKS, reason="MILLRACE_TEST_DATA has no ranks/")
def test_the_loader_is_found_by_its_annotation() -> None:
    with millrace.open(str(pathlib.Path(DATA, "ranks", "load-rank1.json.gz"))) as recording:
        assert recording.summary.startswith("data-bound: ")
        first = recording.findings()[0]
        assert first.rule == "data_starvation" and "enumerate(DataLoader)" in first.why


def test_memory_does_not_grow_with_events(tmp_path: pathlib.Path) -> None:
    """The size of a file is no matter: ten times the events, nearly the same memory."""
    code = ("import resource, sys, millrace\n"
            "with millrace.open(sys.argv[1]) as r: r.report('cuda_gpu_kern_sum')\n"
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n")
    peak = []
    for n in 60_000, 600_000:
        path = tmp_path / f"{n}.json"
        with path.open("w") as file:
            file.write('{"traceEvents": [\n')
            for i in range(n):
                file.write(f'{{"ph": "X", "cat": "kernel", "name": "k{i % 100}", "pid": 0, "tid": 7, '
                           f'"ts": {1000 + i}.125, "dur": 0.5, "args": {{"correlation": {i}}}}},\n')
            file.write("{}]}")
        done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True,
                              text=True, check=True, timeout=250)
        peak.append(int(done.stdout))
        path.unlink()
    assert peak[1] < peak[0] + 100 * 1024  # KiB: SQLite's cache of pages is 64 MiB
