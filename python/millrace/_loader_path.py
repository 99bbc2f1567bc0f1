"""Which path a loader takes, and what it reads from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._arguments import Settings
from ._lengths import is_default_collate
from ._python import PythonSource
from ._source import Source, is_uri, native_source
from ._stream import StreamSource
from .errors import NotNative

if TYPE_CHECKING:
    from ._prefix import Plan


class LoaderPath:
    """The part of DataLoader that finds its source."""

    dataset: Any
    batch_size: int | None
    drop_last: bool
    num_workers: int
    collate_fn: Any
    sampler: Any
    batch_sampler: Any
    epoch: int
    _given: tuple[Any, Any, bool]
    _iterable: bool
    _settings: Settings
    _source_: Source | None
    _plan: Plan | None
    _why: list[str]

    def _choose(self) -> None:
        """Takes the native path if there is one; else it is known why there is none."""
        s = self._settings
        reasons = self._why
        self._plan = None
        if s.path == "python":
            reasons.append('path="python"')
        elif self.collate_fn is not None and not is_default_collate(self.collate_fn):
            reasons.append("collate_fn: batches are made by Python")
        elif self._iterable:
            reasons.append(f"{type(self.dataset).__qualname__}: an iterable data set")
        if not reasons:
            self._source_ = native_source(s, self.dataset, self._given, reasons)
        if self._source_ is None and s.sandbox:
            raise NotNative(reasons, "sandbox=True works with native data sets only")
        if self._source_ is None and s.cache != "none":
            raise NotNative(reasons, f'cache="{s.cache}" works with native data sets only')
        if self._source_ is None and (is_uri(self.dataset) or s.path == "native"):
            raise NotNative(reasons)
        if self._source_ is None and s.path == "auto" and not self._iterable:
            from ._prefix import plan_of

            self._plan = plan_of(self.dataset)
            if self._plan is not None:
                reasons.append(f"native before Python: {self._plan.text()}")

    def _dataset_length(self) -> int | None:
        if self._source_ is not None:
            return self._source_.n
        return len(self.dataset) if hasattr(self.dataset, "__len__") else None

    @property
    def _source(self) -> Source:
        """The data set's source. Python samples are looked at when they are first needed."""
        if self._source_ is None:
            s, why = self._settings, self._why
            collate = None if is_default_collate(self.collate_fn) else self.collate_fn
            if self._iterable:
                source: Source = StreamSource(s, self.dataset, collate, why)
            else:
                dataset = self.dataset
                if self._plan is not None:
                    from ._prefix import Prefixed

                    dataset = Prefixed(dataset, self._plan, s.seed)
                source = PythonSource(s, dataset, self._given, collate, why)
            self._source_ = source
        return self._source_

    @property
    def path(self) -> str:
        """ "native", "python-threads" or "python-processes"; "native+python-threads" and so on if
        samples only begin natively."""
        if self._source_ is not None:
            return self._source_.path
        threads = self.num_workers == 0 or self._settings.context == "threads"
        begin = "native+" if self._plan is not None else ""
        return begin + ("python-threads" if threads else "python-processes")

    @property
    def why(self) -> list[str]:
        """What keeps this loader from the native path; [] if it is on it."""
        return list(self._why)

    def explain(self) -> str:
        """The path and why, how samples are made, the share of this rank: a few lines of text."""
        s = self._settings
        lines = [f"path: {self.path}", *(f"why: {reason}" for reason in self._why)]
        lines += self._source.describe()
        lines.append(f"order: {'shuffled, ' if s.shuffle else ''}seed {s.seed}")
        lines.append(f"rank {s.rank} of {s.world}, batches of {s.batch_size} as {s.as_}")
        return "\n".join(lines)

    @property
    def seed(self) -> int:
        """Of the order and of random samples."""
        return self._settings.seed
