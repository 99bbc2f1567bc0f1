"""Slurm on this machine, by a configuration of its own in a temporary folder: srun starts the ranks
of train and feed, and a batch script is no rank.

usage: slurm.py PROGRAM
Skips where slurmctld, slurmd, munged (packages slurmctld, slurmd, slurm-client, munge) or root's
rights are not to be had. Nothing of it touches a Slurm that runs here: ports, key and folders are
its own.
"""
import contextlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

PROGRAM = os.path.abspath(sys.argv[1])
LIMIT = 90  # seconds: for what hangs
SAMPLES = 256
DAEMONS = ("munged", "slurmctld", "slurmd")
CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={control}
SlurmdPort={node}
SlurmUser=root
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE
"""

for name in list(os.environ):  # nor is this test a rank of something
    if name.startswith(("OMPI_", "PMI", "SLURM_", "TORCHELASTIC_", "RANK", "WORLD_SIZE")):
        del os.environ[name]
os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", LC_ALL="C")
os.environ["PATH"] += ":/usr/sbin:/sbin"


def skip(why):
    print(f"SKIP: {why}")
    sys.exit(77)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@contextlib.contextmanager
def daemon(words, log):
    """In the foreground, and ended with all that it started."""
    with open(log, "w") as out:
        process = subprocess.Popen(words, stdout=out, stderr=out, start_new_session=True)
    try:
        yield process
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def finish(words, want=0):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=LIMIT)
    assert done.returncode == want, done
    return done


def wait_for(condition, what):
    until = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.1)


@contextlib.contextmanager
def slurm(folder):
    host = socket.gethostname().partition(".")[0]
    for part in ("state", "spool"):
        os.mkdir(os.path.join(folder, part))
    with open("slurm.conf", "w") as file:
        file.write(CONFIGURATION.format(host=host, folder=folder, control=free_port(),
                                        node=free_port()))
    with open("munge.key", "wb") as file:
        file.write(os.urandom(1024))
    os.chmod("munge.key", 0o400)
    os.environ["SLURM_CONF"] = os.path.join(folder, "slurm.conf")
    munge = ["munged", "--foreground", "--force"]
    for option, name in (("key-file", "key"), ("socket", "socket"), ("pid-file", "pid"),
                         ("seed-file", "seed")):
        munge.append(f"--{option}={folder}/munge.{name}")
    with daemon(munge, "munged.out"), daemon(["slurmctld", "-D", "-c"], "slurmctld.out"), \
            daemon(["slurmd", "-D", "-N", host], "slurmd.out"):
        idle = ["sinfo", "-h", "-o", "%T"]
        wait_for(lambda: subprocess.run(idle, capture_output=True).stdout.strip() == b"idle",
                 "no idle node")
        yield


def parameters(path):
    with open(path, "rb") as file:
        head = struct.unpack("<Q", file.read(8))[0]
        file.seek(8 + head)
        return file.read()


def train(checkpoint):
    return [PROGRAM, "train", "d", "-q", "-d", "cpu", "--threads", "1", "--seed", "3", "-m",
            "mlp:30s", "-b", "64", "--leaves", "2", "-e", "2", "--json", "-f", "-c", checkpoint]


def plugin_lacks(plugin):
    """Debian's pmix needs a link that the package libpmix-dev has."""
    tried = subprocess.run(["srun", "-n", "1", f"--mpi={plugin}", "true"], stderr=subprocess.PIPE,
                           text=True, timeout=LIMIT)
    return tried.stderr.strip().splitlines()[:1] if tried.returncode else None


