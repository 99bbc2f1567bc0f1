#!/usr/bin/env python3
"""Writes the seeds of fuzz_serve, fuzz_attach, fuzz_disk_cache and fuzz_pack_state below corpus/, beside this script."""

import pathlib
import struct

ROOT = pathlib.Path(__file__).resolve().parent / "corpus"
HELLO, RELEASE, LEAVE, HANG_UP, DRAIN, WAIT, RAW = range(7)


def say(kind, value=0, trainer=0, more=b""):
    return bytes([kind << 1 | trainer, len(more) if more else value]) + more


def patch(part, word, value):
    return struct.pack("<BHQ", part, word, value)


def chunk(flags, n, at, count, file):
    return struct.pack("<BIHH", flags, n - 1, at, count) + file


SHARDS = "shard 0 first 0 samples 3 skipped 0 bytes 0 xxh64 0\nshard 1 first 3 samples 2 skipped 1 bytes 1024 xxh64 1f\n"
SEEDS = {
    "serve": {
        "one": say(HELLO) + say(WAIT, 3) + say(DRAIN) + b"".join(say(RELEASE, i) for i in range(4)),
        "two": say(HELLO) + say(HELLO, trainer=1) + say(WAIT, 3) + say(RELEASE, 0) + say(LEAVE, trainer=1) + say(HANG_UP),
        "killed": say(HELLO) + say(WAIT, 3) + say(HANG_UP) + say(HELLO) + say(RELEASE, 200),
        "raw": say(RAW, trainer=1, more=struct.pack("<IIQ", 1, 0, 1)) + say(RAW, more=struct.pack("<IIQ", 4, 0, 0)),
        "silent": say(WAIT) + say(WAIT, trainer=1),
    },
    "attach": {
        "sound": patch(2, 100, 0),
        "mark": patch(0, 1, 5),
        "ahead": patch(0, 4, 1 << 60),
        "fields": patch(0, 0, 2 | 9 << 32),
        "offset": patch(1, 3, 4096),
        "places": patch(3, 0, 1 << 61) + patch(3, 4, 2**64 - 8),
        "wrap": patch(3, 4, 2**64 - 8),
        "dtype": patch(3, 11, 999 | 1 << 32),
        "failed": patch(2, 0, 7 | 0xFFFFFFEF << 32),
    },
    "disk_cache": {
        "chunk": chunk(1, 100, 10, 20, bytes(40) + bytes(8) + b"x" * 100),
        "blocks": chunk(1, 40000, 20000, 9000, bytes(40) + bytes(24) + b"y" * 40000),
        "short": chunk(1, 40000, 20000, 9000, bytes(40) + bytes(24) + b"y" * 20000),
        "raw": chunk(0, 100, 0, 99, b"mrchunk1" + bytes(40)),
        "object": chunk(3, 1, 0, 0, b"mrobject" + struct.pack("<QQQQ", 7, 0, 1234, 0) + b'"tag"\0\0'),
        "no_end": chunk(3, 1, 0, 0, b"mrobject" + struct.pack("<QQQQ", 3, 0, 1234, 0) + b"abc"),
        "empty": chunk(2, 1, 0, 0, b""),
    },
    "pack_state": {
        "begun": b"\1",
        "two": b"\1" + SHARDS.encode(),
        "done": b"\1" + SHARDS.encode() + b"done\n",
        "too_many": b"\1" + SHARDS.replace("samples 2", f"samples {2**64 - 3}").encode(),
        "other": b"\0millrace pack 1: source 0\n",
        "torn": b"\1" + SHARDS.encode()[:70],
    },
}

for target, seeds in SEEDS.items():
    (ROOT / target).mkdir(parents=True, exist_ok=True)
    for name, data in seeds.items():
        (ROOT / target / name).write_bytes(data)
