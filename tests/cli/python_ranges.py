#!/usr/bin/env python3
"""Automatic ranges of Python programs under `millrace profile`: with a stand-in for torch under each Python that is found,
with torch itself where $TORCH_PYTHON or this Python has it; and what programs see of the hook.

usage: python_ranges.py PROGRAM         exit status 0: passed; 1: not
"""
import os
import pathlib
import re
import sqlite3
import subprocess
import sys
import tempfile

from python_programs import FAKE, PROGRAM, expect, has_torch, profile, pythons, write_files

HOOK = os.path.join(os.path.dirname(PROGRAM), "record-python")

LOOP = """
import threading
import torch, torch.autograd
from torch.utils.data import DataLoader

class Mine(torch.optim.Optimizer):
    def step(self):
        return 7

def train(optimizer):
    for batch in DataLoader([1, 2, 3]):
        torch.autograd.backward(batch)
        assert optimizer.step() == 7

def generated():  # its loader's range is over before it is suspended
    for batch in DataLoader([1, 2]):
        yield batch

optimizer = Mine()
train(optimizer)
threads = [threading.Thread(target=train, args=(optimizer,)) for _ in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
one, two = generated(), generated()
assert [next(one), next(two), next(one)] == [1, 1, 2]
try:
    torch.autograd.backward(None)
except ValueError as error:
    assert "no tensors" in str(error)
assert torch.autograd.backward.__name__ == "backward" and Mine.step.hooked
assert torch.autograd.__loader__ is torch.autograd.__spec__.loader
assert type(torch.autograd.__loader__).__name__ == "SourceFileLoader"
"""

# A loop on a GPU that is not there: the stand-in for CUPTI tells the recorder of launches and kernels. Loading is a
# loop of the interpreter's own, so that no system call tells of it either.
STARVED = """
import ctypes, os, sys, time
import torch.autograd, torch.optim
from torch.utils.data import DataLoader

cupti = ctypes.CDLL(os.environ["MILLRACE_CUPTI"], ctypes.RTLD_GLOBAL)
ctypes.CDLL(os.environ["CUDA_INJECTION64_PATH"]).InitializeInjection()
names = [ctypes.create_string_buffer(name) for name in (b"_Z7forwardPf", b"_Z4adamPf")]

def launch(name):
    correlation = cupti.fake_call(1, 307, 0)
    cupti.fake_kernel(correlation, name, 0)

def load():
    for i in range(30):
        end = time.perf_counter() + 0.002
        while time.perf_counter() < end:
            pass
        yield i

class Adam(torch.optim.Optimizer):
    def step(self):
        launch(names[1])

optimizer = Adam()
for batch in DataLoader(load()):
    launch(names[0])
    torch.autograd.backward(batch)
    optimizer.step()
"""

REAL = """
import sys, threading
import torch
from torch.utils.data import DataLoader, TensorDataset

def main():
    workers, persistent = int(sys.argv[1]), sys.argv[2] == "1"
    data = TensorDataset(torch.rand(64, 8), torch.randint(0, 4, (64,)))
    loader = DataLoader(data, batch_size=16, num_workers=workers, persistent_workers=persistent)
    net = torch.nn.Linear(8, 4)
    optimizer = torch.optim.Adam(net.parameters())
    run = torch.compile(net, backend="eager") if sys.argv[3] == "1" else net
    for epoch in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(run(x), y).backward()
            optimizer.step()
    try:
        torch.autograd.backward(torch.zeros(()))  # requires no gradient
    except RuntimeError:
        pass
    if sys.argv[3] == "1":
        def whole():
            optimizer.step()
        torch.compile(whole, backend="eager")()

if __name__ == "__main__":
    main()
"""


def ranges(path):
    """The ranges of the domain python: lists of (name, start, end) by (process, thread)."""
    found = {}
    with sqlite3.connect(path) as db:
        domains = [row[0] for row in db.execute(
            "SELECT domainId FROM NVTX_EVENTS e LEFT JOIN StringIds s ON s.id = e.textId "
            "WHERE eventType = 75 AND coalesce(e.text, s.value) = 'python'")]
        rows = db.execute("SELECT globalTid, coalesce(e.text, s.value), start, end, domainId FROM NVTX_EVENTS e "
                          "LEFT JOIN StringIds s ON s.id = e.textId WHERE eventType = 59 ORDER BY start")
        for tid, name, start, end, domain in rows:
            if domain in domains:
                found.setdefault((tid >> 24, tid & 0xffffff), []).append((name, start, end))
    return found


