#!/usr/bin/env python3
"""Writes the seeds of fuzz_tfrecord below corpus/, beside this script."""

import gzip
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "python"))
from tfrecord_writer import features, field, floats, ints, mask, record, text  # noqa: E402

ROOT = HERE / "corpus" / "tfrecord"
AS_IT_IS = 0x80


def small(*records):
    """What the target makes records of: each behind its length."""
    return b"".join(bytes([len(data)]) + data for data in records)


def write(name, how, data):
    ROOT.mkdir(parents=True, exist_ok=True)
    (ROOT / name).write_bytes(bytes([how]) + data)


def main():
    one = field(1, features(a=ints(-7), b=floats(1, 2, 3), c=text(b"caption"), d=text(b"\1\0\2\0"), e=text(b"e")))
    loose = field(1, features(a=ints(1, 2, 3, 300, packed=False), b=floats(4, 5, packed=False), c=text(b"", b"x")))
    step = [field(1, ints(k, 10 * k)) for k in range(3)]
    sequence = field(1, features(b=floats(1))) + field(2, features(a=b"".join(step)))
    for how in range(4):
        write(f"example-{how}", how, small(one, loose, sequence, b"no example"))
    write("cut", 2, small(one[:-3], loose[:-9]))
    write("groups", 2, small(b"\x0b\x0c", b"\x0a\x02\x0b\x0c"))
    write("long-varint", 3, small(field(1, features(a=field(3, field(1, b"\x80" * 11 + b"\1"))))))
    write("twice", 2, small(field(1, features(a=ints(1) + ints(2))), field(1, features(a=ints(1)) + features(a=text(b"z")))))
    write("file", AS_IT_IS, record(one) + record(b"") + record(b"abc"))
    write("file-gz", AS_IT_IS | 2, gzip.compress(record(one) * 3, mtime=0))
    write("file-cut", AS_IT_IS, (record(one) * 2)[:-5])
    write("huge", AS_IT_IS, b"\xff" * 8 + mask(b"\xff" * 8) + b"\0" * 20)
    write("riegeli", AS_IT_IS, bytes.fromhex("83af70d10d884a3f") + b"\0" * 24)


main()
