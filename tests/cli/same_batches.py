"""Options that make loading faster or slower never show in the batches: random combinations of
workers, batches ahead, tune, read-ahead, queue depth, cache, storage, memory limit, device, GPU
decoding, huge pages and the like, over files, large slots and HTTP, have one digest for each data
set and chain.

usage: same_batches.py PROGRAM SERVER [SEED [RUNS]]       SERVER: tests/support/fault_server.py
The seed is printed; with it a run is repeated.
"""
import ctypes
import os
import random
import re
import subprocess
import sys
import tempfile

PROGRAM, SERVER = (os.path.abspath(word) for word in sys.argv[1:3])
SEED = int(sys.argv[3]) if len(sys.argv) > 3 else int.from_bytes(os.urandom(4), "little")
RUNS = int(sys.argv[4]) if len(sys.argv) > 4 else 24
LIMIT = 120  # seconds: for what hangs
PR_SET_THP_DISABLE = 41

# Each is on with even odds; of several values one is drawn.
OPTIONS = {
    "--workers": ["1", "2", "3", "7"],
    "--prefetch": ["1", "2", "9"],
    "--tune": [None],
    "--max-cpus": ["1"],
    "--read-ahead": ["1", "5", "64"],
    "--queue-depth": ["1", "2", "16"],
    "--cache": ["host", "device"],
    "--storage": ["pread", "auto"],
    "--direct": [None],
    "--max-memory": ["64MiB", "1GiB"],
    "--device": ["cpu", "sim", "sim:h2d=1,latency=50us"],
    "--gpu-decode": ["auto", "off"],
    "--device-transforms": ["on", "off"],
    "--no-pin": [None],
    "--blocking": [None],
    "--streams": ["3"],
    "--shared": [None],
    "--on-host": [None],
    "--sandbox": [None],
    "--max-workers": ["9"],
    "--max-prefetch": ["3", "12"],
    "--cache-dir": ["cached"],
}


def draw(rng, case):
    """A combination that this data set can have."""
    on = {name: rng.choice(values) for name, values in OPTIONS.items() if rng.random() < 0.5}
    if "--tune" not in on or "--prefetch" in on:
        on.pop("--max-prefetch", None)
    if "--tune" not in on:
        on.pop("--max-workers", None)
    if case["large"]:  # a slot has 10 MB on the host and as many on the device
        on.pop("--max-memory", None)
        if rng.random() < 0.5:
            on["--max-memory"] = "1GiB"
    if on.get("--cache") == "device":  # samples stay there: the whole chain has to run there
        if case["on_device"]:
            on["--device"] = "sim"
            for name in ("--shared", "--on-host", "--device-transforms", "--sandbox"):
                on.pop(name, None)
        else:
            on["--cache"] = "host"
    if "--sandbox" in on:  # nvJPEG decodes in the program itself
        on.pop("--gpu-decode", None)
    if not case["remote"]:
        on.pop("--cache-dir", None)
    on.setdefault("--device", "sim")
    return [word for name, value in on.items() for word in ((name, value) if value else (name,))]


def digest(case, words, huge=True):
    def before():
        if not huge:  # inherited; where the kernel has no such call nothing changes
            ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)
    command = [PROGRAM, "feed", *case["words"], "--digest", "-q", *words]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         timeout=LIMIT, preexec_fn=before)
    found = re.search(r"^digest: (\w+)$", run.stdout, re.M)
    if run.returncode or not found:
        sys.exit(f"seed {SEED}: {' '.join(command)}: status {run.returncode}\n{run.stdout}")
    return found[1], " ".join(command[1:]) + ("" if huge else " (no huge pages)")


def make(*words):
    return subprocess.run([PROGRAM, *words, "-q"], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True).returncode == 0


def cases(port):
    """Data sets with their chains; remote: the shards again, by HTTP."""
    order = ["-s", "--seed", str(SEED % 1000)]
    digits = [*order, "-e", "2", "-b", "48", "-t"]
    found = [
        {"name": "digits", "words": ["digits", *digits,
                                     "cast(f32),scale(1/255),random_crop(24,24),hflip(0.5)"]},
        {"name": "plain", "words": ["digits", *digits, "cast(f32),scale(1/255)"],
         "on_device": True},
        {"name": "rank", "words": ["digits", *digits, "hflip(0.5)", "--world", "2", "--rank", "1"]},
    ]
    if make("synth", "photos", "photos", "--n", "24") and make("pack", "photos", "shards"):
        photos = [*order, "-e", "2", "-b", "16", "-t", "random_resized_crop(224),cast(f32)"]
        shard = "shards/shard-000000.tar"
        found += [{"name": "photos", "words": [f"tar:{shard}", *photos], "large": True},
                  {"name": "photos", "words": [f"tar:http://127.0.0.1:{port}/ok/{shard}", *photos],
                   "large": True, "remote": True}]
    for case in found:
        for key in ("large", "on_device", "remote"):
            case.setdefault(key, False)
    return found


def compare(rng, port):
    want = {}
    sets = cases(port)
    for case in sets:
        plain = digest(case, ["-w", "1", "-p", "1", "-d", "cpu"])
        first = want.setdefault(case["name"], plain)
        assert first[0] == plain[0], f"seed {SEED}: other batches:\n{first}\n{plain}"
    used = set()
    for i in range(RUNS):
        case = sets[i % len(sets)]
        words = draw(rng, case)
        used.update(word for word in words if word.startswith("--"))
        got = digest(case, words, huge=rng.random() < 0.5)
        assert got[0] == want[case["name"]][0], \
            f"seed {SEED}: other batches:\n{want[case['name']]}\n{got}"
    print(f"seed {SEED}: {RUNS} combinations of {len(used)} options, {len(sets)} sets, "
          f"digests {', '.join(f'{name} {value[0][:8]}' for name, value in want.items())}: equal")


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        assert make("synth", "digits", "digits", "--n", "500")
        server = subprocess.Popen([sys.executable, SERVER, folder], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True)
        try:
            compare(random.Random(SEED), server.stdout.readline().split()[1])
        finally:
            server.stdin.close()
            server.wait()
            os.chdir("/")


main()
