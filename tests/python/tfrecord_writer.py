"""TFRecord files and tf.train.Examples, written by hand."""

from __future__ import annotations

import struct


def mask(data: bytes) -> bytes:
    """The masked CRC-32C that the file stores."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + mask(length) + data + mask(data)


def varint(x: int) -> bytes:
    out = b""
    x &= (1 << 64) - 1
    while True:
        out += bytes([x & 0x7F | (0x80 if x > 0x7F else 0)])
        x >>= 7
        if not x:
            return out


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def ints(*x: int, packed: bool = True) -> bytes:
    values = b"".join((b"" if packed else b"\x08") + varint(v) for v in x)
    return field(3, field(1, values) if packed else values)


def floats(*x: float, packed: bool = True) -> bytes:
    if packed:
        return field(2, field(1, struct.pack(f"<{len(x)}f", *x)))
    return field(2, b"".join(b"\x0d" + struct.pack("<f", v) for v in x))


def text(*x: bytes) -> bytes:
    return field(1, b"".join(field(1, v) for v in x))


def features(**named: bytes) -> bytes:
    entries = ((name.encode(), value) for name, value in named.items())
    return b"".join(field(1, field(1, name) + field(2, value)) for name, value in entries)


def example(**named: bytes) -> bytes:
    return field(1, features(**named))
