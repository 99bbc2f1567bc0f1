#!/usr/bin/env python3
"""Resize on one core: millrace's transform against Pillow's resize, on a picture in memory.

    python3 bench/resize.py build/release/libmillrace.so
"""
import ctypes
import sys
import time

import numpy as np
from PIL import Image


class Spec(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char * 24), ("dtype", ctypes.c_int), ("rank", ctypes.c_int32),
                ("var_dims", ctypes.c_uint32), ("dim", ctypes.c_uint64 * 8)]


def best(fn, seconds=0.5):
    least, end = 1e9, time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(20):
            fn()
        least = min(least, (time.perf_counter() - start) / 20)
    return least * 1e6


def ours(lib, picture, text):
    chain = ctypes.c_void_p()
    spec = Spec(b"image", 1, 3, 0, (ctypes.c_uint64 * 8)(*picture.shape))
    lib.mr_transform_scratch_bytes.restype = ctypes.c_uint64
    assert lib.mr_transform_create(ctypes.byref(chain)) == 0 and lib.mr_transform_add(chain, text.encode()) == 0
    assert lib.mr_transform_bind(chain, ctypes.byref(spec), 1) == 0
    scratch = np.zeros(lib.mr_transform_scratch_bytes(chain) + 64, np.uint8)
    out, dim = np.zeros(4096 * 4096 * 3, np.uint8), (ctypes.c_uint64 * 8)()
    aligned = ctypes.c_void_p((scratch.ctypes.data + 63) // 64 * 64)
    args = [chain, 0, ctypes.c_uint64(0), ctypes.c_uint64(0), ctypes.c_uint64(0), ctypes.c_void_p(picture.ctypes.data),
            spec.dim, ctypes.c_void_p(out.ctypes.data), dim, aligned]
    assert lib.mr_transform_apply(*args) == 0
    return best(lambda: lib.mr_transform_apply(*args))


def main():
    lib = ctypes.CDLL(sys.argv[1])
    rng = np.random.default_rng(0)
    print("from          to            filter     millrace us  Pillow us  ratio")
    for height, width, to_h, to_w in [(375, 500, 224, 224), (280, 300, 224, 224), (150, 200, 224, 224), (1200, 1600, 224, 224)]:
        picture = np.ascontiguousarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))
        image = Image.fromarray(picture)
        for name in ("bilinear", "bicubic"):
            a = ours(lib, picture, f"resize({to_h},{to_w},{name})")
            b = best(lambda: image.resize((to_w, to_h), getattr(Image.Resampling, name.upper())))
            print(f"{height:4} x {width:4}   {to_h:4} x {to_w:4}   {name:9} {a:11.0f} {b:10.0f} {b / a:6.1f}")


main()
