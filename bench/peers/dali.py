#!/usr/bin/env python3
"""Photos the way DALI's users feed them: readers.file, decoders.image_random_crop, resize,
crop_mirror_normalize. Prints one JSON line: milliseconds to the first batch from the building of
the pipeline (what importing takes is beside it), photos a second from there on, and the settings.
Without --load, --read-ahead and --preallocate they are DALI's own.
Exits 77 with a line that says so where there is no DALI.
"""
import argparse
import ctypes
import json
import sys
import time

MEAN, STD = [0.485 * 255, 0.456 * 255, 0.406 * 255], [0.229 * 255, 0.224 * 255, 0.225 * 255]


def decode(fn, jpegs, args):
    """Crops of 224. Whole pictures are decoded either way: the chip's decoder knows no region."""
    options = {}
    if args.load is not None:
        options["hw_decoder_load"] = args.load
    if args.preallocate:
        options.update(preallocate_width_hint=1024, preallocate_height_hint=1024)
    pictures = fn.decoders.image_random_crop(jpegs, device="mixed", **options)
    return fn.resize(pictures, size=(224, 224), device="gpu")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="class folders of photos")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--prefetch", type=int, default=2)
    parser.add_argument("--load", type=float, help="the chip's share, 0 to 1; without: DALI's")
    parser.add_argument("--read-ahead", action="store_true")
    parser.add_argument("--preallocate", action="store_true")
    args = parser.parse_args()
    start = time.perf_counter()
    try:
        import nvidia.dali as dali
        from nvidia.dali import fn, pipeline_def, types
    except ImportError as error:
        print(f"dali: left out: {error}", file=sys.stderr)
        sys.exit(77)
    cuda = ctypes.CDLL("libcuda.so.1")
    imported = time.perf_counter()

    @pipeline_def(batch_size=args.batch_size, num_threads=args.threads, device_id=0,
                  prefetch_queue_depth=args.prefetch, seed=7)
    def photos():
        more = {"read_ahead": True, "prefetch_queue_depth": 4} if args.read_ahead else {}
        jpegs, labels = fn.readers.file(file_root=args.folder, random_shuffle=True, name="reader",
                                        **more)
        cropped = decode(fn, jpegs, args)
        flip = fn.random.coin_flip(probability=0.5)
        return fn.crop_mirror_normalize(cropped, dtype=types.FLOAT, output_layout="CHW", mean=MEAN,
                                        std=STD, mirror=flip), labels.gpu()

    pipe = photos()
    pipe.build()
    pipe.run()
    cuda.cuCtxSynchronize()
    begin, n = time.perf_counter(), 0
    while time.perf_counter() - begin < args.seconds:
        pipe.run()
        n += args.batch_size
    cuda.cuCtxSynchronize()
    seconds = time.perf_counter() - begin
    row = {"case": "dali", "per_s": n / seconds, "first_batch_ms": (begin - imported) * 1e3,
           "import_ms": (imported - start) * 1e3, "seconds": seconds,
           "load": "default" if args.load is None else args.load, "threads": args.threads,
           "read_ahead": args.read_ahead, "versions": f"DALI {dali.__version__}"}
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
