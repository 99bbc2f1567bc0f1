"""Arrow tables, Parquet files and Hugging Face data sets: batches compared with the rows that the
producer itself gives."""

from __future__ import annotations

import gc
import io
import random

import pytest

import millrace
from millrace import DataLoader, _core

np = pytest.importorskip("numpy", reason="no numpy")
pa = pytest.importorskip("pyarrow", reason="no pyarrow: the tests of Arrow need it")
pq = pytest.importorskip("pyarrow.parquet", reason="no pyarrow.parquet")

N = 300
TYPES = [
    *(getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *(pa.float16(), pa.float32(), pa.float64(), pa.bool_()),
    *(pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary()),
    *(pa.binary_view(), pa.dictionary(pa.int8(), pa.string())),
    pa.dictionary(pa.uint16(), pa.int32()),
    *(pa.list_(pa.float32(), 3), pa.list_(pa.bool_(), 2), pa.list_(pa.list_(pa.int16(), 2), 3)),
    *(pa.binary(5), pa.list_(pa.int64()), pa.large_list(pa.uint16())),
]  # fmt: skip


def value_of(kind, rng):
    """A random value of a type; of lists of any length, always of four numbers."""
    t = pa.types
    if t.is_dictionary(kind):
        return value_of(kind.value_type, random.Random(rng.randrange(5)))
    if t.is_fixed_size_list(kind):
        return [value_of(kind.value_type, rng) for _ in range(kind.list_size)]
    if t.is_list(kind) or t.is_large_list(kind):
        return [value_of(kind.value_type, rng) for _ in range(4)]
    if t.is_boolean(kind):
        return rng.random() < 0.5
    if t.is_integer(kind):
        return rng.randrange(128)
    if t.is_floating(kind):
        return float(np.float16(rng.random()))
    if t.is_fixed_size_binary(kind):
        return rng.randbytes(kind.byte_width)
    text = "".join(rng.choice("abcé日") for _ in range(rng.randrange(30)))
    return text.encode() if "binary" in str(kind) else text


def table_of(n=N, types=TYPES, seed=0):
    rng = random.Random(seed)
    columns = {
        f"column {k} of {kind}": pa.array([value_of(kind, rng) for _ in range(n)], kind)
        for k, kind in enumerate(types)
    }
    return pa.table(columns)


def rows_of(batches):
    """The rows of batches as Python's values."""
    rows = []
    for batch in batches:
        columns = [v if isinstance(v, list) else np.asarray(v).tolist() for v in batch.values()]
        rows += [dict(zip(batch, row, strict=True)) for row in zip(*columns, strict=True)]
    return rows


def expected(table):
    """The rows, with binary of a fixed size as u8."""
    return [
        {
            name: list(value) if pa.types.is_fixed_size_binary(table.schema.field(name).type) else value
            for name, value in row.items()
        }
        for row in table.to_pylist()
    ]


def shapes(table):
    """The same rows in other chunks, and with offsets."""
    yield table
    yield pa.concat_tables([table.slice(0, 7), table.slice(7, 0), table.slice(7)])
    yield pa.concat_tables([table.slice(k, 50) for k in range(0, len(table), 50)])
    twice = pa.concat_tables([table, table]).combine_chunks()
    yield twice.slice(0, len(table))
    yield twice.slice(len(table))


@pytest.mark.parametrize("k", range(5))
def test_tables_in_any_chunks(k):
    table = table_of()
    shape = list(shapes(table))[k]
    for size in (1, 64, N):
        with DataLoader(shape, size, as_="numpy") as loader:
            assert loader.path == "native" and loader.why == []
            assert len(loader) == -(-N // size)
            rows = rows_of(loader)
    assert rows == expected(table)


def test_dtypes_and_names_are_the_tables():
    table = table_of(8)
    with DataLoader(table, 8, as_="numpy") as loader:
        (batch,) = loader
    assert list(batch) == table.column_names
    for name, kind in zip(table.column_names, table.schema.types, strict=True):
        while hasattr(kind, "value_type"):
            kind = kind.value_type
        if not isinstance(batch[name], list):
            want = "uint8" if pa.types.is_fixed_size_binary(kind) else kind.to_pandas_dtype()
            assert batch[name].dtype == want, name


def test_other_producers():
    table = table_of(50, [pa.int32(), pa.string(), pa.float64(), pa.bool_()])
    table = table.rename_columns(["a", "b", "c", "d"])
    given = [table, table.to_reader(7), table.to_batches()[0]]
    polars = pytest.importorskip("polars", reason="no polars")
    given += [polars.from_arrow(table)]
    nanoarrow = pytest.importorskip("nanoarrow", reason="no nanoarrow")
    given += [nanoarrow.ArrayStream(table)]
    duckdb = pytest.importorskip("duckdb", reason="no duckdb")
    given += [duckdb.from_arrow(table)]
    for producer in given:
        with DataLoader(producer, 8, as_="numpy") as loader:
            assert rows_of(loader) == table.to_pylist(), type(producer)


def test_producers_without_pyarrow(monkeypatch):
    polars = pytest.importorskip("polars", reason="no polars")
    frame = polars.DataFrame({"n": [1, 2, 3], "a text with a name of 31 bytes.": ["x", "y" * 40, ""]})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with DataLoader(frame, 3, as_="numpy") as loader:
        (batch,) = loader
    assert batch["n"].tolist() == [1, 2, 3]
    assert batch["a text with a name of 3"] == ["x", "y" * 40, ""]


def test_streams_that_fail():
    def batches():
        yield pa.record_batch({"a": [1]})
        raise OSError(5, "the disk is on fire")

    reader = pa.RecordBatchReader.from_batches(pa.schema([("a", pa.int64())]), batches())
    with pytest.raises(Exception, match="the disk is on fire"):
        DataLoader(reader, 1, as_="numpy")


@pytest.mark.parametrize(
    "kind, value",
    [
        (pa.timestamp("us"), 0),
        (pa.date32(), 0),
        (pa.decimal128(5, 2), None),
        (pa.list_(pa.string()), ["a"]),
        (pa.struct([("x", pa.int32())]), {"x": 1}),
        (pa.null(), None),
    ],
)
def test_types_that_are_refused_are_named(kind, value, tmp_path):
    table = pa.table({"good": [1], "bad one": pa.array([value], kind)})
    with pytest.raises(TypeError, match="column 'bad one' is ") as error:
        DataLoader(table, 1, as_="numpy")
    assert str(kind) in str(error.value)
    pq.write_table(table, tmp_path / "x.parquet")
    with pytest.raises(TypeError, match="column 'bad one' is "):
        DataLoader(tmp_path / "x.parquet", 1, as_="numpy")
    with DataLoader(f"{tmp_path}/x.parquet,fields=good", 1, as_="numpy") as loader:
        assert rows_of(loader) == [{"good": 1}]


def test_nulls_name_the_row():
    table = pa.table({"x": [1, 2, None]})
    with pytest.raises(_core.FormatError, match="column 'x', row 2: null"):
        DataLoader(table, 1, as_="numpy")


def test_tables_are_native_only():
    with pytest.raises(millrace.NotNative, match="python"):
        DataLoader(pa.table({"x": [1]}), path="python", as_="numpy")


def test_shuffled_and_resumed():
    table = pa.table({"x": np.arange(N), "text": [str(k) for k in range(N)]})
    whole = DataLoader(table, 32, True, seed=7, as_="numpy", num_workers=2)
    batches = [batch["x"].tolist() for batch in whole]
    assert sorted(sum(batches, [])) == list(range(N)) != sum(batches, [])
    first = DataLoader(table, 32, True, seed=7, as_="numpy")
    iterator = iter(first)
    begun = [next(iterator)["x"].tolist() for _ in range(4)]
    state = first.state_dict()
    second = DataLoader(table, 32, True, seed=7, as_="numpy")
    second.load_state_dict(state)
    assert begun + [batch["x"].tolist() for batch in second] == batches


def test_memory_is_the_tables():
    """Batches outlive the loader, and the table goes with it."""
    before = pa.total_allocated_bytes()
    table = pa.table({"x": np.arange(1 << 20)}).cast(pa.schema([("x", pa.int32())]))
    loader = DataLoader(table, 1 << 19, as_="numpy")
    del table
    batches = list(loader)
    loader.close()
    del loader
    gc.collect()
    assert pa.total_allocated_bytes() <= before + 1024
    assert batches[1]["x"].tolist()[:3] == [1 << 19, (1 << 19) + 1, (1 << 19) + 2]


# ---- Parquet ----

# Files have no views, and lists of varying length are not read from them.
FILE_TYPES = [
    kind
    for kind in TYPES
    if "view" not in str(kind) and not pa.types.is_list(kind) and not pa.types.is_large_list(kind)
]


@pytest.fixture
def folder(tmp_path):
    """Three files of row groups of 40 rows."""
    table = table_of(N, FILE_TYPES, 3)
    for k in range(3):
        pq.write_table(table.slice(k * 100, 100), tmp_path / f"part-{k}.parquet", row_group_size=40)
    return tmp_path, table


@pytest.mark.parametrize("workers", [1, 3])
def test_parquet_folder(folder, workers):
    path, table = folder
    with DataLoader(path, 32, num_workers=workers, as_="numpy") as loader:
        assert loader.path == "native" and len(loader) == 10
        assert "row groups: 9 in 3 files" in loader.explain()
        for _ in range(2):
            assert rows_of(loader) == expected(table)


def test_parquet_leaves_the_default_pool(tmp_path):
    """Row groups are not kept in mimalloc's memory, and the program's own pool stays."""
    before = pa.default_memory_pool()
    if before.backend_name != "mimalloc":
        pytest.skip("the default pool is not mimalloc")
    values = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(256 * 4000, np.float32)), 256)
    pq.write_table(pa.table({"x": values}), tmp_path / "a.parquet", row_group_size=1000)
    del values
    held = before.bytes_allocated()
    with DataLoader(tmp_path / "a.parquet", 100, num_workers=1, as_="numpy") as loader:
        assert sum(1 for _ in loader) == 40
        assert before.bytes_allocated() - held < 1 << 20  # of 4 MB
    assert pa.default_memory_pool().backend_name == "mimalloc"


