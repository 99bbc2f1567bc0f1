"""Parity with torch's DataLoader: every argument with 30 data sets.

Prints a table: for each data set and argument "same", or what differs and why. Usage: parity.py.
test_loader_parity.py fails on a difference that is not in KNOWN, and on a KNOWN one that is gone.
"""

from __future__ import annotations

import collections
import random
import warnings
from typing import Any

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
)

import millrace

N = 11
Point = collections.namedtuple("Point", "x y")


class Map(Dataset):
    """Samples from a function of the index."""

    def __init__(self, make, n=N):
        self.make, self.n = make, n

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        if not 0 <= index < self.n:
            raise IndexError(index)
        return self.make(int(index))


class Items(Map):
    def __getitems__(self, indices):
        return [self.make(int(i)) for i in indices]


class Stream(IterableDataset):
    def __init__(self, make, n=N):
        self.make, self.n = make, n

    def __iter__(self):
        return (self.make(i) for i in range(self.n))


class SizedStream(Stream):
    def __len__(self):
        return self.n


class Broken(Map):
    """A sample that can't be made."""

    def __getitem__(self, index):
        if index == 7:
            raise KeyError("no such picture")
        return np.float32(index)


class OrderedMap(collections.OrderedDict):
    pass


def array(i, dtype=np.float32, shape=(2, 3)):
    return np.full(shape, i, dtype)


def ragged(i):
    return torch.full((1 + i % 3,), i)


SETS: dict[str, Any] = {
    "f32 array": lambda: Map(array),
    "u8 image, int": lambda: Map(lambda i: (array(i, np.uint8, (3, 4, 4)), i)),
    "torch tensor": lambda: Map(lambda i: torch.full((2,), float(i))),
    "bf16 tensor": lambda: Map(lambda i: torch.full((2,), float(i), dtype=torch.bfloat16)),
    "f16, i16 pair": lambda: Map(lambda i: (array(i, np.float16), array(i, np.int16))),
    "bool tensor": lambda: Map(lambda i: torch.tensor([i % 2 == 0, True])),
    "int": lambda: Map(lambda i: i),
    "float": lambda: Map(float),
    "bool": lambda: Map(lambda i: i % 2 == 0),
    "numpy scalar": lambda: Map(np.float32),
    "str": lambda: Map(lambda i: f"text {i}"),
    "bytes, int": lambda: Map(lambda i: (b"x" * i, i)),
    "dict": lambda: Map(lambda i: {"image": array(i), "label": i, "name": str(i)}),
    "ordered dict": lambda: Map(lambda i: OrderedMap(a=i, b=array(i))),
    "named tuple": lambda: Map(lambda i: Point(array(i), i)),
    "list": lambda: Map(lambda i: [array(i), float(i)]),
    "nested": lambda: Map(lambda i: {"a": (i, [array(i), {"b": i}]), "c": Point(i, str(i))}),
    "ragged": lambda: Map(ragged),
    "object array": lambda: Map(lambda i: np.array([i, "x"], dtype=object)),
    "None": lambda: Map(lambda i: None),
    "complex": lambda: Map(lambda i: torch.tensor([1j * i])),
    "grad": lambda: Map(lambda i: torch.full((2,), float(i), requires_grad=True)),
    "empty tensors": lambda: Map(lambda i: torch.zeros(0, 3)),
    "int, then float": lambda: Map(lambda i: i if i < 6 else float(i)),
    "raises": lambda: Broken(None),
    "empty set": lambda: Map(array, 0),
    "__getitems__": lambda: Items(lambda i: (array(i), i)),
    "TensorDataset": lambda: TensorDataset(torch.arange(N * 3.0).view(N, 3), torch.arange(N)),
    "numpy as set": lambda: np.arange(N * 2, dtype=np.float32).reshape(N, 2),
    "torch as set": lambda: torch.arange(N * 2).view(N, 2),
    "list as set": lambda: [(i, float(i)) for i in range(N)],
    "dict as set": lambda: {i: torch.tensor(i) for i in range(N)},
    "Subset": lambda: Subset(Map(lambda i: (array(i), i)), [5, 3, 8, 1, 9]),
    "iterable": lambda: Stream(lambda i: (array(i), i)),
    "iterable, sized": lambda: SizedStream(array),
    "iterable, ragged": lambda: Stream(ragged),
}


def size(batch):
    return len(batch)


def broken_collate(batch):
    raise ZeroDivisionError("in collate_fn")


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


class Endless:
    def __iter__(self):
        while True:
            yield random.randrange(5)


