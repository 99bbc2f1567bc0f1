"""DataLoader(sandbox=True): decoding in processes that can open no files and no connections."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from loader_sets import Squares
from process_support import children, is_alive, wait_until

import millrace
from millrace import _program

PICTURES = 60
OPTIONS = {
    "transform": "random_resized_crop(16),hflip",
    "shuffle": True,
    "seed": 3,
    "num_workers": 2,
    "as_": "numpy",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("sandbox") / "photos"
    command = [_program.path(), "synth", "photos", path, "-n", str(PICTURES), "--side", "40", "-q"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return path


def loader_of(folder, **options):
    return millrace.DataLoader(f"folder:{folder}", 7, **{**OPTIONS, **options})


def batches_of(loader):
    return [(batch["image"].copy(), batch["label"].copy()) for batch in loader]


def assert_same(found, expected):
    assert len(found) == len(expected) == 9
    for (image, label), (other, of_other) in zip(found, expected, strict=True):
        assert np.array_equal(image, other) and np.array_equal(label, of_other)


def status_of(pid):
    with open(f"/proc/{pid}/status") as file:
        return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)


def decoders(before):
    """Of the keeper, the only child of this process that was not there before."""
    (keeper,) = set(children()) - set(before)
    return children(keeper)


def test_the_same_batches_from_processes_behind_a_filter(folder):
    with loader_of(folder) as plain:
        first, second = batches_of(plain), batches_of(plain)
    before = children()
    with loader_of(folder, sandbox=True) as loader:
        assert loader.path == "native" and "sandbox" in loader.explain()
        assert_same(batches_of(loader), first)
        pids = decoders(before)
        assert len(pids) == 2
        for pid in pids:
            assert status_of(pid)["Seccomp"] == "2"
            assert os.listdir(f"/proc/{pid}/fd") == []
        assert_same(batches_of(loader), second)
        assert decoders(before) == pids
    assert set(children()) == set(before)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


def test_killed_decoders_cost_nothing(folder):
    with loader_of(folder) as plain:
        expected = batches_of(plain)
    before = children()
    with loader_of(folder, sandbox=True, prefetch_factor=1) as loader:
        found = []
        for number, batch in enumerate(loader):
            found.append((batch["image"].copy(), batch["label"].copy()))
            if number in (1, 4):
                os.kill(decoders(before)[0], signal.SIGKILL)
                time.sleep(0.05)
        assert loader.bad() == []
    assert_same(found, expected)


def test_a_bad_picture_is_reported_with_its_file(folder, tmp_path):
    path = shutil.copytree(folder, tmp_path / "photos")
    target = next(path.glob("*/*.png"))
    target.write_bytes(target.read_bytes()[:300])
    with loader_of(path, sandbox=True, bad="skip") as loader:
        assert sum(len(label) for _, label in batches_of(loader)) == PICTURES - 1
        (bad,) = loader.bad()
        assert bad.file == str(target)
    with loader_of(path, sandbox=True) as loader:
        with pytest.raises(millrace.FormatError, match=target.name):
            batches_of(loader)


def test_a_state_continues_in_a_sandbox(folder):
    with loader_of(folder) as plain:
        expected = batches_of(plain)
    with loader_of(folder) as plain:
        iterator = iter(plain)
        head = [(b["image"].copy(), b["label"].copy()) for b in itertools.islice(iterator, 4)]
        state = plain.state_dict()
    with loader_of(folder, sandbox=True) as loader:
        loader.load_state_dict(state)
        assert_same([*head, *batches_of(loader)], expected)


@pytest.mark.parametrize(
    ("dataset", "options"),
    [
        (Squares(), {}),
        ("folder:{folder}", {"collate_fn": list}),
        ("folder:{folder}", {"path": "python"}),
    ],
)
def test_python_never_makes_the_samples(folder, dataset, options):
    if isinstance(dataset, str):
        dataset = dataset.format(folder=folder)
    with pytest.raises(millrace.NotNative, match="sandbox=True"):
        millrace.DataLoader(dataset, 7, sandbox=True, **options)


def test_sets_that_are_not_decoded_say_so():
    for dataset in (np.zeros((10, 3), np.float32), "synthetic:n=10,shape=4"):
        with millrace.DataLoader(dataset, 2, sandbox=True, as_="numpy") as loader:
            with pytest.raises(NotImplementedError, match="sandbox"):
                next(iter(loader))


KILLED = """
import os, signal, sys
import millrace
loader = millrace.DataLoader("folder:" + sys.argv[1], 2, transform="resize(16,16)", sandbox=True,
                             num_workers=2, as_="numpy")
iterator = iter(loader)
next(iterator)
me = os.getpid()
def children(pid):
    return [int(p) for p in open(f"/proc/{pid}/task/{pid}/children").read().split()]
(keeper,) = children(me)
print(keeper, *children(keeper), flush=True)
os.kill(me, signal.SIGKILL)
"""


def test_no_decoder_outlives_the_program(folder):
    command = [sys.executable, "-c", KILLED, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    pids = [int(number) for number in done.stdout.split()]
    assert done.returncode == -signal.SIGKILL and len(pids) == 3, done.stderr
    wait_until(lambda: not any(map(is_alive, pids)), 10)


def test_torchvisions_folder(folder):
    torch = pytest.importorskip("torch")
    vision = pytest.importorskip("torchvision")
    from torchvision.transforms import v2

    steps = [v2.Resize((16, 16)), v2.PILToTensor()]
    dataset = vision.datasets.ImageFolder(str(folder), v2.Compose(steps))
    with millrace.DataLoader(dataset, 7, num_workers=2) as plain:
        expected = [(image.clone(), label.clone()) for image, label in plain]
    with millrace.DataLoader(dataset, 7, num_workers=2, sandbox=True) as loader:
        assert loader.path == "native"
        for (image, label), (other, of_other) in zip(loader, expected, strict=True):
            assert torch.equal(image, other) and torch.equal(label, of_other)
    dataset.transform = v2.Compose([*steps, lambda image: image])  # Python behind a native prefix
    with pytest.raises(millrace.NotNative, match="sandbox=True"):
        millrace.DataLoader(dataset, 7, sandbox=True)
