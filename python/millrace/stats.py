"""What a loader measured, in words."""

from __future__ import annotations

import html
import math
from typing import Any, NamedTuple

from . import _core


class BadSample(NamedTuple):
    """A sample that could not be made.

    index: in the data set. epoch, position: where it was due. file, offset (bytes): where its bytes
    are, "" if unknown. reason: one line. error: the exception of Python code, else None.
    """

    index: Any
    epoch: int
    position: int
    file: str
    offset: int
    reason: str
    error: BaseException | None = None


_ROWS = (
    ("samples", "samples", ""),
    ("batches", "batches", ""),
    ("bad_samples", "bad samples", ""),
    ("samples_per_second", "rate", " samples/s"),
    ("workers_replaced", "workers replaced", ""),
    ("first_batch_ms", "first batch", " ms"),
    ("start_ms", "of it to start", " ms"),
    ("wait_fraction", "waiting for data", ""),
    ("bottleneck", "bottleneck", ""),
    ("reason", "because", ""),
    ("advice", "what helps", ""),
)

# What to do about a bottleneck of the native path, and where Python makes the samples.
_NATIVE = {
    "read": "faster or nearer storage, larger files, or a larger max_memory to read further ahead",
    "decode": "more num_workers (0: a thread for each core), or smaller pictures on the disk",
    "transform": "more num_workers, device= so that the GPU does it, or fewer ops",
    "collate": "smaller samples or batches, or more num_workers",
    "prefetch": "a larger prefetch_factor",
}
_KEPT = "a host cache would keep its files"  # where they would fit (src/loader/stats.c)
_PYTHON = {
    **dict.fromkeys(
        ("read", "decode"),
        "less Python in the data set, or more num_workers if each gives a part of it",
    ),
    "transform": "fewer ops in transform=, or device= so that the GPU does it",
    "collate": "a faster collate_fn, or more num_workers",
    "prefetch": "a larger prefetch_factor",
}
_CHEAPER = (
    "less Python in __getitem__, or a data set that is read natively (explain() tells why this one "
    "is not)"
)


def useful_workers(cores: int) -> int:
    """So many processes at most are worth having: the program's own threads need about two cores
    where a GPU is fed (docs/python.md)."""
    return cores - 2 if cores >= 8 else max(cores, 1)


class PythonWork(NamedTuple):
    """How samples of a map-style set are made in Python. workers: that run it at a time. unit: what
    the engine counts as a sample: "sample" or "batch". threads: workers are threads of this
    process, as many as num_workers asked for."""

    workers: int
    unit: str = "sample"
    threads: int = 0  # none
    cores: int | None = None  # None: those of this process


def _python_limit(counters: dict[str, Any], work: PythonWork) -> dict[str, str]:
    """reason and advice where Python code of samples is the bottleneck: its workers are busy most
    of the time, so that their number and the rate tell how long it takes."""
    samples, warm_ns = counters.get("warm_samples", 0), counters.get("warm_ns", 0)
    if not samples or not warm_ns:
        return {"advice": f"the data set's __getitem__ takes the time: {_CHEAPER}"}
    each_ns = warm_ns / samples * work.workers
    cores = work.cores or _core.cpu_count()
    most = useful_workers(cores)
    need = max(math.ceil(each_ns / max(_used_ns(counters), 1)), work.workers + 1)
    made = f"{work.workers} worker{'s' * (work.workers != 1)}"
    rate = _text(samples / warm_ns * 1e9)
    reason = f"Python code takes about {_time(each_ns)} a {work.unit}: {made} made {rate} a second"
    if work.threads and "without using a processor" in counters.get("reason", ""):
        more = f'num_workers={min(need, 512)}, multiprocessing_context="threads"'
        return {"reason": reason, "advice": f"the code waits, so more threads than cores: {more}"}
    if work.threads > 1:
        return {"reason": reason, "advice": f"processes, as threads share the GIL; or {_CHEAPER}"}
    if need <= most:
        return {"reason": reason, "advice": f"num_workers={need} would be enough"}
    if work.workers >= most:
        return {"reason": reason, "advice": f"{_CHEAPER}: {made} run on {_of(cores)} already"}
    rate = _text(most / each_ns * 1e9)
    return {
        "reason": reason,
        "advice": f"num_workers={most} ({_of(cores)}) would make about {rate} a second; this loop "
        f"could use more: {_CHEAPER}",
    }


def _used_ns(counters: dict[str, Any]) -> float:
    """What the loop takes for a sample when it does not wait: its thread, or its work on the GPU."""
    used_ns = float(counters.get("consumer_busy_ns", 0)) / max(counters["warm_samples"], 1)
    if counters.get("used_batches"):
        batch_ns = counters["used_ns"] / counters["used_batches"]
        used_ns = max(used_ns, batch_ns * counters["batches"] / max(counters["samples"], 1))
    return used_ns


def _of(cores: int) -> str:
    return f"{cores} core{'s' * (cores != 1)}"


def _time(ns: float) -> str:
    return f"{ns / 1e6:.3g} ms" if ns >= 1e6 else f"{ns / 1e3:.3g} us"


class Stats(dict[str, Any]):
    """The engine's counters by name (struct mr_loader_stats), and rates made of them.

    samples_per_second: from the second batch on. first_batch_ms: from the beginning of the loop to
    its first batch; start_ms: the part of it until the engine is open, in which the fork server and
    worker processes start and the first samples are looked at. wait_fraction: the share of time in
    which the program waited for a batch. workers_replaced: worker processes that ended and were
    replaced since the loader was made. advice: what helps against the bottleneck. Numbers also read
    as attributes: stats.bottleneck.
    """

    def __init__(
        self, counters: dict[str, Any], path: str = "native", work: PythonWork | None = None
    ) -> None:
        super().__init__(counters)
        in_python = "python" in path
        cause, advice = self.get("bottleneck"), _PYTHON if in_python else _NATIVE
        if in_python and cause in ("read", "decode") and work:
            self.update(_python_limit(counters, work))
        elif cause in advice:
            kept = not in_python and _KEPT in self.get("reason", "")
            self["advice"] = 'cache="host"' if kept else advice[cause]
        warm_ns = self.get("warm_ns", 0)
        self["samples_per_second"] = self["warm_samples"] / warm_ns * 1e9 if warm_ns else 0.0
        self.setdefault("first_batch_ms", self.get("first_batch_ns", 0) / 1e6)
        wait, busy = self.get("consumer_wait_ns", 0), self.get("consumer_busy_ns", 0)
        self["wait_fraction"] = wait / (wait + busy) if wait + busy else 0.0

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"no statistic {name!r}; there are: {', '.join(self)}") from None

    def lines(self) -> list[tuple[str, str]]:
        """The main figures: names and texts."""
        return [(label, _text(self[key]) + unit) for key, label, unit in _ROWS if self.get(key)]

    def __repr__(self) -> str:
        return "\n".join(f"{label:18}{text}" for label, text in self.lines()) or "no batches yet"

    def _repr_html_(self) -> str:
        rows = (
            f"<tr><th style='text-align:left'>{html.escape(label)}</th>"
            f"<td style='text-align:left'>{html.escape(text)}</td></tr>"
            for label, text in self.lines()
        )
        return f"<table>{''.join(rows)}</table>"


def _text(value: Any) -> str:
    if isinstance(value, float):
        many = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
        return f"{value:.0%}" if 0 < value < 1 else many
    return f"{value:,}" if isinstance(value, int) else str(value)