def count(rows):
    names = {}
    for name, start, end in rows:
        expect(end is not None and end >= start, "%s was not ended" % name)
        names[name] = names.get(name, 0) + 1
    return names


def test_fake_torch(folder, python):
    _, path = profile(folder, [python, "loop.py"], "-t", "nvtx", PYTHONPATH=folder)
    threads = ranges(path)
    by_thread = sorted(str(sorted(count(rows).items())) for rows in threads.values())
    plain = {"DataLoader": 4, "DataLoader start": 1, "backward": 3, "optimizer step": 3}
    main = {"DataLoader": 4 + 3, "DataLoader start": 1 + 2, "backward": 3 + 1, "optimizer step": 3}
    expect(by_thread == sorted(str(sorted(x.items())) for x in (main, plain, plain)), by_thread)
    for rows in threads.values():
        for (name, _, end), (after, start, _) in zip(rows, rows[1:]):
            expect(end <= start, "%s ends after %s began" % (name, after))
    _, path = profile(folder, [python, "loop.py"], "-t", "nvtx", "--python-ranges", "off", PYTHONPATH=folder)
    expect(not ranges(path), "ranges though they are off")
    code = "import millrace.loader; assert list(millrace.loader.DataLoader()) == [1, 0]"
    _, path = profile(folder, [python, "-c", code], "-t", "nvtx")
    (rows,) = ranges(path).values()
    expect(count(rows) == {"DataLoader": 3, "DataLoader start": 1}, rows)


def test_what_programs_see(folder, python, version):
    """A Python that imports no torch, whatever its version, runs as without us; the environment is for its children."""
    ask = "import sys; print(sys.path); print(sorted(m for m in sys.modules if 'custom' in m)); print(sys.flags)"
    for flags in [[], ["-E"], ["-S"], ["-s"]] + ([["-I"]] if version[0] == "3" else []):
        plain = subprocess.run([python, *flags, "-c", ask], cwd=folder, stdout=subprocess.PIPE, text=True)
        done, _ = profile(folder, [python, *flags, "-c", ask], "-t", "nvtx")
        here = plain.stdout.replace(", 'sitecustomize'", "").replace("['sitecustomize']", "[]")
        if "-S" in flags:  # nothing of ours runs, so nothing takes our folder out of the path again
            done.stdout = done.stdout.replace("'%s', " % HOOK, "")
        there = done.stdout.replace(", 'sitecustomize'", "").replace("['sitecustomize']", "[]")
        expect(here == there and not warnings(done.stderr), (python, flags, plain.stdout, done.stdout, done.stderr))
    # A sitecustomize that we hide runs, once, and is what the program imports.
    other = os.path.join(folder, "other")
    os.makedirs(other, exist_ok=True)
    pathlib.Path(other, "sitecustomize.py").write_text("import sys\nprint('other')\nmark = 1\n")
    ask = "import sitecustomize; print(sitecustomize.mark, sitecustomize.__file__.split('/')[-2])"
    done, _ = profile(folder, [python, "-c", ask], "-t", "nvtx", PYTHONPATH=other)
    expect(done.stdout.split("\n")[0] == "other" and done.stdout.count("other") == 2, done.stdout)
    # One that fails is reported as ever.
    pathlib.Path(other, "sitecustomize.py").write_text("raise RuntimeError('mine')\n")
    plain = subprocess.run([python, "-c", "print(1)"], env={**os.environ, "PYTHONPATH": other}, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True)
    done, _ = profile(folder, [python, "-c", "print(1)"], "-t", "nvtx", PYTHONPATH=other, check=False)
    expect(plain.stdout == done.stdout and plain.returncode == done.returncode, (python, plain, done))
    expect(plain.stderr.strip() and plain.stderr.strip() in done.stderr, (python, plain.stderr, done.stderr))


def warnings(text):
    """What the profiler itself says of an empty recording is not meant."""
    return [line for line in text.split("\n") if line and "nothing was recorded" not in line]


