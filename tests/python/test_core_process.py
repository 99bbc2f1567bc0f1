"""millrace._core: what concerns a whole process: imports, its end, signals, limits."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
SETUP = f"""
import sys, threading, time
sys.path.insert(0, {HERE!r})
from core_sets import *
"""

SLOW = """
def slow(*call):
    time.sleep(0.02)
    return fetch(*call)
"""


def test_import_is_light(clean: Callable[..., str]):
    """Neither torch nor numpy, and few modules at all."""
    code = """
import sys
before = set(sys.modules)
import millrace
new = set(sys.modules) - before
heavy = {"torch", "numpy", "typing", "multiprocessing", "logging", "asyncio", "subprocess"} & new
assert not heavy, heavy
assert len(new) < 40, sorted(new)
"""
    clean(code)


@pytest.mark.parametrize("workers", [1, 2, 16])
def test_exit_with_a_live_loader(clean: Callable[..., str], workers: int):
    """Its threads are in Python code then, or wait for the GIL."""
    clean(SETUP + SLOW + f"""
l = loader(python_set(100000, slow), workers={workers})
b = l.next()
y = np.from_dlpack(b.field(1))
""")


def test_exit_with_live_loaders_of_all_kinds(clean: Callable[..., str]):
    clean(SETUP + """
a = loader(python_set(100000), workers=4)
b = loader(c.Dataset.open("synthetic:n=100000,shape=8,dtype=f32"), None, workers=4)
def read(number): return np.zeros((3, 4), np.float32), number
i = loader(c.Dataset.iterable(FIELDS, read, None), None)
held = [l.next() for l in (a, b, i)]
fields = [h.field(0) for h in held]
""")


def test_exit_while_another_thread_waits(clean: Callable[..., str]):
    clean(SETUP + """
def never(*call):
    time.sleep(0.3)
    return fetch(*call)
l = loader(python_set(100000, never))
t = threading.Thread(target=lambda: l.next(), daemon=True)
t.start()
time.sleep(0.05)
threading.excepthook = lambda args: None
""")


def test_no_loader_after_the_end(clean: Callable[..., str]):
    out = clean(SETUP + """
c._end()  # as atexit calls it
try:
    loader(python_set())
except RuntimeError as e:
    print(e)
""")
    assert "the interpreter is ending" in out


def test_sys_exit_in_the_loop(clean: Callable[..., str]):
    clean(SETUP + """
l = loader(python_set(100000), workers=4)
while (b := l.next()) is not None:
    x = np.from_dlpack(b.field(0))
    if b.index == 5:
        sys.exit(0)
""")


def interrupt(code: str) -> tuple[float, subprocess.CompletedProcess[str]]:
    """Sends SIGINT when the code has printed a line; seconds until it has ended."""
    p = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert p.stdout is not None
    assert p.stdout.readline() == "ready\n"
    time.sleep(0.3)
    begun = time.monotonic()
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=60)
    return time.monotonic() - begun, subprocess.CompletedProcess([], p.returncode, out, err)


def test_keyboard_interrupt():
    _, done = interrupt(SETUP + """
def slow(*call):
    while not stop.wait(0.05):
        pass
    return fetch(*call)
stop = threading.Event()
l = loader(python_set(1000, slow))
print("ready", flush=True)
try:
    l.next()
except KeyboardInterrupt:
    print("interrupted", l.samples)
stop.set()
print(sum(1 for _ in labels(l)))  # the loader goes on
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted 1000\n1000\n", "")


def test_keyboard_interrupt_ends_the_program():
    _, done = interrupt(SETUP + SLOW + """
l = loader(python_set(100000, slow), workers=4)
print("ready", flush=True)
while l.next() is not None:
    pass
""")
    assert done.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in done.stderr and "Fatal" not in done.stderr


def test_few_files(clean: Callable[..., str]):
    """64 open files are enough, and what needs more says so."""
    clean(SETUP + """
import resource, os
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
for workers in (2, 16):
    for _ in range(10):
        assert sorted(labels(loader(python_set(), workers=workers))) == list(range(1000))
assert len(os.listdir("/proc/self/fd")) < 32
held = []
try:
    while True:
        held.append(open("/dev/null"))
except OSError:
    pass
l = loader(python_set(), workers=2)
try:
    l.fileno()
    raise SystemExit("fileno() needs a file")
except OSError as e:
    assert e.errno == 24, e
assert sorted(labels(l)) == list(range(1000))
""")


def test_missing_libcuda(clean: Callable[..., str]):
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("there is a GPU")
    out = clean(SETUP + """
try:
    c.Loader(python_set(), device="cuda")
except RuntimeError as e:
    print(e)
""")
    assert "libcuda" in out or "driver" in out


def test_missing_libcurl(clean: Callable[..., str], tmp_path: Path):
    """Files in the place of the library that are none: the linker looks no further."""
    for name in ("libcurl.so.4", "libcurl-gnutls.so.4", "libcurl.so"):
        (tmp_path / name).touch()
    code = SETUP + """
import millrace
try:
    c.Dataset.open("npy:http://127.0.0.1:1/x.npy")
except NotImplementedError as e:
    print(e)
assert sorted(labels(loader(python_set()))) == list(range(1000))
"""
    assert "libcurl4" in clean(code, LD_LIBRARY_PATH=str(tmp_path))


# A filter that has memfd_create fail with ENOSYS, as kernels and sandboxes without it do.
NO_MEMFD = """
import ctypes, struct
MEMFD_CREATE, ENOSYS = 319, 38
code = [(0x20, 0, 0, 0), (0x15, 0, 1, MEMFD_CREATE), (0x06, 0, 0, 0x50000 | ENOSYS),
        (0x06, 0, 0, 0x7FFF0000)]
text = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *op) for op in code))
program = struct.pack("HxxxxxxP", len(code), ctypes.addressof(text))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
if libc.prctl(22, 2, program, 0, 0) != 0:
    print("no filters here")
    raise SystemExit
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the filter is of x86-64's numbers")
@pytest.mark.parametrize("context", ["fork", "forkserver", "spawn"])
def test_no_memfd(clean: Callable[..., str], context: str):
    """Worker processes and shared lists need it, and say so; threads do not."""
    pytest.importorskip("numpy")
    out = clean(NO_MEMFD + SETUP + f"""
import errno, millrace
from loader_sets import Squares
with millrace.DataLoader(Squares(10), 5, as_="numpy") as l:
    assert [b[1].tolist() for b in l] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
for make in (
    lambda: next(iter(millrace.DataLoader(Squares(10), 5, as_="numpy", num_workers=2,
                                          multiprocessing_context={context!r}))),
    lambda: millrace.shared_list(["a", "b"]),
):
    try:
        make()
        print("made")
    except OSError as e:
        print(e.errno == errno.ENOSYS and "memfd_create" in str(e), e)
""")
    if out == "no filters here\n":
        pytest.skip(out)
    assert [line.split()[0] for line in out.splitlines()] == ["True", "True"], out
