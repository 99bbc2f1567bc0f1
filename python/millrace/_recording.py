"""Recordings of `millrace profile` and of other tools: tables, findings, comparisons, SVG."""

from __future__ import annotations

import builtins
import contextlib
import html
import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from . import _core

if TYPE_CHECKING:
    import pandas  # type: ignore[import-not-found,import-untyped,unused-ignore]  # pyright: ignore

__all__ = ["Column", "Comparison", "Finding", "Recording", "Table", "Timeline", "open"]

Cell = int | float | str | None
_SHOWN = 20  # rows of a table's repr
_WIDE = 60  # characters of a text in it
_FORMATS = {".pftrace": 0, ".perfetto-trace": 0, ".html": 1, ".svg": 2, ".folded": 3}


class Column(NamedTuple):
    """A column. unit: "ns", "bytes", "bytes/s", "%" (0 to 100), "count", or "" for identifiers."""

    name: str
    unit: str


class Table(Sequence[dict[str, Cell]]):
    """A report's result: a sequence of rows, each a dict by column name.

    title: the report's; note: a sentence such as "no kernels in this recording: ...", or None;
    columns: names and units; rows: the dicts. Empty cells are None.
    """

    def __init__(self, title: str, note: str | None, columns: list[Column],
                 cells: list[tuple[Cell, ...]]) -> None:
        self.title = title
        self.note = note
        self.columns = columns
        self._cells = cells
        self._names = [column.name for column in columns]

    @property
    def rows(self) -> list[dict[str, Cell]]:
        """All rows."""
        return list(self)

    @overload
    def __getitem__(self, index: int) -> dict[str, Cell]: ...
    @overload
    def __getitem__(self, index: slice) -> Table: ...
    def __getitem__(self, index: int | slice) -> dict[str, Cell] | Table:
        if isinstance(index, slice):
            return Table(self.title, self.note, self.columns, self._cells[index])
        return dict(zip(self._names, self._cells[index]))

    def __len__(self) -> int:
        return len(self._cells)

    def __iter__(self) -> Iterator[dict[str, Cell]]:
        return (dict(zip(self._names, cells)) for cells in self._cells)

    def to_pandas(self) -> pandas.DataFrame:
        """A DataFrame with the columns' names; its attrs["units"] has their units by name.

        Raises ImportError without pandas.
        """
        try:
            import pandas  # pyright: ignore
        except ImportError as error:
            raise ImportError("to_pandas() needs pandas: python -m pip install pandas") from error

        frame = pandas.DataFrame(self._cells, columns=self._names)
        frame.attrs["units"] = dict(self.columns)
        return frame

    def _heads(self) -> list[str]:
        return [f"{name} ({unit})" if unit and unit != "count" else name
                for name, unit in self.columns]

    def _left_out(self) -> str:
        more = len(self) - _SHOWN
        return f"... {more} more row{'s' if more > 1 else ''}" if more > 0 else ""

    def __repr__(self) -> str:
        lines = [self._heads()] + [[_show(cell) for cell in row] for row in self._cells[:_SHOWN]]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.columns))]
        text = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths)).rstrip()
                for line in lines]
        return "\n".join(filter(None, [self.title, self.note, *text, self._left_out()]))

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self._heads())
        body = "".join("<tr>" + "".join(f"<td>{html.escape(_show(cell))}</td>" for cell in row)
                       + "</tr>" for row in self._cells[:_SHOWN])
        texts = "".join(f"<p>{html.escape(text)}</p>" for text in (self.note, self._left_out())
                        if text)
        return (f"<table><caption>{html.escape(self.title)}</caption><thead><tr>{head}</tr></thead>"
                f"<tbody>{body}</tbody></table>{texts}")


def _show(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, str):  # kernels have names of 200 characters and more
        return cell if len(cell) <= _WIDE else f"{cell[:_WIDE // 2]}...{cell[-(_WIDE // 2 - 3):]}"
    return f"{cell:,.1f}" if isinstance(cell, float) else f"{cell:,}"


def _table(made: tuple[str, str | None, list[tuple[str, str]], list[tuple[Cell, ...]]]) -> Table:
    title, note, columns, rows = made
    return Table(title, note, [Column(*column) for column in columns], rows)