def test_parquet_that_does_not_fit(folder, monkeypatch):
    """Row groups come and go; a block of rows is read at a time."""
    from millrace import _arrow_sources

    path, table = folder
    monkeypatch.setattr(_arrow_sources, "_KEPT_BYTES", 1)
    loads = []
    load = _arrow_sources._Parquet.load
    monkeypatch.setattr(
        _arrow_sources._Parquet, "load", lambda self, k: loads.append(k) or load(self, k)
    )
    want = expected(table)
    with DataLoader(path, 16, num_workers=1, as_="numpy") as loader:
        assert rows_of(loader) == want
    assert loads[:9] == list(range(9))  # then those of the next epoch, ahead
    for seed in range(3):
        loads.clear()
        make = lambda: DataLoader(path, 16, True, num_workers=2, seed=seed, as_="numpy")  # noqa: E731
        with make() as loader:
            assert "shuffled in 2 blocks of 40 rows" in loader.explain()
            rows = rows_of(loader)
        assert len(loads) <= 4 * 9  # each block is in two row groups; the next epoch is ahead
        key = repr
        assert sorted(rows, key=key) == sorted(want, key=key) and rows != want
        with make() as loader, make() as other:
            iterator = iter(loader)
            begun = [next(iterator) for _ in range(5)]
            other.load_state_dict(loader.state_dict())
            assert rows_of([*begun, *other]) == rows


