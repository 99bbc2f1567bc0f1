#!/usr/bin/env python3
"""Compares what image_dump decodes with what Pillow does, for every picture below the given folders: pixels after EXIF
orientation, and which files are refused. Prints a line for each file that differs and a summary; fails when pixels differ
by more than the tolerance. Exit 77 without Pillow.
usage: compare_pillow.py IMAGE_DUMP FOLDER..."""
import pathlib
import struct
import subprocess
import sys
import warnings

try:
    import numpy
    from PIL import Image
except ImportError as missing:
    print(f"SKIP compare_pillow: {missing}: expected python3 with numpy and Pillow")
    sys.exit(77)

TOLERANCE = 2  # of 255: Pillow's wheels bring a libjpeg-turbo of their own, whose IDCT may round otherwise
SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".mpo", ".jfif"}
DAMAGED = "crashtest"  # what libraries of different versions make of damaged files differs: told, not judged
TURNS = dict(zip(range(2, 9), (Image.Transpose.FLIP_LEFT_RIGHT, Image.Transpose.ROTATE_180,
                               Image.Transpose.FLIP_TOP_BOTTOM, Image.Transpose.TRANSPOSE, Image.Transpose.ROTATE_270,
                               Image.Transpose.TRANSVERSE, Image.Transpose.ROTATE_90)))
warnings.simplefilter("ignore")
Image.MAX_IMAGE_PIXELS = 100_000_000


def orientation(image):
    """By EXIF alone, not by what XMP and texts say; None when the EXIF is damaged."""
    exif = Image.Exif()
    try:
        exif.load(image.info.get("exif", b""))
        return exif.get(0x0112)
    except (SyntaxError, struct.error):
        return None


def by_pillow(path):
    """RGB, upright; 16 bits by their upper 8; or the error's text."""
    try:
        with Image.open(path) as image:
            if image.format not in ("JPEG", "MPO", "PNG", "WEBP"):
                return f"a {image.format}"
            image.load()
            turn = TURNS.get(orientation(image))
            if image.mode.startswith("I"):
                image = Image.fromarray((numpy.asarray(image).astype(numpy.uint32) >> 8).astype(numpy.uint8))
            if turn is not None:
                image = image.transpose(turn)
            if image.mode == "LA":
                image = image.convert("RGBA")
            return numpy.asarray(image.convert("RGB"))
    except Exception as error:  # whatever Pillow raises on damaged files is an answer here
        return f"{type(error).__name__}: {error}".replace(str(path), "FILE")


def by_ours(process, path):
    process.stdin.write(f"{path}\n".encode())
    process.stdin.flush()
    code, width, height = map(int, process.stdout.readline().split())
    if code:
        return process.stdout.readline().decode(errors="replace").strip().replace(str(path), "FILE")
    data = process.stdout.read(width * height * 3)
    return numpy.frombuffer(data, numpy.uint8).reshape(height, width, 3)


def pictures(folders):
    for folder in folders:
        for path in sorted(pathlib.Path(folder).rglob("*")):
            if path.is_file() and path.suffix.lower() in SUFFIXES:
                yield path


def main(dump, folders):
    process = subprocess.Popen([dump], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    same = differ = refused = only_ours = only_pillow = 0
    most, total, values = 0, 0, 0
    for path in pictures(folders):
        ours, theirs = by_ours(process, path), by_pillow(path)
        if isinstance(ours, str) and isinstance(theirs, str):
            refused += 1
        elif isinstance(ours, str):
            only_pillow += 1
            print(f"{path}: only Pillow decodes it; {ours}")
        elif isinstance(theirs, str):
            only_ours += 1
            print(f"{path}: Pillow does not decode it: {theirs}")
        elif ours.shape != theirs.shape:
            print(f"FAIL {path}: {ours.shape}, Pillow {theirs.shape}")
            most = 255
        else:
            d = numpy.abs(ours.astype(numpy.int16) - theirs)
            if DAMAGED in path.parts:
                if d.max() > 0:
                    print(f"{path}: damaged; differs by at most {d.max()}, in the mean {d.mean():.4f}")
                continue
            most, total, values = max(most, int(d.max())), total + int(d.sum()), values + d.size
            if d.max() > 0:
                differ += 1
                print(f"{path}: differs by at most {d.max()}, in the mean {d.mean():.4f}")
            else:
                same += 1
    process.stdin.close()
    ok = process.wait() == 0 and most <= TOLERANCE and same + differ > 0
    print(f"{same + differ} pictures decoded by both: {same} equal, {differ} differ; greatest difference {most}, mean "
          f"{total / max(values, 1):.6f}; {refused} refused by both, {only_ours} by Pillow alone, "
          f"{only_pillow} by us alone")
    print("PASS compare_pillow" if ok else "FAIL compare_pillow")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
