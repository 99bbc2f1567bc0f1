#!/usr/bin/env python3
"""Photos the way PyTorch's users feed them: torchvision's ImageFolder and transforms under a DataLoader, and Pillow alone.

Prints one JSON line a case: pictures a second of CPU time (per core; where all is done by this process) and of the clock, from
the first batch on, and the milliseconds to the first batch from the call that makes the loader. Cases:
  pillow      decode, random crop, resize to 224 x 224 by Pillow, of files in memory, one thread
  dataloader  ImageFolder, RandomResizedCrop(224), RandomHorizontalFlip, ToTensor, Normalize, batches, --workers processes; with
              --device cuda page-locked batches, copied to the GPU, of an order without end: no epoch's end leaves workers idle
Exits 77 with a line that says so when what a case needs is not installed.
"""
import argparse
import glob
import io
import json
import math
import os
import random
import sys
import time

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def missing(what, error):
    print(f"photos: {what}: left out: {error}", file=sys.stderr)
    sys.exit(77)


def crop_box(width, height):
    """The draw of RandomResizedCrop."""
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            x, y = random.randint(0, width - w), random.randint(0, height - h)
            return x, y, x + w, y + h
    return 0, 0, width, height


def pillow(args):
    try:
        import PIL
        from PIL import Image, features
    except ImportError as error:
        missing("Pillow", error)
    data = []
    for path in sorted(glob.glob(os.path.join(args.folder, "*", "*"))):
        with open(path, "rb") as file:
            data.append(file.read())
    n, cpu, start = 0, time.process_time(), time.perf_counter()
    while time.perf_counter() - start < args.seconds:
        image = Image.open(io.BytesIO(data[n % len(data)])).convert("RGB")
        image.crop(crop_box(*image.size)).resize((224, 224), Image.BILINEAR)
        n += 1
    report("pillow", 1, n, time.process_time() - cpu, time.perf_counter() - start, None,
           f"Pillow {PIL.__version__}, libjpeg-turbo {features.version('libjpeg_turbo')}")


def dataloader(args):
    try:
        import torch
        import torchvision
        from torchvision import datasets, transforms
    except ImportError as error:
        missing("DataLoader", error)
    torch.set_num_threads(1)
    chain = transforms.Compose([transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(),
                                transforms.ToTensor(), transforms.Normalize(MEAN, STD)])
    on_gpu = args.device == "cuda"
    if on_gpu and not torch.cuda.is_available():
        missing("--device cuda", "no GPU")
    begin = time.perf_counter()
    photos = datasets.ImageFolder(args.folder, chain)
    order = {"shuffle": True}
    if on_gpu:
        order = {"sampler": torch.utils.data.RandomSampler(photos, replacement=True, num_samples=10**7)}
    loader = torch.utils.data.DataLoader(photos, batch_size=args.batch_size, num_workers=args.workers, pin_memory=on_gpu,
                                         persistent_workers=args.workers > 0, **order)
    n, first, start, cpu = 0, None, None, None
    while start is None or time.perf_counter() - start < args.seconds:
        for images, labels in loader:
            if on_gpu:
                images, labels = images.to("cuda", non_blocking=True), labels.to("cuda", non_blocking=True)
                torch.cuda.synchronize()
            if start is None:
                start, cpu = time.perf_counter(), time.process_time()
                first = (start - begin) * 1e3
                continue
            n += len(images)
            if time.perf_counter() - start >= args.seconds:
                break
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    report("dataloader", args.workers, n, None if args.workers else cpu, seconds, first,
           f"PyTorch {torch.__version__}, torchvision {torchvision.__version__}")


def report(case, workers, n, cpu, seconds, first_batch_ms, versions):
    row = {"case": case, "threads": workers, "per_s": n / seconds, "versions": versions}
    if cpu:
        row["per_core"] = n / cpu
    if first_batch_ms is not None:
        row["first_batch_ms"] = first_batch_ms
    print(json.dumps(row), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=("pillow", "dataloader"))
    parser.add_argument("folder", help="class folders of photos")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="of dataloader")
    args = parser.parse_args()
    globals()[args.case](args)


if __name__ == "__main__":
    main()