def test_parquet_columns_and_sampler(folder):
    path, table = folder
    names = table.column_names[2:4]
    with DataLoader(f"{path},fields=[{names[1]},{names[0]}]", 10, sampler=[299, 0, 150]) as loader:
        (batch,) = loader
    assert list(batch) == names
    want = [table.column(names[0])[i].as_py() for i in (299, 0, 150)]
    assert np.asarray(batch[names[0]]).tolist() == want
    with pytest.raises(ValueError, match="no column 'nothing'"):
        DataLoader(f"{path},fields=nothing", 1)


def test_parquet_files_differ(tmp_path):
    pq.write_table(pa.table({"x": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"x": ["1"]}), tmp_path / "b.parquet")
    with pytest.raises(TypeError, match="b.parquet: column 'x' is string: .*int64"):
        DataLoader(tmp_path, 1)


def test_parquet_lists_are_told_of(tmp_path):
    pq.write_table(pa.table({"ids": [[1, 2], [3]]}), tmp_path / "a.parquet")
    with pytest.raises(TypeError, match="column 'ids' is list<.*read_table"):
        DataLoader(tmp_path, 1)


def test_parquet_that_breaks(tmp_path):
    """The error is the loop's, with pyarrow's text; bad samples can be skipped."""
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"x": np.arange(1000)}), path, row_group_size=100, compression="none")
    data = bytearray(path.read_bytes())
    column = pq.read_metadata(path).row_group(4).column(0)
    begin = column.dictionary_page_offset or column.data_page_offset
    data[begin : begin + 100] = b"\xff" * 100
    path.write_bytes(data)
    with DataLoader(path, 100, as_="numpy") as loader, pytest.raises(Exception, match="load|thrift|page"):
        list(loader)
    with DataLoader(path, 100, as_="numpy", bad="skip") as loader:
        assert len(rows_of(loader)) == 900
        assert {bad.index // 100 for bad in loader.bad()} == {4}
    path.write_bytes(b"nothing")
    with pytest.raises(Exception, match="[Pp]arquet"):
        DataLoader(path, 1)
    with pytest.raises(FileNotFoundError):
        DataLoader(tmp_path / "none.parquet", 1)


# ---- pictures ----


def pictures(n):
    """PNG files and their pixels."""
    image = pytest.importorskip("PIL.Image", reason="no Pillow")
    rng = np.random.default_rng(1)
    files, pixels = [], []
    for k in range(n):
        pixels.append(rng.integers(0, 256, (20 + k % 3, 24, 3), dtype=np.uint8))
        out = io.BytesIO()
        image.fromarray(pixels[-1]).save(out, "png")
        files.append(out.getvalue())
    return files, pixels


def picture_table(n):
    files, pixels = pictures(n)
    column = pa.array([{"bytes": f, "path": f"{k}.png"} for k, f in enumerate(files)])
    return pa.table({"label": pa.array(range(n), pa.int64()), "image": column}), pixels


def test_pictures(tmp_path):
    table, pixels = picture_table(30)
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=7)
    for given in (table, tmp_path / "x.parquet"):
        with DataLoader(given, 8, as_="numpy", transform="center_crop(16)") as loader:
            batches = list(loader)
            assert list(batches[0]) == ["label", "image"]
            for k, image in enumerate(np.concatenate([b["image"] for b in batches])):
                top = round((pixels[k].shape[0] - 16) / 2)
                assert (image == pixels[k][top : top + 16, 4:20]).all()
        with DataLoader(given, 30, as_="numpy") as loader:
            assert next(iter(loader))["image"] == [f["bytes"] for f in table["image"].to_pylist()]


