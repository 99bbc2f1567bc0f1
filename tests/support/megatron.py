#!/usr/bin/env python3
"""Runs examples/megatron.c on files of every dtype and compares what it delivers with the bytes in
the file, read directly. usage: megatron.py EXAMPLE"""

import os
import random
import struct
import subprocess
import sys
import tempfile

CODES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 8, 7: 4, 8: 2}  # dtype code: bytes of a token


def write(name, code, lengths, rng):
    """Sequences with gaps between them, in another order than in the index. Returns their bytes."""
    width = CODES[code]
    order = list(range(len(lengths)))
    rng.shuffle(order)
    offsets, parts, at = [0] * len(lengths), {}, 0
    with open(name + ".bin", "wb") as f:
        for i in order:
            gap = rng.randrange(4) * width
            f.write(b"\xff" * gap)
            parts[i] = rng.randbytes(lengths[i] * width)
            offsets[i] = at + gap
            f.write(parts[i])
            at += gap + len(parts[i])
    with open(name + ".idx", "wb") as f:
        f.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(lengths), len(lengths) + 1))
        f.write(struct.pack("<%di" % len(lengths), *lengths))
        f.write(struct.pack("<%dq" % len(lengths), *offsets))
        f.write(struct.pack("<%dq" % (len(lengths) + 1), *range(len(lengths) + 1)))
    return b"".join(parts[i] for i in range(len(lengths)))


def run(example, name):
    out = name + ".tokens"
    done = subprocess.run([example, name, out], capture_output=True, text=True, timeout=60)
    with open(out, "rb") as f:
        return done, f.read()


def fails(example, name, *texts):
    done, _ = run(example, name)
    if done.returncode != 1 or any(t not in done.stderr for t in texts):
        sys.exit(f"expected {texts}, found {done.returncode}: {done.stderr}")


def main():
    rng = random.Random(7)
    with tempfile.TemporaryDirectory() as folder:
        name = os.path.join(folder, "tokens")
        for code in CODES:
            lengths = [rng.choice([0, 1, rng.randrange(600), 600]) for _ in range(1000)]
            expected = write(name, code, lengths, rng)
            done, found = run(sys.argv[1], name)
            if done.returncode != 0 or found != expected:
                sys.exit(f"dtype {code}: {len(found)} of {len(expected)} bytes: {done.stderr}")
        os.truncate(name + ".bin", 100000)
        fails(sys.argv[1], name, "megatron: sample ", "tokens.bin", "ends beyond the file")
        os.truncate(name + ".idx", 100)
        fails(sys.argv[1], name, "tokens.idx: truncated: 1000 sequences")
        os.truncate(name + ".idx", 8)
        fails(sys.argv[1], name, "begins with MMIDIDX")


main()
