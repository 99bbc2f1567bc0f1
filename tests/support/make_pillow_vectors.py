#!/usr/bin/env python3
"""Makes pillow_vectors.h: pictures before and after Pillow's operations, as torchvision calls them.

usage: make_pillow_vectors.py > pillow_vectors.h        (needs Pillow 13 or later, torchvision)
"""

import numpy as np
import PIL
import torchvision
from PIL import Image
from torchvision.transforms import InterpolationMode, functional as F

NEAREST, BILINEAR, BICUBIC = (InterpolationMode(m) for m in ("nearest", "bilinear", "bicubic"))
SMALL, TALL, LARGE = (7, 9), (40, 20), (23, 31)


def resize(size, mode):
    return lambda image: F.resize(image, size, mode)


CASES = [
    *((f"color_jitter(brightness={v}:{v},like=pillow)", SMALL,
       lambda i, v=v: F.adjust_brightness(i, v)) for v in (0, 0.3, 1.7)),
    *((f"color_jitter(contrast={v}:{v},like=pillow)", SMALL,
       lambda i, v=v: F.adjust_contrast(i, v)) for v in (0, 0.3, 1.7)),
    *((f"color_jitter(saturation={v}:{v},like=pillow)", SMALL,
       lambda i, v=v: F.adjust_saturation(i, v)) for v in (0, 0.3, 1.7)),
    *((f"color_jitter(hue={v}:{v},like=pillow)", LARGE,
       lambda i, v=v: F.adjust_hue(i, v)) for v in (-0.5, -0.2, 0.1, 0.4)),
    ("to_gray(1,like=pillow)", LARGE, lambda i: F.to_grayscale(i, 3)),
    *((f"rotate({d}:{d},9,filter={m.value},like=pillow)", s,
       lambda i, d=d, m=m: F.rotate(i, d, m, fill=9))
      for d in (-400, -7.25, 0, 10, 90, 180) for m in (NEAREST, BILINEAR) for s in (SMALL, LARGE)
      if s == SMALL or d in (-7.25, 10)),
    *((f"resize({h},{w},filter={m.value},order=pillow13)", s, resize([h, w], m))
      for s, h, w in ((TALL, 9, 17), (TALL, 33, 20), (TALL, 30, 11), (LARGE, 12, 31),
                      (SMALL, 3, 20))
      for m in (BILINEAR, BICUBIC)),
    ("resize(9,17,order=pillow13),crop(5,8,3,6)", TALL,
     lambda i: F.crop(F.resize(i, [9, 17], BILINEAR), 3, 6, 5, 8)),
]


def main():
    random = np.random.default_rng(7)
    print(f"/* Made by make_pillow_vectors.py from Pillow {PIL.__version__} and torchvision "
          f"{torchvision.__version__}; do not edit. */\n/* clang-format off */\n"
          "static const struct image_vector pillow_vectors[] = {")
    for chain, (h, w), run in CASES:
        pixels = random.integers(0, 256, (h, w, 3), dtype=np.uint8)
        made = np.asarray(run(Image.fromarray(pixels)))
        given, wanted = (a.transpose(2, 0, 1).tobytes().hex() for a in (pixels, made))
        print(f'    {{"{chain}", 0, MR_U8, {{3,{h},{w}}}, 0, 0, "{given}", "{wanted}"}},')
    print("};")


main()
