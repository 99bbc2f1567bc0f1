"""millrace bench processes: each way of each experiment is there, every batch's bytes are counted, each item is mapped once (the
program checks contents itself); what it says without a Python; that interrupts leave no process behind.
usage: processes.py PROGRAM"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import xml.dom.minidom

PROGRAM = os.path.abspath(sys.argv[1])
SHORT = "--starts 3 --resident 1MiB --min 64 --max 1KiB --time 2ms --items 100 --item 1us --chunks 3,64 --workers 3 --repeats 1"
SIZES, CHUNKS = [64, 1024], [3, 64]


def run(options, status=0):
    command = [PROGRAM, "bench", "processes", *options.split()]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert done.returncode == status, (options, done)
    return done


def equal(got, want):
    assert got == want, f"got {got}, want {want}"


def check_starts(cells, language):
    full = ["fork_resident"] if language == "C" else []
    equal([c["way"] for c in cells], ["thread", "fork", *full, "forkserver", "spawn"])
    for c in cells:
        equal(c["n"], 3)
        assert c["ended_us"] >= c["us"], c
    equal(cells[0]["of_thread"], 1)


def check_batches(cells, language):
    ways = ["pickle", "pipe", "copy", "handle", "pointer"] if language == "C" else ["pickle", "handle"]
    equal([c["way"] for c in cells], [w for w in ways for _ in SIZES])
    equal([c["batch_bytes"] for c in cells], SIZES * len(ways))
    for c in cells:
        equal(c["bytes"], c["n"] * c["batch_bytes"])
        if c["way"] == "pointer":
            equal(c["of_pointer"], 1)


def check_maps(cells):
    equal([c["way"] for c in cells], ["serial", "threads", "threads", "processes", "processes"])
    equal([(c["workers"], c["chunk_items"]) for c in cells[1:]], [(3, n) for n in CHUNKS] * 2)
    assert "workers" not in cells[0] and "chunk_items" not in cells[0], cells[0]
    equal({c["n"] for c in cells}, {100})
    equal(cells[0]["speed_up"], 1)


def check_all(result, languages):
    equal(sorted({c["language"] for c in result["cells"]}), languages)
    assert result["item_rounds"] > 0 and len(result["findings"]) >= 5, result
    assert all(c["us"] > 0 and c["n"] > 0 and "left_out" not in c for c in result["cells"]), result
    for language in languages:
        of = [c for c in result["cells"] if c["language"] == language]
        check_starts([c for c in of if c["experiment"] == "start"], language)
        check_batches([c for c in of if c["experiment"] == "pass"], language)
        check_maps([c for c in of if c["experiment"] == "map"])


def test_c():
    result = json.loads(run(f"{SHORT} --python none --json --plot p.svg").stdout)
    check_all(result, ["C"])
    assert result["python"] is None and "python_why_not" not in result, result
    xml.dom.minidom.parse("p.svg")
    chart = open("p.svg").read()
    equal(chart.count("<polyline"), 5 + 2)
    for name in "fork server", "shared memory, handle", "pointer":
        assert name in chart, name


def test_python():
    result = json.loads(run(f"{SHORT} --python {sys.executable} --json").stdout)
    check_all(result, ["C", "Python"])
    equal(result["python"], "Python " + sys.version.split()[0])


def test_text():
    text = run(f"{SHORT} --python none").stdout
    for part in "Start: ", "Batches: ", "Map: ", "What this run says:":
        equal(sum(line.startswith(part) for line in text.splitlines()), 1)
    start = text[text.index("Start: "):text.index("Batches: ")]
    assert "of a thread" in start and "speed-up" not in start and "batch" not in start, start
    assert all(len(line) <= 100 for line in text.splitlines()), text


def test_no_python():
    with open("other", "w") as file:
        file.write("#!/bin/sh\necho hello\n")
    os.chmod("other", 0o755)
    for program, why in ("./no-such", "./no-such ended, or could not be run"), ("./other", "./other is no Python: it answered 'hello'"):
        result = json.loads(run(f"{SHORT} --python {program} --json").stdout)
        check_all(result, ["C"])
        assert result["python"] is None and result["python_why_not"].startswith(why), result
        assert f"without Python: {why}" in run(f"{SHORT} --python {program}").stdout


def test_misuse():
    for options, want in (
        ("--chunks 1,,2", "--chunks 1,,2: expected at most 8 numbers of 1..4096 with commas between"),
        ("--chunks 5000", "--chunks 5000: expected at most 8 numbers of 1..4096 with commas between"),
        ("--min 1MiB --max 4KiB", "--min: expected at most --max, 4096 bytes"),
    ):
        equal(run(options, 2).stderr, f"millrace bench processes: {want}\n")


def descendants(pid):
    """Of those that run: a task may end while its list is read."""
    found = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            for child in open(f"/proc/{pid}/task/{task}/children").read().split():
                found += [int(child), *descendants(int(child))]
    except OSError:
        pass
    return found


def is_running(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_interrupt():
    """Ctrl-C goes to the whole group. Nothing is left, and nothing but the program says so."""
    command = [PROGRAM, "bench", "processes", "--python", sys.executable, "--time", "600s"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    below = []
    while len(below) < 2:  # the server that forks, and Python
        time.sleep(0.05)
        below = descendants(child.pid)
    os.killpg(child.pid, signal.SIGINT)
    out, err = child.communicate()
    # What it measured until then, if that was anything.
    assert child.returncode == 1 and (out == "" or out.endswith("255 measurements were made.\n")), (child.returncode, out)
    assert err.count("interrupted") >= 1 and "Traceback" not in err, err
    while any(is_running(pid) for pid in below):  # the test's time limit ends this
        time.sleep(0.05)


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
    os.chdir("/")
