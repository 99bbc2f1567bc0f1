#!/usr/bin/env python3
"""Writes the seeds of fuzz_tar below corpus/tar, beside this script."""

import gzip
import io
import pathlib
import struct
import tarfile

ROOT = pathlib.Path(__file__).resolve().parent / "corpus" / "tar"


def archive(members, **options):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", **options) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            if isinstance(data, bytes):
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
            else:
                info.type = data
                info.linkname = "000.txt"
                tar.addfile(info)
    end = out.getvalue().rstrip(b"\0")
    return end + bytes(-len(end) % 512 + 1024)


def npy(descr, shape, data):
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (-(10 + len(text) + 1) % 64) + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text + bytes(data)


PLAIN = [("000.txt", b"one"), ("000.cls", b"3"), ("001.txt", b"two more"), ("001.cls", b"-4\n")]
SEEDS = {
    "text": archive(PLAIN, format=tarfile.USTAR_FORMAT),
    "gnu": archive([("d" * 150 + "/000.txt", b"x")] + PLAIN, format=tarfile.GNU_FORMAT),
    "pax": archive([("d" * 150 + "/000.txt", b"x"), ("\u00e9.txt", b"y")], format=tarfile.PAX_FORMAT),
    "npy": archive([("0.x.npy", npy("<f4", (2, 3), 24)), ("1.x.npy", npy(">f4", (2, 3), 24))]),
    "links": archive([("000.txt", b"one"), ("001.txt", tarfile.SYMTYPE)]),
    "folders": archive([("d", tarfile.DIRTYPE), ("d/0.bin", bytes(600)), ("d/1.bin", bytes(600))]),
    "raw": archive([("0.jpg", b"\xff\xd8\xff no picture"), ("0.cls", b"1")]),
    "twice": archive(PLAIN + PLAIN[:1]),
    "gz": gzip.compress(archive(PLAIN), mtime=0),
}
ROOT.mkdir(parents=True, exist_ok=True)
for name, data in SEEDS.items():
    (ROOT / name).write_bytes(data)
