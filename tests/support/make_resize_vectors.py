#!/usr/bin/env python3
"""Writes resize_vectors.h: what Pillow's resize makes of pictures of a formula, for tests/unit/test_resize.c.

    python3 tests/support/make_resize_vectors.py > tests/support/resize_vectors.h

Across first, then down, as Pillow did for long; it has come to go down first where that is cheaper, which moves some bytes
by one (checked here). Small results are given whole, large ones as a sum. Boxes are Pillow's: left, top, right, bottom; fractions are allowed.
"""
import numpy as np
import PIL
from PIL import Image

FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


def picture(height, width, channels):
    """The same as in the test."""
    i = np.arange(height * width * channels, dtype=np.uint32)
    y, x = i // np.uint32(width * channels), i // np.uint32(channels) % np.uint32(width)
    noise = (i * np.uint32(2654435761)) >> np.uint32(27)
    v = (x * np.uint32(3) + y * np.uint32(5) + noise * (x // np.uint32(8) % np.uint32(2)) * np.uint32(7)) & np.uint32(255)
    return v.astype(np.uint8).reshape(height, width, channels)


def resize(a, size, name, box):
    mode = {1: "L", 3: "RGB", 4: "RGBX"}[a.shape[2]]
    image = Image.fromarray(a[:, :, 0] if mode == "L" else a, mode)
    across = image.resize((size[0], a.shape[0]), FILTERS[name], box=(box[0], 0, box[2], a.shape[0]))
    both = np.asarray(across.resize(size, FILTERS[name], box=(0, box[1], size[0], box[3])))
    at_once = np.asarray(image.resize(size, FILTERS[name], box=box))
    assert np.abs(both.astype(int) - at_once).max() <= (1 if name == "bilinear" else 16), (a.shape, size, name, box)
    return both.reshape(size[1], size[0], -1)


def sum_of(a):
    flat = a.reshape(-1).astype(np.uint64)
    return int((flat * (np.arange(flat.size, dtype=np.uint64) * np.uint64(2654435761) % np.uint64(65521))).sum()) % 2**32


def main():
    print(f"/* Made by make_resize_vectors.py from Pillow {PIL.__version__}; do not edit. */\n/* clang-format off */")
    print("static const struct resize_vector resize_vectors[] = {")
    small = [((37, 53), (11, 9)), ((8, 7), (19, 5)), ((5, 6), (13, 14)), ((64, 3), (2, 7)), ((1, 1), (4, 3)), ((9, 40), (40, 3))]
    for (h, w), (oh, ow) in small:
        for name in FILTERS:
            for channels in (1, 3, 4):
                for box in ((0, 0, w, h), eighths(w * 0.13, h * 0.21, w * 0.87, h * 0.93)):
                    out = resize(picture(h, w, channels), (ow, oh), name, box)
                    emit(h, w, channels, box, oh, ow, name, out, out.tobytes().hex())
    for (h, w), (oh, ow) in [((375, 500), (224, 224)), ((500, 333), (300, 224)), ((90, 120), (224, 224)), ((1201, 1600), (7, 224))]:
        for name in FILTERS:
            for box in ((0, 0, w, h), eighths(w * 0.3, h * 0.1, w * 0.7, h * 0.6)):
                emit(h, w, 3, box, oh, ow, name, resize(picture(h, w, 3), (ow, oh), name, box), "")
    print("};")


def eighths(*edges):
    """Pillow computes with boxes in f32: these are exact there."""
    return tuple(round(e * 8) / 8 for e in edges)


def emit(h, w, channels, box, oh, ow, name, out, text):
    edges = ", ".join(float(b).hex() for b in box)
    print(f'    {{{h}, {w}, {channels}, {{{edges}}}, {oh}, {ow}, MR_FILTER_{name.upper()}, {sum_of(out)}u, "{text}"}},')


if __name__ == "__main__":
    main()
