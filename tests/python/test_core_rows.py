"""millrace._core: Python's samples into rows, and fields out of batches, of every kind."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from core_sets import batches, loader, python_set
from millrace import _core as c

NUMPY = {
    "bool": np.bool_,
    "u8": np.uint8,
    "i8": np.int8,
    "u16": np.uint16,
    "i16": np.int16,
    "u32": np.uint32,
    "i32": np.int32,
    "u64": np.uint64,
    "i64": np.int64,
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
    "c64": np.complex64,
    "c128": np.complex128,
}


def one_field(items, dtype, shape, var_dims=0, **options):  # type: ignore[no-untyped-def]
    """The fields of all batches of a set with one field."""

    def fetch(epoch, seed, indices, positions, worker):  # type: ignore[no-untyped-def]
        return [items[i] for i in indices]

    ds = python_set(len(items), fetch, [("v", dtype, shape, var_dims)])
    return [b.field(0) for b in batches(loader(ds, None, batch_size=len(items), **options))]


@pytest.mark.parametrize("dtype", NUMPY)
def test_dtypes(dtype: str):
    rng = np.random.default_rng(1)
    items = [(rng.random((2, 3)) * 100).astype(NUMPY[dtype]) for _ in range(10)]
    (field,) = one_field(list(items), dtype, (2, 3))
    assert field.dtype == dtype and field.shape == (10, 2, 3)
    for array in (np.from_dlpack(field), np.asarray(field)):
        assert array.dtype == NUMPY[dtype] and (array == np.stack(items)).all()


class Named(np.ndarray):
    """A type of its own, which only the buffer protocol reads."""


def test_arrays_of_all_forms():
    """numpy's arrays are read without a buffer: whatever their strides, flags and type."""
    base = np.arange(96, dtype=np.int32).reshape(4, 24)
    frozen = base[1].reshape(4, 6).copy()
    frozen.flags.writeable = False
    odd = np.frombuffer(bytes(1) + base[3].tobytes(), np.uint8)[1:].view(np.int32).reshape(4, 6)
    items = [
        base[0].reshape(4, 6),
        base[:, ::4],
        base[::-1, 23:5:-3],
        np.asfortranarray(base[1].reshape(4, 6)),
        frozen,
        odd,
        np.broadcast_to(base[2, :6], (4, 6)),
        base[2].reshape(4, 6).view(Named),
    ]
    (field,) = one_field(list(items), "i32", (4, 6))
    assert (np.asarray(field) == np.stack(items)).all()


@pytest.mark.parametrize(
    "array, found",
    [
        (np.zeros(3, ">i4"), "byte order"),
        (np.zeros(3, "M8[s]"), "dtype 'M'"),
        (np.zeros(3, object), "elements of format 'O'"),
        (np.zeros((3,) * 9, np.uint8), "9 dimensions"),
        (np.zeros(4, np.int32), r"i32\[4\], expected v i32"),
        (np.zeros(3, np.int64), r"i64\[3\], expected v i32"),
    ],
)
def test_arrays_that_do_not_fit(array: np.ndarray, found: str):
    with pytest.raises(ValueError, match=found):
        one_field([np.zeros(3, np.int32), array], "i32", (3,))


@pytest.mark.parametrize("dtype", NUMPY)
def test_scalars_of_numpy(dtype: str):
    items = [NUMPY[dtype](i % 2) for i in range(10)]
    (field,) = one_field(list(items), dtype, ())
    assert (np.asarray(field) == [i % 2 for i in range(10)]).all()


@pytest.mark.parametrize(
    "dtype, values",
    [
        ("u8", [0, 255]),
        ("i8", [-128, 127]),
        ("u16", [0, 65535]),
        ("i16", [-32768, 32767]),
        ("u32", [0, 2**32 - 1]),
        ("i32", [-(2**31), 2**31 - 1]),
        ("u64", [0, 2**64 - 1]),
        ("i64", [-(2**63), 2**63 - 1]),
        ("bool", [False, True]),
        ("bool", [0, 1]),
        ("f32", [0.5, -1.25]),
        ("f64", [0.1, 7]),
    ],
)
def test_numbers_of_python(dtype: str, values: list[float]):
    (field,) = one_field(list(values), dtype, ())
    assert np.asarray(field).tolist() == values


@pytest.mark.parametrize(
    "dtype, value", [("u8", 256), ("i8", -129), ("bool", 2), ("u64", -1), ("f16", 0.5)]
)
def test_numbers_that_do_not_fit(dtype: str, value: float):
    with pytest.raises(ValueError, match=f"expected v {dtype}|OverflowError"):
        one_field([value], dtype, ())


@pytest.mark.parametrize("side", [3, 300])  # below and above 64 KiB
def test_strides(side: int):
    """Views that are not dense: transposed, sliced, reversed, broadcast."""
    a = np.arange(4 * side * side, dtype=np.float32).reshape(2 * side, 2 * side)
    items = [a[:side, :side], a[::2, ::2], a.T[:side, :side], a[::-1, ::-1][:side, :side]]
    items.append(np.broadcast_to(a[0, :side], (side, side)))
    (field,) = one_field(list(items), "f32", (side, side))
    assert (np.asarray(field) == np.stack(items)).all()


def test_large_rows_of_many_fields():
    n, big = 40, 100_000

    def fetch(epoch, seed, indices, positions, worker):  # type: ignore[no-untyped-def]
        return [(np.full(big, i, np.uint8), i, np.full(big, i + 1, np.uint8)) for i in indices]

    ds = python_set(n, fetch, [("a", "u8", (big,)), ("i", "i64", ()), ("b", "u8", (big,))])
    for b in batches(loader(ds, batch_size=8, workers=3)):
        which = np.asarray(b.field("i"))
        assert (np.asarray(b.field("a")) == which[:, None]).all()
        assert (np.asarray(b.field("b")) == which[:, None] + 1).all()


