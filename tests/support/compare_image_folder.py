#!/usr/bin/env python3
"""Compares folder: with torchvision's ImageFolder: classes, how many samples, their order and their labels.

usage: compare_image_folder.py LIBRARY [PICTURES]
  LIBRARY   libmillrace.so
  PICTURES  a folder of pictures, dealt out (as links) to classes and folders within them; default: a few made here

Order is told by content: each sample's size, and its pixels where two samples could be taken for each other, are Pillow's of
the file that ImageFolder has there. Prints one line; exit status 0: the same; 1: not; 77: torchvision or Pillow is not installed.
"""
import ctypes
import os
import sys
import tempfile

try:
    import numpy as np
    from PIL import Image, ImageOps
    from torchvision.datasets import ImageFolder
except ImportError as error:
    print(f"SKIP {error}")
    sys.exit(77)

SIDE = 4096
CLASSES = ["b", "B", "a b", "10", "9", "é", "z-1", "z", "ß"]
BELOW = ["", "", "sub", "sub-1", "sub/x", "Sub"]


class Millrace:
    def __init__(self, library, uri):
        self.lib = ctypes.CDLL(library)
        self.lib.mr_last_error.restype = ctypes.c_char_p
        self.lib.mr_dataset_class_name.restype = ctypes.c_char_p
        for name in ("mr_dataset_length", "mr_dataset_classes"):
            getattr(self.lib, name).restype = ctypes.c_uint64
        self.ds = ctypes.c_void_p()
        self.check(self.lib.mr_dataset_open(uri.encode(), ctypes.byref(self.ds)))
        self.pixels = np.empty(SIDE * SIDE * 3, np.uint8)

    def check(self, rc):
        if rc < 0:
            sys.exit(self.lib.mr_last_error().decode())

    def classes(self):
        n = self.lib.mr_dataset_classes(self.ds)
        return [self.lib.mr_dataset_class_name(self.ds, ctypes.c_uint64(k)).decode() for k in range(n)]

    def __len__(self):
        return self.lib.mr_dataset_length(self.ds)

    def read(self, i):
        label = ctypes.c_int64()
        dim = (ctypes.c_uint64 * 64)()
        rows = (ctypes.c_void_p * 2)(self.pixels.ctypes.data, ctypes.addressof(label))
        self.check(self.lib.mr_dataset_read(self.ds, ctypes.c_uint64(i), rows, dim))
        h, w = dim[0], dim[1]
        return self.pixels[: h * w * 3].reshape(h, w, 3), label.value


def make_pictures(folder):
    rng = np.random.default_rng(0)
    for i in range(60):
        name = os.path.join(folder, f"{i:02}.{'png' if i % 2 else 'JPG'}")
        pixels = rng.integers(0, 255, (8, 8, 3), np.uint8).repeat(2 + i % 5, 0).repeat(3 + i % 7, 1)
        Image.fromarray(pixels).save(name, "PNG" if i % 2 else "JPEG", quality=95)


def deal(pictures, root):
    names = sorted(n for n in os.listdir(pictures) if n.lower().endswith((".jpg", ".jpeg", ".png", ".webp")))
    for i, name in enumerate(names):
        folder = os.path.join(root, CLASSES[i % len(CLASSES)], BELOW[i * 7 % len(BELOW)])
        os.makedirs(folder, exist_ok=True)
        os.symlink(os.path.join(os.path.abspath(pictures), name), os.path.join(folder, name))
        with open(os.path.join(folder, "readme.txt"), "w", encoding="utf-8") as f:
            f.write("no picture\n")


def compare(ours, theirs):
    if ours.classes() != theirs.classes:
        return f"classes: {ours.classes()}, ImageFolder's {theirs.classes}"
    if len(ours) != len(theirs):
        return f"samples: {len(ours)}, ImageFolder's {len(theirs)}"
    for i, (path, target) in enumerate(theirs.samples):
        pixels, label = ours.read(i)
        # As ImageFolder's loader, and upright as EXIF says; ours has no colour management either.
        with Image.open(path) as picture:
            want = np.asarray(ImageOps.exif_transpose(picture).convert("RGB"))
        if label != target:
            return f"sample {i} ({path}): label {label}, ImageFolder's {target}"
        if pixels.shape != want.shape:
            return f"sample {i} ({path}): shape {pixels.shape}, Pillow's {want.shape}"
        difference = np.abs(pixels.astype(int) - want).mean()
        if difference > 1:
            return f"sample {i} ({path}): pixels differ by {difference:.2f} in the mean: another picture"
    return None


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as top:
        pictures, root = os.path.join(top, "pictures"), os.path.join(top, "root")
        if len(sys.argv) > 2:
            pictures = sys.argv[2]
        else:
            os.mkdir(pictures)
            make_pictures(pictures)
        deal(pictures, root)
        ours = Millrace(sys.argv[1], f"folder:{root},max-height={SIDE},max-width={SIDE}")
        theirs = ImageFolder(root)
        wrong = compare(ours, theirs)
        print(wrong or f"the same: {len(theirs)} samples of {len(theirs.classes)} classes")
        return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
