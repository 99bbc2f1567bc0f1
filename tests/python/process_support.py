"""What the tests of worker processes share."""

import os
import time

import numpy

from millrace import _core
from millrace._processes import Pool


def pool(recipe, n, workers=2, **options):
    """A pool with a short name."""
    return Pool(recipe, n, workers=workers, **options)


def batches(dataset, shuffle=None, **options):
    """Reads all batches: lists of numpy arrays, one for each field, copied. shuffle: a seed."""
    options = {"batch_size": 8, "epochs": 1, **options}
    kind, given = ("sequential", {}) if shuffle is None else ("random", {"seed": shuffle})
    sampler = _core.Sampler(kind, dataset.length, **given)
    loader = _core.Loader(dataset, sampler=sampler, options=options)
    try:
        found = []
        while (batch := loader.next()) is not None:
            found.append([numpy.from_dlpack(batch.field(f)).copy() for f in range(len(batch))])
            batch.release()
        return found, loader.bad()
    finally:
        loader.close()


def expected(indices, epoch=0):
    """The bytes of Rows."""
    k = numpy.arange(64)
    return ((numpy.asarray(indices)[:, None] * 31 + k + epoch) & 255).astype("u1")


def check_rows(found, n, epoch=0):
    """Each sample is there once, and its bytes are right."""
    x = numpy.concatenate([batch[0] for batch in found])
    index = numpy.concatenate([batch[1] for batch in found])
    assert sorted(index.tolist()) == list(range(n))
    assert (x == expected(index, epoch)).all()


def is_alive(pid):
    """Whether a process runs: not for zombies."""
    try:
        with open("/proc/%d/stat" % pid) as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def blocked_signals(pid):
    """The signal mask of a process's main thread, as bits."""
    with open("/proc/%d/status" % pid) as file:
        return next(int(line.split()[1], 16) for line in file if line.startswith("SigBlk:"))


def wait_until(done, seconds=30):
    """Waits for a condition. Fails loudly; a passing test does not wait longer than it must."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "waited %g s" % seconds
        time.sleep(0.005)


def children(pid=None):
    """The pids of a process's children, zombies too; default: of this one's."""
    found, parent = [], pid or os.getpid()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/stat" % name) as file:
                    if int(file.read().rsplit(")", 1)[1].split()[1]) == parent:
                        found.append(int(name))
            except (FileNotFoundError, ProcessLookupError):
                continue
    return found
