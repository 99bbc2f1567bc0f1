#!/usr/bin/env python3
"""Ranks of one host: the same bits in any number, who holds the others up, and faults.

bits: checkpoints of a net trained by one process, by N ranks, with a sharded optimizer, under
torchrun, and in stages over ranks and over devices; all have to be equal. resume: ranks are killed
at a random step, and one process goes on from their checkpoint. straggler: one rank waits for data,
computes longer, or none is slow. faults: a rank is killed, or stopped.

usage: ranks_bits.py MILLRACE [--device cuda] [--ranks 2] [--slow libslow_step.so] [--rounds 5]
                     [--models NET;NET] [--model NET] [--parts bits,resume,straggler,faults]
Needs a checkout (tests/support) and mpirun; torchrun is tried where torch is. Exit status: how many
checks failed.
"""
import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "tests", "support"))
from rank_runs import kill_session, pids, tensors

LIMIT = 60
wrong = 0


def check(name, good, text):
    global wrong
    good = bool(good)
    wrong += not good
    print(f"{'ok   ' if good else 'WRONG'} {name}: {text}", flush=True)


def own_lines(errors):
    ours = ("millrace", "comm:")
    return " / ".join(line for line in errors.splitlines() if line.startswith(ours))[-600:]


def mpirun(n, preload=""):
    words = ["mpirun", "--oversubscribe", "-n", str(n)]
    return words + ["-x", f"LD_PRELOAD={preload}"] if preload else words


def torchrun(n):
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
            str(n), "--no-python"]


class Runs:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.data = os.path.join(folder, "digits")
        self.n = 0
        subprocess.run([args.millrace, "synth", "digits", self.data, "--n", "8192", "-q"],
                       check=True, stdout=subprocess.DEVNULL)

    def words(self, launch, model, more):
        return [*launch, self.args.millrace, "train", self.data, "--test", "none", "--seed", "1",
                "-m", model, "-b", "64", "--json", *more]

    def start(self, launch, model, more, **environment):
        return subprocess.Popen(self.words(launch, model, more), stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, start_new_session=True,
                                env={**os.environ, **environment})

    def finish(self, process):
        """Status, JSON and errors."""
        try:
            out, errors = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            kill_session(process.pid)
            process.communicate()
            return None, {}, f"no end within {LIMIT} s"
        try:
            said = json.loads(out)
        except ValueError:
            said = {"text": out}
        return process.returncode, said, errors

    def hash(self, launch, model, more):
        """A hash of the checkpoint, or None, and which engine made it, or why none did."""
        self.n += 1
        path = os.path.join(self.folder, f"{self.n}.safetensors")
        status, said, errors = self.finish(self.start(launch, model, [*more, "-c", path, "-f"]))
        if status != 0:
            return None, f"exit {status}: {said.get('error', '')} {errors.strip()[-300:]}"
        return tensors(path), said.get("engine")


def bits(runs, args):
    n, device = args.ranks, args.device
    leaves = ["--leaves", "4", "--max-steps", "40", "-o", "adamw"]
    types = ["tf32", "bf16", "fp16"] if device == "cuda" else ["off"]
    for model in args.models.split(";"):
        for precision in types:
            more = ["--device", device, "--amp", precision, *leaves]
            ways = {"one process": ([], more),
                    f"{n} ranks": (mpirun(n), more),
                    "sharded optimizer": (mpirun(n), [*more, "--shard-optimizer"]),
                    "by MPI": (mpirun(n), [*more, "--comm", "mpi"]),
                    "ranks are stages": (mpirun(n), [*more, "--split-ranks", "--micro-batches",
                                                     "4"])}
            if shutil.which("torchrun") and device == "cuda":
                ways["torchrun"] = (torchrun(n), more)
            if device == "cuda":
                stages = "+".join(f"cuda:{i}" for i in range(n))
                ways["devices are stages"] = ([], ["--device", stages, "--micro-batches", "4",
                                                   *more[2:]])
            seen = {name: runs.hash(launch, model, words)
                    for name, (launch, words) in ways.items()}
            hashes = {h for h, _ in seen.values()}
            check(f"bits, {model}, {precision}", len(hashes) == 1 and None not in hashes,
                  "; ".join(f"{name} {h} ({engine})" for name, (h, engine) in seen.items()))


