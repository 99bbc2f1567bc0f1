#!/usr/bin/env python3
"""Sampled stacks of compiled code: `millrace profile --sample process-tree` on programs whose stacks are known.

usage: c_stacks.py PROGRAM STACKS_APP         exit status 0: passed; 1: not
"""
import ctypes.util
import json
import os
import pathlib
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile

PROGRAM, APP = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
SOURCE = pathlib.Path(__file__).parent.parent / "support" / "stacks_app.c"
LIBDW = ctypes.util.find_library("dw") == "libdw.so.1"
FIRST_NATIVE = 1 << 23


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def profile(folder, mode, *options, app=APP, status=0, hz=200, env=None):
    path = os.path.join(folder, mode + ".sqlite")
    done = subprocess.run([PROGRAM, "profile", "-q", "-f", "-o", path, "--sample", "process-tree", "--sampling-frequency",
                           str(hz), *options, "--", app, mode], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=env)
    expect(done.returncode == status, (mode, done.returncode, done.stdout, done.stderr))
    return path


def report(path, name, *options):
    done = subprocess.run([PROGRAM, "report", "-r", name, "-f", "json", *options, path], stdout=subprocess.PIPE, text=True,
                          check=True)
    return json.loads(done.stdout)


def times(path, column="Self (ns)", report_name="stacks_func"):
    """Function -> ns in all threads."""
    found = {}
    for row in report(path, report_name):
        found[row["Function"]] = found.get(row["Function"], 0) + row[column]
    return found


def line_of(mark):
    return 1 + next(i for i, line in enumerate(SOURCE.read_text().split("\n")) if "/* " + mark + " */" in line)


def stacks(db):
    """Each stack with its samples: functions from the outermost on."""
    nodes = {row[0]: row[1:] for row in db.execute("SELECT s.id, s.parentId, v.value FROM MILLRACE_STACKS s"
                                                   " JOIN StringIds v ON v.id = s.functionId")}
    for stack, samples in db.execute("SELECT stackId, sum(samples) FROM COMPOSITE_EVENTS GROUP BY stackId"):
        path = []
        while stack is not None:
            stack, name = nodes[stack]
            path.insert(0, name)
        yield path, samples


def test_hot(folder):
    """A hot function and a wait, in the C library and without it."""
    path = profile(folder, "hot")
    total = times(path, "Total (ns)")
    for name, least in (("hot_function", 0.4e9), ("known_wait", 0.5e9), ("bare_wait", 0.3e9), ("main", 1.2e9)):
        expect(total.get(name, 0) > least, (name, total))
    rows = {row["Line"].rsplit("/", 1)[-1]: row for row in report(path, "stacks")}
    if LIBDW:
        waits = rows.get("stacks_app.c:%d" % line_of("WAITS"))
        expect(waits and waits["Self (ns)"] > 0.5e9 and waits["On CPU (%)"] < 20, rows)
        expect(total.get("inlined_mix", 0) > 0.3e9, total)
    with sqlite3.connect(path) as db:
        deepest = max(sum(name == "deep" for name in stack) for stack, _ in stacks(db))
        whole = [samples for stack, samples in stacks(db) if "main" in stack]
        n = db.execute("SELECT sum(samples) FROM COMPOSITE_EVENTS").fetchone()[0]
        for own, native, module, build_id, address in db.execute(
                "SELECT s.id & 0xffffff, isNative, m.value, b.value, address FROM MILLRACE_STACKS s JOIN StringIds m"
                " ON m.id = moduleId LEFT JOIN StringIds b ON b.id = buildId"):
            expect(own >= FIRST_NATIVE and native == 1 and address, (own, native, module, build_id, address))
            expect(module == "[vdso]" or module.startswith("/"), module)
        chain = db.execute("SELECT count(*) FROM SAMPLING_CALLCHAINS WHERE symbol IS NULL OR originalIP IS NULL").fetchone()
        spans = db.execute("SELECT globalTid, start, \"end\" FROM COMPOSITE_EVENTS ORDER BY globalTid, start").fetchall()
    expect(deepest >= 50, "%d frames of deep()" % deepest)  # the compiler may unroll some
    expect(sum(whole) > 0.95 * n, "%d of %d samples reach main()" % (sum(whole), n))
    expect(chain == (0,), chain)
    for one, two in zip(spans, spans[1:]):
        expect(one[0] != two[0] or one[2] <= two[1], (one, two))
    return path


