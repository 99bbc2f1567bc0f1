#!/usr/bin/env python3
"""Reports against sums that are made here, by SQL and plain loops over the recording's rows.

usage: reports.py PROGRAM DATA      DATA: the folder with recordings of real programs, *.sqlite.gz
"""
import csv
import gzip
import io
import json
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict

PROGRAM, DATA = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
KERNEL, COPY, SET = ("CUPTI_ACTIVITY_KIND_" + n for n in ("KERNEL", "MEMCPY", "MEMSET"))
STYLES = {59: "PushPop", 60: "StartEnd"}
STATS = ["Total Time (ns)", "Avg (ns)", "Med (ns)", "Min (ns)", "Max (ns)", "StdDev (ns)"]
HEADS = {
    "nvtx_gpu_proj_sum": "Range,Style,Total Proj Time (ns),Total Range Time (ns),Range Instances,Proj Avg (ns),"
                         "Proj Med (ns),Proj Min (ns),Proj Max (ns),Proj StdDev (ns),Total GPU Ops,Avg GPU Ops,"
                         "Avg Range Lvl,Avg Num Child",
    "nvtx_kern_sum": "NVTX Range,Style,PID,TID,NVTX Inst,Kern Inst,Total Time (ns),Avg (ns),Med (ns),Min (ns),"
                     "Max (ns),StdDev (ns),Kernel Name",
    "cuda_api_gpu_sum": "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),"
                        "Category,Operation",
    "cuda_kern_exec_trace": "API Start (ns),API Dur (ns),Queue Start (ns),Queue Dur (ns),Kernel Start (ns),"
                            "Kernel Dur (ns),Total Dur (ns),PID,TID,DevId,API Function,GridXYZ,BlockXYZ,Kernel Name",
    "cuda_gpu_kern_gb_sum": "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),"
                            "GridXYZ,BlockXYZ,Name",
    "nvtx_pushpop_sum": "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Range",
    "nvtx_startend_sum": "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Range",
    "nvtx_pushpop_trace": "Start (ns),End (ns),Duration (ns),DurChild (ns),DurNonChild (ns),Name,PID,TID,Lvl,"
                          "NumChild,RangeId,ParentId,RangeStack,NameTree",
    "um_sum": "Virtual Address,HtoD Migration Size (MB),DtoH Migration Size (MB),CPU Page Faults,GPU Page Faults,"
              "Migration Throughput (MB/s)",
}


