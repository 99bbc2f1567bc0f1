"""Bad input: each kind of it has a test, and those of DataLoader with worker processes."""

from __future__ import annotations

import ast
import gc
import os
import pathlib
import resource
import signal

import numpy as np
import pytest
from loader_sets import Squares

import millrace

torch = pytest.importorskip("torch")

WORKERS = {"num_workers": 2, "multiprocessing_context": "fork"}

# What can be wrong: the tests of it.
TESTS = {
    "unpicklable data sets": [
        "test_loader_processes.py: test_unpicklable_sets",
        "test_processes.py: test_what_does_not_pickle_is_forked",
        "test_processes.py: test_what_does_not_pickle_and_must",
    ],
    "shapes that differ between samples": [
        "test_core_errors.py: test_samples_that_differ",
        "test_loader_errors.py: test_shapes_that_differ_later",
        "test_loader_processes.py: test_samples_that_differ_late",
    ],
    "object arrays": [
        "test_core_errors.py: test_samples_that_differ",
        "test_bad_input.py: test_object_arrays",
    ],
    "closed loaders": [
        "test_core_errors.py: test_closed",
        "test_loader_errors.py: test_a_closed_loader",
        "test_bad_input.py: test_a_closed_loader",
    ],
    "two live iterators": [
        "test_loader_iterate.py: test_two_live_iterators_are_independent",
        "test_bad_input.py: test_two_live_iterators",
    ],
    "iteration in a forked child": [
        "test_core_errors.py: test_forked_child",
        "test_loader_errors.py: test_a_forked_child",
        "test_bad_input.py: test_a_forked_child",
    ],
    "KeyboardInterrupt": [
        "test_core_process.py: test_keyboard_interrupt",
        "test_loader_errors.py: test_ctrl_c",
        "test_loader_processes.py: test_ctrl_c_ends_the_workers",
        "test_ctrl_c.py: test_no_worker_is_left",
    ],
    "interpreter exit with a live loader": [
        "test_core_process.py: test_exit_with_live_loaders_of_all_kinds",
        "test_loader_errors.py: test_the_interpreters_end",
        "test_bad_input.py: test_the_interpreters_end",
    ],
    "tensors that outlive the loader": [
        "test_core.py: test_tensors_outlive_a_closed_loader",
        "test_loader_iterate.py: test_batches_outlive_the_loader",
        "test_processes.py: test_arrays_of_objects_are_views_and_outlive_the_pool",
        "test_bad_input.py: test_tensors_outlive_the_workers",
    ],
    "an OOM-killed worker": [
        "test_processes.py: test_a_sample_that_kills_is_bad",
        "test_bad_input.py: test_a_sample_that_kills_its_worker",
    ],
    "no memfd": ["test_core_process.py: test_no_memfd"],
    "RLIMIT_NOFILE 64": [
        "test_core_process.py: test_few_files",
        "test_processes.py: test_few_descriptors",
        "test_bad_input.py: test_64_descriptors",
    ],
    "missing libcurl": ["test_core_process.py: test_missing_libcurl"],
    "missing libcuda": ["test_core_process.py: test_missing_libcuda"],
}


def functions_of(file: str) -> set[str]:
    tree = ast.parse((pathlib.Path(__file__).parent / file).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("case", TESTS)
def test_there_are_functions_of(case: str) -> None:
    for entry in TESTS[case]:
        file, name = entry.split(": ")
        assert name in functions_of(file), entry


def labels(batches) -> list[int]:  # type: ignore[no-untyped-def]
    return [i for batch in batches for i in batch[1].tolist()]


class Objects(Squares):
    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        return np.array([{}, index], dtype=object), index


@pytest.mark.parametrize("options", [{}, WORKERS])
def test_object_arrays(options) -> None:  # type: ignore[no-untyped-def]
    with millrace.DataLoader(Objects(8), 4, **options) as loader:
        with pytest.raises(TypeError, match="found object"):
            next(iter(loader))


def test_a_closed_loader() -> None:
    loader = millrace.DataLoader(Squares(), 10, **WORKERS)
    iterator = iter(loader)
    next(iterator)
    loader.close()
    with pytest.raises(ValueError, match="closed"):
        list(iterator)
    with pytest.raises(ValueError, match="closed"):
        iter(loader)


def test_two_live_iterators() -> None:
    with millrace.DataLoader(Squares(), 10, **WORKERS) as loader:
        pairs = list(zip(loader, loader, strict=True))
    assert labels(a for a, _ in pairs) == labels(b for _, b in pairs) == list(range(100))


def outcome_in_child(iterator) -> str:  # type: ignore[no-untyped-def]
    """What the next batch is in a forked child."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        try:
            next(iterator)
            text = "a batch"
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    with open(read) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    return text


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child() -> None:
    with millrace.DataLoader(Squares(), 10, **WORKERS) as loader:
        iterator = iter(loader)
        first = labels([next(iterator)])
        text = outcome_in_child(iterator)
        assert text.startswith("RuntimeError") and "process" in text, text
        assert first + labels(iterator) == list(range(100))


AT_END = """
import numpy as np, millrace
class Map:
    def __len__(self): return 100000
    def __getitem__(self, i): return np.zeros(3), i
loader = millrace.DataLoader(Map(), 10, epochs=0, as_="numpy", num_workers=2,
                             multiprocessing_context="fork")
iterator = iter(loader)
next(iterator)
print(*loader._source.maker.pool.pids)
"""


def test_the_interpreters_end(clean) -> None:  # type: ignore[no-untyped-def]
    pids = clean(AT_END).split()
    assert len(pids) == 2
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]


def test_tensors_outlive_the_workers() -> None:
    loader = millrace.DataLoader(Squares(), 10, **WORKERS)
    batches = list(loader)
    loader.close()
    del loader
    gc.collect()
    squares = [x for batch in batches for x in batch[0][:, 0].tolist()]
    assert squares == [i * i for i in range(100)]


class Deadly(Squares):
    """As the kernel does it where memory runs out."""

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        if index == 13:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


def test_a_sample_that_kills_its_worker() -> None:
    with millrace.DataLoader(Deadly(40), 4, **WORKERS) as loader:
        with pytest.raises(RuntimeError, match="sample 13.*SIGKILL.*memory"):
            list(loader)
    with millrace.DataLoader(Deadly(40), 4, bad="skip", max_bad=1, **WORKERS) as loader:
        assert labels(loader) == [i for i in range(40) if i != 13]
        assert [sample.index for sample in loader.bad()] == [13]


def test_64_descriptors() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, before[1]))
    try:
        options = {**WORKERS, "num_workers": 8}
        with millrace.DataLoader(Squares(), 10, **options) as loader:
            assert labels(loader) == labels(loader) == list(range(100))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
