"""Sources over Arrow: tables in memory, Hugging Face data sets, Parquet files."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import mmap
import os
import re
import zlib
from collections.abc import Callable, Sequence
from typing import Any

from . import _core
from ._arguments import Settings
from ._arrays import taker, value_of
from ._arrow import (
    Column,
    arrow_kind,
    kind_of,
    parquet_files,
    picture_column,
    plan_columns,
    pyarrow,
    readable,
    split_path,
)
from ._samplers import Order
from ._source import NativeSource, make_order

_KEPT_BYTES = 1 << 30  # of row groups, without max_memory
_KEPT_LEAST = 4
_UNITS = {"K": 10, "M": 20, "G": 30, "T": 40}
_LONGEST_TEXT = 1 << 30
_READERS = 16  # of files that stay open between row groups
_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE, which mmap has no name for

OrderArgs = tuple[Any, Any, bool]


class ArrowSource(NativeSource):
    """Batches are dicts, with the columns' own names and in their order.

    columns: as the fields of the data set. names: in the order of the table.
    """

    def __init__(
        self,
        settings: Settings,
        dataset: _core.Dataset,
        order_args: OrderArgs,
        columns: list[Column],
        names: Sequence[str],
        *,
        name: str,
        order: Order | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        if order is None:
            order = make_order(settings, dataset.length, order_args)
        super().__init__(
            settings, dataset, order, *order_args[:2], transform=settings.transform, name=name
        )
        self.about = list(notes)
        self.convert = _converter(settings, dataset, columns, names)

    def describe(self) -> list[str]:
        return super().describe() + self.about


def arrow_source(
    settings: Settings, dataset: Any, order_args: OrderArgs, reasons: list[str]
) -> NativeSource | None:
    """The source of a data set for which arrow_kind() is not ""; None, and reasons: Python makes
    its samples."""
    kind = arrow_kind(dataset)
    if kind == "parquet":
        return _parquet_source(settings, os.fspath(dataset), order_args)
    if kind == "table":
        return _table_source(settings, dataset, order_args)
    found = _HuggingFace(settings, dataset).source(order_args)
    if isinstance(found, str):
        reasons.append(found)
        return None
    return found


# ---- batches ----


def _converter(
    settings: Settings, dataset: _core.Dataset, columns: list[Column], names: Sequence[str]
) -> Callable[[_core.Batch], Any]:
    """What makes a dict of a batch."""
    take, alone = taker(settings.as_), settings.alone
    casts = _casts(settings.as_)
    fields = [field.name for field in dataset.fields]
    by_field = dict(zip(fields, columns, strict=True)) if columns else {}
    place = {name: k for k, name in enumerate(names)}
    plan: list[tuple[str, int, Any]] = []

    def look(batch: _core.Batch) -> None:
        """Which field is which column; a chain may have added some."""
        found = []
        for i, field in enumerate(batch.names):
            column = by_field.get(field, Column(field, field, ""))
            found.append((place.get(column.name, len(place)), i, column))
        plan[:] = [(c.name, i, casts.get(c.cast)) for _, i, c in sorted(found, key=lambda f: f[:2])]

    def convert(batch: _core.Batch) -> dict[str, Any]:
        if not plan:
            look(batch)
        out = {}
        for name, i, cast in plan:
            value = value_of(batch, i, take)
            value = value[0] if alone else value
            out[name] = cast(value) if cast is not None else value
        return out

    return convert


def _casts(as_: str) -> dict[str, Callable[[Any], Any]]:
    if as_ == "torch":
        torch: Any = importlib.import_module("torch")
        return {name: _to(getattr(torch, name)) for name in ("int64", "float32", "float64")}
    return {name: _astype(name) for name in ("int64", "float32", "float64")}


def _to(dtype: Any) -> Callable[[Any], Any]:
    return lambda value: value.to(dtype)


def _astype(name: str) -> Callable[[Any], Any]:
    return lambda value: value.astype(name)


# ---- tables ----


def _table_source(settings: Settings, table: Any, order_args: OrderArgs) -> NativeSource:
    who = f"{type(table).__module__.partition('.')[0]}'s {type(table).__qualname__}"
    table, schema = readable(table)
    if schema is None:
        fields, columns, names = [], [], []
    else:
        choose = "table.select([...])"
        columns = plan_columns(who, schema, None, bool(settings.transform), choose)
        fields, names = [column.field() for column in columns], schema.names
    dataset = _open(lambda: _core.arrow_open(table, "table", fields))
    return ArrowSource(settings, dataset, order_args, columns, names, name=who)


def _open(opener: Callable[[], _core.Dataset]) -> _core.Dataset:
    try:
        return opener()
    except NotImplementedError as error:  # a type; the text has the column
        raise TypeError(str(error)) from None


# ---- Hugging Face ----

# What torch's default_collate makes of Python's numbers, and of what the formats give.
_PYTHON = {"integer": "int64", "floating": "float64"}
_TENSORS = {"integer": "int64", "floating": "float32"}


class _HuggingFace:
    """A datasets.Dataset: the same batches as by indexing it."""

    def __init__(self, settings: Settings, dataset: Any) -> None:
        self.settings, self.given = settings, dataset
        self.format = dataset.format
        self.tensors = self.format["type"] in ("torch", "numpy", "jax")
        self.table = getattr(dataset.data, "table", dataset.data)

    def source(self, order_args: OrderArgs) -> NativeSource | str:
        why = self._refusal()
        if why:
            return why
        columns: list[Column] = []
        for name in self.format["columns"]:
            column = self._column(name)
            if isinstance(column, str):
                return column
            columns.append(column)
        columns.sort(key=lambda column: column.kind != "picture")
        indices = self.given._indices
        rows = None if indices is None else indices.column(0).to_pylist()
        try:
            fields = [column.field() for column in columns]
            dataset = _core.arrow_open(self.table, "datasets", fields, rows)
        except (_core.FormatError, NotImplementedError, MemoryError) as error:
            return str(error)
        lists = {c.name for c in columns if c.kind == "list"}
        if any(f.name in lists and f.var_dims for f in dataset.fields) and not self._pads():
            dataset.close()
            return f"columns {', '.join(sorted(lists))}: lists of different lengths"
        return ArrowSource(
            self.settings,
            dataset,
            order_args,
            columns,
            self.format["columns"],
            name=f"datasets' Dataset, {len(self.given.column_names)} columns",
        )

    def _pads(self) -> bool:
        return bool(self.settings.transform)

    def _refusal(self) -> str:
        """Why samples are not the table's rows; "": they are."""
        if self.format["type"] not in (None, "python", "torch", "numpy", "jax"):
            return f"datasets' format {self.format['type']!r}: samples are made in Python"
        if self.format["format_kwargs"] or self.format["output_all_columns"]:
            return "datasets' format has options"
        if self.settings.alone:
            return "batch_size=None: samples as the data set gives them"
        if self.settings.as_ == "dlpack":
            return "as_=\"dlpack\": the data set's dtypes differ from its columns'"
        return "" if len(self.given) else "no samples"

    def _column(self, name: str) -> Column | str:
        """How a column is read, or why Python does it."""
        pa = pyarrow("datasets")
        column = self.table.column(name)
        kind, feature = column.type, type(self.given.features[name]).__name__
        how = kind_of(pa, kind)
        if feature not in ("Value", "ClassLabel", "Image", "Sequence", "List", "LargeList"):
            return f"column {name!r}: {feature}: no native reader"
        if column.null_count:
            return f"column {name!r}: {column.null_count} nulls"
        if feature == "Image":
            if how != "picture" or not self.settings.transform:
                return f"column {name!r}: pictures are PIL images without transform="
            return picture_column(name, True)
        if how in ("", "picture") or pa.types.is_dictionary(kind) or kind == pa.uint64():
            return f"column {name!r}: {kind}: made by datasets"
        if feature not in ("Value", "ClassLabel") and not self.tensors:
            return f"column {name!r}: lists are tensors only with with_format('torch')"
        return Column(name, name, how, self._cast(pa, kind))

    def _cast(self, pa: Any, kind: Any) -> str:
        while hasattr(kind, "value_type"):
            kind = kind.value_type
        to = _TENSORS if self.tensors else _PYTHON
        cast = next((to[k] for k in to if getattr(pa.types, f"is_{k}")(kind)), "")
        own = {pa.int64(): "int64", pa.float32(): "float32", pa.float64(): "float64"}
        return "" if own.get(kind) == cast else cast