@dataclass(frozen=True, repr=False)
class Finding:
    """What a rule of `millrace analyze` concluded.

    verdict: "found" (something to fix), "fine" or "cannot tell"; why: the computation and its
    threshold, or why there is no conclusion; advice: what to do, None if fine; saving_ms,
    saving_percent: predicted, per step if per_step, else of the whole recording; confidence: 0 to
    1; evidence: the rows behind it, or None.
    """

    rule: str
    title: str
    verdict: str
    why: str
    advice: str | None
    saving_ms: float
    saving_percent: float
    per_step: bool
    confidence: float
    evidence: Table | None

    def __repr__(self) -> str:
        lines = [f"{self.title} ({self.rule}): {self.verdict}", f"  why: {self.why}"]
        if self.advice:
            lines.append(f"  advice: {self.advice}")
        if self.saving_percent > 0:
            per = " a step" if self.per_step else ""
            saving = f"{self.saving_ms:.3g} ms{per} ({self.saving_percent:.3g} %)"
            lines.append(f"  saving: {saving}, confidence {self.confidence:.0%}")
        return "\n".join(lines)


def _finding(made: dict[str, Any]) -> Finding:
    evidence = made.pop("evidence")
    return Finding(**made, evidence=_table(evidence) if evidence else None)


@dataclass(frozen=True, repr=False)
class Comparison:
    """What Recording.compare() concludes of two recordings' steps.

    change: "slower", "faster", "same" (within noise) or "cannot tell" (too few steps); n_before,
    n_after: steps after warming up; before_ns, after_ns: the mean step, 0 without steps; p: of the
    test of noise, 0 to 1; summary: one sentence; tables: "steps" (where a step's time goes),
    "copies" (by direction and kind of memory), "longest_copy" (of each recording) and "findings"
    (gone, new and remaining), by name.
    """

    change: str
    n_before: int
    n_after: int
    before_ns: float
    after_ns: float
    p: float
    summary: str
    tables: dict[str, Table]

    def __repr__(self) -> str:
        return "\n\n".join([self.summary, *(repr(table) for table in self.tables.values())])

    def _repr_html_(self) -> str:
        tables = "".join(table._repr_html_() for table in self.tables.values())
        return f"<p>{html.escape(self.summary)}</p>{tables}"


class Timeline:
    """A picture of a recording. Notebooks show it; svg is its text."""

    def __init__(self, svg: str) -> None:
        self.svg = svg

    def _repr_html_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"<millrace.Timeline: SVG of {len(self.svg):,} characters>"


