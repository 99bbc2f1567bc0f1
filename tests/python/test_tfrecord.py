"""TFRecord files by name: what was written comes back, shuffled and with bad records left out."""

import pathlib
import struct

import pytest

from millrace import DataLoader

np = pytest.importorskip("numpy", reason="no numpy")


def mask(data: bytes) -> bytes:
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


def field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


def example(label: int) -> bytes:
    """A label below 128, four floats and a caption."""
    features = {
        "label": field(3, field(1, bytes([label]))),
        "x": field(2, field(1, struct.pack("<4f", *([label / 2] * 4)))),
        "caption": field(1, field(1, b"no. %d" % label)),
    }
    entries = (field(1, field(1, k.encode()) + field(2, v)) for k, v in features.items())
    return field(1, b"".join(entries))


FEATURES = "features=[label:i64,x:f32[4],caption:string]"


def test_examples_are_batches(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(b"".join(record(example(k)) for k in range(100)))
    with DataLoader(f"{path},{FEATURES}", 10, True, as_="numpy", seed=1) as loader:
        batches = list(loader)
    labels = np.concatenate([batch["label"] for batch in batches])
    assert sorted(labels.tolist()) == list(range(100))
    assert labels.tolist() != list(range(100))
    x = np.concatenate([batch["x"] for batch in batches])
    assert (x == labels[:, None] / 2).all()
    assert [c for b in batches for c in b["caption"]] == [f"no. {k}" for k in labels]


def test_bad_records_are_left_out(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "b.tfrecord"
    data = bytearray(b"".join(record(example(k)) for k in range(20)))
    data[20] ^= 1  # in the first record
    path.write_bytes(data)
    with DataLoader(f"{path},{FEATURES}", 10, as_="numpy", bad="skip") as loader:
        labels = [label for batch in loader for label in batch["label"].tolist()]
    assert labels == list(range(1, 20))
