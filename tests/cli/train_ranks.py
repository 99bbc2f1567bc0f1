"""millrace train on several ranks, under Open MPI and MPICH: the same bits for any number of ranks,
exact remainders, resumes in another world, the optimizer's state in parts, ranks as stages,
and ranks that die, stand still, hang or disagree.

usage: train_ranks.py PROGRAM
Environment: RAISE: the module of tests/support/raise_at_open.c
"""
import contextlib
import json
import os
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from rank_runs import kill_session, pids, tensors

PROGRAM = os.path.abspath(sys.argv[1])
SAMPLES, TESTS = 203, 61  # no batch size divides them
LAUNCHERS = {
    "openmpi": ["mpirun.openmpi", "--oversubscribe", "--bind-to", "none"],
    "mpich": ["mpiexec.mpich"],
}
LIMIT = 120  # seconds: for what hangs

for name in list(os.environ):  # nor is this test a rank of something
    if name.startswith(("OMPI_", "PMI", "SLURM_", "TORCHELASTIC_", "RANK", "WORLD_SIZE")):
        del os.environ[name]
# Quiet: mpirun -q, which Open MPI 5 does not know.
os.environ.update(OMPI_MCA_orte_execute_quiet="1", OMPI_ALLOW_RUN_AS_ROOT="1",
                  OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", LC_ALL="C")


def command(mpi, world, *args):
    own = [PROGRAM, "train", "d", "-q", "-d", "cpu", "--threads", "1", "--seed", "3", *args]
    return own if mpi is None else [*LAUNCHERS[mpi], "-n", str(world), *own]


@contextlib.contextmanager
def started(words):
    """A launcher with its ranks; whatever happens, none of them is left."""
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               start_new_session=True)
    try:
        yield process
    finally:
        kill_session(process.pid)
        process.wait()


def finish(words):
    with started(words) as process:
        out, errors = process.communicate(timeout=LIMIT)
        return subprocess.CompletedProcess(words, process.returncode, out, errors)


def run(mpi, world, *args, want=0):
    done = finish(command(mpi, world, *args))
    assert done.returncode == want, (mpi, world, args, done)
    return done


