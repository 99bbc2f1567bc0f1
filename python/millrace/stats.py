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
    ("first_batch_ms", "first batch", " ms"),
    ("wait_fraction", "waiting for data", ""),
    ("bottleneck", "bottleneck", ""),
    ("reason", "because", ""),
)


class Stats(dict[str, Any]):
    """The engine's counters by name (struct mr_loader_stats), and rates made of them.

    samples_per_second: from the second batch on. wait_fraction: the share of time in which the
    program waited for a batch. Numbers also read as attributes: stats.bottleneck.
    """

    def __init__(self, counters: dict[str, Any]) -> None:
        super().__init__(counters)
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
