#!/usr/bin/env python3
"""Sampled Python stacks under `millrace profile --python-sampling`: under each Python that is found, with a stand-in for
torch's loader, and with torch itself where $TORCH_PYTHON or this Python has it.

usage: python_stacks.py PROGRAM         exit status 0: passed; 1: not
"""
import json
import os
import pathlib
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile

from python_programs import FAKE, PROGRAM, expect, has_torch, profile, pythons, write_files

# Threads that wait, burn and end at once; a child by fork and one by exec; a signal that must wake the main thread.
THREADS = """
import os, signal, subprocess, sys, threading, time

def burn(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        sum(range(2000))  # BURNS

def lurk(event):
    event.wait()

def below(n):
    return below(n - 1) if n else time.sleep(0.3)  # DEEP

def name_of(task):
    try:
        return open("/proc/self/task/%s/comm" % task).read().strip()
    except OSError:
        return None  # it has ended: join() returns before the kernel takes the task out of the list

event = threading.Event()
thread = threading.Thread(target=lurk, args=(event,))
thread.start()
for _ in range(200):
    brief = threading.Thread(target=int)
    brief.start()
    brief.join()
child = os.fork()
if child == 0:
    time.sleep(1.5)  # CHILD
    os._exit(3)
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.2)
signal.pause()
burn(0.7)
below(400)
assert os.WEXITSTATUS(os.waitpid(child, 0)[1]) == 3
subprocess.run([sys.executable, "-c", "import time\\ntime.sleep(0.5)"], check=True)
event.set()
thread.join()
print("sampled" if any(name_of(task) == "millrace-stacks" for task in os.listdir("/proc/self/task")) else "not sampled")
"""

SEVERAL = """
import sys, time
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
other = interpreters.create()
interpreters.run_string(other, "x = 1")
time.sleep(0.3)
interpreters.destroy(other)
print("done")
"""

# What torch's loaders call, in whichever process it is.
FETCH = """
class _MapDatasetFetcher:
    def __init__(self, dataset):
        self.dataset = dataset
    def fetch(self, indices):
        return [self.dataset[i] for i in indices]
"""

DATASET = """
import time

class Slow:
    def __getitem__(self, i):
        time.sleep(0.005)  # SLEEPS
        return i
"""

STARVED = """
import ctypes, os, sys, time
import torch.autograd, torch.optim
from torch.utils.data import DataLoader
from torch.utils.data._utils.fetch import _MapDatasetFetcher
from dataset import Slow

workers = int(sys.argv[1])
fetcher = _MapDatasetFetcher(Slow())

def work(pipe):
    for _ in range(20):
        os.write(pipe, bytes(fetcher.fetch(range(4))))
    time.sleep(0.5)
    os._exit(0)

pipe, other = os.pipe()
for _ in range(workers):
    if os.fork() == 0:
        work(other)

cupti = ctypes.CDLL(os.environ["MILLRACE_CUPTI"], ctypes.RTLD_GLOBAL)
ctypes.CDLL(os.environ["CUDA_INJECTION64_PATH"]).InitializeInjection()
name = ctypes.create_string_buffer(b"_Z7forwardPf")

def load():
    for _ in range(40):
        yield os.read(pipe, 4) if workers else fetcher.fetch(range(4))

for batch in DataLoader(load()):
    cupti.fake_kernel(cupti.fake_call(1, 307, 0), name, 0)
"""

REAL = """
import sys, time
import torch
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 240
    def __getitem__(self, i):
        time.sleep(0.01)  # SLEEPS
        return torch.zeros(4)

if __name__ == "__main__":
    for batch in DataLoader(Slow(), batch_size=8, num_workers=int(sys.argv[1])):
        batch.sum().item()
    time.sleep(0.5)
"""


def line_with(text, mark):
    return 1 + next(i for i, line in enumerate(text.split("\n")) if "# " + mark in line)


def report(path, name, *options):
    """A report's rows as dicts."""
    done = subprocess.run([PROGRAM, "report", "-r", name, "-f", "json", *options, path], stdout=subprocess.PIPE,
                          text=True, check=True)
    return json.loads(done.stdout)


def lines(path):
    """(file's name, line) -> ns in all threads."""
    found = {}
    for row in report(path, "stacks"):
        where = os.path.basename(row["Line"])
        found[where] = found.get(where, 0) + row["Self (ns)"]
    return found


