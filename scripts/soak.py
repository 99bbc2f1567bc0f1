#!/usr/bin/env python3
"""A soak: a long run, and beside it short ones that are killed or whose disk is full. The long run's memory, descriptors and
threads, and temporary files, stay flat after a warm-up; each short one ends by the kill or with status 0 or 1.
usage: soak.py KIND SECONDS FOLDER     KIND: sim, photos, video, http, python. FOLDER: for data and logs, removed at the end. Ends
with a line of figures; exit status 0: all was flat.
MILLRACE: the program, by default build/dev/millrace; python needs PYTHONPATH=build/python and numpy. SOAK_PROGRESS: a file that
gets the figures so far every minute."""
import glob
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM = os.environ.get("MILLRACE", os.path.join(ROOT, "build", "dev", "millrace"))
if len(sys.argv) != 4:
    print("usage: scripts/soak.py sim|photos|video|http|python SECONDS FOLDER", file=sys.stderr)
    sys.exit(2)
KIND, SECONDS, WORK = sys.argv[1], float(sys.argv[2]), os.path.abspath(sys.argv[3])
PROGRESS = os.environ.get("SOAK_PROGRESS")
CHANCE = random.Random(time.time_ns())
TEMPORARY = re.compile(r"\.part-|/tmp\.\d|unpacked\.|millrace-import|\.tmp$")
FULL = os.path.join(WORK, "full")  # a small file system, or where it cannot be mounted an ordinary folder and a limit of files
FULL_BYTES = 1 << 20
FORK = [sys.executable, os.path.join(ROOT, "scripts", "soak_workers.py")]


