#!/usr/bin/env python3
"""Records a second of TFRecord files, and CPU time of each, beside what else reads them.

    bench/records.py BUILD [--bytes 2e9] [--rounds 3] [--workers 2] [--folder DIR]

Two sets are generated: "floats" has Examples of 1,024 floats and a label, "tokens" of 512 token
ids and a label. Peers, in turn with ours, each in a process of its own, one epoch, from a warm page
cache, batches of 256:

    tf raw      tf.data.TFRecordDataset, records as they are
    tf          the same, tf.io.parse_example() of each batch, as many calls at once as workers
    tfrecord    the package of that name: its reader, one Example at a time
    ours raw    millrace feed tfrecord:FILE,features=none
    ours        millrace feed tfrecord:FILE,features=[...], in order
    shuffled    the same with --shuffle

All but `tfrecord` verify checksums. Ours: with the index made before; "index" is the time to make
it. Peers that are not installed are left out. CPU time is of all threads of the process; of the
peers, from the first record on; of ours, of the whole program.
"""

import argparse
import json
import os
import pathlib
import platform
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
import time

BATCH = 256


def varint(x):
    out = bytearray()
    while x > 0x7F:
        out.append(x & 0x7F | 0x80)
        x >>= 7
    out.append(x)
    return bytes(out)


def field(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def example(**features):
    entries = b"".join(field(1, field(1, name.encode()) + field(2, value)) for name, value in features.items())
    return field(1, entries)


def ints(values):
    return field(3, field(1, b"".join(varint(v) for v in values)))


def make(kind, path, size):
    import crc32c
    import numpy as np

    def mask(data):
        crc = crc32c.crc32c(data)
        return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)

    rng = np.random.default_rng(1)
    pool = []
    for _ in range(256):
        if kind == "floats":
            pool.append(field(2, field(1, rng.random(1024, np.float32).tobytes())))
        else:
            pool.append(ints(rng.integers(0, 50000, 512).tolist()))
    written = n = 0
    with open(path, "wb") as out:
        while written < size:
            data = example(x=pool[n % len(pool)], label=ints([n % 1000]))
            length = struct.pack("<Q", len(data))
            written += out.write(length + mask(length) + data + mask(data))
            n += 1
    return n


def peer(name, kind, path, workers):
    """In a process of its own: prints records, seconds and CPU seconds."""
    wanted = ("x", "float" if kind == "floats" else "int")
    if name == "tfrecord":
        from tfrecord import tfrecord_loader

        reader = tfrecord_loader(path, None, {wanted[0]: wanted[1], "label": "int"})
        next(iter(reader))
        start, cpu = time.perf_counter(), time.process_time()
        n = sum(1 for _ in tfrecord_loader(path, None, {wanted[0]: wanted[1], "label": "int"}))
    else:
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
        import tensorflow as tf

        spec = {
            "x": tf.io.FixedLenFeature([1024], tf.float32) if kind == "floats" else tf.io.FixedLenFeature([512], tf.int64),
            "label": tf.io.FixedLenFeature([], tf.int64),
        }
        files = tf.data.TFRecordDataset(path, buffer_size=8 << 20).batch(BATCH)
        if name == "tf":
            files = files.map(lambda records: tf.io.parse_example(records, spec), num_parallel_calls=workers)
        files = files.prefetch(4)
        options = tf.data.Options()
        options.threading.private_threadpool_size = workers
        files = files.with_options(options)
        for _ in files.take(2):
            pass
        start, cpu = time.perf_counter(), time.process_time()
        n = 0
        for batch in files:
            n += int((batch if name == "tf raw" else batch["label"]).shape[0])
    print(json.dumps([n, time.perf_counter() - start, time.process_time() - cpu]))


def ours(build, kind, path, workers, raw, shuffle, index="beside"):
    shape = "f32[1024]" if kind == "floats" else "i64[512]"
    features = "none" if raw else f"[x:{shape},label:i64]"
    command = [f"{build}/millrace", "feed", f"tfrecord:{path},index={index},features={features}", "--batch-size", str(BATCH)]
    command += ["--workers", str(workers), "--device", "cpu", "--epochs", "1", "--json", "--drop-last"]
    command += ["--shuffle"] if shuffle else ["--sampler", "sequential"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    out = json.loads(subprocess.check_output(command, text=True))
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return [out["samples"], seconds, cpu]


def run(name, build, kind, path, workers):
    if name in ("ours raw", "ours", "shuffled"):
        return ours(build, kind, path, workers, name == "ours raw", name == "shuffled")
    command = [sys.executable, __file__, build, "--peer", name, "--kind", kind, "--folder", path, "--workers", str(workers)]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return json.loads(result.stdout.splitlines()[-1]) if result.returncode == 0 else None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--bytes", type=float, default=2e9)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder")
    parser.add_argument("--peer")
    parser.add_argument("--kind")
    args = parser.parse_args()
    if args.peer:
        return peer(args.peer, args.kind, args.folder, args.workers)
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.0f}, {args.workers} workers")
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        for kind in ("floats", "tokens"):
            path = str(pathlib.Path(folder) / f"{kind}.tfrecord")
            n = make(kind, path, args.bytes)
            start = time.perf_counter()
            subprocess.check_output([f"{args.build}/millrace", "inspect", f"tfrecord:{path},index=beside", "-n", "1"])
            print(f"\n{kind}: {n} records, {os.path.getsize(path) / 1e9:.2f} GB; index: {time.perf_counter() - start:.2f} s")
            names = ["tf raw", "tf", "tfrecord", "ours raw", "ours", "shuffled"]
            got = {name: [] for name in names}
            for _ in range(args.rounds):
                for name in names:
                    one = run(name, args.build, kind, path, args.workers)
                    if one:
                        got[name].append((one[0] / one[1], one[2] / one[0] * 1e9))
            print("| | records/s | CPU ns a record: median | least | most |\n| --- | ---: | ---: | ---: | ---: |")
            for name in names:
                if not got[name]:
                    continue
                rates, cpus = zip(*got[name])
                print(f"| {name} | {statistics.median(rates):,.0f} | {statistics.median(cpus):,.0f} | {min(cpus):,.0f} | {max(cpus):,.0f} |")
            os.unlink(path)


main()
