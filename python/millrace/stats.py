"""What a loader measured, in words."""

from __future__ import annotations

import html
from typing import Any, NamedTuple


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
_PYTHON = {
    **dict.fromkeys(
        ("read", "decode"),
        "the data set's __getitem__ takes the time: more num_workers up to one a core, less Python "
        "in it, or a data set that is read natively (explain() tells why this one is not)",
    ),
    "transform": "fewer ops in transform=, or device= so that the GPU does it",
    "collate": "a faster collate_fn, or more num_workers",
    "prefetch": "a larger prefetch_factor",
}


class Stats(dict[str, Any]):
    """The engine's counters by name (struct mr_loader_stats), and rates made of them.

    samples_per_second: from the second batch on. wait_fraction: the share of time in which the
    program waited for a batch. workers_replaced: worker processes that ended and were replaced
    since the loader was made. advice: what helps against the bottleneck. Numbers also read as
    attributes: stats.bottleneck.
    """

    def __init__(self, counters: dict[str, Any], path: str = "native") -> None:
        super().__init__(counters)
        advice = _PYTHON if path.startswith("python") else _NATIVE
        if self.get("bottleneck") in advice:
            self["advice"] = advice[self["bottleneck"]]
        warm_ns = self.get("warm_ns", 0)
        self["samples_per_second"] = self["warm_samples"] / warm_ns * 1e9 if warm_ns else 0.0
        self["first_batch_ms"] = self.get("first_batch_ns", 0) / 1e6
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
