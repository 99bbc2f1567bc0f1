"""Ops on single pictures, outside of a loader."""

from __future__ import annotations

import struct
import threading
import zlib
from pathlib import Path
from typing import Any

import pytest

np = pytest.importorskip("numpy")

from millrace import _core


def png(pixels: Any, depth: int = 8) -> bytes:
    """A PNG file: gray [h, w] or RGB [h, w, 3]."""
    height, width = pixels.shape[:2]
    color = 2 if pixels.ndim == 3 else 0
    rows = b"".join(b"\0" + row.astype(">u2" if depth == 16 else "u1").tobytes() for row in pixels)
    parts = {b"IHDR": struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)}
    parts |= {b"IDAT": zlib.compress(rows), b"IEND": b""}
    out = b"\x89PNG\r\n\x1a\n"
    for name, data in parts.items():
        out += struct.pack(">I", len(data)) + name + data
        out += struct.pack(">I", zlib.crc32(name + data))
    return out


def test_sizes() -> None:
    """Pictures of any size, one after the other."""
    chain = _core.Chain("resize(8),layout(nchw)")
    for height, width in ((16, 20), (30, 9), (16, 20)):
        field = chain.apply(np.full((height, width, 3), 7, np.uint8), 0, 0, 0)
        small = min(height, width)
        assert field.shape == (3, height * 8 // small, width * 8 // small)
        assert (np.from_dlpack(field) == 7).all()


def test_results_are_their_own() -> None:
    chain = _core.Chain("layout(nchw)")
    pixels = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
    first = np.from_dlpack(chain.apply(pixels, 0, 0, 0))
    second = np.from_dlpack(chain.apply(pixels + 1, 0, 0, 0))
    del chain
    first[0] = 9
    assert (first[1:] == pixels.transpose(2, 0, 1)[1:]).all()
    assert (second == pixels.transpose(2, 0, 1) + 1).all()
    gray = _core.Chain("").apply(pixels[:, :, 0].copy(), 0, 0, 0)
    assert gray.shape == (1, 4, 5) and (np.from_dlpack(gray)[0] == pixels[:, :, 0]).all()


def test_draws_as_a_loader() -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (12, 9, 8, 3), dtype=np.uint8)
    text = "random_crop(5,5),hflip,cast(f32)"
    dataset = _core.Dataset.arrays([("image", pixels)])
    options = {"batch_size": 12, "seed": 3, "epochs": 2, "workers": 1}
    loader = _core.Loader(dataset, transform=text, options=options)
    chain = _core.Chain(text)
    for epoch in range(2):
        batch = loader.next()
        assert batch is not None
        want = np.from_dlpack(batch.field(0))
        for i in range(12):
            assert (np.from_dlpack(chain.apply(pixels[i], epoch, 3, i)) == want[i]).all()
    loader.close()


def test_files(tmp_path: Path) -> None:
    pixels = np.random.default_rng(2).integers(0, 256, (6, 7, 3), dtype=np.uint8)
    path = tmp_path / "a.png"
    path.write_bytes(png(pixels))
    chain = _core.Chain("center_crop(4,4)")
    for name in (str(path), bytes(path)):
        assert (np.from_dlpack(chain.read(name, 0, 0, 0, 0)) == pixels[1:5, 2:6]).all()
    with pytest.raises(MemoryError, match="a.png"):
        chain.read(str(path), 0, 0, 0, 41)
    path.write_bytes(png(np.full((6, 7), 900), 16))
    with pytest.raises(NotImplementedError, match=r"a\.png: gray of 16 bits"):
        chain.read(str(path), 0, 0, 0, 0)
    path.write_bytes(png(np.full((3, 3), 9)))
    with pytest.raises(ValueError, match="center_crop"):
        chain.read(str(path), 0, 0, 0, 0)
    for damaged in (b"", b"\x89PNG", png(pixels)[:60]):
        path.write_bytes(damaged)
        with pytest.raises(_core.FormatError, match=r"a\.png"):
            chain.read(str(path), 0, 0, 0, 0)


def test_errors(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="rezize"):
        _core.Chain("rezize(3)")
    with pytest.raises(TypeError):
        _core.Chain(transform="hflip")  # type: ignore[call-arg]
    chain = _core.Chain("copy(other)")
    with pytest.raises(RuntimeError, match="one field"):
        chain.apply(np.zeros((4, 4, 3), np.uint8), 0, 0, 0)
    chain = _core.Chain("hflip")
    for wrong in (np.zeros((4, 4), np.float32), np.zeros(4, np.uint8), np.zeros((8, 8), "u1")[::2]):
        with pytest.raises(ValueError, match="C-contiguous u8"):
            chain.apply(wrong, 0, 0, 0)
    with pytest.raises(FileNotFoundError, match="none.jpg"):
        chain.read(str(tmp_path / "none.jpg"), 0, 0, 0, 0)
    with pytest.raises(IsADirectoryError):
        chain.read(str(tmp_path), 0, 0, 0, 0)


def test_threads() -> None:
    chain = _core.Chain("random_resized_crop(16),hflip,layout(nchw)")
    random = np.random.default_rng(5)
    pictures = [random.integers(0, 256, (20 + i, 50 - i, 3), dtype=np.uint8) for i in range(8)]
    want = [bytes(memoryview(chain.apply(p, 1, 2, i))) for i, p in enumerate(pictures)]
    wrong: list[int] = []

    def work() -> None:
        for k in range(400):
            i = k % 8
            if bytes(memoryview(chain.apply(pictures[i], 1, 2, i))) != want[i]:
                wrong.append(i)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
