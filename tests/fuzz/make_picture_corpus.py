#!/usr/bin/env python3
"""Writes the seeds of fuzz_jpeg, fuzz_png and fuzz_webp below corpus/, beside this script: small pictures by Pillow, and
seven bytes more: a window's place and size, the output's size, options (see picture.h)."""
import io
import pathlib

from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parent / "corpus"
WHOLE = bytes(6) + bytes([0])
WINDOW = bytes([60, 40, 120, 150, 7, 5, 64])
GRAY = bytes([10, 10, 200, 200, 30, 30, 64 | 2])
WHITE = bytes([10, 10, 99, 99, 15, 15, 64 | 8])


def exif(orientation):
    data = Image.Exif()
    data[0x0112] = orientation
    return data.tobytes()


def picture(mode, size=(40, 24)):
    bands = [Image.radial_gradient("L").resize(size).rotate(40 * i) for i in range(len(Image.new(mode, (1, 1)).getbands()))]
    return Image.merge(mode, bands) if len(bands) > 1 else bands[0].convert(mode)


def seed(folder, name, image, tails, **options):
    out = io.BytesIO()
    image.save(out, folder, **options)
    (ROOT / folder).mkdir(parents=True, exist_ok=True)
    for i, tail in enumerate(tails):
        (ROOT / folder / f"{name}-{i}").write_bytes(out.getvalue() + tail)


for sampling in range(3):
    seed("jpeg", f"baseline-{sampling}", picture("RGB"), (WHOLE, WINDOW), subsampling=sampling, quality=30)
seed("jpeg", "progressive", picture("RGB"), (WHOLE, WINDOW), progressive=True, quality=30)
seed("jpeg", "restarts", picture("RGB"), (WINDOW,), restart_marker_rows=1, quality=30)
seed("jpeg", "gray", picture("L"), (WHOLE, WINDOW), quality=30)
seed("jpeg", "cmyk", picture("CMYK"), (WHOLE, GRAY), quality=30)
seed("jpeg", "turned", picture("RGB"), (WINDOW,), exif=exif(6), quality=30)
for mode in ("1", "L", "P", "RGB", "LA", "RGBA", "I;16"):
    image = picture("L").point(lambda v: v * 256, "I").convert("I;16") if mode == "I;16" else None
    if image is None:
        image = picture("RGB").convert(mode) if mode in "1P" else picture(mode)
    seed("png", mode.replace(";", "-"), image, (WHOLE, WHITE))
seed("png", "turned", picture("RGB"), (WINDOW,), exif=exif(8))
seed("png", "transparent", picture("RGB"), (WHITE,), transparency=(0, 0, 0))
seed("webp", "lossy", picture("RGB"), (WHOLE, WINDOW), quality=30)
seed("webp", "lossy-alpha", picture("RGBA"), (WINDOW, WHITE), quality=30)
seed("webp", "lossless", picture("RGB"), (WHOLE, WINDOW), lossless=True)
seed("webp", "lossless-alpha", picture("RGBA"), (WINDOW, WHITE), lossless=True)
seed("webp", "turned", picture("RGB"), (WINDOW,), exif=exif(5), quality=30)
seed("webp", "animated", picture("RGB"), (WHOLE,), save_all=True, append_images=[picture("RGB").rotate(9)], quality=30)
