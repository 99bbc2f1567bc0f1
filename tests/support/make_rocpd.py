"""Writes rocpd databases, as rocprofv3 does, by the published schema (schema_version 3).

    make_rocpd.py FOLDER      the files of tests/data/rocpd
    make_rocpd.py --corpus FOLDER   those of tests/fuzz/corpus/rocpd

Columns that nothing reads are left out, but for those of the views and the keys. "inline" has times
and places in the events' rows, "tracks" in rocpd_timestamp and rocpd_track, with categories in a
table of their own. The programs that "ran" are made up: each step is a range "step" with a range
"load", a copy, two kernels, an all-reduce and a memset.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from pathlib import Path
from typing import Any

UUIDS = ["0190_a1", "0190_b2", "0190_c3", "0190_d4"]
START_NS = 5_000_000_000_000  # the machine's clock since it was started
STEP_NS = 10_000_000

PLACES = {
    "inline": "nid INTEGER, pid INTEGER, tid INTEGER, {where} start BIGINT, 'end' BIGINT,",
    "tracks": "track_id INTEGER, start_id INTEGER, end_id INTEGER,",
}
KEY = "id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, guid TEXT,"
TABLES = {
    "metadata": "id INTEGER NOT NULL PRIMARY KEY, tag TEXT, value TEXT",
    "string": f"{KEY} string TEXT",
    "info_node": f"{KEY} hash BIGINT, machine_id TEXT, hostname TEXT",
    "info_process": f"{KEY} nid INTEGER, ppid INTEGER, pid INTEGER, init BIGINT, fini BIGINT, "
    "start BIGINT, 'end' BIGINT, command TEXT, environment JSONB",
    "info_thread": f"{KEY} nid INTEGER, ppid INTEGER, pid INTEGER, tid INTEGER, name TEXT",
    "info_agent": f"{KEY} nid INTEGER, pid INTEGER, type TEXT, absolute_index INTEGER, "
    "type_index INTEGER, name TEXT, model_name TEXT, product_name TEXT, extdata JSONB",
    "info_kernel_symbol": f"{KEY} nid INTEGER, pid INTEGER, kernel_name TEXT, display_name TEXT, "
    "group_segment_size INTEGER, arch_vgpr_count INTEGER",
    "track": f"{KEY} nid INTEGER, pid INTEGER, tid INTEGER, agent_id INTEGER, queue_id INTEGER, "
    "stream_id INTEGER",
    "timestamp": f"{KEY} value BIGINT, phase INTEGER, track_id INTEGER",
    "info_category": f"{KEY} name TEXT",
    "event": f"{KEY} category_id INTEGER, stack_id INTEGER, parent_stack_id INTEGER, "
    "correlation_id INTEGER, extdata JSONB",
    "region": f"{KEY} {{place}} name_id INTEGER, event_id INTEGER",
    "sample": f"{KEY} track_id INTEGER, {{moment}} event_id INTEGER",
    "kernel_dispatch": f"{KEY} {{place}} kernel_id INTEGER, private_segment_size INTEGER, "
    "group_segment_size INTEGER, workgroup_size_x INTEGER, workgroup_size_y INTEGER, "
    "workgroup_size_z INTEGER, grid_size_x INTEGER, grid_size_y INTEGER, grid_size_z INTEGER, "
    "event_id INTEGER",
    "memory_copy": f"{KEY} {{place}} name_id INTEGER, dst_agent_id INTEGER, "
    "src_agent_id INTEGER, size INTEGER, event_id INTEGER",
    "memory_allocate": f"{KEY} {{place}} type TEXT, level TEXT, address INTEGER, size INTEGER, "
    "event_id INTEGER",
}
WHERE = {
    "kernel_dispatch": "agent_id INTEGER, queue_id INTEGER, stream_id INTEGER,",
    "memory_copy": "queue_id INTEGER, stream_id INTEGER,",
    "memory_allocate": "agent_id INTEGER, queue_id INTEGER, stream_id INTEGER,",
}
CATEGORIES = {  # in a table of their own they have other names
    "HIP_RUNTIME_API_EXT": "hip_api",
    "HSA_CORE_API": "hsa_api",
    "MARKER_CORE_RANGE_API": "marker_api",
    "RCCL_API": "rccl_api",
    "KERNEL_DISPATCH": "kernel_dispatch",
    "MEMORY_COPY": "memory_copy",
    "MEMORY_ALLOCATION": "memory_allocation",
}
CPU, GPU0, GPU1 = 10, 11, 12  # agents' numbers


class Process:
    """The tables of one process, with its own uuid."""

    def __init__(self, db: sqlite3.Connection, uuid: str, layout: str, node: tuple[int, str],
                 pid: int, rank: int, world: int, version: str = "3") -> None:
        self.db, self.uuid, self.tracks = db, uuid, layout == "tracks"
        self.node, self.pid, self.rank, self.world = node, pid, rank, world
        self.strings: dict[str, int] = {}
        self.kernels: dict[str, int] = {}
        self.track_of: dict[tuple[Any, ...], int] = {}
        self.n = {name: 0 for name in TABLES}
        self.stack = 0
        for name, columns in TABLES.items():
            if name in ("timestamp", "info_category") and not self.tracks:
                continue
            place = PLACES[layout].format(where=WHERE.get(name, ""))
            moment = "name_id INTEGER, timestamp_id INTEGER," if self.tracks else "timestamp BIGINT,"
            db.execute(f'CREATE TABLE "rocpd_{name}_{uuid}" '
                       f"({columns.format(place=place, moment=moment)})")
        self.add("metadata", tag="schema_version", value=version)
        self.places()

    def add(self, table: str, **row: Any) -> int:
        """Adds a row; returns its id."""
        if "id" not in row:
            self.n[table] += 1
            row["id"] = self.n[table]
        if table != "metadata":
            row["guid"] = self.uuid.replace("_", "-")
        names = ", ".join(f'"{name}"' for name in row)
        self.db.execute(f'INSERT INTO "rocpd_{table}_{self.uuid}" ({names}) VALUES '
                        f'({", ".join("?" * len(row))})', list(row.values()))
        return int(row["id"])

    def places(self) -> None:
        """The node, the process, its threads and agents: as rocprofv3 numbers them."""
        nid, host = self.node
        self.add("info_node", id=nid, hash=nid, machine_id=f"machine-{host}", hostname=host)
        environment = {"HOME": "/root"}
        if self.world > 1:
            environment |= {"RANK": str(self.rank), "WORLD_SIZE": str(self.world)}
        self.add("info_process", id=self.pid, nid=nid, ppid=1, pid=self.pid,
                 init=START_NS - 1_000_000, fini=0, command="./train --fast",
                 environment=json.dumps(environment))
        self.add("info_thread", id=self.pid, nid=nid, pid=self.pid, tid=self.pid, name="main")
        for at, kind in ((CPU, "CPU"), (GPU0, "GPU"), (GPU1, "GPU")):
            self.add("info_agent", id=at, nid=nid, pid=self.pid, type=kind, absolute_index=at - CPU,
                     type_index=max(at - GPU0, 0), name="gfx942",
                     product_name="EPYC" if kind == "CPU" else "AMD Instinct MI300X",
                     extdata=json.dumps({"cu_count": 304}))

    def string(self, text: str) -> int:
        """The number of a text."""
        if text not in self.strings:
            self.strings[text] = self.add("string", string=text)
        return self.strings[text]

    def event(self, category: str, stack: int, parent: int, extra: dict[str, str]) -> int:
        """An event's row; category is the first layout's name."""
        if self.tracks:
            name = CATEGORIES.get(category, category)
            row = self.db.execute(f'SELECT id FROM "rocpd_info_category_{self.uuid}" '
                                  "WHERE name = ?", [name]).fetchone()
            number = row[0] if row else self.add("info_category", name=name)
        else:
            number = self.string(category)
        return self.add("event", category_id=number, stack_id=stack, parent_stack_id=parent,
                        correlation_id=0, extdata=json.dumps(extra))

    def place(self, table: str, start: Any, end: Any, **where: Any) -> dict[str, Any]:
        """The columns of time and place."""
        place = {"nid": self.node[0], "pid": self.pid, "tid": self.pid} | where
        if not self.tracks:
            if table == "memory_copy":
                place.pop("agent_id", None)
            return place | {"start": start, "end": end}
        key = tuple(sorted(place.items()))
        if key not in self.track_of:
            self.track_of[key] = self.add("track", **place)
        track = self.track_of[key]
        times = [self.add("timestamp", value=time, phase=phase, track_id=track)
                 for phase, time in ((1, start), (2, end))]
        return {"track_id": track, "start_id": times[0], "end_id": times[1]}

    def region(self, category: str, name: str, start: Any, end: Any, parent: int = 0,
               **extra: str) -> int:
        """A call or a range; returns the number that others join it by."""
        self.stack += 1
        self.add("region", **self.place("region", start, end), name_id=self.string(name),
                 event_id=self.event(category, self.stack, parent or self.stack, extra))
        return self.stack

    def marker(self, text: str, start: int, end: int, call: str = "roctxThreadRangeA") -> None:
        """A range or mark of roctx: the text and the call change places in the second layout."""
        name, message = (text, call) if self.tracks else (call, text)
        self.region("MARKER_CORE_RANGE_API", name, start, end, message=message)

    def kernel(self, name: str, start: Any, end: Any, stack: int, agent: int = GPU0) -> None:
        """A dispatch: 64 blocks of 256 work items."""
        if name not in self.kernels:
            self.kernels[name] = self.add(
                "info_kernel_symbol", nid=self.node[0], pid=self.pid, kernel_name=name + ".kd",
                display_name=name, group_segment_size=1024, arch_vgpr_count=32)
        self.add("kernel_dispatch",
                 **self.place("kernel_dispatch", start, end, agent_id=agent, queue_id=1,
                              stream_id=3),
                 kernel_id=self.kernels[name], private_segment_size=16, group_segment_size=3072,
                 workgroup_size_x=256, workgroup_size_y=1, workgroup_size_z=1,
                 grid_size_x=16384, grid_size_y=1, grid_size_z=1,
                 event_id=self.event("KERNEL_DISPATCH", stack, stack, {}))

    def copy(self, source: int, to: int, start: Any, end: Any, size: Any, stack: int) -> None:
        """A copy between agents."""
        name = "MEMORY_COPY_HOST_TO_DEVICE" if source == CPU else "MEMORY_COPY_DEVICE_TO_HOST"
        self.add("memory_copy",
                 **self.place("memory_copy", start, end, agent_id=to, queue_id=None, stream_id=3),
                 name_id=self.string(name), dst_agent_id=to, src_agent_id=source, size=size,
                 event_id=self.event("MEMORY_COPY", stack, stack, {}))

    def memory(self, kind: str, start: int, address: Any, size: int, agent: Any) -> None:
        """An allocation or a release, which names no agent."""
        self.add("memory_allocate",
                 **self.place("memory_allocate", start, start + 1000, agent_id=agent, queue_id=0,
                              stream_id=0),
                 type=kind, level="REAL", address=address, size=size,
                 event_id=self.event("MEMORY_ALLOCATION", self.stack, self.stack, {}))

    def step(self, at: int, wait_ns: int = 0, gpu: int = GPU0) -> None:
        """10 ms: 5 of loading, 3 of work; all ranks leave the all-reduce together."""
        hip, hsa = "HIP_RUNTIME_API_EXT", "HSA_CORE_API"
        self.marker("step", at, at + STEP_NS - 1000)
        self.marker("load", at + 10_000, at + 5_000_000 + wait_ns)
        go = at + 5_100_000 + wait_ns
        call = self.region(hip, "hipMemcpyAsync", go, go + 300_000)
        inner = self.region(hsa, "hsa_amd_memory_async_copy_on_engine", go + 1000, go + 200_000,
                            call)
        self.copy(CPU, gpu, go + 50_000, go + 250_000, 1 << 20, inner)
        call = self.region(hip, "hipLaunchKernel", go + 310_000, go + 320_000)
        self.kernel("_Z4gemmPKfPf", go + 330_000, go + 1_330_000, call, gpu)
        call = self.region(hip, "hipMemsetAsync", go + 340_000, go + 350_000)
        self.kernel("__amd_rocclr_fillBufferAligned", go + 1_340_000, go + 1_350_000, call, gpu)
        self.region("RCCL_API", "ncclAllReduce", go + 360_000, go + 400_000)
        call = self.region(hip, "hipExtLaunchKernel", go + 370_000, go + 390_000)
        self.kernel("_Z33ncclDevKernel_Generic_AllReduceP9ncclDevCommm", go + 1_360_000,
                    at + 8_600_000, call, gpu)
        call = self.region(hip, "hipMemcpy", at + 8_610_000, at + 8_700_000)
        self.copy(gpu, CPU, at + 8_630_000, at + 8_650_000, 4, call)


def program(db: sqlite3.Connection, uuid: str, layout: str, node: tuple[int, str], pid: int,
            rank: int = 0, world: int = 1, steps: int = 8, offset_ns: int = 0,
            wait_ns: int = 0) -> Process:
    """One process that ran `steps` steps."""
    p = Process(db, uuid, layout, node, pid, rank, world)
    begin = START_NS + offset_ns
    db.execute(f'UPDATE "rocpd_info_process_{uuid}" SET init = ?', [begin - 1_000_000])
    gpu = GPU1 if rank % 2 else GPU0
    p.memory("ALLOC", begin - 500_000, 0x7F0000, 1 << 30, gpu)
    p.memory("ALLOC", begin - 400_000, 0x7E0000, 1 << 20, gpu)
    p.memory("ALLOC", begin - 390_000, 0x100000, 4096, CPU)
    p.memory("ALLOC", begin - 380_000, None, 64, gpu)  # scratch
    for i in range(steps):
        p.step(begin + i * STEP_NS, wait_ns, gpu)
    p.memory("FREE", begin + steps * STEP_NS, 0x7E0000, 0, None)
    p.marker("done", begin + steps * STEP_NS, begin + steps * STEP_NS, "roctxMarkA")
    p.region("MARKER_CORE_API", "roctxGetThreadId", begin, begin + 10)
    return p


def views(db: sqlite3.Connection, uuids: list[str]) -> None:
    """Those without suffixes, which unite all processes."""
    for name in ("metadata", "string", "region", "kernel_dispatch"):
        union = " UNION ALL ".join(f'SELECT * FROM "rocpd_{name}_{uuid}"' for uuid in uuids)
        db.execute(f'CREATE VIEW "rocpd_{name}" AS {union}')


def create(path: Path) -> sqlite3.Connection:
    """An empty database of small pages."""
    path.unlink(missing_ok=True)
    db = sqlite3.connect(path)
    db.execute("PRAGMA page_size = 512")
    return db


def finish(db: sqlite3.Connection) -> None:
    """Closes it without free pages."""
    db.commit()
    db.execute("VACUUM")
    db.close()


def write_one(path: Path, layout: str, steps: int = 8) -> None:
    """One process."""
    db = create(path)
    program(db, UUIDS[0], layout, (7, "host0"), 4242, steps=steps)
    views(db, UUIDS[:1])
    finish(db)


def write_job(path: Path, layout: str, nodes: int) -> None:
    """Two ranks, of which the second loads 1.5 ms longer, on one or two nodes, whose clocks differ
    by an hour."""
    db = create(path)
    for rank in range(2):
        far = nodes == 2 and rank == 1
        program(db, UUIDS[rank], layout, (8, "host1") if far else (7, "host0"), 4242 + rank, rank,
                2, offset_ns=3_600_000_000_000 if far else 0, wait_ns=1_500_000 * rank)
    views(db, UUIDS[:2])
    finish(db)


def write_faults(path: Path) -> None:
    """Times that are not there, negative, backwards; processes, names and agents that are not
    there; two calls of one number; no views."""
    db = create(path)
    p = program(db, UUIDS[0], "inline", (7, "host0"), 4242, steps=3)
    for start, end in ((None, 5), (5, None), (-5, 5), (START_NS + 10, START_NS), ("soon", "late")):
        p.kernel("_Z4lostv", start, end, 1)
    region, dispatch = f'"rocpd_region_{p.uuid}"', f'"rocpd_kernel_dispatch_{p.uuid}"'
    copies, events = f'"rocpd_memory_copy_{p.uuid}"', f'"rocpd_event_{p.uuid}"'
    db.execute(f"UPDATE {region} SET name_id = 9999 WHERE id = 2")
    db.execute(f"UPDATE {region} SET event_id = NULL WHERE id = 3")
    db.execute(f"UPDATE {region} SET pid = 777 WHERE id = 4")
    db.execute(f"UPDATE {dispatch} SET kernel_id = 9999, agent_id = 99 WHERE id = 1")
    db.execute(f"UPDATE {dispatch} SET workgroup_size_x = 0, grid_size_x = -1 WHERE id = 2")
    db.execute(f"UPDATE {copies} SET size = NULL, dst_agent_id = NULL WHERE id = 1")
    db.execute(f"UPDATE {events} SET stack_id = 3 WHERE id % 7 = 0")
    db.execute(f"UPDATE {events} SET parent_stack_id = stack_id + 1 WHERE id % 5 = 0")
    db.execute(f'UPDATE {events} SET extdata = \'{{"message": \' WHERE id % 9 = 0')
    finish(db)


def write_version(path: Path, version: str) -> None:
    """Of another version."""
    db = create(path)
    Process(db, UUIDS[0], "inline", (7, "host0"), 1, 0, 1, version)
    finish(db)


def main(arguments: list[str]) -> None:
    """Writes the files of a folder."""
    corpus = arguments[0] == "--corpus"
    folder = Path(arguments[-1])
    folder.mkdir(parents=True, exist_ok=True)
    for layout in ("inline", "tracks"):
        write_one(folder / f"{layout}.db", layout, 2 if corpus else 8)
    write_faults(folder / "faults.db")
    if corpus:
        write_version(folder / "version4.db", "4")
        whole = (folder / "tracks.db").read_bytes()
        (folder / "cut.db").write_bytes(whole[: len(whole) // 2])
    else:
        write_job(folder / "job.db", "inline", 1)
        write_job(folder / "nodes.db", "tracks", 2)


if __name__ == "__main__":
    main(sys.argv[1:])
