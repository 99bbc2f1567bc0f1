#!/usr/bin/env python3
"""Writes the seeds of fuzz_idx, fuzz_npy, fuzz_npz and fuzz_uri below corpus/, beside this script."""

import gzip
import io
import pathlib
import struct
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent / "corpus"

URIS = [
    "idx:images,labels=labels,split=test",
    "idx:/nowhere/train-images-idx3-ubyte.gz,labels=none",
    "npy:x.npy,labels=y.npy",
    "raw:x.bin,shape=3x32x32,dtype=f32,skip=16,record=4KiB",
    "synthetic:n=1e6,shape=1024,dtype=f32,values=uniform,classes=10,delay=2ms,work=50us",
    "synthetic:n=4611686018427387904,shape=2x3x4,dtype=bf16,values=normal,seed=0x10,min_length=1",
    "synthetic:dtype=c128,values=index",
    "synthetic:dtype=bool,shape=7,values=zero",
    "s3://bucket/prefix",
    "mix:0.7*[synthetic:n=3],2*[mix:1*x.npy,1*[csv:y,root=z]],length=9",
    "video:clips/,frames=8,size=112x112,crop,at=uniform,clips=3",
    "path=x,shape=,=",
]


def idx(kind, *dims, size=1):
    count = size
    for dim in dims:
        count *= dim
    return bytes([0, 0, kind, len(dims)]) + struct.pack(f">{len(dims)}I", *dims) + bytes(i & 255 for i in range(count))


def npz(method, members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data, method)
    return out.getvalue()


def npy(version, descr, order, shape, data):
    text = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}".encode()
    before = 10 if version == 1 else 12
    text += b" " * (-(before + len(text) + 1) % 64) + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(text)) + text + bytes(data)


def write(target, name, data):
    (ROOT / target).mkdir(parents=True, exist_ok=True)
    (ROOT / target / name).write_bytes(data)


def main():
    write("idx", "images", idx(8, 2, 3, 4))
    write("idx", "labels", idx(8, 5))
    write("idx", "f64-rank4", idx(14, 2, 1, 2, 1, size=8))
    write("idx", "huge", idx(8) [:3] + b"\4" + b"\x7f\xff\xff\xff" * 4)
    write("idx", "images-gz", gzip.compress(idx(8, 2, 3, 4), mtime=0))
    write("idx", "short-gz", gzip.compress(idx(8, 2, 3, 4), mtime=0)[:-12])
    for name, method in (("stored", zipfile.ZIP_STORED), ("deflated", zipfile.ZIP_DEFLATED)):
        write("npz", name, npz(method, {"x.npy": npy(1, "'<f4'", False, "(2, 3)", 24),
                                        "y.npy": npy(2, "'>i2'", True, "(2, 2)", range(8)), "z.txt": b"z"}))
    write("npz", "objects", npz(zipfile.ZIP_STORED, {"o.npy": npy(1, "'|O'", False, "(3,)", 24)}))
    write("npy", "f4", npy(1, "'<f4'", False, "(2, 3)", 24))
    write("npy", "fortran", npy(2, "'>i2'", True, "(3, 2, 2)", range(24)))
    write("npy", "strings", npy(3, "'<U3'", False, "(2,)", 24))
    write("npy", "times", npy(1, "'<M8[25ns]'", False, "(3L,)", 24))
    write("npy", "objects", npy(1, "'|O'", False, "(3,)", 24))
    write("npy", "records", npy(1, "[('a', '<f4')]", False, "(6,)", 24))
    write("npy", "huge", npy(1, "'|u1'", False, "(4294967296, 4294967296)", 24))
    for i, uri in enumerate(URIS):
        write("uri", f"{i:02}", uri.encode())


main()