def loads(text):
    """The object that --json prints, and nothing else."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise AssertionError(text) from error


def npy(path, kind, shape, data):
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\1\0" + struct.pack("<H", 118) + head.ljust(117).encode() + b"\n" +
                   data)


def wait_for(condition):
    until = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def same_bits(found):
    blocks = ["--sampler", "random:block=16,window=3"]
    for model, more, steps, worlds in (
        ("softmax", blocks, 7, ((None, 1), ("openmpi", 2), ("mpich", 4))),
        ("mlp:30s", [], 12, ((None, 1), ("openmpi", 1), ("openmpi", 2), ("openmpi", 4),
                             ("mpich", 2), ("mpich", 4))),
        ("mnist-cnn", [], 5, ((None, 1), ("openmpi", 4), ("mpich", 2))),
        ("resnet20", [], 3, ((None, 1), ("openmpi", 2), ("mpich", 4))),
    ):
        seen = {}
        for mpi, world in worlds:
            if mpi is None or mpi in found:
                args = ["-m", model, "-b", "64", "--leaves", "4", "--max-steps", str(steps),
                        "--clip-norm", "1", "-c", "x.st", "-f", "--json", *more]
                out = loads(run(mpi, world, *args).stdout)
                assert out["world"] == world and out["leaves"] == 4, out
                epochs = [*out["epochs"], out["unfinished_epoch"] or {}]
                for epoch in epochs:
                    for name in ("seconds", "test_seconds", "samples_per_s", "data_wait"):
                        epoch.pop(name, None)
                text = json.dumps(epochs)
                seen[(mpi, world)] = (tensors("x.st"), text)
        assert len(set(seen.values())) == 1, (model, seen)
        ways = ", ".join(f"{world} by {mpi}" if mpi else "1 alone" for mpi, world in seen)
        print(f"{model}: ranks {ways}: all have tensors {next(iter(seen.values()))[0]}")


OPTIMIZERS = (  # all arrays of state, and what goes on from step to step
    "sgd:momentum=0.9,nesterov=1", "adam:amsgrad=1,weight_decay=0.01", "adagrad:initial_accumulator_value=0.1",
    "nadam", "radam", "adamax", "lion:lr=1e-3", "rmsprop:centered=1,momentum=0.5",
    "adadelta:lr=1,accumulate=3")


def sharded(found):
    """--shard-optimizer changes nothing but the memory: no bit of parameters, losses and state."""
    whole = {}
    for world in (1, 2, 4):
        for mpi in found:
            args = ["-m", "mlp:300s,30s", "-b", "64", "--leaves", "4", "-e", "2", "-c", "s.st", "-f",
                    "--clip-norm", "0.1", "-o", "adamw", "--schedule", "warmup:3,cosine:10", "--json"]
            want = loads(run(None, 1, *args).stdout)
            bits = tensors("s.st")
            out = loads(run(mpi, world, *args, "--shard-optimizer").stdout)
            assert tensors("s.st") == bits and out["test_accuracy"] == want["test_accuracy"]
            whole[world] = out["optimizer_bytes"]
    assert whole[1] > 1.9 * whole[2] > 3.6 * whole[4], whole  # parts are whole units of 4,096
    for optimizer in OPTIMIZERS:
        args = ["-m", "mlp:30s", "-b", "64", "--leaves", "4", "--max-steps", "7", "-c", "s.st", "-f",
                "-o", optimizer]
        seen = set()
        for mpi, world, more in ((None, 1, []), (found[0], 2, ["--shard-optimizer"]),
                                 (found[-1], 4, ["--shard-optimizer", "--clip-norm", "0.05"]),
                                 (None, 1, ["--clip-norm", "0.05"])):
            run(mpi, world, *args, *more)
            seen.add((tensors("s.st"), "--clip-norm" in more))
        assert len(seen) == 2, (optimizer, seen)
    # two of four ranks have no parameters at all; and a world that is no power of two
    args = ["-m", "softmax", "-b", "60", "-e", "2", "-c", "s.st", "-f", "--json"]
    run(None, 1, *args, "--leaves", "4")
    bits = tensors("s.st")
    run(found[0], 4, *args, "--leaves", "4", "--shard-optimizer")
    assert tensors("s.st") == bits
    for more in ([], ["--wire", "bf16"]):
        out = loads(run(found[-1], 3, *args, "--shard-optimizer", *more).stdout)
        share = out["epochs"][1]["accuracy"] * SAMPLES
        assert abs(share - round(share)) < 1e-6 and out["epochs"][1]["loss"] < 3, out


def sharded_checkpoints(found):
    """A checkpoint is whole, so any world goes on from it, in parts or not."""
    args = ["-m", "mlp:30s", "-b", "64", "--leaves", "4", "-c", "p.st", "-o",
            "adam:amsgrad=1,accumulate=3", "--clip-norm", "0.1"]
    run(None, 1, *args, "--max-steps", "17", "-f")
    bits = tensors("p.st")
    for first, then in (((4, True), (2, True)), ((2, True), (1, False)), ((1, False), (4, True)),
                        ((2, False), (4, True))):
        for (world, parts), steps, more in ((first, "8", ["-f"]), (then, "17", ["--resume"])):
            mpi = found[world % len(found)] if world > 1 else None
            run(mpi, world, *args, "--max-steps", steps, *more,
                *(["--shard-optimizer"] if parts else []))
        assert tensors("p.st") == bits, (first, then)
    # by the clock: all ranks write at the same step
    often = ["-m", "mlp:30s", "-b", "64", "-e", "30", "-c", "t.st", "-f", "--shard-optimizer"]
    run(found[0], 3, *often[:3], "60", *often[4:], "--checkpoint-every", "10ms")


def sharded_skip(mpi):
    """A step that is left out for its loss is left out on all ranks."""
    npy("nan.npy", "<f4", (64, 80), struct.pack("<5120f", *[
        float("nan") if i == 33 * 80 else (i * 37 % 101) / 101 for i in range(64 * 80)]))
    npy("nan-labels.npy", "|u1", (64,), bytes(i % 2 for i in range(64)))
    words = [PROGRAM, "train", "npy:nan.npy,labels=nan-labels.npy", "-q", "-d", "cpu", "-m",
             "linear:120,tanh,linear:2", "--classes", "2", "-b", "16", "--no-shuffle", "--threads",
             "1", "--on-nan", "skip", "-e", "3", "--leaves", "4", "-c", "n.st", "-f", "--json",
             "--clip-norm", "0.5"]
    seen = set()
    for world, more in ((1, []), (2, ["--shard-optimizer"]), (4, ["--shard-optimizer"])):
        start = [*LAUNCHERS[mpi], "-n", str(world)] if world > 1 else []
        done = finish([*start, *words, *more])
        assert done.returncode == 0 and loads(done.stdout)["steps_skipped"] == 3, done
        seen.add(tensors("n.st"))
    assert len(seen) == 1, seen


def history(out):
    epochs = [*out["epochs"], out["unfinished_epoch"] or {}]
    return json.dumps([{key: epoch[key] for key in epoch if key in (
        "epoch", "steps", "loss", "accuracy", "test_loss", "test_accuracy", "lr")} for epoch in epochs])


def stages(found):
    """Ranks that are stages: the bits of one device with as many leaves as micro-batches."""
    for model, steps, micro, two, three, more in (
        ("mlp:300s,30s", "8", "4", "fc2", "fc2,fc3", ["--clip-norm", "0.05", "-o", "adamw"]),
        ("mnist-cnn", "3", "8", "fc1", "auto", ["--clip-norm", "0.5"]),
        ("resnet20", "2", "4", "auto", "auto", ["--pipeline", "gpipe", "-o", "nadam:accumulate=2"]),
    ):
        args = ["-m", model, "-b", "64", "--max-steps", steps, "-c", "g.st", "-f", "--json", *more]
        want = loads(run(None, 1, *args, "--leaves", micro).stdout)
        bits = tensors("g.st")
        for world, split in ((2, two), (3, three)):
            out = loads(run(found[world % len(found)], world, *args, "--split-ranks",
                                 "--micro-batches", micro, "--split", split).stdout)
            assert tensors("g.st") == bits and history(out) == history(want), (model, world, out)
            assert out["parameters"] == want["parameters"] and len(out["stages"]) == world, out
            assert out["stages"][0]["activation_bytes"] == out["activation_bytes"] > 0, out
    # from stages to one process, and back to other stages
    args = ["-m", "mlp:300s,30s", "-b", "64", "-c", "g.st", "-o", "adam:amsgrad=1,accumulate=3"]
    split = ["--split-ranks", "--micro-batches", "4"]
    run(None, 1, *args, "--leaves", "4", "--max-steps", "19", "-f")
    bits = tensors("g.st")
    run(found[0], 3, *args, *split, "--max-steps", "7", "-f", "--checkpoint-every", "2")
    run(None, 1, *args, "--leaves", "4", "--max-steps", "11", "--resume")
    run(found[-1], 2, *args, *split, "--split", "fc3", "--max-steps", "19", "--resume",
        "--checkpoint-every", "5ms")
    assert tensors("g.st") == bits
    # one rank is the whole net
    run(found[0], 1, *args, *split, "--max-steps", "19", "-f")
    assert tensors("g.st") == bits


def stages_misused(mpi):
    for more, says in (
        (["--split", "fc1,fc2"], "2 layers for 2 devices"),
        (["--shard-optimizer"], "an optimizer in parts"),
        (["-d", "cpu+cpu"], "several devices"),
        (["--micro-batches", "3"], "a power of two"),
    ):
        done = run(mpi, 2, "-m", "mlp:30s", "-b", "64", "--split-ranks", *more, want=2)
        assert says in done.stderr, (more, done)


def stages_with_a_bad_loss(mpi):
    """Its layer is the second rank's."""
    args = ["-m", "mlp:30r,30r", "-b", "64", "--split-ranks", "--micro-batches", "4", "-o",
            "sgd:lr=1e30"]
    done = run(mpi, 2, *args, "--split", "fc3", want=1)
    assert "the loss is not finite" in done.stderr and "first in layer " in done.stderr, done


