#!/usr/bin/env python3
"""Writes image_vectors.h: what torchvision makes of small pictures, for tests/unit/test_image_ops.c.

    python3 tests/support/make_image_vectors.py > tests/support/image_vectors.h

The random draws are ours (Philox, computed here again); what is done with them is torchvision's. `most` is how far a value
may be from theirs, `part` how many values of a hundred may differ at all.
"""
import math

import numpy as np
import torch
import torchvision
import torchvision.transforms.functional as F

SEED, EPOCH, TRANSFORM = 5, 2, 3


def philox(counter, key):
    c, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & 0xFFFFFFFF, (p0 >> 32) ^ c[3] ^ k[1], p0 & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


M64 = 2**64 - 1


def mix64(x):
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & M64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & M64
    return x ^ (x >> 31)


def draw(index, k=0, place=1):
    key = mix64((SEED + 0x9E3779B97F4A7C15 * TRANSFORM) & M64)
    return philox([index, EPOCH, 0, place | k << 8], [key & 0xFFFFFFFF, key >> 32])


def unit(r):
    return ((r[0] << 32 | r[1]) >> 11) * 2.0**-53


def between(r, a, b):
    return a + (b - a) * (r * 2.0**-32)


def jitter(x, index, amounts):
    r, rest = draw(index), draw(index, 1)[0] * 24 >> 32
    left = [0, 1, 2, 3]
    for n in (4, 3, 2, 1):
        k, rest = rest % n, rest // n
        step, left[k] = left[k], left[n - 1]
        amount = amounts[step]
        if amount == 0:
            continue
        factor = between(r[step], -amount if step == 3 else max(0, 1 - amount), amount if step == 3 else 1 + amount)
        x = [F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue][step](x, factor)
    return x


def part(index, h, w, scale, ratio):
    for k in range(1, 11):
        r = draw(index, k)
        area, aspect = h * w * between(r[0], *scale), math.exp(between(r[1], *map(math.log, ratio)))
        ph, pw = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if ph < h and pw < w:
            return (r[2] * (h - ph + 1) >> 32), (r[3] * (w - pw + 1) >> 32), ph, pw


def cropped(x, index, size):
    """random_resized_crop by Pillow."""
    h, w = x.shape[-2:]
    for k in range(10):
        r = draw(index, k)
        area, aspect = h * w * between(r[0], 0.08, 1), math.exp(between(r[1], math.log(3 / 4), math.log(4 / 3)))
        pw, ph = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if pw <= w and ph <= h:
            break
    top, left = r[2] * (h - ph + 1) >> 32, r[3] * (w - pw + 1) >> 32
    image = F.to_pil_image(x)
    return F.pil_to_tensor(F.resized_crop(image, top, left, ph, pw, [size, size]))


rng = np.random.default_rng(99)
DTYPES = {torch.uint8: "MR_U8", torch.float32: "MR_F32"}


def case(chain, index, x, y, most, percent):
    dims = ",".join(str(d) for d in x.shape)
    texts = ['"%s"' % t.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes().hex() for t in (x, y)]
    print(f'    {{"{chain}", {index}, {DTYPES[x.dtype]}, {{{dims}}}, {most}, {percent}, {texts[0]}, {texts[1]}}},')


def main():
    print(f"/* Made by make_image_vectors.py from torchvision {torchvision.__version__}; do not edit. */\n/* clang-format off */")
    print("static const struct image_vector image_vectors[] = {")
    x = torch.from_numpy(rng.integers(0, 256, (3, 7, 9), dtype=np.uint8))
    f = torch.from_numpy(rng.random((3, 7, 9), dtype=np.float32))
    for index in range(4):
        for amounts in ([0.4, 0, 0, 0], [0, 0.4, 0, 0], [0, 0, 0.4, 0], [0, 0, 0, 0.5], [0.4, 0.3, 0.4, 0.1]):
            text = "color_jitter(" + ",".join(map(str, amounts)) + ")"
            case(text, index, x, jitter(x, index, amounts), 2 if amounts[3] and amounts[0] else 1, 4)
            case(text, index, f, jitter(f, index, amounts), 2e-5, 100)
        sigma = 0.1 + 1.9 * unit(draw(index))
        case("gaussian_blur(5)", index, x, F.gaussian_blur(x, [5, 5], [sigma, sigma]), 1, 2)
        case("gaussian_blur(5)", index, f, F.gaussian_blur(f, [5, 5], [sigma, sigma]), 1e-5, 100)
        angle = (2 * unit(draw(index)) - 1) * 60
        bilinear = torchvision.transforms.InterpolationMode.BILINEAR
        case("rotate(60)", index, x, F.rotate(x, angle, bilinear), 1, 4)
        case("rotate(60)", index, f, F.rotate(f, angle, bilinear), 1e-4, 100)
        case("erase(1,value=7)", index, x, F.erase(x, *part(index, 7, 9, (0.02, 0.33), (0.3, 3.3)), torch.tensor(7)), 0, 0)
    case("to_gray", 0, x, F.rgb_to_grayscale(x, 3), 0, 0)
    case("to_gray", 0, f, F.rgb_to_grayscale(f, 3), 1e-6, 100)
    case("vflip(1)", 0, x, F.vflip(x), 0, 0)
    case("resize(4)", 0, x, F.pil_to_tensor(F.resize(F.to_pil_image(x), 4)), 1, 10)
    for index in range(6):
        case("random_resized_crop(6)", index, x, cropped(x, index, 6), 1, 10)
    print("};")


if __name__ == "__main__":
    main()
