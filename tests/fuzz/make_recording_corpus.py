#!/usr/bin/env python3
"""Writes the seeds of fuzz_part and fuzz_recording below corpus/, beside this script."""

import pathlib
import sqlite3
import struct
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent / "corpus"
TYPES = "NONE STRING THREAD PROCESS DEVICE CONTEXT STREAM KERNEL COPY SET SYNC API MEMORY OVERHEAD GRAPH RANGE OS METRIC NOTE".split()

# Field by field as src/recording/part.h has them; struct pads as C does.
LAYOUT = {
    "THREAD": "II", "PROCESS": "II", "DEVICE": "IIIIIIQQIIII16s", "CONTEXT": "IIII", "STREAM": "IIIi",
    "KERNEL": "QQQIIIIIIIIIIIIIIIIQ", "COPY": "QQQQIIIIIIIIBBBBI", "SET": "QQQQIIIIIIHHI", "SYNC": "QQIIIIII",
    "API": "QQIIIHHiI", "MEMORY": "QQQIIIIIIII", "OVERHEAD": "QQII", "GRAPH": "QQIIIIII", "RANGE": "QQQQIIIIIIIHH",
    "OS": "QQqQII", "METRIC": "QdII", "NOTE": "qII",
}


def header(pid=100, version=1):
    return struct.pack("=8sIIIIQQI5I", b"MRPART1\n", version, 64, pid, 1, 1000, 1750000000000000000, 31, 0, 0, 0, 0, 0)


def chunk(kind, body, n, record_bytes):
    return struct.pack("=IHHII", 0x4B4E4843, TYPES.index(kind), record_bytes, n, len(body)) + body


def strings(*pairs):
    body = b"".join(struct.pack("=II", i, len(t)) + t + bytes(-len(t) % 8) for i, t in pairs)
    return chunk("STRING", body, len(pairs), 0)


def record(kind, *values):
    layout = "=" + LAYOUT[kind]
    if kind == "KERNEL":  # 92 bytes and 4 of padding
        layout = "=QQQ17I4x"
    body = struct.pack(layout, *values)
    body += bytes(-len(body) % 8) if kind in ("DEVICE", "API", "SYNC", "GRAPH", "RANGE", "OS") else b""
    return chunk(kind, body, 1, len(body))


def parts():
    names = strings((1, b"cudaMemcpyAsync_v3020"), (2, b"_Z4gemmPfi"), (3, b"step"), (4, b"exit"), (5, b"warning"),
                    (6, b"half\xe2\x82"))
    who = (record("THREAD", 100, 3) + record("PROCESS", 3, 0) +
           record("DEVICE", 0, 3, 9, 0, 132, 3, 1 << 37, 1 << 42, 1980000, 0, 7, 0, b"u" * 16) +
           record("CONTEXT", 1, 0, 7, 0) + record("STREAM", 13, 1, 2, -1))
    work = (record("API", 1100, 1200, 1, 100, 1, 0, 0, 0, 41) +
            record("COPY", 1150, 1190, 4096, 0, 0, 0, 1, 13, 1, 0, 0, 1, 1, 1, 3, 1, 0) +
            record("KERNEL", 1300, 1400, 5, 2, 0, 1, 7, 1, 2, 1, 1, 1, 64, 1, 1, 32, 0, 0, 0, 0) +
            record("SET", 0, 0, 64, 0, 0, 0, 1, 7, 9, 0, 3, 0, 0) + record("SYNC", 1400, 1500, 3, 1, 7, 0, 2, 0) +
            record("GRAPH", 1500, 1600, 1, 0, 1, 7, 3, 0) + record("OVERHEAD", 1000, 1010, 1 << 16, 100))
    rest = (record("RANGE", 1000, 0, 0, 7, 3, 3, 100, 0, 2, 3, 0, 59, 1) + record("RANGE", 1001, 1900, 9, 0, 3, 0, 100, 101, 0, 0, 0, 60, 0) +
            record("OS", 1700, 1600, 0, 10, 6, 100) + record("METRIC", 1700, 0.5, 3, 0) +
            record("METRIC", 1700, 0.5, 3, 0xFFFFFFFF) + record("MEMORY", 1050, 1 << 40, 4096, 1, 3, 0, 1, 7, 1, 100, 0) +
            record("NOTE", 2000, 4, 0) + record("NOTE", 0, 5, 6))
    whole = header() + who + work + rest + names
    yield "whole", whole
    yield "names_first", header() + names + work
    yield "header", header()
    yield "version", header(version=2)
    yield "cut", whole[:-20]
    yield "cut_chunk", whole[: 64 + 9]
    yield "zeros", whole + bytes(64)
    yield "no_chunk", header() + b"garbage where a chunk should be."
    yield "no_part", b"SQLite format 3\0"
    yield "huge_chunk", header() + struct.pack("=IHHII", 0x4B4E4843, 11, 48, 0x1000000, 0x30000000)
    yield "huge_string", header() + struct.pack("=IHHIIII", 0x4B4E4843, 1, 0, 1, 0xFFFFFFF8, 1, 0xFFFFFFF0)
    yield "strange", header() + struct.pack("=IHHII", 0x4B4E4843, 99, 8, 1, 8) + bytes(8)


