"""Ours and PyTorch's DataLoader in turn: samples a second, and times to the first batch.

    python3 bench/python/speed.py [--cases mnist,array3k,...] [--workers N] [--rounds 5] [--seconds 2]

Each round runs all variants of a case one after the other; the table has the medians. The peer's
figure is that of its best variant. --device cuda adds the cases that end on a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import cases
import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import TensorDataset

import millrace


def endless(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


def rate(loader: Any, seconds: float, batch_size: int, use: Callable[[Any], None]) -> float:
    """Samples a second behind the first batches."""
    batches = endless(loader)
    for _ in range(8):
        use(next(batches))
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    n = 0
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        for _ in range(8):
            use(next(batches))
        n += 8
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return n * batch_size / (time.perf_counter() - start)


def nothing(batch: Any) -> None:
    del batch


def to_gpu(batch: Any) -> None:
    for x in batch:
        x.to("cuda", non_blocking=True)


class Case:
    """One row: variants that are compared, each a function that returns a figure."""

    def __init__(self, name: str, unit: str, better: str = "more") -> None:
        self.name, self.unit, self.better = name, unit, better
        self.ours: dict[str, Callable[[], float]] = {}
        self.peer: dict[str, Callable[[], float]] = {}

    def run(self, rounds: int) -> dict[str, Any]:
        seen: dict[str, list[float]] = {}
        for _ in range(rounds):
            for who, variants in (("millrace", self.ours), ("torch", self.peer)):
                for name, run in variants.items():
                    try:
                        seen.setdefault(f"{who} {name}", []).append(run())
                    except Exception as e:  # a variant that fails is reported, not the end
                        print(f"{self.name}: {who} {name}: {type(e).__name__}: {e}", file=sys.stderr)
        median = {k: statistics.median(v) for k, v in seen.items()}
        best = max if self.better == "more" else min
        ours = [v for k, v in median.items() if k.startswith("millrace")]
        peers = [v for k, v in median.items() if k.startswith("torch")]
        ratio = None
        if ours and peers:
            ratio = best(ours) / best(peers)
            if self.better == "less":
                ratio = 1 / ratio
        return {"case": self.name, "unit": self.unit, "median": median, "ratio": ratio}


def ours(dataset: Any, seconds: float, use: Callable[[Any], None] = nothing, **options: Any) -> float:
    with millrace.DataLoader(dataset, **options) as loader:
        return rate(loader, seconds, options["batch_size"], use)


def theirs(
    dataset: Any, seconds: float, use: Callable[[Any], None] = nothing, **options: Any
) -> float:
    loader = TorchLoader(dataset, persistent_workers=options.get("num_workers", 0) > 0, **options)
    return rate(loader, seconds, options["batch_size"], use)


def digits(folder: str) -> str:
    """MNIST's files with generated digits, where torchvision looks for them."""
    raw = os.path.join(folder, "MNIST", "raw")
    if not os.path.isdir(raw):
        os.makedirs(os.path.dirname(raw), exist_ok=True)
        subprocess.run(
            [sys.executable, "-m", "millrace", "synth", "digits", raw, "-q"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
    return raw


def photos(folder: str) -> str:
    path = os.environ.get("MILLRACE_PHOTOS") or os.path.join(folder, "photos")
    if not os.path.isdir(path):
        subprocess.run(
            [sys.executable, "-m", "millrace", "synth", "photos", path, "--n", "512", "-q"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
    return path


def mnist(a: argparse.Namespace) -> Case:
    from torchvision import datasets, transforms

    raw = digits(a.folder)
    chain = "image.cast(f32),scale(1/255),normalize(0.1307,0.3081)"
    common = {"batch_size": 64, "shuffle": True}
    picture = transforms.Compose(
        [transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))]
    )
    peer = datasets.MNIST(a.folder, train=True, transform=picture)
    case = Case("mnist: native to torch tensors", "samples/s")
    case.ours["idx:"] = lambda: ours(
        f"idx:{raw}", a.seconds, transform=chain, num_workers=2, **common
    )
    case.ours["torchvision's MNIST"] = lambda: ours(peer, a.seconds, num_workers=2, **common)
    for n in (0, 2):
        case.peer[f"{n} workers"] = lambda n=n: theirs(peer, a.seconds, num_workers=n, **common)
    return case


def ready(about: cases.Case) -> Callable[..., Case]:
    def make(a: argparse.Namespace) -> Case:
        data = about.data(200_000)
        case = Case(about.title, "samples/s")
        common = {"batch_size": about.batch_size, "shuffle": True}
        for n in (0, a.workers):
            case.ours[f"{n} workers"] = lambda n=n: ours(data, a.seconds, num_workers=n, **common)
            case.peer[f"{n} workers"] = lambda n=n: theirs(
                data, a.seconds, num_workers=n, **common
            )
        return case

    return make


def array600k_gpu(a: argparse.Namespace) -> Case:
    data = cases.READY["array600k"].data(200_000)
    case = Case("600 KB array to the GPU", "samples/s")
    common = {"batch_size": 64, "shuffle": True, "num_workers": a.workers}
    case.ours["device=cuda"] = lambda: ours(data, a.seconds, device="cuda", **common)
    case.ours["pin_memory"] = lambda: ours(data, a.seconds, to_gpu, pin_memory=True, **common)
    case.peer["pin_memory"] = lambda: theirs(data, a.seconds, to_gpu, pin_memory=True, **common)
    return case


def floats_gpu(a: argparse.Namespace) -> Case:
    x = torch.rand(200_000, 1024)
    data = TensorDataset(x, torch.arange(len(x)))
    case = Case("1,024 floats, batch 256, to the GPU", "samples/s")
    common = {"batch_size": 256, "shuffle": True}
    case.ours["device=cuda"] = lambda: ours(data, a.seconds, device="cuda", **common)
    for n in (0, a.workers):
        case.peer[f"{n} workers, pin_memory"] = lambda n=n: theirs(
            data, a.seconds, to_gpu, pin_memory=True, num_workers=n, **common
        )
    return case


def imagefolder(a: argparse.Namespace) -> Case:
    from torchvision import datasets, transforms

    path = photos(a.folder)
    train = transforms.Compose(
        [
            transforms.RandomResizedCrop(224),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )
    data = datasets.ImageFolder(path, train)
    gpu = a.device == "cuda"
    common = {"batch_size": 64, "shuffle": True}
    case = Case("ImageFolder, standard augmentation" + (", to the GPU" if gpu else ""), "samples/s")
    extra = {"device": "cuda"} if gpu else {}
    case.ours["native"] = lambda: ours(
        data, a.seconds, num_workers=os.cpu_count(), path="native", **extra, **common
    )
    case.peer[f"{os.cpu_count()} workers"] = lambda: theirs(
        data,
        a.seconds,
        to_gpu if gpu else nothing,
        num_workers=os.cpu_count(),
        pin_memory=gpu,
        **common,
    )
    return case


def prefix(a: argparse.Namespace) -> Case:
    from torchvision import datasets, transforms

    steps = [
        transforms.Resize(256),
        transforms.Lambda(_same),
        transforms.CenterCrop(224),
        transforms.ToTensor(),
    ]
    data = datasets.ImageFolder(photos(a.folder), transforms.Compose(steps))
    common = {"batch_size": 64, "shuffle": True}
    case = Case("ImageFolder, a Lambda behind Resize", "samples/s")
    for n in (0, a.workers):
        for path in ("auto", "python"):
            case.ours[f"path={path}, {n} workers"] = lambda n=n, path=path: ours(
                data, a.seconds, num_workers=n, path=path, **common
            )
        case.peer[f"{n} workers"] = lambda n=n: theirs(data, a.seconds, num_workers=n, **common)
    return case


def _same(picture: Any) -> Any:
    return picture


def until_first(make: Callable[[], Any]) -> float:
    start = time.perf_counter()
    loader = make()
    batches = iter(loader)
    next(batches)
    ms = (time.perf_counter() - start) * 1e3
    del batches
    if isinstance(loader, millrace.DataLoader):
        loader.close()
    return ms


def first(a: argparse.Namespace) -> Case:
    data = cases.READY["array3k"].data(200_000)
    common = {"batch_size": 64, "shuffle": True}
    case = Case("first batch, 8 workers", "ms", "less")
    case.ours["threads"] = lambda: until_first(
        lambda: millrace.DataLoader(data, num_workers=0, **common)
    )
    case.ours["8 processes"] = lambda: until_first(
        lambda: millrace.DataLoader(data, num_workers=8, **common)
    )
    for context in ("fork", "forkserver"):
        case.peer[f"8 workers, {context}"] = lambda c=context: until_first(
            lambda: TorchLoader(data, num_workers=8, multiprocessing_context=c, **common)
        )
    return case


def until_second_epoch(loader: Any) -> float:
    for _ in loader:
        pass
    start = time.perf_counter()
    next(iter(loader))
    ms = (time.perf_counter() - start) * 1e3
    if isinstance(loader, millrace.DataLoader):
        loader.close()
    return ms


def second(a: argparse.Namespace) -> Case:
    data = cases.READY["array3k"].data(6_400)
    common = {"batch_size": 64, "shuffle": True}
    case = Case("first batch of the second epoch", "ms", "less")
    for n in (0, 8):
        case.ours[f"{n} workers"] = lambda n=n: until_second_epoch(
            millrace.DataLoader(data, num_workers=n, **common)
        )
    case.peer["8 persistent workers"] = lambda: until_second_epoch(
        TorchLoader(data, num_workers=8, persistent_workers=True, **common)
    )
    return case


CASES: dict[str, Callable[[argparse.Namespace], Case]] = {
    "mnist": mnist,
    **{name: ready(about) for name, about in cases.READY.items()},
    "imagefolder": imagefolder,
    "prefix": prefix,
    "first": first,
    "second": second,
}
GPU_CASES = {"array600k_gpu": array600k_gpu, "floats_gpu": floats_gpu}


def show(result: dict[str, Any]) -> None:
    print(f"\n{result['case']} ({result['unit']})")
    for name, value in result["median"].items():
        print(f"  {name:38s} {value:14,.1f}")
    if result["ratio"] is not None:
        print(f"  best of ours to best of torch's        {result['ratio']:14.2f} x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", default="")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--folder", default=os.path.join(tempfile.gettempdir(), "millrace-speed"))
    parser.add_argument("--json")
    a = parser.parse_args()
    known = {**CASES, **(GPU_CASES if a.device == "cuda" else {})}
    wanted = a.cases.split(",") if a.cases else list(known)
    unknown = [name for name in wanted if name not in known]
    if unknown:
        parser.error(f"no such case: {unknown[0]}; there are {', '.join(known)}")
    print(f"millrace {millrace.__version__}, torch {torch.__version__}, {os.cpu_count()} processors")
    results = []
    for name in wanted:
        results.append(known[name](a).run(a.rounds))
        show(results[-1])
    if a.json:
        with open(a.json, "w") as f:
            json.dump(results, f, indent=1)


if __name__ == "__main__":
    main()
