"""millrace._core and torch: tensors in and out, on the host and on a GPU."""

from __future__ import annotations

import pytest
from core_sets import batches, labels, loader, python_set
from millrace import _core as c

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")


def one_field(items, dtype, shape, **options):  # type: ignore[no-untyped-def]
    def fetch(epoch, seed, indices, positions, worker):  # type: ignore[no-untyped-def]
        return [items[i] for i in indices]

    ds = python_set(len(items), fetch, [("v", dtype, shape)])
    (b,) = batches(loader(ds, None, batch_size=len(items), **options))
    return b.field(0)


@pytest.mark.parametrize(
    "dtype, name",
    [
        (torch.uint8, "u8"),
        (torch.int32, "i32"),
        (torch.int64, "i64"),
        (torch.float16, "f16"),
        (torch.bfloat16, "bf16"),
        (torch.float32, "f32"),
        (torch.float64, "f64"),
        (torch.bool, "bool"),
        (torch.complex64, "c64"),
    ],
)
def test_dtypes(dtype, name):  # type: ignore[no-untyped-def]
    items = [(torch.rand(2, 3) * 100).to(dtype) for _ in range(10)]
    out = torch.from_dlpack(one_field(items, name, (2, 3)))
    assert out.dtype == dtype and torch.equal(out, torch.stack(items))


def test_views():
    a = torch.arange(10000.0).reshape(100, 100)
    items = [a.T, a, a.T.contiguous(), a.flip(0)]
    out = torch.from_dlpack(one_field(items, "f32", (100, 100)))
    assert torch.equal(out, torch.stack(items))


def test_lazy_signs():
    """x.conj() and x.conj().imag share x's memory, and say in a bit what differs."""
    x = torch.tensor([1 + 2j, 3 + 4j])
    assert torch.from_dlpack(one_field([x.conj()], "c64", (2,))).tolist() == [[1 - 2j, 3 - 4j]]
    assert torch.from_dlpack(one_field([x.conj().imag], "f32", (2,))).tolist() == [[-2, -4]]


def test_scalars():
    items = [torch.tensor(i) for i in range(10)]
    assert torch.from_dlpack(one_field(items, "i64", ())).tolist() == list(range(10))


def test_subclasses():
    class Mine(torch.Tensor):
        pass

    items = [torch.full((3,), float(i)).as_subclass(Mine) for i in range(10)]
    assert torch.from_dlpack(one_field(items, "f32", (3,)))[:, 0].tolist() == list(range(10))
    items = [torch.nn.Parameter(torch.ones(3))]  # wants a gradient
    try:
        out = torch.from_dlpack(one_field(items, "f32", (3,)))
    except (ValueError, RuntimeError) as e:  # torch's from_dlpack refuses, with its reason
        assert "gradient" in str(e) or "detach" in str(e)
    else:
        assert out.tolist() == [[1, 1, 1]]


def test_a_sparse_tensor_is_refused():
    with pytest.raises(ValueError, match="sample 0"):
        one_field([torch.eye(3).to_sparse()], "f32", (3, 3))


def test_kept():
    kept = [torch.from_dlpack(b.field("y")) for b in batches(loader(python_set()))]
    assert sorted(torch.cat(kept).tolist()) == list(range(1000))
    assert not kept[0].is_cuda


cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@cuda
@pytest.mark.parametrize("with_stream", [False, True])
def test_cuda(with_stream: bool):
    l = loader(python_set(6400), device="cuda")
    seen = []
    stream = torch.cuda.current_stream().cuda_stream if with_stream else None
    while (b := l.next(stream)) is not None:
        x, y = torch.from_dlpack(b.field("x")), torch.from_dlpack(b.field("y"))
        assert x.is_cuda and b.field("x").device == "cuda:0"
        assert (x == y[:, None, None]).all()
        assert y.tolist() == list(b.indices)
        host = b.field("y").host
        assert host is None or np.from_dlpack(host).tolist() == list(b.indices)
        seen += y.tolist()
    assert sorted(seen) == list(range(6400))


@cuda
def test_cuda_side_streams():
    """A batch that arrives on one stream and is used on another, and dropped before that has run."""
    l = loader(python_set(64000), device="cuda", batch_size=64)
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    sums = []
    with torch.cuda.stream(second):
        while (b := l.next(first.cuda_stream)) is not None:
            y = torch.from_dlpack(b.field("y"))
            torch.cuda._sleep(10000)
            sums.append(y.sum())
            del y
    torch.cuda.synchronize()
    assert sum(int(s) for s in sums) == 64000 * 63999 // 2


@cuda
def test_cuda_outlives_the_loader():
    l = loader(python_set(), device="cuda")
    kept = [torch.from_dlpack(b.field("y")) for b in batches(l)]
    l.close()
    del l
    assert sorted(torch.cat(kept).tolist()) == list(range(1000))
    del kept
    torch.cuda.synchronize()


@cuda
def test_cuda_streams_of_the_array_api():
    l = loader(python_set(), device="cuda")
    b = l.next()
    assert b is not None
    f = b.field("x")
    assert f.__dlpack_device__() == (2, 0)
    for stream in (None, -1, 1, 2, torch.cuda.Stream().cuda_stream):
        f.__dlpack__(stream=stream)
    with pytest.raises(ValueError, match="ambiguous"):
        f.__dlpack__(stream=0)
    with pytest.raises(BufferError, match="device memory"):
        memoryview(f)
    with pytest.raises(BufferError):
        f.__dlpack__(dl_device=(1, 0))


@cuda
def test_cuda_graph():
    """A consumer that is captured into a graph; batches that come and go in between."""
    l = loader(python_set(6400), device="cuda", batch_size=64)
    static, total = torch.zeros(64, dtype=torch.int64, device="cuda"), None
    graph, sums = torch.cuda.CUDAGraph(), 0
    while (b := l.next(torch.cuda.current_stream().cuda_stream)) is not None:
        static.copy_(torch.from_dlpack(b.field("y")))
        if total is None:
            torch.cuda.synchronize()
            with torch.cuda.graph(graph):
                total = static.sum()
        graph.replay()
        sums += int(total)
        del b
    assert sums == 6400 * 6399 // 2


@cuda
@pytest.mark.parametrize("workers", [1, 16])
def test_cuda_python_order(workers: int):
    assert labels_on_gpu(workers) == labels(loader(python_set(), workers=2))


def labels_on_gpu(workers: int) -> list[int]:
    l = loader(python_set(), device="cuda", workers=workers)
    return [v for b in batches(l) for v in torch.from_dlpack(b.field("y")).tolist()]


def test_unknown_gpu():
    with pytest.raises(RuntimeError):
        c.Loader(python_set(), device="cuda:63")