def exact_remainders(mpi):
    """Each sample once, in training and tests: the accuracies are whole numbers of samples."""
    out = loads(run(mpi, 3, "-m", "softmax", "-b", "30", "-e", "2", "--json").stdout)
    assert out["world"] == 3 and out["engine"] == "mpi" and out["comm"]["sums"] > 14, out
    for epoch in out["epochs"]:
        for share, n in ((epoch["accuracy"], SAMPLES), (epoch["test_accuracy"], TESTS)):
            assert abs(share * n - round(share * n)) < 1e-6, (share, n)


def rank_0_alone_prints(mpi):
    text = run(mpi, 2, "-m", "softmax", "-b", "64", "-e", "2").stdout
    assert text.count("epoch  1/2") == 1 and "2 ranks by" in text, text


def two_commands(mpi, first, second):
    """Of rank 0 and rank 1. Not with ":" between: Debian 13's mpirun (Open MPI 5.0.7) crashes."""
    choose = (f"if [ ${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}} = 0 ]; then exec {shlex.join(first)}; "
              f"else exec {shlex.join(second)}; fi")
    return [*LAUNCHERS[mpi], "-n", "2", "sh", "-c", choose]


def alone():
    """Options of several ranks, and one process that no launcher started."""
    args = ["-m", "mlp:30s", "-b", "64", "--max-steps", "1"]
    for more in ([], ["--comm", "none"]):
        done = run(None, 1, *args, "--split-ranks", *more, want=2)
        assert "start it with mpirun, srun or torchrun" in done.stderr, done
    words = [word for word in command(None, 1, *args, "--shard-optimizer") if word != "-q"]
    done = finish(words)
    assert done.returncode == 0 and "keeps the whole state" in done.stderr, done