def test_pictures(folder, path):
    page, folded = os.path.join(folder, "hot.html"), os.path.join(folder, "hot.folded")
    for out in (page, folded):
        subprocess.run([PROGRAM, "timeline", "-f", "-o", out, path], stdout=subprocess.DEVNULL, check=True)
    lines = pathlib.Path(folded).read_text().splitlines()
    expect(any(re.search(r";main \([^;]*;hot_function \(", line) for line in lines), lines)
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if not browser:
        print("SKIP flame graph: no browser (chromium, google-chrome) on this machine")
        return
    done = subprocess.run([browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                           "--user-data-dir=" + os.path.join(folder, "browser"), "--virtual-time-budget=20000",
                           "--enable-logging=stderr", "--dump-dom", "file://" + page + "#stacks=1"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)
    expect("CONSOLE" not in done.stderr, done.stderr)
    frames = re.findall(r'<button [^>]*data-node="\d+"[^>]*>([^<]*)<', done.stdout)
    for name in ("main (", "hot_function (", "known_wait ("):
        expect(any(frame.startswith(name) for frame in frames), frames)


def test_stripped(folder):
    """Without symbols: places are module and offset, and stacks are still whole."""
    strip = shutil.which("strip")
    if not strip:
        print("SKIP stripped program: no strip")
        return
    app = os.path.join(folder, "bare_app")
    subprocess.run([strip, "-o", app, APP], check=True)
    # its library is where PROGRAM is: the app's own path to it starts at the folder that it was built in
    path = profile(folder, "hot", app=app, env={**os.environ, "LD_LIBRARY_PATH": os.path.dirname(PROGRAM)})
    total = times(path, "Total (ns)")
    expect("hot_function" not in total and any(re.fullmatch(r"bare_app\+0x[0-9a-f]+", name) for name in total), total)
    # a file that was built anew since has other addresses
    with open(app, "ab") as file:
        file.write(b"more")
    with sqlite3.connect(path) as db:
        modules = dict(db.execute("SELECT DISTINCT m.value, b.value FROM MILLRACE_STACKS JOIN StringIds m ON m.id = moduleId"
                                  " JOIN StringIds b ON b.id = buildId"))
    expect(re.fullmatch("[0-9a-f]{8,}", modules.get(app, "")), modules)


def test_processes(folder):
    path = profile(folder, "forks")
    with sqlite3.connect(path) as db:
        n = db.execute("SELECT count(DISTINCT globalTid >> 24) FROM COMPOSITE_EVENTS").fetchone()[0]
    expect(n >= 2, "%d processes" % n)
    total = times(path, "Total (ns)")
    expect(total.get("known_wait", 0) > 0.2e9 and total.get("hot_function", 0) > 0.1e9, total)


def test_others(folder):
    """Threads that end, that block signals; a program with SIGPROF and SIGURG of its own; calls that return EINTR."""
    profile(folder, "threads", hz=1000)
    total = times(profile(folder, "blocked"), "Total (ns)")
    expect(total.get("hot_function", 0) + total.get("[signals blocked]", 0) > 0.2e9, total)
    profile(folder, "signals", hz=1000)
    profile(folder, "interrupted", hz=1000)
    path = profile(folder, "none", "-t", "none")
    expect(report(path, "stacks") == [], report(path, "stacks"))


def test_loader(folder):
    """The line of a data set's callback is what the loader's workers wait in."""
    path = profile(folder, "loads")
    told = " ".join(subprocess.run([PROGRAM, "analyze", path], stdout=subprocess.PIPE, text=True, check=True).stdout.split())
    where = "stacks_app.c:%d slow_get" % line_of("SLEEPS") if LIBDW else "stacks_app slow_get"
    expect(re.search(r"Meanwhile %s is (\d\d|100)%% of the loader's time" % re.escape(where), told), told)


def test_mixed(folder):
    """Python's stacks and those of its code in C, side by side: each thread is there once for each."""
    path = os.path.join(folder, "mixed.sqlite")
    code = "import time\nend = time.time() + 0.8\nwhile time.time() < end: sum(range(1000))\ntime.sleep(0.3)\n"
    subprocess.run([PROGRAM, "profile", "-q", "-f", "-o", path, "-t", "nvtx", "--sample", "process-tree",
                    "--python-sampling", "--", sys.executable, "-c", code], check=True)
    labels = {row["Thread"] for row in report(path, "stacks_func")}
    with sqlite3.connect(path) as db:
        kinds = {row[0] for row in db.execute("SELECT DISTINCT isNative FROM MILLRACE_STACKS")}
    if kinds == {0, 1}:
        expect(any(label.endswith(" (C)") for label in labels) and any(not label.endswith(" (C)") for label in labels), labels)
    else:  # this Python is none that is sampled
        expect(kinds == {1}, kinds)


def test_killed(folder):
    """What was sampled before a kill is there."""
    path = os.path.join(folder, "killed.sqlite")
    done = subprocess.run([PROGRAM, "profile", "-q", "-f", "-o", path, "--sample", "process-tree", "--cuda-flush-interval",
                           "20ms", "--", "sh", "-c", '"$1" loads & sleep 0.7; kill -KILL $!; wait', "sh", APP],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    expect(done.returncode in (0, 128 + signal.SIGKILL), (done.returncode, done.stderr))
    expect(times(path, "Total (ns)").get("slow_get", 0) > 0, done.stderr)


def main():
    with tempfile.TemporaryDirectory() as folder:
        test_pictures(folder, test_hot(folder))
        test_stripped(folder)
        test_processes(folder)
        test_others(folder)
        test_loader(folder)
        test_mixed(folder)
        test_killed(folder)
    if not LIBDW:
        print("SKIP source lines: libdw is not installed")


if __name__ == "__main__":
    main()
