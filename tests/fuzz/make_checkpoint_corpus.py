#!/usr/bin/env python3
"""Writes the seeds of fuzz_checkpoint below corpus/checkpoint, beside this script. None has a right checksum: the target
writes what could be read again with the one that belongs to it."""

import json
import pathlib
import struct

ROOT = pathlib.Path(__file__).resolve().parent / "corpus/checkpoint"
KEYS = {
    "millrace": "1",
    "model": "mlp:2r",
    "sample": "1x2x2 nchw",
    "classes": "2",
    "loader": '{"version":1,"epoch":0,"position":3}',
    "schedule_state": "0 0 0 0",
    "step": "3",
    "epoch_loss": "2.25",
    "loss_scale": "65536 12",
    "epochs": '[{"epoch":1,"loss":0.5,"test_loss":null}]',
    "checksum": "0123456789abcdef",
}


def tensor(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def put(name, head, data=b"", length=None):
    text = json.dumps(head, separators=(",", ":")).encode() if isinstance(head, dict) else head
    text += b" " * (-len(text) % 8)
    ROOT.mkdir(parents=True, exist_ok=True)
    (ROOT / name).write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)


def main():
    floats = struct.pack("<6f", *range(6))
    groups = struct.pack("<5d", 0.1, 3, 1, 0, 0)
    whole = {
        "__metadata__": KEYS,
        "optim.groups": tensor("F64", [1, 5], 0, 40),
        "fc1.weight": tensor("F32", [2, 2], 40, 56),
        "fc1.bias": tensor("F32", [2], 56, 64),
    }
    put("whole", whole, groups + floats)
    put("cut", whole, groups + floats[:7])
    put("head_cut", whole, b"", 5000)
    put("huge", {"__metadata__": {"millrace": "1"}, "a": tensor("F32", [4294967296] * 4, 0, 8)}, b"8bytes..")
    put("hole", {"__metadata__": {"millrace": "1"}, "a": tensor("F32", [1], 4, 8)}, b"8bytes..")
    put("twice", b'{"__metadata__":{"millrace":"1","x":"1","x":"2"},"a":' + b'{"dtype":"F32","shape":[],"data_offsets":[0,4]},'
        + b'"a":{"dtype":"F32","shape":[0],"data_offsets":[4,4]}}', b"4444")
    put("names", b'{"__metadata__":{"millrace":"1","\\u0000":"\\ud800","k":"\xff\xfe\xc3\xa9"},"":{"dtype":"F64","shape":[0,9],"data_offsets":[0,0]}}')
    put("numbers", b'{"__metadata__":{"millrace":"1"},"a":{"dtype":"F32","shape":[1e300,-1,0.5],"data_offsets":[-1,1e999]}}')
    put("foreign", {"__metadata__": {"format": "pt"}, "a": tensor("BF16", [1], 0, 2)}, b"22")
    put("types", b'{"__metadata__":{"millrace":1,"a":[]},"b":7}')


if __name__ == "__main__":
    main()
