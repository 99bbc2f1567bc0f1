"""Batches on a GPU and in page-locked memory. Skipped without one; bench/python/gpu.sh runs it."""

from __future__ import annotations

import gc

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)

import millrace  # noqa: E402

N, WIDTH, BATCH = 4096, 512, 64
SLEEP_CYCLES = 200_000_000  # about 0.1 s on a GPU


def data() -> tuple[np.ndarray, np.ndarray]:
    x = np.arange(N * WIDTH, dtype=np.int32).reshape(N, WIDTH)
    return x, np.arange(N, dtype=np.int64)


def expected(y: "torch.Tensor") -> "torch.Tensor":
    """The rows that belong to the labels."""
    first = y.to(torch.int64)[:, None] * WIDTH
    return (first + torch.arange(WIDTH, device=y.device)[None, :]).to(torch.int32)


def check(x: "torch.Tensor", y: "torch.Tensor") -> None:
    assert torch.equal(x, expected(y))


def test_batches_are_on_the_device() -> None:
    seen: list[int] = []
    with millrace.DataLoader(data(), batch_size=BATCH, shuffle=True, device="cuda") as loader:
        for x, y in loader:
            assert x.is_cuda and y.is_cuda
            check(x, y)
            seen += y.tolist()
    assert sorted(seen) == list(range(N))


def test_the_host_does_not_wait_for_the_stream() -> None:
    stream = torch.cuda.Stream()
    ready = torch.cuda.Event()
    with millrace.DataLoader(data(), batch_size=BATCH, device="cuda") as loader:
        batches = iter(loader)
        x, y = next(batches)
        check(x, y)
        x.sum().item()  # loads its kernels
        with torch.cuda.stream(stream):
            torch.cuda._sleep(SLEEP_CYCLES)
            ready.record()
            kept = [next(batches) for _ in range(3)]
            sums = [x.sum() for x, _ in kept]
            assert not ready.query()  # three batches came while the stream was busy
        stream.synchronize()
        for (x, y), total in zip(kept, sums):
            check(x, y)
            assert total.item() == expected(y).sum().item()


def test_what_reads_late_reads_its_own_batch() -> None:
    """Batches are dropped while the stream has yet to read them."""
    stream = torch.cuda.Stream()
    sums, labels = [], []
    with millrace.DataLoader(
        data(), batch_size=BATCH, device="cuda", num_workers=2, prefetch_factor=2, epochs=4
    ) as loader:
        with torch.cuda.stream(stream):
            for i, (x, y) in enumerate(loader):
                if i % 16 == 0:
                    torch.cuda._sleep(SLEEP_CYCLES // 4)
                sums.append(x.sum(dtype=torch.int64))
                labels.append(y.clone())
        stream.synchronize()
    assert len(sums) == 4 * N // BATCH
    for total, y in zip(sums, labels):
        assert total.item() == expected(y).sum(dtype=torch.int64).item()


def test_batches_can_be_kept() -> None:
    with millrace.DataLoader(data(), batch_size=BATCH, shuffle=True, device="cuda") as loader:
        kept = list(loader)
    gc.collect()
    for x, y in kept:  # the loader is closed
        check(x, y)


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_a_consumer_is_captured(mode: str) -> None:
    x_in = torch.zeros(BATCH, WIDTH, dtype=torch.int32, device="cuda")
    total = torch.zeros((), dtype=torch.int64, device="cuda")

    def step() -> None:
        total.copy_(x_in.sum(dtype=torch.int64))

    with millrace.DataLoader(
        data(), batch_size=BATCH, shuffle=True, device="cuda", epochs=2
    ) as loader:
        batches = iter(loader)
        x_in.copy_(next(batches)[0])
        step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode=mode):
            step()
        n = 0
        for x, y in batches:
            x_in.copy_(x)
            graph.replay()
            assert total.item() == expected(y).sum(dtype=torch.int64).item()
            n += 1
        assert n == 2 * N // BATCH - 1


def test_pinned_batches_are_copied_late() -> None:
    """pin_memory=True: a slot is written again only when the copies out of it have passed."""
    with millrace.DataLoader(
        data(), batch_size=BATCH, shuffle=True, pin_memory=True, num_workers=2, prefetch_factor=2, epochs=4
    ) as loader:
        sums, labels = [], []
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for i, (x, y) in enumerate(loader):
                assert not x.is_cuda and x.is_pinned()
                if i % 16 == 0:
                    torch.cuda._sleep(SLEEP_CYCLES // 4)
                there = x.to("cuda", non_blocking=True)
                labels.append(y.clone())
                sums.append(there.sum(dtype=torch.int64))
                del x
        stream.synchronize()
    for total, y in zip(sums, labels):
        assert total.item() == expected(y).sum(dtype=torch.int64).item()


class Rows:
    def __init__(self) -> None:
        self.x, self.y = data()

    def __len__(self) -> int:
        return N

    def __getitem__(self, i: int) -> tuple[np.ndarray, int]:
        return self.x[i], int(self.y[i])


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize("pin", [False, True])
def test_python_samples(workers: int, pin: bool) -> None:
    place = {"pin_memory": True} if pin else {"device": "cuda"}
    seen: list[int] = []
    with millrace.DataLoader(
        Rows(), batch_size=BATCH, shuffle=True, num_workers=workers, **place
    ) as loader:
        for x, y in loader:
            assert x.is_cuda != pin
            check(x.to("cuda", non_blocking=True), y.to("cuda"))
            seen += y.tolist()
    assert sorted(seen) == list(range(N))
