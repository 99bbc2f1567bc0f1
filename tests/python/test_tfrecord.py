"""TFRecord files by name: what was written comes back, shuffled and with bad records left out."""

import pathlib

import pytest
from tfrecord_writer import example, floats, ints, record, text

from millrace import DataLoader

np = pytest.importorskip("numpy", reason="no numpy")


def sample(label: int) -> bytes:
    """A record: a label, four floats and a caption."""
    values = {"x": floats(*[label / 2] * 4), "caption": text(b"no. %d" % label)}
    return record(example(label=ints(label), **values))


FEATURES = "features=[label:i64,x:f32[4],caption:string]"


def test_examples_are_batches(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(b"".join(sample(k) for k in range(100)))
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
    data = bytearray(b"".join(sample(k) for k in range(20)))
    data[20] ^= 1  # in the first record
    path.write_bytes(data)
    with DataLoader(f"{path},{FEATURES}", 10, as_="numpy", bad="skip") as loader:
        labels = [label for batch in loader for label in batch["label"].tolist()]
    assert labels == list(range(1, 20))