def libraries_print(mpi):
    """MPICH's UCX logs to standard output, which --json has for itself."""
    os.environ["UCX_LOG_LEVEL"] = "info"
    try:
        done = run(mpi, 2, "-m", "softmax", "-b", "64", "--max-steps", "3", "--json")
        assert loads(done.stdout)["world"] == 2, done
        words = [*LAUNCHERS[mpi], "-n", "2", PROGRAM, "bench", "comm", "-d", "cpu", "--json",
                 "--max-bytes", "8KiB", "--repeats", "1", "-q"]
        done = finish(words)
        assert done.returncode == 0 and loads(done.stdout)["command"] == "bench comm", done
    finally:
        del os.environ["UCX_LOG_LEVEL"]


def misuse(mpi):
    done = run(mpi, 3, "-m", "softmax", "-b", "64", want=2)
    assert "64 samples in 3 parts (3 ranks)" in done.stderr, done
    assert done.stderr.count("millrace train:") == 1, done
    done = run(mpi, 2, "-m", "softmax", "-b", "64", "--leaves", "3", want=2)
    assert "3 leaves: expected a power of two" in done.stderr, done
    one = command(None, 1, "-m", "softmax", "-b", "64")
    other = command(None, 1, "-m", "softmax", "-b", "32", "--lr", "0.5")
    done = finish(two_commands(mpi, one, other))
    assert done.returncode == 2, done
    for part in ("rank 1 has", "lr 0.5 where rank 0 has -1", "batch_size 32 where rank 0 has 64"):
        assert part in done.stderr, (part, done)
    misused_alone(mpi)
    if mpi == "openmpi":
        orders_differ(mpi)


def misused_alone(mpi):
    """A wrong option of one rank, also of rank 0, ends all. mpirun ends the others itself; with
    mpiexec they would wait for --comm-timeout, which is longer than this test does."""
    well = command(None, 1, "-m", "softmax", "-b", "64", "--comm-timeout", "10min")
    for wrong in (["--lr", "foo"], ["--nosuch"], ["--max-cpus", "4097"]):
        for both in ([[*well, *wrong], well], [well, [*well, *wrong]]):
            done = finish(two_commands(mpi, *both))
            assert done.returncode == 2 and f"millrace train: {wrong[0]}" in done.stderr, done
            if mpi == "mpich" and both[0] == well:
                assert f"comm: rank 1 cannot take part: {wrong[0]}" in done.stderr, done
    done = finish([*LAUNCHERS[mpi], "-n", "2", *well, "--lr", "foo"])
    assert done.returncode == 2, done


def orders_differ(mpi):
    """Ranks whose machines have different numbers of ranks count different numbers of machines."""
    args = ["-m", "softmax", "-b", "64", "--sampler", "random:block=8", "--affinity", "node"]
    words = [*LAUNCHERS[mpi], "-n", "2", "sh", "-c",
             "unset OMPI_MCA_orte_num_nodes; export OMPI_COMM_WORLD_LOCAL_RANK=0 "
             "OMPI_COMM_WORLD_LOCAL_SIZE=$((2 - OMPI_COMM_WORLD_RANK)); exec \"$@\"", "sh"]
    done = finish([*words, *command(None, 2, *args)])
    assert done.returncode == 1, done
    assert "in the order random:block=8,nodes=2,ranks=2" in done.stderr, done