def test_environment(folder):
    ask = ["sh", "-c", "echo \"$PYTHONPATH\""]
    run = [("", [], HOOK), ("a:b", [], HOOK + ":a:b"), ("a:b", ["--python-ranges", "off"], "a:b"),
           ("a", ["-t", "cuda"], "a")]
    for given, options, expected in run:
        done, _ = profile(folder, ask, *(["-t", "nvtx"] if "-t" not in options else []), *options, PYTHONPATH=given)
        expect(done.stdout.strip() == expected, (given, options, done.stdout))
    done, _ = profile(folder, ask, "--python-ranges", "some", check=False)
    expect(done.returncode == 2 and "expected on or off" in done.stderr, done.stderr)


def test_broken_torch(folder, python):
    """A torch that has other things, or fails to import, is the program's own affair."""
    broken = os.path.join(folder, "broken")
    os.makedirs(os.path.join(broken, "torch/autograd"), exist_ok=True)
    pathlib.Path(broken, "torch/__init__.py").write_text("x = 1\n")
    pathlib.Path(broken, "torch/autograd/__init__.py").write_text("y = 1\n")
    pathlib.Path(broken, "torch/optim").mkdir(exist_ok=True)
    pathlib.Path(broken, "torch/optim/optimizer.py").write_text("import sys\nsys.tries = getattr(sys, 'tries', 0) + 1\n"
                                                               "if sys.tries == 1: raise ImportError('not yet')\n")
    ask = ("import torch.autograd\ntry:\n    import torch.optim.optimizer\nexcept ImportError as e:\n    print(e)\n"
           "import torch.optim.optimizer; print(torch.autograd.y)")
    done, _ = profile(broken, [python, "-c", ask], "-t", "nvtx")
    expect(done.stdout.split() == ["not", "yet", "1"] and not warnings(done.stderr), (done.stdout, done.stderr))


def test_torch(folder, python):
    for workers, persistent, compiled in ((0, 0, 0), (2, 0, 0), (2, 1, 0), (0, 0, 1)):
        _, path = profile(folder, [python, "real.py", str(workers), str(persistent), str(compiled)],
                          "-t", "nvtx,osrt" if workers else "nvtx")
        threads = ranges(path)
        expect(len(threads) == 1, "ranges of other threads than the main one: %s" % list(threads))
        (process, thread), rows = threads.popitem()
        names = count(rows)
        expect(names.get("DataLoader") == 10 and names.get("DataLoader start") == 2, names)
        expect(names.get("backward") == 9, names)
        expect(names.get("optimizer step", 0) == 8 + compiled, names)
        expect(process & 0xffffff == thread, "not the main thread")
        if workers:
            with sqlite3.connect(path) as db:
                n = db.execute("SELECT count(DISTINCT globalTid >> 24) FROM OSRT_API").fetchone()[0]
            expect(n >= 1 + workers * (1 if persistent else 2), "%d processes were recorded" % n)


def test_verdict(folder, python):
    """A script that says nothing of its steps and its loader gets an answer."""
    pathlib.Path(folder, "starved.py").write_text(STARVED)
    told = {}
    for ranges_ in ("on", "off"):
        _, path = profile(folder, [python, "starved.py"], "-t", "cuda,nvtx", "--python-ranges", ranges_)
        told[ranges_] = subprocess.run([PROGRAM, "analyze", path], stdout=subprocess.PIPE, text=True, check=True).stdout
    text = " ".join(told["on"].split())
    expect(re.match(r"data-bound: the GPU waited (9\d|100)% of the step", text), text)
    expect('from one NVTX range "DataLoader" to the next' in text and 'in the range "DataLoader"' in text, text)
    expect("data-bound: " not in told["off"], told["off"])


def main():
    with tempfile.TemporaryDirectory() as folder:
        write_files(folder, {**FAKE, "loop.py": LOOP})
        test_environment(folder)
        if "MILLRACE_CUPTI" in os.environ:
            test_verdict(folder, sys.executable)
        test_broken_torch(folder, sys.executable)
        for version, python in sorted(pythons().items()):
            major, minor = (int(part) for part in version.split(".")[:2])
            test_what_programs_see(folder, python, version)
            if (major, minor) >= (3, 8):
                test_fake_torch(folder, python)
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
