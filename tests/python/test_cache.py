"""DataLoader(cache=): files or samples that stay in memory."""

from __future__ import annotations

import re
import subprocess

import numpy as np
import pytest
from loader_sets import Squares

import millrace
from millrace import _program

PICTURES = 40


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("cache") / "photos"
    command = [_program.path(), "synth", "photos", path, "-n", str(PICTURES), "--side", "40", "-q"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return path


def loader_of(folder, **options):
    options = {"transform": "resize(16,16)", "shuffle": True, "seed": 3, "as_": "numpy", **options}
    return millrace.DataLoader(f"folder:{folder}", 7, **options)


def batches_of(loader):
    return [(batch["image"].copy(), batch["label"].copy()) for batch in loader]


def assert_same(found, expected):
    assert len(found) == len(expected)
    for (image, label), (other, of_other) in zip(found, expected, strict=True):
        assert np.array_equal(image, other) and np.array_equal(label, of_other)


def file_bytes(folder):
    return sum(file.stat().st_size for file in folder.glob("*/*.*"))


def test_files_stay_in_memory(folder):
    with loader_of(folder) as plain, loader_of(folder, cache="host") as loader:
        assert "cache: " in loader.explain() and "cache: " not in plain.explain()
        for _ in range(2):
            assert_same(batches_of(loader), batches_of(plain))
        assert loader.stats().cache_bytes >= file_bytes(folder)
        assert plain.stats().cache_bytes == 0


def test_a_sampler_object_reads_no_file_twice(folder, tmp_path):
    files = tmp_path / "photos"
    subprocess.run(["cp", "-r", folder, files], check=True)
    order = [5, 3, 30] * 4
    with loader_of(files, cache="host", shuffle=False, sampler=order) as loader:
        expected = batches_of(loader)
        for file in files.rglob("*.*"):
            file.write_bytes(b"")
        assert_same(batches_of(loader), expected)


def test_samples_stay_on_the_device(folder):
    options = {"device": "sim", "as_": "dlpack", "transform": None}
    array = np.arange(60, dtype=np.float32).reshape(30, 2)
    with millrace.DataLoader(array, 4, cache="device", **options) as loader:
        for _ in range(2):
            found = [np.from_dlpack(batch) for batch in loader]
            assert np.array_equal(np.concatenate(found), array)
        assert loader.stats().device_bytes >= array.nbytes


def test_arguments(folder):
    with pytest.raises(ValueError, match="^cache='all': expected 'none', 'host', 'device'$"):
        loader_of(folder, cache="all")
    for device in (None, "cpu"):
        with pytest.raises(ValueError, match='^cache="device": expected device="cuda"'):
            loader_of(folder, cache="device", device=device)
    with pytest.raises(ValueError, match='^cache="device": with a sampler object'):
        loader_of(folder, cache="device", device="sim", shuffle=False, sampler=[1, 2], as_="dlpack")
    with loader_of(folder, cache="device", device="sim", as_="dlpack") as loader:
        with pytest.raises(ValueError, match='^cache="device": image: .*use cache="host"'):
            iter(loader)


def test_a_cache_counts_against_the_memory(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.zeros((16384, 1024), np.uint8))
    options = {"as_": "numpy", "max_memory": "12MiB", "num_workers": 1}
    with millrace.DataLoader(f"npy:{path}", 16, **options) as loader:
        next(iter(loader))
    with millrace.DataLoader(f"npy:{path}", 16, cache="host", **options) as loader:
        with pytest.raises(MemoryError):
            iter(loader)


@pytest.mark.parametrize("cache", ["host", "device"])
@pytest.mark.parametrize("options", [{"collate_fn": list}, {"path": "python"}, {}])
def test_python_never_makes_the_samples(folder, cache, options):
    dataset = f"folder:{folder}" if options else Squares()
    text = re.escape(f'cache="{cache}" works with native data sets only')
    with pytest.raises(millrace.NotNative, match=text):
        millrace.DataLoader(dataset, 7, cache=cache, device="sim", as_="dlpack", **options)


def test_advice_names_the_argument():
    reason = "8 workers spent 70% of their time on waiting for reads: "
    found = {"bottleneck": "read", "reason": reason + "a host cache would keep its files, 12 MB, "
             "in memory"}  # fmt: skip
    assert millrace.Stats(found, "native").advice == 'cache="host"'
    assert "cache" not in millrace.Stats({**found, "reason": reason}, "native").advice
    assert "cache" not in millrace.Stats(found, "python-threads").advice