def trains():
    """Two ranks under srun, by each of the MPIs: the bits of one."""
    subprocess.run(train("one.st"), check=True, stdout=subprocess.DEVNULL)
    for plugin, library, launcher in (("pmix", "libmpi.so.40", "mpirun.openmpi"),
                                      ("pmi2", "libmpich.so.12", "mpiexec.mpich")):
        lacks = plugin_lacks(plugin) or (None if shutil.which(launcher) else f"no {launcher}")
        if lacks:
            print(f"srun --mpi={plugin}: left out: {lacks}")
            continue
        words = ["srun", "-n", "2", f"--mpi={plugin}", "env", f"MILLRACE_MPI={library}"]
        out = json.loads(finish([*words, *train("two.st")]).stdout)
        assert out["world"] == 2 and out["engine"] == "mpi", out
        assert parameters("two.st") == parameters("one.st"), plugin
        print(f"srun --mpi={plugin}: 2 ranks, launcher {out['launcher']}, equal parameters")


def needs_a_plugin():
    """Without one, MPI says that each process is alone: an error at once, not two runs."""
    done = subprocess.run(["srun", "-n", "2", "--mpi=none", *train("none.st")],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=LIMIT)
    assert done.returncode != 0, done
    assert "2 processes" in done.stderr or "of 2" in done.stderr, done
    print(*(line for line in done.stderr.splitlines() if "millrace" in line), sep="\n")


def feed():
    return [PROGRAM, "feed", "d", "-q", "-d", "cpu", "-b", "32", "-e", "1", "--digest", "--json"]


def report(path):
    with open(path) as file:
        return json.load(file)


def feeds():
    """srun's ranks share the epoch: each sample once."""
    words = ["srun", "-n", "2", "--mpi=none", "sh", "-c", '"$@" > feed.$SLURM_PROCID', "sh"]
    finish([*words, *feed()])
    parts = [report(f"feed.{rank}") for rank in (0, 1)]
    assert [part["samples"] for part in parts] == [SAMPLES / 2, SAMPLES / 2], parts
    whole = json.loads(finish(feed()).stdout)
    added = sum(int(part["digest"], 16) for part in parts) % 2**128
    assert added == int(whole["digest"], 16), (parts, whole)
    print("srun feed: 2 ranks, half of the samples each, digests add up")


def a_batch_script_is_no_rank():
    """The script itself is alone; what mpirun starts within it are mpirun's ranks."""
    script = ["#!/bin/sh", "env | grep -c '^SLURM_PROCID=0' > procid",
              " ".join(feed()) + " > batch.json"]
    if shutil.which("mpirun.openmpi"):
        script.append("mpirun.openmpi --oversubscribe --bind-to none -n 2 "
                      + " ".join(train("mpirun.st")) + " > mpirun.json")
    with open("job.sh", "w") as file:
        file.write("\n".join([*script, "touch over"]) + "\n")
    finish(["sbatch", "-n", "4", "-o", "job.out", "job.sh"])
    wait_for(lambda: os.path.exists("over"), "the batch script did not end")
    with open("procid") as file:
        assert file.read().strip() == "1"
    out = report("batch.json")
    assert out["samples"] == SAMPLES, out
    if len(script) > 3:
        out = report("mpirun.json")
        assert out["world"] == 2 and out["launcher"] == "openmpi", out
        assert parameters("mpirun.st") == parameters("one.st")
    print("batch script: alone; mpirun within it: 2 ranks, equal parameters")


def main(folder):
    subprocess.run([PROGRAM, "synth", "digits", "d", "-n", str(SAMPLES), "--n-test", "32", "-q"],
                   check=True, stdout=subprocess.DEVNULL)
    start = time.monotonic()
    with slurm(folder):
        print(f"idle after {time.monotonic() - start:.1f} s")
        trains()
        needs_a_plugin()
        feeds()
        a_batch_script_is_no_rank()


if __name__ == "__main__":
    for word in (*DAEMONS, "srun", "sbatch", "sinfo"):
        if not shutil.which(word):
            skip(f"{word} is not here: packages slurmctld, slurmd, slurm-client, munge")
    if os.geteuid() != 0:
        skip("slurmd needs root's rights")
    own = tempfile.mkdtemp(prefix="millrace-slurm.")
    os.chdir(own)
    try:
        main(own)
    finally:
        os.chdir("/")
        shutil.rmtree(own, ignore_errors=True)
