#!/usr/bin/env python3
"""Writes the seeds of fuzz_gzip below corpus/, beside this script. Each is a gzip file and one byte more: the target takes
its low four bits for the size of a portion, and bit 4 for a total that is right."""
import gzip
import pathlib
import struct
import zlib

ROOT = pathlib.Path(__file__).resolve().parent / "corpus" / "gzip"


def member(data, level=9):
    return gzip.compress(data, level, mtime=0)


def with_header_fields(data):
    """A member with every optional header field: extra, name, comment, header checksum."""
    head = b"\x1f\x8b\x08\x1e\0\0\0\0\x02\x03" + struct.pack("<H", 4) + b"ab\0\0" + b"name\0" + b"comment\0"
    head += struct.pack("<H", zlib.crc32(head) & 0xFFFF)
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    body = packer.compress(data) + packer.flush()
    return head + body + struct.pack("<II", zlib.crc32(data), len(data))


plain = bytes(range(64)) * 4
one = member(plain)
seeds = {
    "one": one,
    "empty": member(b""),
    "stored": member(plain[:64], 0),
    "two-members": one + member(b"second"),
    "empty-between": one + member(b"") + one,
    "zeros-behind": one + bytes(32),
    "junk-behind": one + b"junk",
    "fields": with_header_fields(plain),
    "long": member(bytes(200000)),
    "ends-early": one[:-9],
    "no-trailer": one[:-8],
    "bad-crc": one[:-8] + b"\xff" + one[-7:],
    "bad-size": one[:-1] + b"\x7f",
    "bad-method": one[:2] + b"\x07" + one[3:],
    "not-gzip": b"plain text",
}
ROOT.mkdir(parents=True, exist_ok=True)
for name, data in seeds.items():
    for portion in (0, 3):
        (ROOT / f"{name}-{portion}").write_bytes(data + bytes([16 | portion]))
