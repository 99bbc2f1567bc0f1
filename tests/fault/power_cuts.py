"""Power cuts in mid-run of pack, train (checkpoints), feed (states) and the disk cache: what is left opens whole, the old file or
the new one, or not at all; and the run that comes after it ends as an undisturbed one.
usage: power_cuts.py PROGRAM SHIM SERVER [JOB [CUTS [SEED]]]    JOB: pack, checkpoint, state, cache or all. As a test:
few cuts, the same each time. CUTS 0: until it is stopped; prints how many."""
import filecmp
import os
import random
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import power  # noqa: E402  # it is beside

PROGRAM, SHIM, SERVER = (os.path.abspath(path) for path in sys.argv[1:4])
ALONE = {"OPENBLAS_NUM_THREADS": "1", "MILLRACE_CACHE_DIR": ""}


def run(arguments, **more):
    return subprocess.run([PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120,
                          env={**os.environ, **ALONE}, **more)


def read(path):
    with open(path, "rb") as f:
        return f.read()


class Job:
    """A run that is recorded; check(folder) of what a cut left, and of what the program makes of it."""

    def __init__(self, work):
        self.work, self.root, self.left = work, os.path.join(work, "root"), os.path.join(work, "left")
        os.makedirs(self.root)
        self.data = os.path.join(work, "digits")
        assert run(["synth", "digits", self.data, "--n", "60", "--n-test", "10", "-q"]).returncode == 0
        self.make()

    def record(self, command):
        self.log = power.record(command, os.path.join(self.work, "log"), self.root, SHIM, environment=ALONE, cwd=self.root)

    def whole(self, name):
        """What a cut left of a file is one of its whole versions, or nothing."""
        path = os.path.join(self.left, name)
        if os.path.exists(path):
            assert read(path) in self.log.whole(os.path.join(self.root, name)), f"{name}: torn"
            return True
        return False

    def close(self):
        pass


class Pack(Job):
    def make(self):
        self.arguments = ["pack", f"idx:{self.data}", "out", "--shard-count", "20", "-w", "2", "-q"]
        self.record([PROGRAM, *self.arguments])
        self.want = os.path.join(self.root, "out")

    def check(self):
        out = os.path.join(self.left, "out")
        for name in os.listdir(out) if os.path.isdir(out) else []:
            if ".part-" not in name and not name.endswith((".lock", ".idx")):  # an index has a checksum
                self.whole(os.path.join("out", name))
        done = run(self.arguments, cwd=self.left)
        assert done.returncode == 0, done.stderr
        names = sorted(os.listdir(self.want))
        assert sorted(os.listdir(out)) == names, os.listdir(out)
        same = [n for n in names if not n.endswith(".idx")]  # it has its archive's time
        assert filecmp.cmpfiles(self.want, out, same, shallow=False)[0] == same
        opened = run(["inspect", f"tar:{out}", "--json"])
        assert opened.returncode == 0, opened.stderr


class Checkpoint(Job):
    def make(self):
        self.arguments = ["train", f"idx:{self.data}", "-m", "mlp:8r", "-d", "cpu", "-b", "20", "-e", "4", "-c", "ck",
                          "--threads", "1", "-w", "1", "--test", "none", "-q"]
        self.record([PROGRAM, *self.arguments])
        self.want = self.tensors(self.root)

    @staticmethod
    def tensors(folder):
        """What follows the header, which has times in it."""
        data = read(os.path.join(folder, "ck"))
        return data[8 + int.from_bytes(data[:8], "little"):]

    def check(self):
        resumed = ["--resume"] if self.whole("ck") else []
        done = run([*self.arguments, *resumed], cwd=self.left)
        assert done.returncode == 0, done.stderr
        assert self.tensors(self.left) == self.want
        assert os.listdir(self.left) == ["ck"], os.listdir(self.left)


class State(Job):
    """Each run goes on from the state of the one before, and replaces it."""

    def arguments(self, resumed):
        return ["feed", f"idx:{self.data}", "--shuffle", "-d", "cpu", "-b", "20", "-w", "1", "-q", "--batches", "1",
                "--state-out", "state", *(["--state-in", "state"] if resumed else [])]

    def make(self):
        self.record(["sh", "-c", " && ".join(" ".join([PROGRAM, *self.arguments(i > 0)]) for i in range(3))])

    def check(self):
        there = self.whole("state")
        done = run(self.arguments(there), cwd=self.left)
        assert done.returncode == 0, done.stderr
        assert os.listdir(self.left) == ["state"], os.listdir(self.left)


class Cache(Job):
    """Chunks are not synced: what of them is torn is noticed, and read from the network again."""

    def arguments(self, root):
        return ["feed", f"npy:http://127.0.0.1:{self.port}/ok/x.npy", "-d", "cpu", "-e", "1", "-w", "2", "--digest", "-q",
                "--cache-dir", os.path.join(root, "cache"), "--json"]

    def make(self):
        files = os.path.join(self.work, "files")
        os.makedirs(files)
        made = run(["synth", "npy", os.path.join(files, "x.npy"), "--n", "600", "--shape", "1500", "--classes", "0", "-q"])
        assert made.returncode == 0, made.stderr
        self.server = subprocess.Popen([sys.executable, SERVER, files], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self.server.stdout.readline().split()[1])
        self.record([PROGRAM, *self.arguments(self.root)])
        self.want = self.digest(self.root)

    def digest(self, root):
        done = run(self.arguments(root))
        assert done.returncode == 0, done.stderr
        return [line for line in done.stdout.splitlines() if '"digest"' in line][0]

    def check(self):
        for _ in range(2):  # from what was left, then from what the first run made of it
            assert self.digest(self.left) == self.want

    def close(self):
        self.server.stdin.close()
        self.server.wait()


JOBS = {"pack": (Pack, 8), "checkpoint": (Checkpoint, 5), "state": (State, 6), "cache": (Cache, 2)}


def cut(name, job, cuts, seed):
    n = 0
    while n < cuts or not cuts:
        chance = random.Random(f"{name} {seed + n}")
        at = chance.randint(0, len(job.log.ops))
        job.log.cut(at, chance, job.left)
        shutil.copytree(job.left, os.path.join(job.work, "before"), dirs_exist_ok=False)
        try:
            job.check()
        except AssertionError as e:
            kept = tempfile.mkdtemp(prefix=f"power-{name}-")
            shutil.copytree(job.work, kept, dirs_exist_ok=True)
            sys.exit(f"{name}, seed {seed + n}, cut after {at} of {len(job.log.ops)} operations: {e}\n"
                     f"{kept}/before has what it left")
        shutil.rmtree(os.path.join(job.work, "before"))
        n += 1
        if n % 100 == 0:
            print(f"{name}: {n} cuts", flush=True)
    print(f"{name}: {n} cuts in a log of {len(job.log.ops)} operations: nothing torn was accepted", flush=True)


def main():
    wanted = sys.argv[4] if len(sys.argv) > 4 else "all"
    seed = int(sys.argv[6]) if len(sys.argv) > 6 else 0
    for name, (kind, few) in JOBS.items():
        if wanted not in (name, "all"):
            continue
        with tempfile.TemporaryDirectory() as work:
            job = kind(os.path.realpath(work))
            try:
                cut(name, job, int(sys.argv[5]) if len(sys.argv) > 5 else few, seed)
            finally:
                job.close()


main()