def test_threads(folder, python, version):
    done, path = profile(folder, [python, "-W", "ignore", "threads.py"], "-t", "nvtx", "--python-sampling",
                         "--cuda-flush-interval", "50ms")
    expect(done.stdout == "sampled\n" and not done.stderr, (version, done.stdout, done.stderr))
    found = lines(path)
    for mark in ("BURNS", "CHILD", "DEEP"):
        where = "threads.py:%d" % line_with(THREADS, mark)
        expect(found.get(where, 0) > 2e8, "%s: %s: %s" % (version, mark, sorted(found.items())))
    expect(found.get("<string>:2", 0) > 2e8, "%s: the program that was started: %s" % (version, found))
    with sqlite3.connect(path) as db:
        pids = {row[0] for row in db.execute("SELECT globalTid >> 24 FROM COMPOSITE_EVENTS")}
        known = {row[0] for row in db.execute("SELECT globalPid >> 24 FROM PROCESSES")}
        deepest = db.execute(
            "WITH RECURSIVE up(id, n) AS (SELECT id, 1 FROM MILLRACE_STACKS WHERE parentId IS NULL UNION ALL"
            " SELECT s.id, n + 1 FROM MILLRACE_STACKS s JOIN up ON s.parentId = up.id) SELECT max(n) FROM up").fetchone()
        # every thread's spans follow one another
        rows = db.execute("SELECT globalTid, start, \"end\", samples, cpuTime FROM COMPOSITE_EVENTS"
                          " ORDER BY globalTid, start").fetchall()
    expect(len(pids) == 3 and pids <= known, "%s: processes %s" % (version, pids))
    expect(deepest[0] == 256, "%s: %s frames" % (version, deepest))
    for one, two in zip(rows, rows[1:]):
        expect(one[0] != two[0] or one[2] <= two[1], "%s: %s and %s overlap" % (version, one, two))
    expect(all(end > start and n > 0 and cpu >= 0 for _, start, end, n, cpu in rows), rows)
    burning = max(report(path, "stacks_func"), key=lambda row: row["Function"] == "burn")
    waiting = max(report(path, "stacks_func"), key=lambda row: row["Function"] == "lurk")
    expect(burning["Total (ns)"] >= burning["Self (ns)"] > 0 and waiting["Total (ns)"] > 1e9, (burning, waiting))


def test_off(folder, python):
    done, path = profile(folder, [python, "threads.py"], "-t", "nvtx")
    expect(done.stdout == "not sampled\n", done.stdout)
    done = subprocess.run([PROGRAM, "report", "-r", "stacks", path], stdout=subprocess.PIPE, text=True, check=True)
    expect("--python-sampling" in done.stdout, done.stdout)


def test_switch(folder, python):
    """Samples wait for the GIL, so Python is asked for it sooner; a program's own choice stays."""
    code = "import sys\nfirst = sys.getswitchinterval()\nsys.setswitchinterval(0.003)\nprint(first, sys.getswitchinterval())\n"
    pathlib.Path(folder, "switch.py").write_text(code)
    for options, expected in (((), "0.005 0.003\n"), (("--python-sampling",), "0.0005 0.003\n")):
        done, _ = profile(folder, [python, "switch.py"], "-t", "nvtx", *options)
        expect(done.stdout == expected, (options, done.stdout))


def test_windows(folder, python):
    """A capture range limits samples, --from and --range limit reports."""
    code = ("import time, millrace_range\n"
            "with millrace_range.on('before'): time.sleep(0.3)\n"
            "with millrace_range.on('on'): time.sleep(0.3)\n"
            "time.sleep(0.3)\n")
    pathlib.Path(folder, "windows.py").write_text(code)
    pathlib.Path(folder, "millrace_range.py").write_text(
        "import contextlib, ctypes, os\n"
        "library = ctypes.PyDLL(os.environ['MILLRACE_RECORD_MODULE'])\n"
        "library.mr_record_range.restype = library.mr_record_push.restype = ctypes.c_void_p\n"
        "@contextlib.contextmanager\n"
        "def on(name):\n"
        "    range_ = library.mr_record_range(None, name.encode())\n"
        "    number = library.mr_record_push(ctypes.c_void_p(range_))\n"
        "    yield\n"
        "    library.mr_record_pop(ctypes.c_uint64(number))\n")
    _, path = profile(folder, [python, "windows.py"], "-t", "nvtx", "-c", "nvtx:on", "--python-sampling")
    found = lines(path)
    expect("windows.py:3" in found and "windows.py:2" not in found and "windows.py:4" not in found, found)
    _, path = profile(folder, [python, "windows.py"], "-t", "nvtx", "--python-sampling")
    found = {row["Line"].split("/")[-1] for row in report(path, "stacks", "--range", "before")}
    expect("windows.py:2" in found and "windows.py:4" not in found, found)
    found = report(path, "stacks", "--from", "3600s")
    expect(found == [], found)


def test_several(folder, python, version):
    done, path = profile(folder, [python, "several.py"], "-t", "nvtx", "--python-sampling", check=False)
    expect(done.returncode == 0 and done.stdout == "done\n", (version, done.stdout, done.stderr))
    with sqlite3.connect(path) as db:
        notes = [row[0] for row in db.execute("SELECT t.value FROM MILLRACE_NOTES n JOIN StringIds s ON s.id = nameId"
                                              " JOIN StringIds t ON t.id = textId WHERE s.value = 'no_stacks'")]
    expect(any("several Python interpreters" in note for note in notes), (version, notes))


