#!/usr/bin/env python3
"""Writes npy_vectors.h: what numpy says is in each npy file below a folder.

usage: make_npy_vectors.py FOLDER > npy_vectors.h

A line a file: its path below FOLDER, samples, the dtype and shape of a sample as millrace writes them, and the CRC-32 of
the whole array in C order and little-endian. Files that numpy itself reads only by unpickling, and those without a first
dimension, are to be refused: their line holds the word that the refusal must contain.
"""

import pathlib
import sys
import zlib

import numpy as np

NAMES = {"b": "bool", "u": "u", "i": "i", "f": "f", "c": "c", "m": "i", "M": "i"}


def spec(array):
    """millrace's text of one sample of the array."""
    dims = list(array.shape[1:])
    kind, size = array.dtype.kind, array.dtype.itemsize
    if kind in "SV":
        dtype, dims = "u8", dims + [size]
    elif kind == "U":
        dtype, dims = "u32", dims + [size // 4]
    elif kind == "b":
        dtype = "bool"
    else:
        dtype = f"{NAMES[kind]}{size * 8}"
    name = "image" if kind == "u" and size == 1 and len(dims) >= 2 else "x"
    shape = "[" + ",".join(map(str, dims)) + "]" if dims else ""
    return f"{name} {dtype}{shape}"


def line(path, name):
    try:
        array = np.load(path, allow_pickle=False)
    except ValueError:
        return f'    {{"{name}", 0, "pickles", 0}},'
    if array.ndim == 0:
        return f'    {{"{name}", 0, "0-dimensional", 0}},'
    data = np.ascontiguousarray(array)
    data = data.astype(data.dtype.newbyteorder("<"))
    return f'    {{"{name}", {len(array)}, "{spec(array)}", 0x{zlib.crc32(data.tobytes()):08x}}},'


def main():
    root = pathlib.Path(sys.argv[1])
    print(f"/* Made by make_npy_vectors.py with numpy {np.__version__}. */")
    for path in sorted(root.rglob("*.npy")):
        print(line(path, path.relative_to(root).as_posix()))


main()
