#!/usr/bin/env python3
"""Photos into a GPU the way PyTorch's users feed them: ImageFolder, torchvision's augmentation, a
DataLoader with page-locked batches, to("cuda"). Prints one JSON line as dali.py does. The sampler
draws with replacement and never ends, so no epoch's end leaves workers without work.
Exits 77 with a line that says so where there is no torch with a GPU, or no torchvision.
"""
import argparse
import json
import sys
import time


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="class folders of photos")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--workers", type=int, default=16)
    args = parser.parse_args()
    start = time.perf_counter()
    try:
        import torch
        from torchvision import datasets, transforms
    except ImportError as error:
        print(f"loader_gpu: left out: {error}", file=sys.stderr)
        sys.exit(77)
    if not torch.cuda.is_available():
        print("loader_gpu: left out: no GPU", file=sys.stderr)
        sys.exit(77)
    imported = time.perf_counter()
    chain = transforms.Compose([
        transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
        transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])
    photos = datasets.ImageFolder(args.folder, chain)
    endless = torch.utils.data.RandomSampler(photos, replacement=True, num_samples=10**7)
    loader = torch.utils.data.DataLoader(photos, batch_size=args.batch_size, sampler=endless,
                                         num_workers=args.workers, pin_memory=True)
    begin, n, first = None, 0, None
    for images, labels in loader:
        images = images.to("cuda", non_blocking=True)
        labels = labels.to("cuda", non_blocking=True)
        torch.cuda.synchronize()
        now = time.perf_counter()
        if begin is None:
            begin, first = now, (now - imported) * 1e3
            continue
        n += len(images)
        if now - begin >= args.seconds:
            break
    row = {"case": "torch", "per_s": n / (now - begin), "first_batch_ms": first,
           "import_ms": (imported - start) * 1e3, "seconds": now - begin, "threads": args.workers,
           "version": torch.__version__}
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