PID, TID = 100 << 24, 100 << 24 | 101
EXPORT = f"""
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
INSERT INTO StringIds VALUES (1, 'cudaLaunchKernel_v7000'), (2, 'gemm'), (3, 'read');
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, end, eventClass, globalTid, correlationId, nameId, returnValue);
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (100, 200, 0, {TID}, 1, 1, 0), (110, 190, 1, {TID}, 1, 1, 0);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, contextId, streamId, correlationId, globalPid, shortName,
  demangledName, graphNodeId);
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (150, 300, 0, 1, 7, 1, {PID}, 2, 2, NULL), (0, 0, 0, 1, 7, 1, {PID}, 2, 2, 5);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start, end, deviceId, contextId, streamId, correlationId, globalPid, bytes,
  copyKind, srcKind, dstKind);
INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (400, 350, 0, 1, 7, 1, {PID}, 9, 12, 0, 2);
CREATE TABLE NVTX_EVENTS (start, end, eventType, text, globalTid, textId, domainId);
INSERT INTO NVTX_EVENTS VALUES (0, 500, 59, 'step', {TID}, NULL, 0), (1, NULL, 59, NULL, {TID}, 2, 4),
  (0, NULL, 75, 'domain', {PID}, NULL, 4), (3, 4, 60, 'x', {TID}, NULL, 0), (5, NULL, 34, 'mark', {TID}, NULL, 0);
"""
OURS = EXPORT + f"""
CREATE TABLE MILLRACE_META (name TEXT PRIMARY KEY, value INTEGER);
INSERT INTO MILLRACE_META VALUES ('schema', 1), ('traced', 15), ('end_ns', 1000);
CREATE TABLE MILLRACE_PROCESSES (globalPid, commandId, start, end, exited);
INSERT INTO MILLRACE_PROCESSES VALUES ({PID}, 3, 0, 900, 1);
CREATE TABLE MILLRACE_NOTES (globalPid, nameId, textId, value);
INSERT INTO MILLRACE_NOTES VALUES ({PID}, 3, 2, 1);
CREATE TABLE PROCESSES (globalPid, pid, name);
INSERT INTO PROCESSES VALUES ({PID}, 100, 'python3');
CREATE TABLE ThreadNames (nameId, globalTid);
INSERT INTO ThreadNames VALUES (3, {TID});
CREATE TABLE TARGET_INFO_GPU (id, name, smCount);
INSERT INTO TARGET_INFO_GPU VALUES (0, 'GPU', 132);
CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId, cudaId, pid);
INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (0, 0, 100);
CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start, end, syncType, streamId, contextId, correlationId, globalPid);
INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES (1, 2, 3, 7, 1, 1, {PID});
CREATE TABLE OSRT_API (start, end, globalTid, nameId, bytes);
INSERT INTO OSRT_API VALUES (1, 2, {TID}, 3, 4);
"""


def database(sql):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "a"
        db = sqlite3.connect(path)
        db.executescript("PRAGMA page_size=512;" + sql)
        db.close()
        return path.read_bytes()


def recordings():
    whole = database(OURS)
    yield "ours", whole
    yield "export", database(EXPORT)
    yield "cut", whole[: len(whole) // 2]
    yield "newer", database("CREATE TABLE MILLRACE_META (name, value); INSERT INTO MILLRACE_META VALUES ('schema', 9)")
    yield "types", database("CREATE TABLE NVTX_EVENTS (start, eventType, text); INSERT INTO NVTX_EVENTS VALUES (x'00', 59, 'a'),"
                            " (-3, 60, 4), (1e300, 34, NULL)")
    yield "view", database("CREATE TABLE META_DATA_EXPORT (name); CREATE VIEW OSRT_API AS SELECT 1 AS start")
    yield "none", b"not a database"


for target, seeds in (("part", parts()), ("recording", recordings())):
    (ROOT / target).mkdir(parents=True, exist_ok=True)
    for name, data in seeds:
        (ROOT / target / name).write_bytes(data)
