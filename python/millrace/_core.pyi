"""The engine: data sets, samplers, loaders, batches. For millrace's own modules; it may change."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, final

version: str

class Error(Exception):
    """An error of the engine. All exceptions of this module have `code`, the engine's number."""

    code: int

class FormatError(Error, ValueError): ...
class BadSamples(Error): ...
class Cancelled(Error): ...

class Spec(NamedTuple):
    """A field of a sample or batch.

    dtype: "u8", "f32", "bf16", "bool", ..., "string", "bytes". var_dims: bit d: dimension d varies,
    up to shape[d].
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    var_dims: int = 0

_SpecLike = Spec | tuple[str, str, Sequence[int]] | tuple[str, str, Sequence[int], int]

@final
class Dataset:
    @classmethod
    def open(cls, uri: str, /) -> Dataset: ...
    @classmethod
    def arrays(cls, fields: Sequence[tuple[str, object]], /) -> Dataset: ...
    @classmethod
    def python(
        cls,
        n: int,
        fields: Sequence[_SpecLike],
        fetch: Callable[[int, int, list[int], list[int], int], Sequence[object]],
        *,
        name: str = "python",
        version: int = 0,
        changes: bool = True,
    ) -> Dataset: ...
    @classmethod
    def iterable(
        cls,
        fields: Sequence[_SpecLike],
        read: Callable[[int], object],
        rewind: Callable[[int], object] | None,
        *,
        name: str = "python",
        version: int = 0,
    ) -> Dataset: ...
    @classmethod
    def workers(
        cls,
        n: int,
        fields: Sequence[_SpecLike],
        start: Callable[[int, int], int],
        *,
        workers: int = 0,
        timeout: float = 0,
        name: str = "python",
        version: int = 0,
    ) -> Dataset: ...
    @property
    def length(self) -> int | None: ...
    @property
    def fields(self) -> list[Spec]: ...
    @property
    def text(self) -> str: ...
    @property
    def format(self) -> str: ...
    @property
    def fingerprint(self) -> int: ...
    @property
    def classes(self) -> list[str]: ...
    def read(self, index: int, /) -> list[Field]: ...
    def file(self, index: int, /) -> str | None: ...
    def close(self) -> None: ...

@final
class Sampler:
    def __init__(
        self,
        kind: str,
        n: int,
        *,
        seed: int = 0,
        shuffle: bool = False,
        indices: Sequence[int] | None = None,
        weights: Sequence[float] | None = None,
        replacement: bool = True,
        n_draws: int = 0,
        max_batch: int = 0,
        lengths: Sequence[int] | None = None,
        max_tokens: int = 0,
        window: int = 0,
        row_length: int = 0,
        rows: int = 0,
        max_per_row: int = 0,
        truncate: bool = False,
        batches: Callable[[int], Sequence[Sequence[int]]] | None = None,
        name: str | None = None,
        version: int = 0,
    ) -> None: ...
    @property
    def length(self) -> int: ...
    @property
    def text(self) -> str: ...
    def map(self, epoch: int, position: int, count: int, /) -> list[int]: ...

@final
class Loader:
    def __init__(
        self,
        dataset: Dataset,
        *,
        sampler: Sampler | None = None,
        transform: str | None = None,
        device: str | None = None,
        options: Mapping[str, object] = ...,
        state: str | None = None,
    ) -> None: ...
    def next(self, stream: int | None = None, timeout: float | None = None) -> Batch | None: ...
    def state(self) -> str: ...
    def state_released(self) -> str: ...
    def stats(self) -> dict[str, Any]: ...
    def bad(self) -> list[tuple[int, int, int, str, int, str]]: ...
    def cancel(self) -> None: ...
    def close(self) -> None: ...
    def fileno(self) -> int: ...
    @property
    def batches(self) -> int | None: ...
    @property
    def samples(self) -> int | None: ...
    @property
    def fields(self) -> list[Spec]: ...
    @property
    def forked(self) -> bool: ...

@final
class Batch:
    @property
    def n(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def index(self) -> int: ...
    @property
    def last(self) -> bool: ...
    @property
    def indices(self) -> memoryview: ...
    @property
    def positions(self) -> memoryview: ...
    @property
    def names(self) -> list[str]: ...
    def field(self, i: int | str, /) -> Field: ...
    def release(self, stream: int | None = None) -> None: ...
    def __len__(self) -> int: ...

@final
class Field:
    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def offsets(self) -> Field | None: ...
    @property
    def lengths(self) -> Field | None: ...
    @property
    def host(self) -> Field | None: ...
    @property
    def device(self) -> str: ...
    def text(self, i: int = 0, /) -> str | bytes: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def capsule(self) -> object: ...
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

def place() -> tuple[int, int, int, int, int, str]: ...
def _end() -> None: ...

_Cell = int | float | str | None
_Table = tuple[str, str | None, list[tuple[str, str]], list[tuple[_Cell, ...]]]

@final
class Recording:
    @classmethod
    def open(cls, path: str | os.PathLike[str], /) -> Recording: ...
    @staticmethod
    def reports() -> list[tuple[str, str]]: ...
    def report(
        self,
        name: str,
        limit: int = 0,
        sort: str | None = None,
        from_ns: int = 0,
        to_ns: int = 0,
        range: str | None = None,
        step: str | None = None,
        link_gbps: float = 0,
    ) -> _Table: ...
    def analyze(
        self,
        step: str | None = None,
        range: str | None = None,
        link_gbps: float = 0,
        cores: int = 0,
    ) -> tuple[str, list[dict[str, Any]]]: ...
    def timeline(
        self,
        path: str | os.PathLike[str],
        format: int,
        from_ns: int = 0,
        to_ns: int = 0,
        title: str | None = None,
        whole: bool = False,
    ) -> int: ...
    def diff(self, after: Recording, threshold: float, /) -> tuple[int, _Table]: ...
    def close(self) -> None: ...

def trace_start() -> None: ...
def trace_stop(path: str | os.PathLike[str] = ..., /) -> int: ...
def trace_name(text: str, /) -> int: ...
def trace_time() -> int: ...
def trace_span(name: int, start_ns: int, /) -> None: ...
def worker_run(
    fd: int,
    fields: Sequence[_SpecLike],
    fetch: Callable[[int, int, list[int], list[int], int], Sequence[object]],
    /,
) -> None: ...
def workers_end() -> None: ...
