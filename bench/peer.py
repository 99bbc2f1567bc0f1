"""What the scripts that time PyTorch beside a program of ours share."""
import os
import statistics
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def find(name, given):
    """The program: the one given, that of the relocatable folder, or that of a release build."""
    for path in (given, os.path.join(ROOT, "bin", name), os.path.join(ROOT, "build", "release", "bench", name)):
        if path and os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    sys.exit(f"{name}: no program {name}: build it, or name it with --program")


def timed(torch, step, device, seconds, many):
    """Median milliseconds of a step; on GPUs `many` are timed together."""
    times, sync = [], lambda: None
    if device.startswith("cuda"):
        sync = torch.cuda.synchronize
    else:
        many = 1
    for _ in range(3):
        step()
    sync()
    end = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(many):
            step()
        sync()
        times.append((time.perf_counter() - start) / many * 1e3)
    return statistics.median(times)