class Recording:
    """A recording, open for reading; open() makes it.

    Any thread may use it; calls of several threads wait for each other. After close(), calls raise
    ValueError.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._lock = threading.Lock()
        self._core = _core.Recording.open(self.path)
        self._advice: tuple[str, list[Finding]] | None = None

    @staticmethod
    def reports() -> dict[str, str]:
        """Names of all reports, and what each has."""
        return dict(_core.Recording.reports())

    def report(self, name: str, *, limit: int = 0, sort: str | None = None, from_ns: int = 0,
               to_ns: int = 0, range: str | None = None, step: str | None = None,
               link_gbps: float = 0, by_time: bool = False, loader: str | None = None) -> Table:
        """A report of `millrace report`, such as "cuda_gpu_kern_sum" or "cuda_gpu_kern_sum:base".

        limit: most rows, 0: all; sort: a column, "-NAME" for ascending order; from_ns, to_ns: only
        what begins within, in ns of the recording's clock, to_ns 0: its end; range: only what
        NVTX ranges of this name did: calls in them and the device work that these launched, by_time
        True: device work that ran meanwhile; step: the range that is a step (step_breakdown), None:
        detected; link_gbps: the link's rate in GB/s, 0: that of the fastest copy; loader: the range
        of waiting for data (idle_breakdown), None: known names.
        Raises ValueError for an unknown report, column or range (the text lists the known ones).
        """
        with self._lock:
            return _table(self._core.report(name, limit=limit, sort=sort, from_ns=from_ns,
                                            to_ns=to_ns, range=range, step=step,
                                            link_gbps=link_gbps, by_time=by_time,
                                            loader=loader))

    def steps(self, *, step: str | None = None) -> Table:
        """One row for each step, numbered from 1: its time as compute, copies and idle time, in ns.

        Without steps it is empty and its note says why. step: the NVTX range that is a step, None:
        detected. Raises ValueError for a range that is not there.
        """
        table = self.report("step_breakdown", step=step)
        cells: list[tuple[Cell, ...]] = [(int(row[0]), *row[1:]) for row in table._cells
                                         if isinstance(row[0], str) and row[0].isdigit()]
        return Table(table.title, table.note, table.columns, cells)

    def _analyze(self, **options: Any) -> tuple[str, list[Finding]]:
        with self._lock:
            summary, made = self._core.analyze(**options)
        return summary, [_finding(one) for one in made]

    def _plain_advice(self) -> tuple[str, list[Finding]]:
        if self._advice is None:
            self._advice = self._analyze()
        return self._advice

    def findings(self, *, step: str | None = None, range: str | None = None, link_gbps: float = 0,
                 cores: int = 0) -> list[Finding]:
        """What the rules of `millrace analyze` conclude: first what to fix, by saving times
        confidence; then what the data cannot tell; then what is fine.

        step, range: NVTX ranges of a step and of data loading, None: known names; link_gbps: the
        link's rate, 0: as recorded; cores: of the recorded machine, 0: as recorded.
        Raises ValueError for a range that is not there.
        """
        if step is None and range is None and link_gbps == 0 and cores == 0:
            return list(self._plain_advice()[1])
        return self._analyze(step=step, range=range, link_gbps=link_gbps, cores=cores)[1]

    @property
    def summary(self) -> str:
        """One line that answers "is it data-bound?" with numbers."""
        return self._plain_advice()[0]

    def timeline(self, path: str | os.PathLike[str] | None = None, *, from_ns: int = 0,
                 to_ns: int = 0, title: str | None = None, whole: bool = False) -> Timeline | str:
        """Draws the recording. path: written with the format of its ending: .html (a page for a
        browser), .svg, .pftrace (for ui.perfetto.dev), .folded (sampled stacks, for flame graph
        tools); returned as a str. None: a Timeline, which notebooks show.

        from_ns, to_ns: this part, 0, 0: all; title: None: the recorded command; whole: an SVG of
        everything, not only of the steps.
        Raises ValueError for another ending, OSError if path cannot be written.
        """
        if path is not None:
            target = os.fspath(path)
            kind = _FORMATS.get(os.path.splitext(target)[1])
            if kind is None:
                raise ValueError(f"timeline {target}: expected a name that ends in "
                                 f"{', '.join(_FORMATS)}")
            with self._lock:
                self._core.timeline(target, kind, from_ns, to_ns, title, whole)
            return target
        with tempfile.TemporaryDirectory() as folder:
            target = os.path.join(folder, "timeline.svg")
            with self._lock:
                self._core.timeline(target, _FORMATS[".svg"], from_ns, to_ns, title, whole)
            with builtins.open(target, encoding="utf-8") as file:
                return Timeline(file.read())

    def diff(self, after: Recording, *, threshold: float = 10) -> Table:
        """Compares this recording with a later one, as `millrace report --diff -r all`: a row for
        each kernel, kind of copy, call and range. threshold: of changes, in percent; rows beyond it
        come first."""
        with self._both(after):
            return _table(self._core.diff(after._core, threshold)[1])

    def compare(self, after: Recording, *, step: str | None = None,
                least_percent: float = 1) -> Comparison:
        """Judges whether a later recording's steps are slower or faster beyond noise, as
        `millrace report --diff`.

        step: the NVTX range that is a step, None: detected; least_percent: of the mean step, a
        change below it is none.
        Raises ValueError for a range that is not there, or a least_percent below 0.
        """
        with self._both(after):
            made: dict[str, Any] = self._core.compare(after._core, step, least_percent)
        made["tables"] = {name: _table(table) for name, table in made["tables"]}
        return Comparison(**made)

    @contextlib.contextmanager
    def _both(self, other: Recording) -> Iterator[None]:
        """Locks both, in one order for all threads."""
        first, second = sorted((self, other), key=id)
        with first._lock, contextlib.nullcontext() if second is first else second._lock:
            yield

    def close(self) -> None:
        """Frees it. More calls do nothing."""
        with self._lock:
            self._core.close()

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<millrace.Recording {self.path!r}>"

    def _repr_html_(self) -> str:
        picture = self.timeline()
        assert isinstance(picture, Timeline)
        return f"<p><b>{html.escape(self.path)}</b>: {html.escape(self.summary)}</p>{picture.svg}"


def open(path: str | os.PathLike[str]) -> Recording:
    """Opens a recording of `millrace profile`, or a file of another tool that `millrace report`
    reads: an export of Nsight Systems, a Kineto trace, a rocpd database.

        with millrace.open("report1.sqlite") as recording:
            print(recording.summary)
            kernels = recording.report("cuda_gpu_kern_sum").to_pandas()

    Raises OSError (FileNotFoundError, ...), millrace.FormatError if it is no recording or damaged,
    NotImplementedError for an unknown schema. The texts name the file.
    """
    return Recording(path)