# ---- Parquet ----


def _kept_copy(pa: Any, batch: Any) -> Any:
    """A copy in one block of its own, for row groups that stay.

    pyarrow's memory, part of it unused, then goes back to its pool, and the next row group is read
    into it: new memory costs the kernel more time than reading a row group takes.
    """
    counted = pa.MockOutputStream()
    _write(pa, counted, batch)
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    block = pa.py_buffer(mmap.mmap(-1, counted.size(), flags=private))
    _populate(block.address, block.size)
    _write(pa, pa.FixedSizeBufferWriter(block), batch)
    return pa.ipc.open_stream(pa.BufferReader(block)).read_next_batch()


def _write(pa: Any, sink: Any, batch: Any) -> None:
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)


def _populate(address: int, size: int) -> None:
    """Gets pages all at once, without the GIL. One call costs half of as many page faults."""
    madvise = getattr(ctypes.CDLL(None), "madvise", None)
    if madvise is not None:  # an older kernel refuses: then they come one by one
        madvise(ctypes.c_void_p(address), ctypes.c_size_t(size), _POPULATE_WRITE)


def _bytes_of(text: int | str | None) -> int:
    """The number in "4GiB"; 0: none, or what the engine will refuse."""
    found = re.fullmatch(r"\s*([0-9.]+)\s*([KMGT]?)(i?B?)\s*", str(text or 0), re.IGNORECASE)
    if not found or found[1].count(".") > 1 or found[1] == ".":
        return 0
    return int(float(found[1]) * (1 << _UNITS.get(found[2].upper(), 0)))