def test_verdict(folder, python):
    where = "dataset.py:%d" % line_with(DATASET, "SLEEPS")
    for workers in ("0", "2"):
        _, path = profile(folder, [python, "starved.py", workers], "-t", "cuda,nvtx", "--python-sampling",
                          "--cuda-flush-interval", "50ms")
        told = subprocess.run([PROGRAM, "analyze", path], stdout=subprocess.PIPE, text=True, check=True).stdout
        text = " ".join(told.split())
        expect(re.search(r"Meanwhile %s (Slow\.)?__getitem__ is (\d\d|100)%% of the loader's time" % re.escape(where),
                         text), (workers, told))


def test_pictures(folder, browser):
    """Of what test_verdict() recorded last: folded lines, and the flame graph in a browser."""
    path, where = os.path.join(folder, "r.sqlite"), "(dataset.py:%d)" % line_with(DATASET, "SLEEPS")
    folded, page = os.path.join(folder, "r.folded"), os.path.join(folder, "r.html")
    for out in (folded, page):
        subprocess.run([PROGRAM, "timeline", "-f", "-o", out, path], stdout=subprocess.DEVNULL, check=True)
    stacks = [line.rsplit(" ", 1) for line in pathlib.Path(folded).read_text().splitlines()]
    with sqlite3.connect(path) as db:
        n = db.execute("SELECT sum(samples) FROM COMPOSITE_EVENTS").fetchone()[0]
    expect(sum(int(stack[1]) for stack in stacks) == n, (n, stacks))
    expect(any(stack[0].split(";")[-1].endswith(where) for stack in stacks), stacks)
    if not browser:
        print("SKIP flame graph: no browser (chromium, google-chrome) on this machine")
        return
    done = subprocess.run([browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                           "--user-data-dir=" + os.path.join(folder, "browser"), "--virtual-time-budget=20000",
                           "--enable-logging=stderr", "--dump-dom", "file://" + page + "#stacks=1"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)
    expect("CONSOLE" not in done.stderr, done.stderr)
    expect(re.search(r'<dialog id="flame"[^>]* open', done.stdout), done.stdout[:3000])
    frames = re.findall(r'<button [^>]*data-node="\d+"[^>]*>([^<]*)<', done.stdout)
    expect(any("(starved.py:" in frame for frame in frames), frames)
    plain = os.path.join(folder, "plain.sqlite")
    subprocess.run([PROGRAM, "profile", "-q", "-f", "-t", "nvtx", "-o", plain, "--", sys.executable, "-c", ""], check=True)
    subprocess.run([PROGRAM, "timeline", "-f", "-o", page, plain], stdout=subprocess.DEVNULL, check=True)
    expect('id="flame"' not in pathlib.Path(page).read_text(), "a flame graph of nothing")


def test_torch(folder, python):
    where = "real.py:%d" % line_with(REAL, "SLEEPS")
    for workers in ("0", "2"):
        _, path = profile(folder, [python, "real.py", workers], "-t", "nvtx", "--python-sampling")
        rows = [row for row in report(path, "stacks") if os.path.basename(row["Line"]) == where]
        expect(len(rows) == max(1, int(workers)), (workers, rows))
        if workers == "2":
            expect(all(row["Time (%)"] > 50 for row in rows), rows)


def main():
    with tempfile.TemporaryDirectory() as folder:
        files = {**FAKE, "threads.py": THREADS, "several.py": SEVERAL, "dataset.py": DATASET, "starved.py": STARVED,
                 "torch/utils/data/_utils/__init__.py": "", "torch/utils/data/_utils/fetch.py": FETCH}
        write_files(folder, files)
        test_off(folder, sys.executable)
        test_switch(folder, sys.executable)
        test_windows(folder, sys.executable)
        if "MILLRACE_CUPTI" in os.environ:
            test_verdict(folder, sys.executable)
            test_pictures(folder, shutil.which("chromium") or shutil.which("google-chrome"))
        for version, python in sorted(pythons().items()):
            major, minor = (int(part) for part in version.split(".")[:2])
            if (major, minor) < (3, 10):
                continue
            test_threads(folder, python, version)
            test_several(folder, python, version)
            print("Python", version)
    torch = os.environ.get("TORCH_PYTHON", sys.executable)
    if has_torch(torch):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "real.py").write_text(REAL)
            test_torch(folder, torch)
        print("torch")
    else:
        print("SKIP torch: %s has none; TORCH_PYTHON=FILE names a Python that does" % torch)


if __name__ == "__main__":
    main()