def test_empty_arrays():
    (field,) = one_field([np.zeros((0, 3), np.float32)] * 4, "f32", (5, 3), 1, collate="ragged")
    assert np.asarray(field).shape == (0, 3)
    with pytest.raises(RuntimeError, match="dimension 0 is 0"):
        one_field([np.zeros((0, 3), np.float32)], "f32", (0, 3))


def test_variable_dimensions():
    items = [np.arange(i, dtype=np.int32) for i in (3, 0, 5, 2)]
    (field,) = one_field(list(items), "i32", (5,), 1, collate="ragged")
    assert np.asarray(field).tolist() == np.concatenate(items).tolist()
    assert field.offsets is not None and np.asarray(field.offsets).tolist() == [0, 3, 3, 8, 10]
    assert np.from_dlpack(field.offsets).dtype == np.int64
    (field,) = one_field(list(items), "i32", (5,), 1, collate="pad", pad_value=-1)
    assert np.asarray(field)[3].tolist() == [0, 1, -1, -1, -1]
    assert field.lengths is not None and np.asarray(field.lengths).tolist() == [3, 0, 5, 2]
    with pytest.raises(ValueError, match=r"i32\[6\], expected v i32\[<=5\]"):
        one_field([np.zeros(6, np.int32)], "i32", (5,), 1, collate="pad")


def test_texts():
    words = ["", "ä", "abc\0d", "x" * 100]
    (field,) = one_field(list(words), "string", (100,))
    assert field.dtype == "string"
    assert [field.text(i) for i in range(4)] == words
    (field,) = one_field([w.encode() for w in words], "bytes", (100,))
    assert [field.text(i) for i in range(4)] == [w.encode() for w in words]
    with pytest.raises(IndexError):
        field.text(4)
    with pytest.raises(ValueError, match="a text of 101 bytes, expected v string"):
        one_field(["x" * 101], "string", (100,))
    (field,) = one_field([1], "i64", ())
    with pytest.raises(ValueError, match="neither bytes nor strings"):
        field.text(0)


def test_objects_with_dlpack_alone():
    class Tensor:
        def __init__(self, a: np.ndarray) -> None:
            self.a = a

        def __dlpack__(self, **more: object) -> object:
            return self.a.__dlpack__(**more)  # type: ignore[arg-type]

    items = [Tensor(np.full((2, 2), i, np.float32)) for i in range(10)]
    (field,) = one_field(list(items), "f32", (2, 2))
    assert np.asarray(field)[:, 0, 0].tolist() == list(range(10))


def test_objects_that_are_numbers():
    class Index:
        def __index__(self) -> int:
            return 7

    class Float:
        def __float__(self) -> float:
            return 0.5

    assert np.asarray(one_field([Index()], "i64", ())[0]).tolist() == [7]
    assert np.asarray(one_field([Float()], "f64", ())[0]).tolist() == [0.5]


def test_other_buffers():
    items = [bytearray(b"abcd"), memoryview(b"efgh"), (ctypes.c_uint8 * 4)(1, 2, 3, 4)]
    (field,) = one_field(list(items), "u8", (4,))
    assert bytes(memoryview(field)) == b"abcdefgh\1\2\3\4"


# ---- fields out ----


def test_zero_copy():
    b = loader(python_set()).next()
    assert b is not None
    f = b.field("x")
    x, y = np.from_dlpack(f), np.asarray(f)
    assert x.ctypes.data == y.ctypes.data == np.from_dlpack(b.field(0)).ctypes.data
    x[0, 0, 0] = 123
    assert y[0, 0, 0] == 123
    assert repr(f) == "<Field x f32[32,3,4]>"


def test_read_only():
    b = loader(python_set()).next()
    assert b is not None
    indices = b.indices
    assert indices.readonly and indices.format == "Q" and indices.shape == (32,)
    host = b.field("x").host
    assert host is not None and not np.from_dlpack(host).flags.writeable


def test_simulated_device():
    """Device memory that is the host's."""
    for options in ({}, {"on_host": 1}):
        l = loader(python_set(), device="sim", **options)
        for b in batches(l):
            y = np.from_dlpack(b.field("y"))
            assert b.field("y").device == "cpu" and y.tolist() == list(b.indices)


def test_dlpack_arguments():
    b = loader(python_set()).next()
    assert b is not None
    f = b.field("x")
    assert f.__dlpack_device__() == (1, 0)
    assert 'capsule object "dltensor" at' in repr(f.__dlpack__())
    assert '"dltensor"' in repr(f.__dlpack__(max_version=(0, 8)))
    assert '"dltensor_versioned"' in repr(f.__dlpack__(max_version=(1, 1)))
    f.__dlpack__(dl_device=(1, 0), stream=None)
    with pytest.raises(BufferError, match=r"\(2, 0\): the field is on \(1, 0\)"):
        f.__dlpack__(dl_device=(2, 0))
    with pytest.raises(TypeError):
        f.__dlpack__(max_version=1)  # type: ignore[arg-type]
    copy = np.from_dlpack(f, copy=True)
    copy[0] = -1
    assert (np.asarray(f)[0] != -1).all()


def test_no_buffer_of_bf16():
    ds = c.Dataset.open("synthetic:n=10,shape=4,dtype=bf16")
    b = loader(ds, None).next()
    assert b is not None
    with pytest.raises(BufferError, match="bf16"):
        memoryview(b.field(0))