def resume(runs, args):
    for turn in range(args.rounds):
        more = ["--device", args.device, "--leaves", "4", "--max-steps", "300", "-o", "adamw"]
        want, _ = runs.hash([], args.model, more)
        path = os.path.join(runs.folder, "killed.safetensors")
        if os.path.exists(path):
            os.unlink(path)
        more += ["-c", path]
        process = runs.start(mpirun(args.ranks), args.model, [*more, "--checkpoint-every", "20"])
        begin = time.monotonic()
        while not os.path.exists(path) and process.poll() is None and \
                time.monotonic() - begin < LIMIT:
            time.sleep(0.002)
        time.sleep(random.uniform(0, 0.2))
        kill_session(process.pid)
        process.communicate()
        status, said, errors = runs.finish(runs.start([], args.model, [*more, "--resume"]))
        found = tensors(path) if status == 0 else errors
        check(f"resume {turn + 1}", want and found == want and said["resumed_from_step"] > 0,
              f"one process from step {said.get('resumed_from_step')}: {found}, whole {want}")


def straggler(runs, args):
    """One rank's host sleeps before each batch, or between the calls of a step without a graph."""
    slow = {"SLOW_RANK": "1"}
    eager = ["--no-graph"] if args.device == "cuda" else []
    kinds = [("loader", "data", {**slow, "SLOW_DATA_MS": "8"}, []),
             ("compute", "compute", {**slow, "SLOW_MORE_MS": "8"}, eager),
             ("none", None, {}, [])]
    for kind, cause, environment, more in kinds:
        for _ in range(args.rounds):
            status, said, errors = runs.finish(
                runs.start(mpirun(args.ranks, args.slow), args.model,
                           ["--device", args.device, "--max-steps", "600", *more], **environment))
            ranks = said.get("ranks") or {}
            who = ranks.get("straggler")
            right = status == 0 and (
                who is None if cause is None else
                who is not None and (who["rank"], who["cause"]) == (1, cause))
            check(f"straggler, {kind}", right, ranks.get("sentence") or errors[-300:])


def faults(runs, args):
    for kind, number in ("killed", signal.SIGKILL), ("stopped", signal.SIGSTOP):
        process = runs.start(mpirun(args.ranks), args.model,
                             ["--device", args.device, "--epochs", "100000",
                              "--comm-timeout", "5s"])
        pid, until = None, time.monotonic() + LIMIT
        while not pid and time.monotonic() < until:
            pid = next(pids(args.millrace, "OMPI_COMM_WORLD_RANK", 1), None)
        if not pid:
            check(f"a rank is {kind}", False, "rank 1 did not start: " + runs.finish(process)[2])
            continue
        time.sleep(6)
        begin = time.monotonic()
        os.kill(pid, number)
        status, said, errors = runs.finish(process)
        took = time.monotonic() - begin
        if kind == "stopped":
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        right = status == 4 if kind == "stopped" else status not in (0, None)
        check(f"a rank is {kind}", took < 10 and right,
              f"exit {status} after {took:.1f} s: {said.get('error', '')} {own_lines(errors)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("millrace")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--slow", default="")
    parser.add_argument("--models", default="mlp:300s,100r,50s;mnist-cnn;resnet20", help="of bits")
    parser.add_argument("--model", default="mnist-cnn", help="of all parts but bits")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--parts", default="bits,resume,straggler,faults")
    args = parser.parse_args()
    args.millrace = os.path.realpath(args.millrace)
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(args, folder)
        for part in args.parts.split(","):
            {"bits": bits, "resume": resume, "straggler": straggler, "faults": faults}[part](
                runs, args)
    sys.exit(min(wrong, 100))


main()