def run(*arguments, status=0):
    done = subprocess.run([PROGRAM, "report", *arguments], capture_output=True, text=True)
    if done.returncode != status:
        sys.exit(f"report {' '.join(arguments)}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout, done.stderr


def table(path, report, *arguments):
    text = run(path, "-r", report, "-f", "csv", *arguments)[0]
    head = text.split("\n", 1)[0]
    name = report.split(":")[0]
    assert head == HEADS.get(name, head), (report, head)
    return list(csv.DictReader(io.StringIO(text, newline="")))


def near(a, b):
    return abs(float(a) - b) <= 0.051 + 1e-9 * abs(b)


def check_stats(row, values, prefix=""):
    total = "Total Proj Time (ns)" if prefix else "Total Time (ns)"
    expected = [sum(values), statistics.mean(values), statistics.median(values), min(values), max(values),
                statistics.stdev(values) if len(values) > 1 else 0]
    for head, value in zip([total] + [prefix + h for h in STATS[1:]], expected):
        assert near(row[head], value), (head, row, value)


class Recording:
    """Rows of a recording, joined by the plainest loops."""

    def __init__(self, path):
        self.path = path
        db = self.db = sqlite3.connect(path)
        self.strings = dict(db.execute("SELECT id, value FROM StringIds"))
        self.domains = {(tid >> 24, domain): self.text(text, number) for tid, domain, text, number in db.execute(
            "SELECT globalTid, domainId, text, textId FROM NVTX_EVENTS WHERE eventType = 75")}
        last = max(x for t in (KERNEL, "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS")
                   for (x,) in db.execute(f"SELECT max(coalesce(end, start)) FROM {t}"))
        self.ranges = [dict(start=s, end=last if e is None else e, open=e is None, type=t, tid=tid,
                            name=self.text(text, number), domain=self.domains.get((tid >> 24, domain), ""))
                       for s, e, t, tid, text, number, domain in db.execute(
                           "SELECT start, end, eventType, globalTid, text, textId, domainId FROM NVTX_EVENTS"
                           " WHERE eventType IN (59, 60) ORDER BY start, end DESC")]
        self.calls = {}
        for s, e, tid, c, name, kind in db.execute("SELECT start, end, globalTid, correlationId, nameId, eventClass"
                                                   " FROM CUPTI_ACTIVITY_KIND_RUNTIME ORDER BY eventClass DESC"):
            self.calls[tid >> 24, c] = dict(start=s, end=e, tid=tid, name=self.strings[name])
        self.ops = []
        for t, columns in ((KERNEL, "demangledName, shortName, mangledName, gridX, gridY, gridZ, blockX, blockY, blockZ"),
                           (COPY, "copyKind"), (SET, "0")):
            for s, e, pid, c, *more in db.execute(f"SELECT start, end, globalPid, correlationId, {columns} FROM {t}"):
                self.ops.append(dict(start=s, end=e, table=t, more=more, call=self.calls.get((pid >> 24, c))))

    def text(self, text, number):
        return text if text is not None else self.strings[number]

    def of(self, op):
        """The ranges that launched an operation."""
        call = op["call"]
        if call is None:
            return
        around = [r for r in self.ranges if r["start"] <= call["start"] < r["end"]
                  and r["tid"] >> 24 == call["tid"] >> 24]
        mine = [r for r in around if r["type"] == 59 and r["tid"] == call["tid"]]
        for i, r in enumerate(self.ranges):
            if not any(r is a for a in around):
                continue
            alike = any(x["tid"] == call["tid"] and x["name"] == r["name"] and x["domain"] == r["domain"]
                        and x["type"] == 59 for x in self.ranges)
            inside = not mine or (r["start"] <= mine[0]["start"] and r["end"] >= mine[0]["end"])
            if r["type"] == 60 or r["tid"] == call["tid"] or (not alike and inside):
                yield i

    def kernel(self, op, names=0):
        return self.strings[op["more"][names]]

    def shape(self, op):
        return "%4d %4d %4d" % tuple(op["more"][3:6]), "%4d %4d %4d" % tuple(op["more"][6:9])


def check_launched(rec):
    """--range by launch, nvtx_gpu_proj_sum, nvtx_kern_sum."""
    groups, kernels, spans = defaultdict(list), defaultdict(list), defaultdict(list)
    by_name = defaultdict(list)
    for op in rec.ops:
        ranges = list(rec.of(op))
        for name in {rec.ranges[i]["name"] for i in ranges}:
            by_name[name].append(op)
        for i in ranges:
            spans[i].append(op)
            if op["table"] == KERNEL:
                r = rec.ranges[i]
                kernels[f'{r["domain"]}:{r["name"]}', STYLES[r["type"]], r["tid"], rec.kernel(op)].append((i, op))
    for i, ops in spans.items():
        r = rec.ranges[i]
        groups[f'{r["domain"]}:{r["name"]}', STYLES[r["type"]]].append((r, ops))
    rows = table(rec.path, "nvtx_gpu_proj_sum")
    assert len(rows) == len(groups)
    for row in rows:
        of = groups[row["Range"], row["Style"]]
        check_stats(row, [max(o["end"] for o in ops) - min(o["start"] for o in ops) for _, ops in of], "Proj ")
        assert near(row["Total Range Time (ns)"], sum(r["end"] - r["start"] for r, _ in of))
        assert int(row["Range Instances"]) == len(of)
        assert int(row["Total GPU Ops"]) == sum(len(ops) for _, ops in of)
        assert near(row["Avg GPU Ops"], sum(len(ops) for _, ops in of) / len(of))
    rows = table(rec.path, "nvtx_kern_sum")
    assert len(rows) == len(kernels)
    for row in rows:
        tid = int(row["PID"]) << 24 | int(row["TID"])
        key = next(k for k in kernels if k[:2] == (row["NVTX Range"], row["Style"]) and k[3] == row["Kernel Name"]
                   and k[2] & 0xffffffffffff == tid)
        check_stats(row, [o["end"] - o["start"] for _, o in kernels[key]])
        assert int(row["Kern Inst"]) == len(kernels[key])
        assert int(row["NVTX Inst"]) == len({i for i, _ in kernels[key]})
    for name, ops in by_name.items():
        for report, tables in (("cuda_gpu_kern_sum", [KERNEL]), ("cuda_gpu_mem_time_sum", [COPY, SET]),
                               ("cuda_gpu_sum", [KERNEL, COPY, SET]), ("cuda_kern_exec_sum", [KERNEL])):
            rows = table(rec.path, report, "--range", name)
            count = next((h for h in ("Instances", "Count") if rows and h in rows[0]), "Count")
            mine = [o for o in ops if o["table"] in tables]
            assert sum(int(r[count]) for r in rows) == len(mine), (name, report)
            if report != "cuda_kern_exec_sum":
                assert near(sum(int(r["Total Time (ns)"]) for r in rows), sum(o["end"] - o["start"] for o in mine))
        rows = table(rec.path, "mem_ops", "--range", name)
        assert len(rows) == sum(o["table"] != KERNEL for o in ops)
        assert len(table(rec.path, "cuda_gpu_trace", "--range", name)) == len(ops)
        by_time = table(rec.path, "cuda_gpu_trace", "--range", name, "--by", "time")
        inside = [o for o in rec.ops if any(r["start"] <= o["start"] < r["end"] for r in rec.ranges
                                            if r["name"] == name)]
        assert len(by_time) == len(inside)


def check_kernels(rec):
    """cuda_gpu_kern_gb_sum, cuda_api_gpu_sum, cuda_kern_exec_trace and the kinds of names."""
    shapes, names = defaultdict(list), [defaultdict(list) for _ in range(3)]
    kernels = [o for o in rec.ops if o["table"] == KERNEL]
    for op in kernels:
        shapes[(*rec.shape(op), rec.kernel(op))].append(op["end"] - op["start"])
        for kind in range(3):
            names[kind][rec.kernel(op, kind)].append(op["end"] - op["start"])
    rows = table(rec.path, "cuda_gpu_kern_gb_sum")
    assert len(rows) == len(shapes)
    for row in rows:
        check_stats(row, shapes[row["GridXYZ"], row["BlockXYZ"], row["Name"]])
    for kind, argument in enumerate(("", ":base", ":mangled")):
        rows = table(rec.path, "cuda_gpu_kern_sum" + argument)
        assert len(rows) == len(names[kind])
        for row in rows:
            check_stats(row, names[kind][row["Name"]])
    rows = table(rec.path, "cuda_api_gpu_sum")
    calls = rec.db.execute("SELECT count(*), sum(end - start) FROM CUPTI_ACTIVITY_KIND_RUNTIME").fetchone()
    for category, n, total in (("CUDA_KERNEL", len(kernels), sum(o["end"] - o["start"] for o in kernels)),
                               ("CUDA_API", *calls)):
        mine = [r for r in rows if r["Category"] == category]
        assert sum(int(r["Instances"]) for r in mine) == n
        assert sum(int(r["Total Time (ns)"]) for r in mine) == total
    expected = []
    for op in kernels:
        call = op["call"]
        queue = op["start"] - call["end"]
        expected.append((call["start"], call["end"] - call["start"], call["end"] if queue > 0 else "",
                         queue if queue > 0 else "", op["start"], op["end"] - op["start"],
                         max(op["end"], call["end"]) - call["start"], call["tid"] >> 24 & 0xffffff,
                         call["tid"] & 0xffffff, *rec.shape(op), rec.kernel(op)))
    rows = table(rec.path, "cuda_kern_exec_trace")
    found = [tuple(row[h] for h in row if h not in ("DevId", "API Function")) for row in rows]
    assert sorted(found) == sorted(tuple(map(str, e)) for e in expected)
    assert [int(r["API Start (ns)"]) for r in rows] == sorted(int(r["API Start (ns)"]) for r in rows)


def check_ranges(rec):
    for report, kind in (("nvtx_pushpop_sum", 59), ("nvtx_startend_sum", 60)):
        sums = defaultdict(list)
        for r in rec.ranges:
            if r["type"] == kind and not r["open"]:
                sums[f'{r["domain"]}:{r["name"]}'].append(r["end"] - r["start"])
        rows = table(rec.path, report)
        assert {r["Range"] for r in rows} == set(sums)
        for row in rows:
            check_stats(row, sums[row["Range"]])
            assert int(row["Instances"]) == len(sums[row["Range"]])
    rows = table(rec.path, "nvtx_pushpop_trace")
    ranges = [r for r in rec.ranges if r["type"] == 59]
    assert len(rows) == sum(not r["open"] for r in ranges)
    parents = []
    for i, r in enumerate(ranges):  # sorted by start, outer ones first
        outer = [k for k in range(i) if ranges[k]["tid"] == r["tid"] and ranges[k]["end"] >= r["end"]
                 and ranges[k]["end"] > r["start"]]
        parents.append(outer[-1] if outer else None)
    by_start = {(int(row["Start (ns)"]), int(row["TID"]), int(row["Duration (ns)"])): row for row in rows}
    for i, r in enumerate(ranges):
        if r["open"]:
            continue
        row = by_start[r["start"], r["tid"] & 0xffffff, r["end"] - r["start"]]
        inner = [c for k, c in enumerate(ranges) if parents[k] == i]
        level, at = 0, parents[i]
        while at is not None:
            level, at = level + 1, parents[at]
        assert row["Name"] == f'{r["domain"]}:{r["name"]}'
        assert row["NameTree"] == "--" * level + row["Name"] and int(row["Lvl"]) == level
        assert int(row["NumChild"]) == len(inner)
        assert int(row["DurChild (ns)"]) == sum(c["end"] - c["start"] for c in inner)
        assert int(row["DurNonChild (ns)"]) == int(row["Duration (ns)"]) - int(row["DurChild (ns)"])
        assert row["RangeStack"].split(":")[-1] == row["RangeId"]
        assert row["RangeStack"].count(":") == level + 1
        assert row["ParentId"] == (row["RangeStack"].split(":")[-2] if level else "")


def check_formats(path):
    """-o, --timeunit, Markdown; an error leaves no file."""
    rows = table(path, "cuda_gpu_kern_sum")
    for unit, ns in (("us", 1e3), ("ms", 1e6), ("s", 1e9)):
        other = list(csv.DictReader(io.StringIO(run(path, "-r", "cuda_gpu_kern_sum", "-f", "csv", "--timeunit", unit)[0])))
        for a, b in zip(rows, other):
            assert abs(float(b[f"Total Time ({unit})"]) * ns - int(a["Total Time (ns)"])) < 1e-3
            assert a["Instances"] == b["Instances"] and a["Time (%)"] == b["Time (%)"]
    out = os.path.join(os.path.dirname(path), "out")
    run(path, "-r", "cuda_gpu_kern_sum", "-o", out + ".csv")
    with open(out + ".csv", newline="") as file:
        assert list(csv.DictReader(file)) == rows
    assert "exists" in run(path, "-o", out + ".csv", status=1)[1]
    run(path, "-r", "cuda_gpu_kern_sum,nvtx_sum", "-o", out + ".csv", "--force", "-f", "json")
    with open(out + ".csv") as file:
        assert [r["report"] for r in json.load(file)] == ["cuda_gpu_kern_sum", "nvtx_sum"]
    run(path, "-r", "cuda_gpu_kern_sum", "--sort", "nothing", "-o", out + ".md", status=2)
    assert not os.path.exists(out + ".md")
    run(path, "-r", "cuda_gpu_kern_sum", "-o", out + ".md")
    with open(out + ".md") as file:
        lines = file.read().splitlines()
    assert lines[0].startswith("### Kernels") and set(lines[3]) <= set("| -:")
    assert len([x for x in lines[4:] if x.startswith("|")]) == len(rows)
    plain = [x.replace("\\\\", "").replace("\\|", "") for x in lines if x.startswith("|")]
    assert {x.count("|") for x in plain} == {len(rows[0]) + 1}
    assert ".csv, .json or .md" in run(path, "-o", out + ".pdf", status=2)[1]
    assert ":base" in run(path, "-r", "cuda_gpu_kern_sum:x", status=2)[1]
    assert "names no kernels" in run(path, "-r", "osrt_sum:base", status=2)[1]
    assert "there are: Range, Style" in run(path, "-r", "nvtx_gpu_proj_sum", "--sort", "x", status=2)[1]
    title = run(path, "-r", "cuda_gpu_kern_sum", "--range", "step")[0].splitlines()[0]
    assert title == "Kernels (cuda_gpu_kern_sum): launched inside range step"
    title = run(path, "-r", "cuda_gpu_kern_sum", "--range", "step", "--by", "time")[0].splitlines()[0]
    assert title == "Kernels (cuda_gpu_kern_sum): begun inside range step"


def alter(path):
    """Start-end ranges, a named domain, an operation without a call, a range that never ended, two threads with
    ranges of one name, and one thread in a range of its own that crosses others; unified memory."""
    db = sqlite3.connect(path)
    main, other = [t for (t,) in db.execute("SELECT DISTINCT globalTid FROM CUPTI_ACTIVITY_KIND_RUNTIME r JOIN "
                                            f"{KERNEL} k USING (correlationId) ORDER BY globalTid")]
    trains = db.execute("SELECT n.start, n.end FROM NVTX_EVENTS n JOIN StringIds s ON s.id = n.textId"
                        " WHERE s.value = 'train' ORDER BY 1").fetchall()

    def put(start, end, kind, text, tid, domain=0):
        db.execute("INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid, domainId) VALUES (?,?,?,?,?,?)",
                   (start, end, kind, text, tid, domain))

    put(0, None, 75, "lib", main, 7)
    for i, (start, end) in enumerate(trains):
        put(start + 100, end - 100, 60, "batch", main)
        put(start + 200, end - 200, 59, "inner", main, 7)
        middle = (start + end) // 2
        put(middle, end + 50 if i % 2 else end - 500, 59, "backward", other)
        put(start + 300, end - 300, 59, "shared", main)
        if i % 3 == 0:
            put(middle + 10, end - 600, 59, "shared", other)
    put(trains[-1][1] - 100, None, 59, "left open", other)
    db.execute(f"UPDATE {KERNEL} SET correlationId = 999999 WHERE rowid = 7")
    db.execute("CREATE TABLE CUDA_UM_CPU_PAGE_FAULT_EVENTS (start INTEGER, globalPid INTEGER, address INTEGER)")
    db.execute("CREATE TABLE CUDA_UM_GPU_PAGE_FAULT_EVENTS (start INTEGER, end INTEGER, globalPid INTEGER,"
               " deviceId INTEGER, address INTEGER, numberOfPageFaults INTEGER)")
    faults = defaultdict(lambda: [0, 0, 0, 0, 0])
    columns = [c[1] for c in db.execute(f"PRAGMA table_info({COPY})")]
    row = dict(zip(columns, db.execute(f"SELECT * FROM {COPY} LIMIT 1").fetchone()))
    for i in range(200):
        address = 0x7f0000000000 + (i * 7 % 12 << 16)
        if i % 3 == 0:
            db.execute("INSERT INTO CUDA_UM_CPU_PAGE_FAULT_EVENTS VALUES (?, 0, ?)", (1000 + i, address))
            faults[address][2] += 1
        elif i % 3 == 1:
            db.execute("INSERT INTO CUDA_UM_GPU_PAGE_FAULT_EVENTS VALUES (?, ?, 0, 0, ?, ?)",
                       (1000 + i, 1001 + i, address, i))
            faults[address][3] += i
        else:
            row.update(start=10 ** 6 + i, end=10 ** 6 + 3 * i, bytes=4096 * i, copyKind=11 + i % 2, correlationId=0,
                       virtualAddress=address)
            db.execute(f"INSERT INTO {COPY} ({','.join(columns)}) VALUES ({','.join('?' * len(columns))})",
                       list(row.values()))
            faults[address][i % 2] += 4096 * i
            faults[address][4] += 2 * i
    db.commit()
    db.close()
    return faults


def check_unified(path, faults):
    rows = table(path, "um_sum")
    assert {int(r["Virtual Address"], 16) for r in rows} == set(faults)
    for row in rows:
        h2d, d2h, cpu, gpu, ns = faults[int(row["Virtual Address"], 16)]
        for head, value in (("HtoD Migration Size (MB)", h2d / 1e6), ("DtoH Migration Size (MB)", d2h / 1e6),
                            ("CPU Page Faults", cpu), ("GPU Page Faults", gpu)):
            assert abs(float(row[head] or 0) - value) < 1e-9, (row, head)
        assert abs(float(row["Migration Throughput (MB/s)"] or 0) - (h2d + d2h) * 1e3 / max(ns, 1)) <= 0.001


def main():
    folder = tempfile.mkdtemp()
    try:
        for name in ("mnist_w2", "cupy"):
            path = os.path.join(folder, name + ".sqlite")
            with gzip.open(os.path.join(DATA, name + ".sqlite.gz")) as packed, open(path, "wb") as file:
                shutil.copyfileobj(packed, file)
            rec = Recording(path)
            check_launched(rec)
            check_kernels(rec)
            check_ranges(rec)
            rec.db.close()
        path = os.path.join(folder, "mnist_w2.sqlite")
        # what is known of this program: 900 kernels in 20 batches, and 40 copies without a memset
        rows = table(path, "cuda_gpu_kern_sum", "--range", "train")
        assert sum(int(r["Instances"]) for r in rows) == 900
        rows = table(path, "cuda_gpu_mem_time_sum", "--range", "copy")
        assert [(r["Operation"], r["Count"]) for r in rows] == [("[CUDA memcpy Host-to-Device]", "40")]
        assert "millrace profile records neither" in run(path, "-r", "um_sum")[0]
        check_formats(path)
        faults = alter(path)
        rec = Recording(path)
        check_launched(rec)
        check_ranges(rec)
        rec.db.close()
        check_unified(path, faults)
        text = run(path, "-r", "cuda_gpu_kern_sum", "--range", "train")[0]
        assert "1 record whose call is not recorded left out" in text, text
    finally:
        shutil.rmtree(folder)


main()