def killed_and_resumed(mpi, variable, other, *more, worlds=(4, 2)):
    args = ["-m", "mlp:30s", "-b", "64", "--leaves", "4", "-e", "400", "--sampler",
            "random:block=16,window=3", "-c", "k.st"]
    with contextlib.suppress(FileNotFoundError):
        os.remove("k.st")
    run(None, 1, *args[:-1], "whole.st", "-f")
    with started(command(mpi, worlds[0], *args, *more, "--checkpoint-every", "3")) as process:
        wait_for(lambda: os.path.exists("k.st"))
        for pid in pids(PROGRAM, variable, worlds[0] // 2):
            os.kill(pid, signal.SIGKILL)
        process.communicate(timeout=LIMIT)
        assert process.returncode != 0
    text = run(other, worlds[1], *args, *more, "--resume").stdout
    assert "goes on from k.st" in text, text
    assert tensors("k.st") == tensors("whole.st")


def stands_still(mpi, variable, rank, *more, world=3):
    """Exit status 4, and an error that names the rank and what it did. Returns the seconds."""
    args = ["-m", "mlp:300s", "-b", "63", "-e", "1000000", "--comm-timeout", "4s", *more,
            "-c", f"{mpi}{rank}.st"]
    with contextlib.suppress(FileNotFoundError):
        os.remove(f"{mpi}{rank}.st")
    with started(command(mpi, world, *args, "--checkpoint-every", "1")) as process:
        wait_for(lambda: os.path.exists(f"{mpi}{rank}.st"))
        for pid in pids(PROGRAM, variable, rank):
            os.kill(pid, signal.SIGSTOP)
        start = time.monotonic()
        _, errors = process.communicate(timeout=LIMIT)
        assert process.returncode == 4, (process.returncode, errors)
        assert f"rank {rank} (" in errors and "did not come; last report" in errors, errors
        return time.monotonic() - start


def hangs_before_the_first_step(mpi, rank):
    """A rank stops while it opens its data: the others name it."""
    well = command(None, 1, "-m", "softmax", "-b", "64", "--comm-timeout", "4s")
    stops = ["env", f"LD_PRELOAD={os.environ['RAISE']}", "RAISE_AT=train-images-idx3-ubyte",
             f"RAISE_SIGNAL={int(signal.SIGSTOP)}"]
    hangs = [*stops, *well]
    done = finish(two_commands(mpi, *([hangs, well] if rank == 0 else [well, hangs])))
    assert done.returncode == 4, done
    assert f"rank {rank} (" in done.stderr and "ago: opens its data" in done.stderr, done


def wrong_mpi(mpi):
    """The launcher's MPI is not the one that is loaded, or none is: every rank ends at once."""
    other = {"openmpi": "libmpich.so.12", "mpich": "libmpi.so.40"}[mpi]
    for library, says in ((other, "says rank 1 of 2"), ("/nowhere/libmpi.so", "MILLRACE_MPI: ")):
        words = command(None, 1, "-m", "softmax", "-b", "64")
        done = finish([*LAUNCHERS[mpi], "-n", "2", "env", f"MILLRACE_MPI={library}", *words])
        assert done.returncode == 1, done
        assert says in done.stderr and library in done.stderr, done


def full_disk(mpi):
    """Rank 0 has space for one checkpoint and not for the next: all ranks end, the first stays.

    A small file system, and no limit on file sizes around the launcher: that one also hits Open
    MPI's own files, so MPI_Init fails and mpirun does not end."""
    mount = ("mkdir -p small && mount -t tmpfs -o size=400k none small || exit 77; "
             '"$@"; code=$?; cp small/k.st after.st; exit $code')
    limited = ["unshare", "-rm", "sh", "-c", mount, "sh"]
    if subprocess.run([*limited, "touch", "small/k.st"], stderr=subprocess.DEVNULL).returncode:
        print("full disk: left out: a tmpfs cannot be mounted here")
        return
    args = ["-m", "mlp:30s", "-b", "64", "--leaves", "4", "-e", "50"]
    often = ["-c", "small/k.st", "--checkpoint-every", "3"]
    done = finish([*limited, *command(mpi, 2, *args, *often)])
    assert done.returncode == 1, done
    assert "small/k.st: checkpoint not written: No space left on device" in done.stderr, done
    run(None, 1, *args, "--max-steps", "3", "-c", "three.st", "-f")
    assert tensors("after.st") == tensors("three.st")
    text = run(None, 1, *args[:-1], "2", "-c", "after.st", "--resume").stdout
    assert "goes on from after.st" in text, text


def interrupted_alone(mpi, variable):
    """One rank by MPI is interrupted as without."""
    args = ["-m", "softmax", "-b", "64", "-e", "1000000", "--comm", "mpi", "--json", "-c",
            f"{mpi}-alone.st"]
    with started(command(mpi, 1, *args, "--checkpoint-every", "1000000")) as process:
        wait_for(lambda: os.path.exists(f"{mpi}-alone.st"))  # by the first epoch
        for pid in pids(PROGRAM, variable, 0):
            os.kill(pid, signal.SIGINT)
        out, errors = process.communicate(timeout=LIMIT)
        assert process.returncode == 1, (process.returncode, errors)
    # Hydra's mpiexec may say something of its own behind it
    assert '"ended_by": "interrupted"' in out, (out, errors)


def bad_loss_elsewhere(mpi):
    """Rank 0 names the layer that rank 1 found, and rank 1 itself."""
    values = [0.5] * 64 * 4
    values[33 * 4] = float("nan")  # sample 33: the second batch's second, which is rank 1's
    npy("bad.npy", "<f4", (64, 4), struct.pack("<256f", *values))
    npy("bad-labels.npy", "|u1", (64,), bytes(i % 2 for i in range(64)))
    words = [PROGRAM, "train", "npy:bad.npy,labels=bad-labels.npy", "-q", "-d", "cpu", "-m",
             "linear:8,tanh,linear:2", "--classes", "2", "-b", "32", "--no-shuffle", "--threads",
             "1"]
    done = finish([*LAUNCHERS[mpi], "-n", "2", *words])
    assert done.returncode == 1, done
    assert "at step 2 of epoch 1: first in layer" in done.stderr, done
    assert ", on rank 1;" in done.stderr, done


def resumed_without_leaves(mpi):
    """Other bits: this is said."""
    args = ["-m", "softmax", "-b", "64", "-c", "w.st"]
    run(mpi, 2, *args, "-e", "1")
    words = [word for word in command(None, 1, *args, "-e", "2", "--resume") if word != "-q"]
    done = finish(words)
    assert done.returncode == 0, done
    assert "w.st: written by 2 ranks, and this run has 1" in done.stderr, done
    done = finish([*words[:-3], "-e", "3", "--resume", "--leaves", "1"])  # 1 is 0, alone
    assert done.returncode == 0 and "written by" not in done.stderr, done


def main():
    found = [mpi for mpi, words in LAUNCHERS.items() if shutil.which(words[0])]
    if not found:
        print("SKIP: neither mpirun.openmpi nor mpiexec.mpich is here: packages openmpi-bin, mpich")
        return 77
    synth = ["synth", "digits", "d", "-n", str(SAMPLES), "--n-test", str(TESTS), "-q"]
    subprocess.run([PROGRAM, *synth], check=True, stdout=subprocess.DEVNULL)
    alone()
    same_bits(found)
    sharded(found)
    sharded_checkpoints(found)
    sharded_skip(found[0])
    stages(found)
    stages_misused(found[0])
    stages_with_a_bad_loss(found[-1])
    variables = {"openmpi": "OMPI_COMM_WORLD_RANK", "mpich": "PMI_RANK"}
    for mpi in found:
        exact_remainders(mpi)
        rank_0_alone_prints(mpi)
        libraries_print(mpi)
        misuse(mpi)
        seconds = stands_still(mpi, variables[mpi], 1)
        print(f"{mpi}: a rank that stood still ended the run after {seconds:.1f} s (limit 4 s)")
        hangs_before_the_first_step(mpi, 1)
        interrupted_alone(mpi, variables[mpi])
        full_disk(mpi)
        if len(found) == len(LAUNCHERS):
            wrong_mpi(mpi)
    hangs_before_the_first_step(found[0], 0)
    bad_loss_elsewhere(found[-1])
    resumed_without_leaves(found[0])
    killed_and_resumed(found[0], variables[found[0]], found[-1])
    killed_and_resumed(found[-1], variables[found[-1]], found[0], "--shard-optimizer")
    stands_still(found[-1], variables[found[-1]], 0)
    stands_still(found[0], variables[found[0]], 2, "--shard-optimizer")
    killed_and_resumed(found[0], variables[found[0]], found[-1], "--split-ranks",
                       "--micro-batches", "4", "--split", "auto", worlds=(2, 2))
    stands_still(found[-1], variables[found[-1]], 1, "--split-ranks", "--split", "fc2", world=2)
    return 0


if __name__ == "__main__":
    folder = tempfile.mkdtemp(prefix="millrace-ranks.")
    os.chdir(folder)
    try:
        code = main()
    finally:
        os.chdir("/")
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(code)