ARGUMENTS: dict[str, Any] = {
    "defaults": lambda n: {},
    "batch_size=4": lambda n: {"batch_size": 4},
    "batch_size=100": lambda n: {"batch_size": 100},
    "batch_size=None": lambda n: {"batch_size": None},
    "batch_size=0": lambda n: {"batch_size": 0},
    "shuffle": lambda n: {"batch_size": 4, "shuffle": True},
    "shuffle, generator": lambda n: {"batch_size": 4, "shuffle": True, "generator": seeded()},
    "drop_last": lambda n: {"batch_size": 4, "drop_last": True},
    "drop_last, None": lambda n: {"batch_size": None, "drop_last": True},
    "sampler list": lambda n: {"batch_size": 2, "sampler": [3, 1, 1, 0]},
    "sampler range": lambda n: {"batch_size": 3, "sampler": range(0, n, 2)},
    "SequentialSampler": lambda n: {"batch_size": 3, "sampler": SequentialSampler(range(n))},
    "RandomSampler": lambda n: {
        "batch_size": 3,
        "sampler": RandomSampler(range(max(n, 1)), generator=seeded()),
    },
    "SubsetRandom": lambda n: {"sampler": SubsetRandomSampler([0, 2, 4], generator=seeded())},
    "Weighted": lambda n: {
        "batch_size": 2,
        "sampler": WeightedRandomSampler([1.0] * max(n, 1), 5, generator=seeded()),
    },
    "batch_sampler": lambda n: {"batch_sampler": BatchSampler(range(n), 3, False)},
    "batch_sampler list": lambda n: {"batch_sampler": [[0, 1], [2], [3, 4, 0]]},
    "batch_sampler, shuffle": lambda n: {"batch_sampler": [[0]], "shuffle": True},
    "sampler, shuffle": lambda n: {"sampler": [0], "shuffle": True},
    "collate_fn": lambda n: {"batch_size": 4, "collate_fn": size},
    "default_collate": lambda n: {"batch_size": 4, "collate_fn": default_collate},
    "collate_fn raises": lambda n: {"batch_size": 4, "collate_fn": broken_collate},
    "pin_memory": lambda n: {"batch_size": 4, "pin_memory": True},
    "num_workers=-1": lambda n: {"num_workers": -1},
    "timeout=-1": lambda n: {"timeout": -1},
    "prefetch_factor": lambda n: {"prefetch_factor": 2},
    "persistent_workers": lambda n: {"persistent_workers": True},
    "context": lambda n: {"multiprocessing_context": "fork"},
    "in_order=False": lambda n: {"batch_size": 4, "in_order": False},
    "worker_init_fn": lambda n: {"batch_size": 4, "worker_init_fn": print},
}

# What differs, and why. ("data set" or "*", argument or "*"): reason
_ORDER = "another permutation, so the odd sample is in another batch"
KNOWN: dict[tuple[str, str], str] = {
    (name, argument): _ORDER
    for name in ("int, then float", "raises")
    for argument in ("shuffle", "shuffle, generator")
}

SHUFFLED = {"shuffle", "shuffle, generator"}


def form(value: Any, values: bool) -> Any:
    """Types, shapes, dtypes and, if asked for, values of a batch."""
    if isinstance(value, torch.Tensor):
        numbers = value.detach().to(torch.complex128).tolist() if values else None
        return "tensor", str(value.dtype), tuple(value.shape), numbers
    if isinstance(value, dict):
        return type(value).__name__, {k: form(v, values) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value).__name__, [form(v, values) for v in value]
    return type(value).__name__, str(value) if values else None


def outcome(make: Any, dataset: Any, arguments: dict[str, Any], values: bool) -> Any:
    """len and batches of two epochs, or the exceptions. Batches that may come in any order are
    sorted."""
    torch.manual_seed(2)  # by chance a shuffled batch of ragged samples has one shape only
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            loader = make(dataset, **arguments)
        except Exception as error:
            return "init", type(error).__name__
        try:
            length: Any = len(loader)
        except Exception as error:
            length = type(error).__name__
        epochs = []
        for _ in range(2):
            batches: list[Any] = []
            try:
                batches += (form(batch, values) for batch in loader)
            except Exception as error:
                batches.append(type(error).__name__)
            epochs.append(batches if arguments.get("in_order", True) else sorted(batches, key=str))
        texts = sorted({str(w.message)[:30] for w in warned if "pin_memory" in str(w.message)})
    return length, epochs, texts


def compare(name: str, argument: str) -> str:
    """ "same", or the difference."""
    values = argument not in SHUFFLED
    dataset = SETS[name]()
    try:
        n = len(dataset)
    except TypeError:
        n = N
    theirs = outcome(torch.utils.data.DataLoader, dataset, ARGUMENTS[argument](n), values)
    ours = outcome(millrace.DataLoader, SETS[name](), ARGUMENTS[argument](n), values)
    if str(theirs) == str(ours):
        return "same"
    return f"torch {str(theirs)[:120]}; millrace {str(ours)[:120]}"


def known(name: str, argument: str) -> str | None:
    for key in ((name, argument), (name, "*"), ("*", argument)):
        if key in KNOWN:
            return KNOWN[key]
    return None


def main() -> None:
    same = 0
    for name in SETS:
        for argument in ARGUMENTS:
            result = compare(name, argument)
            same += result == "same"
            if result != "same":
                why = known(name, argument) or "?"
                print(f"| {name} | {argument} | {why} | {result} |", flush=True)
    print(f"{len(SETS)} data sets x {len(ARGUMENTS)} arguments: {same} same")


if __name__ == "__main__":
    main()
