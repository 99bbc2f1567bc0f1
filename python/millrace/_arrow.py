"""Arrow tables, Parquet paths and Hugging Face data sets, and which columns are read.

This module imports pyarrow only when a data set is one of these.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
from typing import Any, NamedTuple

_SUFFIXES = (".parquet", ".pq")
_MAX_COLUMNS = 32
_HUGGING_FACE = "datasets.arrow_dataset.Dataset"


class Column(NamedTuple):
    """A column that is read. kind: "number", "text", "list" or "picture". cast: the dtype that
    batches have instead of the column's own; "": its own."""

    name: str
    path: str
    kind: str
    cast: str = ""

    def field(self) -> tuple[str, str | None, bool]:
        """As _core wants it."""
        return self.path, self.name if self.path != self.name else None, self.kind == "picture"


def arrow_kind(dataset: Any) -> str:
    """ "parquet", "table" or "huggingface"; "": none of these."""
    if isinstance(dataset, str | os.PathLike):
        path = os.fspath(dataset)
        return "parquet" if isinstance(path, str) and _is_parquet(split_path(path)[0]) else ""
    kind = type(dataset)
    if f"{kind.__module__}.{kind.__qualname__}" == _HUGGING_FACE:
        return "huggingface"
    if hasattr(kind, "__arrow_c_stream__") or hasattr(kind, "__arrow_c_array__"):
        return "table"
    return ""


def split_path(text: str) -> tuple[str, list[str] | None]:
    """The path and the columns of "train.parquet,fields=[image,label]"."""
    found = re.fullmatch(r"(.*),fields=(?:\[([^\]]*)\]|([^,\[\]]+))", text)
    if not found:
        return text, None
    names = found[2] if found[2] is not None else found[3]
    return found[1], [name.strip() for name in names.split(",") if name.strip()]


def _is_parquet(path: str) -> bool:
    if path.lower().endswith(_SUFFIXES):
        return True
    return os.path.isdir(path) and bool(parquet_files(path))


def parquet_files(path: str) -> list[str]:
    """The file, or the files in a folder (not below), by name."""
    if not os.path.isdir(path):
        return [path]
    names = sorted(name for name in os.listdir(path) if not name.startswith((".", "_")))
    if not all(name.lower().endswith(_SUFFIXES) for name in names):
        return []  # pictures with a table beside them, say
    return [os.path.join(path, name) for name in names]


def pyarrow(what: str) -> Any:
    """The module. Raises ModuleNotFoundError that says what it is needed for."""
    try:
        return importlib.import_module("pyarrow")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{what} needs pyarrow: pip install pyarrow") from error


def readable(table: Any) -> tuple[Any, Any]:
    """What the columns are read from, and its pyarrow schema; None where there is no pyarrow."""
    schema = getattr(table, "schema", None)
    if type(table).__module__.startswith("pyarrow") and hasattr(schema, "names"):
        return table, schema
    if importlib.util.find_spec("pyarrow") is None:
        return table, None
    pa = pyarrow("a table")
    if hasattr(table, "__arrow_c_stream__"):
        reader = pa.RecordBatchReader.from_stream(table)
        return reader, reader.schema
    batch = pa.record_batch(table)
    return batch, batch.schema


# ---- types ----


def kind_of(pa: Any, kind: Any) -> str:
    """How the engine reads a type of pyarrow; "": it does not."""
    t = pa.types
    if t.is_boolean(kind) or t.is_integer(kind) or t.is_floating(kind):
        return "number"
    if t.is_fixed_size_binary(kind):
        return "number"
    if _is_text(pa, kind):
        return "text"
    if t.is_dictionary(kind):
        inner = kind_of(pa, kind.value_type)
        return inner if inner in ("number", "text") else ""
    if t.is_fixed_size_list(kind):
        return "number" if kind_of(pa, kind.value_type) == "number" else ""
    if t.is_list(kind) or t.is_large_list(kind):
        item = kind.value_type
        return "list" if t.is_integer(item) or t.is_floating(item) else ""
    if t.is_struct(kind) and {kind.field(i).name for i in range(kind.num_fields)} == {
        "bytes",
        "path",
    }:
        return "picture" if _is_text(pa, kind.field("bytes").type) else ""
    return ""


def _is_text(pa: Any, kind: Any) -> bool:
    t = pa.types
    checks = ("string", "large_string", "string_view", "binary", "large_binary", "binary_view")
    return any(getattr(t, f"is_{name}")(kind) for name in checks if hasattr(t, f"is_{name}"))


def plan_columns(
    who: str, schema: Any, names: list[str] | None, decode: bool, choose: str
) -> list[Column]:
    """The columns to read, a picture first: there the chain begins.

    names: of them; None: all. decode: whether pictures are decoded; else they are bytes. choose:
    how the program chooses columns. Raises TypeError, which names column and type.
    """
    pa = pyarrow(who)
    columns = []
    for name in schema.names if names is None else names:
        if name not in schema.names:
            raise ValueError(f"{who}: no column {name!r}: expected some of {schema.names}")
        if schema.names.count(name) > 1:
            raise ValueError(f"{who}: {schema.names.count(name)} columns have the name {name!r}")
        kind = schema.field(name).type
        how = kind_of(pa, kind)
        if not how:
            raise TypeError(
                f"{who}: column {name!r} is {kind}: expected numbers, booleans, strings, binary, "
                "dictionaries of these, lists of numbers, or pictures (struct of bytes and path); "
                f"leave it out with {choose}"
            )
        picture = how == "picture"
        columns.append(picture_column(name, decode) if picture else Column(name, name, how))
    if not 1 <= len(columns) <= _MAX_COLUMNS:
        raise ValueError(
            f"{who}: {len(columns)} columns: expected 1 to {_MAX_COLUMNS}: choose with {choose}"
        )
    return sorted(columns, key=lambda column: column.kind != "picture")


def picture_column(name: str, decode: bool) -> Column:
    return Column(name, f"{name}.bytes", "picture" if decode else "text")
