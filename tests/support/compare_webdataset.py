#!/usr/bin/env python3
"""Packs data sets with millrace and reads the shards with the WebDataset package: keys, order, labels and bytes must be the
same; and millrace must find in WebDataset's own archives what the package finds there.

usage: compare_webdataset.py MILLRACE DATA      exits 77 when the package or the data are not there
"""

import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import webdataset
except ImportError:
    print("SKIP: no webdataset package: pip install webdataset")
    sys.exit(77)


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def read(urls):
    return list(webdataset.WebDataset(urls, shardshuffle=False, empty_check=False))


def compare_folder(millrace, photos, place):
    """photos: a folder of pictures in class folders, or of pictures alone."""
    packed = json.loads(run(millrace, "pack", f"folder:{photos}", place, "--shard-size", "4MiB", "--json"))
    assert packed["shards"] > 1, packed
    samples = read(sorted(str(p) for p in pathlib.Path(place).glob("*.tar")))
    files = sorted(p for p in pathlib.Path(photos).rglob("*") if p.suffix.lower() in (".jpg", ".jpeg", ".png", ".webp"))
    assert len(samples) == packed["samples"] == len(files), (len(samples), packed["samples"], len(files))
    for i, (sample, file) in enumerate(zip(samples, files)):
        assert sample["__key__"] == f"{i:06}", sample["__key__"]
        picture = next(sample[e] for e in ("jpg", "png", "webp") if e in sample)
        assert picture == file.read_bytes(), file
    print(f"{photos}: {len(samples)} samples in {packed['shards']} shards, the same")


def compare_arrays(millrace, place):
    run(millrace, "synth", "npy", f"{place}/x.npy", "--n", "50", "--shape", "3x4", "--dtype", "i16")
    run(millrace, "pack", f"npy:{place}/x.npy,labels={place}/x-labels.npy", f"{place}/arrays")
    import numpy

    x, labels = numpy.load(f"{place}/x.npy"), numpy.load(f"{place}/x-labels.npy")
    samples = list(webdataset.WebDataset(f"{place}/arrays/shard-000000.tar", shardshuffle=False, empty_check=False).decode())
    assert len(samples) == 50
    for sample, want, label in zip(samples, x, labels):
        assert (sample["x.npy"] == want).all() and sample["cls"] == label, sample["__key__"]
    print("arrays: 50 samples, the same")


def compare_archives(millrace, data):
    for archive in sorted(pathlib.Path(data, "formats", "webdataset").glob("*.tar")):
        theirs = read(str(archive))
        ours = json.loads(run(millrace, "inspect", f"tar:{archive},index=none", "-n", "0", "--json"))
        assert ours["samples"] == len(theirs), (archive, ours["samples"], len(theirs))
        print(f"{archive.name}: {len(theirs)} samples in both")


def main():
    millrace, data = sys.argv[1:]
    photos = pathlib.Path(data, "imagenet-sample")
    if not photos.is_dir():
        print(f"SKIP: {photos} is not there")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as place:
        compare_folder(millrace, photos, f"{place}/photos")
        compare_arrays(millrace, place)
    compare_archives(millrace, data)


main()