def run(*arguments, check=True):
    done = subprocess.run([PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if check and done.returncode != 0:
        sys.exit(f"{' '.join(arguments)}: {done.stdout}")
    return done


def mount_full():
    os.makedirs(FULL)
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={FULL_BYTES}", "none", FULL], stderr=subprocess.DEVNULL)
    return made.returncode == 0


def constant(file, name):
    with open(os.path.join(ROOT, file), encoding="utf-8") as f:
        return int(re.search(rf"^#define {name} (\d+)$", f.read(), re.MULTILINE).group(1))


def path(name):
    return os.path.join(WORK, name)


class Kind:
    """data(): makes what is read; main(): the long run's command; short(): a short run's arguments, with %s for its output."""

    def data(self):
        run("synth", "raw", path("x.bin"), "--n", "2000", "--shape", "4096", "--dtype", "u8", "-q")

    def feed(self, *options):
        return [PROGRAM, "feed", *self.source(), "-b", "32", "-w", "3", "-q", "--time", f"{SECONDS:.0f}s", *options]

    def source(self):
        return [f"raw:{path('x.bin')},shape=4096,dtype=u8", "--shuffle"]

    def main(self):
        return self.feed("-d", "sim:h2d=20")

    def short(self, out):
        return ["pack", self.source()[0], out + "/pack", "--shard-count", "100", "-w", "2", "-q"]

    def tick(self, main):
        """Once in a while, beside the long run."""

    def close(self):
        pass

    kills = 0  # of worker processes
    most_connections = None  # a number: they are counted apart, and there may be so many


class Sim(Kind):
    pass


class Photos(Kind):
    def data(self):
        run("synth", "photos", path("photos"), "--n", "200", "--side", "96", "-q")

    def source(self):
        return [f"folder:{path('photos')}", "--shuffle", "-t", "random_resized_crop(64),hflip(0.5),cast(f32)"]

    def main(self):
        return self.feed("-d", "sim:h2d=20")


class Video(Kind):
    def data(self):
        for i in range(40):
            os.makedirs(path(f"videos/{i % 4}"), exist_ok=True)
            shutil.copy(os.path.join(ROOT, "tests/fuzz/corpus/video/mpeg4.mp4"), path(f"videos/{i % 4}/{i}.mp4"))

    def source(self):
        return [f"video:{path('videos')}", "--shuffle"]

    def main(self):
        return self.feed("-d", "cpu")


class Http(Kind):
    """A cache that is too small for the data, shared with runs that are killed; the server stops
    for a second at times.

    A read through the disk cache keeps a thread of the storage's pool busy, with one request at a
    time. libcurl opens a connection only when none that it keeps is idle, so there are never more
    than the pool has threads. How many there are follows the most reads in flight so far."""

    def data(self):
        self.most_connections = constant("src/storage/read_pool.h", "MR_POOL_THREADS")
        run("synth", "npy", path("files/x.npy"), "--n", "3000", "--shape", "4096", "--dtype", "u8", "--classes", "0", "-q")
        self.serve()

    server = None

    def serve(self):
        server = [sys.executable, os.path.join(ROOT, "tests/support/fault_server.py"), path("files")]
        self.server = subprocess.Popen(server, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self.server.stdout.readline().split()[1])

    def source(self):
        return [f"npy:http://127.0.0.1:{self.port}/ok/x.npy", "--shuffle"]

    def main(self):
        """Patient: on a busy machine the server gets little time."""
        return self.feed("-d", "cpu", "--cache-dir", path("cache"), "--cache-limit", "9MiB", "--stall-timeout", "180s")

    def short(self, out):
        cache = FULL + "/cache" if out == FULL else path("cache")
        return ["feed", *self.source(), "-d", "cpu", "-e", "1", "-q", "--cache-dir", cache, "--cache-limit", "9MiB"]

    def tick(self, main):
        """Stopped for less time than the run retries."""
        if CHANCE.random() < 0.2:
            self.server.send_signal(signal.SIGSTOP)
            time.sleep(1)
            self.server.send_signal(signal.SIGCONT)

    def close(self):
        if self.server:
            self.server.kill()
            self.server.wait()


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
            return f.read().split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def has_begun(pid):
    """A worker names itself at its first sample: one that is killed four times before that is given up."""
    try:
        with open(f"/proc/{pid}/comm", encoding="ascii") as f:
            return f.read() == "has-begun\n"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Python(Kind):
    """Worker processes, one of which is killed every now and then. They are children of the server that forks them. A sample
    during which two workers die is bad, so a whole epoch passes between two kills: what was being made at the first is done."""

    last = -2  # epochs that were done at the latest kill

    def main(self):
        return [*FORK, f"{SECONDS:.0f}"]

    def tick(self, main):
        with open(path("log"), encoding="utf-8") as log:
            epochs = len(log.readlines())
        workers = [worker for server in children(main.pid) for worker in children(server) if has_begun(worker)]
        if workers and epochs >= self.last + 2:
            self.last = epochs
            try:
                os.kill(int(CHANCE.choice(workers)), signal.SIGKILL)
                self.kills += 1
            except ProcessLookupError:
                pass


KINDS = {"sim": Sim, "photos": Photos, "video": Video, "http": Http, "python": Python}


def temporaries():
    return sorted(f for f in glob.glob(WORK + "/**", recursive=True) if TEMPORARY.search(f))


def is_old(name):
    """The disk cache removes what killed processes left once it is an hour old, at its next look for space: the faster the
    machine, the more there are until then."""
    try:
        return "/cache/" not in name or time.time() - os.stat(name).st_mtime > 4200
    except FileNotFoundError:
        return False


def old_temporaries():
    return [f for f in temporaries() if is_old(f)]


def resident(pid):
    """Memory in MiB."""
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)
    return int(status["VmRSS"].split()[0]) / 1024


def descriptors(pid):
    """By number and name. One that two looks in a row see is held: those of files that are being read come and go."""
    found = set()
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            found.add((number, os.readlink(f"/proc/{pid}/fd/{number}")))
        except FileNotFoundError:
            pass  # it has just been closed
    return found


def connections_of(pid, opened):
    """Those of TCP: libcurl has a pair of sockets of its own. Read after the descriptors, it leaves
    out those that were closed while they were read."""
    inodes = set()
    tables = [table for table in ("tcp", "tcp6") if os.path.exists(f"/proc/net/{table}")]
    for table in tables:
        with open(f"/proc/{pid}/net/{table}", encoding="ascii") as f:
            inodes |= {f"socket:[{line.split()[9]}]" for line in f.readlines()[1:]}
    return {descriptor for descriptor in opened if descriptor[1] in inodes}


def threads(pid):
    """The program's, and those of the kernel. io_uring starts the latter for a thread when an open or a read of it cannot be done
    at once, up to four for each processor, and keeps one until that thread ends."""
    names = []
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/comm", encoding="utf-8", errors="replace") as f:
                names.append(f.read())
        except (FileNotFoundError, ProcessLookupError):
            pass  # it has just ended
    kernel = sum(name.startswith("iou-") for name in names)
    return len(names) - kernel, kernel


def wait_and_watch(child, watch):
    while True:
        try:
            return child.wait(5)
        except subprocess.TimeoutExpired:
            watch()


def short_run(kind, mounted, counts, watch):
    """One that is killed, or one whose disk is full."""
    full = CHANCE.random() < 0.4
    out = FULL if full else WORK

    def limit():
        if full and not mounted:
            resource.setrlimit(resource.RLIMIT_FSIZE, (FULL_BYTES // 4, FULL_BYTES // 4))

    child = subprocess.Popen([PROGRAM, *kind.short(out)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=limit)
    if full:
        status = wait_and_watch(child, watch)
        counts["full"] += 1
        if temporaries_in(FULL):
            sys.exit(f"a full disk left {temporaries_in(FULL)}")
        shutil.rmtree(FULL + "/pack", ignore_errors=True)
    else:
        try:
            status = child.wait(CHANCE.uniform(0, 1))
        except subprocess.TimeoutExpired:
            child.kill()
            status = child.wait()
            counts["killed"] += 1
        if status == 0:
            shutil.rmtree(path("pack"), ignore_errors=True)
    if status not in (0, 1, -signal.SIGKILL):
        sys.exit(f"{' '.join(kind.short(out))}: status {status}")


def temporaries_in(folder):
    return [f for f in temporaries() if f.startswith(folder + "/")]


def middle(values):
    return sorted(values)[len(values) // 2]


def compare(seen, seconds):
    """The last quarter against the first one after the warm-up: looks, memory, descriptors, threads,
    temporary files, threads of the kernel, connections. Medians, but the most temporary files and
    connections: the latter come and go with the reads in flight."""
    seen = [s[1:] for s in seen if s[0] > max(seconds / 5, min(60, seconds / 2))]
    quarter = max(len(seen) // 4, 1)
    first, last = seen[:quarter], seen[-quarter:]
    rss = [middle([s[0] for s in part]) for part in (first, last)]
    hows = (middle, middle, max, middle, max)
    others = [[how([s[i] for s in part]) for part in (first, last)] for i, how in enumerate(hows, 1)]
    return len(seen), rss, others


def figures(seconds, seen, counts, kind):
    looks, rss, most = compare(seen, seconds)
    connections = ""
    if kind.most_connections:
        connections = (f", connections {most[4][0]} -> {most[4][1]} "
                       f"(never more than {max(s[6] for s in seen)}; "
                       f"the limit is {kind.most_connections})")
    return (f"{KIND}: {seconds:.0f} s, {looks} looks, {counts['killed']} runs killed, "
            f"{counts['full']} with a full disk, {kind.kills} workers killed; "
            f"RSS {rss[0]:.1f} -> {rss[1]:.1f} MiB, descriptors {most[0][0]} -> {most[0][1]}, "
            f"threads {most[1][0]} -> {most[1][1]} (of the kernel {most[3][0]} -> {most[3][1]}), "
            f"temporary files {most[2][0]} -> {most[2][1]}{connections}")


def judge(seen, counts, kind):
    """Connections have a limit, which counts from the first look on; all else stays flat."""
    _, rss, most = compare(seen, SECONDS)
    print(figures(SECONDS, seen, counts, kind), flush=True)
    flat = rss[1] <= 1.05 * rss[0] + 4 and all(b <= a + slack for (a, b), slack in zip(most, (2, 1, 4)))
    if not flat:
        sys.exit(f"{KIND}: not flat")
    if kind.most_connections and max(s[6] for s in seen) > kind.most_connections:
        sys.exit(f"{KIND}: more connections than {kind.most_connections}")


def soak(kind, mounted):
    counts, seen, start, told, before = {"killed": 0, "full": 0}, [], time.monotonic(), 0, set()
    with open(path("log"), "w", encoding="utf-8") as log:
        main = subprocess.Popen(kind.main(), stdout=log, stderr=log)

    def watch():
        nonlocal told, before
        try:
            rss, opened, (own, kernel) = resident(main.pid), descriptors(main.pid), threads(main.pid)
            connections = connections_of(main.pid, opened)
        except (FileNotFoundError, KeyError, ProcessLookupError):
            return  # it has just ended
        if kind.most_connections:
            opened -= connections
        seen.append((time.monotonic() - start, rss, len(opened & before), own,
                     len(old_temporaries()), kernel, len(connections)))
        before = opened
        if PROGRESS and seen[-1][0] > told + 60 and len(seen) >= 10:
            told = seen[-1][0]
            with open(PROGRESS, "w", encoding="utf-8") as file:
                print(figures(told, seen, counts, kind), file=file)

    try:
        while main.poll() is None:
            short_run(kind, mounted, counts, watch)
            kind.tick(main)
            watch()
            time.sleep(0.2)
    finally:
        if main.poll() is None and sys.exc_info()[0]:
            main.kill()
    if main.wait() != 0:
        with open(path("log"), encoding="utf-8") as log:
            sys.exit(f"{KIND}: the long run ended with {main.returncode}: {log.read()[-2000:]}")
    if len(seen) < 10:
        sys.exit(f"{KIND}: only {len(seen)} looks in {SECONDS:.0f} s")
    judge(seen, counts, kind)
    done = run(*kind.short(WORK))  # goes on from the last one that was killed, and removes what that left
    left = old_temporaries()
    if left:
        sys.exit(f"{KIND}: left after the last run: {left}: {done.stdout}")


def main():
    if "MILLRACE_SOAK" not in os.environ and os.getuid() == 0:  # mounts end with this process
        os.environ["MILLRACE_SOAK"] = "1"
        os.execvp("unshare", ["unshare", "--mount", "--propagation", "private", sys.executable, *sys.argv])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    kind = KINDS[KIND]()
    if os.path.isdir(WORK) and os.listdir(WORK) and not os.path.isdir(path("files")):
        sys.exit(f"{WORK}: is not empty, and no soak's folder")
    shutil.rmtree(WORK, ignore_errors=True)
    os.makedirs(path("files"))
    mounted = mount_full()
    try:
        kind.data()
        soak(kind, mounted)
    finally:
        kind.close()
        if mounted:
            subprocess.run(["umount", FULL], check=False)
        shutil.rmtree(WORK, ignore_errors=True)


main()