# ---- Hugging Face ----


def hugging_face():
    return pytest.importorskip("datasets", reason="no datasets: the tests of Hugging Face need it")


def same(a, b):
    assert list(a) == list(b)
    for name in a:
        if isinstance(a[name], list):
            assert a[name] == b[name], name
        else:
            left, right = np.asarray(a[name]), np.asarray(b[name])
            assert left.dtype == right.dtype, (name, left.dtype, right.dtype)
            assert left.shape == right.shape and (left == right).all(), name


def compare(dataset, **more):
    """Batches of the native path with those of datasets' own rows."""
    for options in ({}, {"shuffle": True, "seed": 3}, {"drop_last": True}):
        native = DataLoader(dataset, 16, **options, **more)
        python = DataLoader(dataset, 16, path="python", **options, **more)
        assert native.path == "native", native.why
        assert python.path == "python-threads" and len(native) == len(python)
        for a, b in zip(native, python, strict=True):
            same(a, b)


NUMBERS = [kind for kind in TYPES[:12] if kind not in (pa.uint64(), pa.float16())]


@pytest.mark.parametrize(
    "kind, as_", [(None, "numpy"), ("numpy", "numpy"), (None, "torch"), ("torch", "torch")]
)
def test_datasets(kind, as_, tmp_path):
    datasets = hugging_face()
    if as_ == "torch":
        pytest.importorskip("torch", reason="no torch")
    types = [*NUMBERS, pa.string(), pa.large_string()]
    if kind:
        types += [pa.list_(pa.float32(), 3), pa.list_(pa.int64())]
    datasets.Dataset(table_of(100, types)).save_to_disk(str(tmp_path / "x"), max_shard_size=4000)
    dataset = datasets.load_from_disk(str(tmp_path / "x")).with_format(kind)
    compare(dataset, as_=as_)
    compare(dataset.select(range(60, 10, -1)), as_=as_)
    compare(dataset.shuffle(seed=1).filter(lambda row: True, keep_in_memory=True), as_=as_)
    compare(dataset.select_columns([dataset.column_names[k] for k in (3, 0, 10)]), as_=as_)


def test_datasets_of_pictures():
    datasets = hugging_face()
    files, pixels = pictures(20)
    dataset = datasets.Dataset.from_dict({"label": list(range(20)), "image": [{"bytes": f} for f in files]})
    dataset = dataset.cast_column("image", datasets.Image())
    with DataLoader(dataset, 20, as_="numpy", transform="center_crop(16)") as loader:
        assert loader.path == "native", loader.why
        (batch,) = loader
    assert list(batch) == ["label", "image"] and batch["label"].tolist() == list(range(20))
    for k in range(20):
        top = round((pixels[k].shape[0] - 16) / 2)
        assert (batch["image"][k] == pixels[k][top : top + 16, 4:20]).all()
    assert "without transform=" in DataLoader(dataset, 2, as_="numpy").why[0]


def test_datasets_that_python_makes():
    datasets = hugging_face()
    dataset = datasets.Dataset.from_dict({"x": [1, 2, 3], "l": [[1], [2, 3], [4]], "n": [1, None, 2]})
    for given, why in [
        (dataset.select_columns("l"), "lists are tensors only"),
        (dataset.select_columns("n"), "1 nulls"),
        (dataset.select_columns("l").with_format("numpy"), "lists of different lengths"),
        (dataset.select_columns("x").with_transform(lambda rows: rows), "'custom'"),
    ]:
        loader = DataLoader(given, 2, as_="numpy")
        assert loader.path == "python-threads" and why in loader.why[0], loader.why
        with pytest.raises(millrace.NotNative, match=why):
            DataLoader(given, 2, path="native", as_="numpy")