class _Parquet:
    """Row groups of files, read by pyarrow when the engine needs them."""

    def __init__(self, settings: Settings, path: str, names: list[str] | None) -> None:
        self.path = path
        self.ceiling = _bytes_of(settings.max_memory)
        pyarrow(f"{path}: Parquet")
        self.module: Any = importlib.import_module("pyarrow.parquet")
        self.files = parquet_files(path)
        self.meta = [self.module.read_metadata(file) for file in self.files]
        first = self.meta[0].schema.to_arrow_schema()
        choose = '",fields=[...]" behind the path'
        self.columns = plan_columns(path, first, names, bool(settings.transform), choose)
        for column in self.columns:
            if column.kind == "list":
                raise TypeError(
                    f"{path}: column {column.name!r} is {first.field(column.name).type}: lists are "
                    "read from tables in memory: pass pyarrow.parquet.read_table(path), or choose "
                    'other columns with ",fields=[...]" behind the path'
                )
        self.names = [n for n in first.names if n in {c.name for c in self.columns}]
        self.schema = self._chosen(first)
        for file, meta in zip(self.files[1:], self.meta[1:], strict=True):
            self._check(file, meta.schema.to_arrow_schema())
        self.groups: list[tuple[int, int]] = []
        self.rows: list[int] = []
        self.bytes = self.longest = self.version = 0
        for k, meta in enumerate(self.meta):
            self._add_groups(k, meta)
        self._free: list[tuple[int, Any]] = []  # readers not in use

    def _chosen(self, schema: Any) -> Any:
        return pyarrow(self.path).schema([schema.field(name) for name in self.names])

    def _check(self, file: str, schema: Any) -> None:
        for field in self.schema:
            if field.name not in schema.names or schema.field(field.name).type != field.type:
                found = schema.field(field.name).type if field.name in schema.names else "missing"
                raise TypeError(
                    f"{file}: column {field.name!r} is {found}: {self.files[0]} has {field.type}"
                )

    def _add_groups(self, k: int, meta: Any) -> None:
        texts = {c.path for c in self.columns if c.kind == "text"}
        head = repr((meta.num_rows, meta.serialized_size)).encode()
        self.version = zlib.crc32(head, self.version)
        for g in range(meta.num_row_groups):
            group = meta.row_group(g)
            self.groups.append((k, g))
            self.rows.append(group.num_rows)
            read = 0
            for c in range(group.num_columns):
                column = group.column(c)
                size = column.total_uncompressed_size
                path = column.path_in_schema
                chosen = any(path == name or path.startswith(name + ".") for name in self.names)
                read += size if chosen else 0
                if column.path_in_schema in texts:  # no text is longer than all of them
                    self.longest = max(self.longest, size)
            self.bytes = max(self.bytes, read)
            self.version = zlib.crc32(repr((group.num_rows, read)).encode(), self.version)

    def keep(self) -> int:
        """Row groups in memory: with a ceiling for all, half of it is theirs."""
        if self.ceiling:
            fit = self.ceiling // 2 // max(self.bytes, 1)
        else:
            fit = max(_KEPT_BYTES // max(self.bytes, 1), _KEPT_LEAST)
        return max(1, min(fit, len(self.groups)))

    def load(self, k: int) -> Any:
        file, group = self.groups[k]
        reader = self._take(file)
        table = reader.read_row_group(group, columns=self.names).select(self.names)
        self._give(file, reader)
        if not table.schema.equals(self.schema):
            raise TypeError(f"{self.files[file]}: row group {group} is {table.schema.to_string()}")
        batches = table.combine_chunks().to_batches()
        if len(batches) != 1:
            raise ValueError(f"{self.files[file]}: row group {group} has more than 2 GiB of text")
        stays = self.keep() == len(self.groups)
        return _kept_copy(pyarrow(self.path), batches[0]) if stays else batches[0]

    def _take(self, file: int) -> Any:
        """A reader that no other thread uses."""
        for item in list(self._free):
            if item[0] == file:
                with contextlib.suppress(ValueError):  # another thread took it
                    self._free.remove(item)
                    return item[1]
        return self._open(file)

    def _open(self, file: int) -> Any:
        # pre_buffer helps with remote files; it reads a whole group into memory of its own first
        return self.module.ParquetFile(self.files[file], metadata=self.meta[file], pre_buffer=False)

    def _give(self, file: int, reader: Any) -> None:
        self._free.append((file, reader))
        if len(self._free) > _READERS:
            self._free.pop(0)[1].close()


def _parquet_source(settings: Settings, text: str, order_args: OrderArgs) -> NativeSource:
    path, names = split_path(text)
    files = _Parquet(settings, path, names)
    if not sum(files.rows):
        raise ValueError(f"{path}: no rows in {len(files.files)} files")
    keep = files.keep()
    fields = [column.field() for column in files.columns]
    longest = min(max(files.longest, 1), _LONGEST_TEXT)
    dataset = _open(
        lambda: _core.arrow_groups(
            files.schema,
            "parquet",
            fields,
            files.rows,
            files.load,
            files.version,
            keep,
            longest,
            files.bytes,
        )
    )
    notes = [
        f"row groups: {len(files.groups)} in {len(files.files)} files, {keep} of them in memory "
        f"({files.bytes >> 20} MiB each)"
    ]
    order = None
    n, block = sum(files.rows), max(files.rows)
    sampler, batch_sampler, _ = order_args
    if settings.shuffle and sampler is None and batch_sampler is None and keep < len(files.groups):
        window = max(1, keep // 2)  # a block may be in two row groups
        order = Order("random", n, seed=settings.seed, block=block, window=window)
        notes.append(f"shuffled in {window} blocks of {block} rows at a time")
    columns, names = files.columns, files.names
    return ArrowSource(
        settings, dataset, order_args, columns, names, name=path, order=order, notes=notes
    )
