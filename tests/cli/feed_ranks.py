"""Two ranks of a loader under mpirun, on the simulated device: each records its own file, and
`analyze` of the folder names the rank whose loader lags, and nobody where none does.

usage: feed_ranks.py PROGRAM; exit status 77 where there is no mpirun"""
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile

PROGRAM = os.path.abspath(sys.argv[1])
LIMIT = 60  # seconds: for what hangs

# Rank 1's samples take $2 of a core each; the device's step is longer than the others need.
RANK = """work=0
[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" != 1 ] || work=$2
exec "$PROGRAM" profile -q -t cuda,nvtx,millrace -o "$1/run" -- "$PROGRAM" feed \\
    synthetic:n=640,shape=64,work=$work -b 8 -w 1 --rank auto --device sim:step=5ms
"""

for name in list(os.environ):  # nor is this test a rank of something
    if name.startswith(("OMPI_", "PMI", "SLURM_", "TORCHELASTIC_", "RANK", "WORLD_SIZE")):
        del os.environ[name]
# Quiet: mpirun -q, which Open MPI 5 does not know.
os.environ.update(OMPI_MCA_orte_execute_quiet="1", OMPI_ALLOW_RUN_AS_ROOT="1",
                  OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", LC_ALL="C",
                  PROGRAM=PROGRAM)


def launcher():
    """The words before a rank's own; None: there is no mpirun."""
    path = shutil.which("mpirun")
    if path is None:
        return None
    version = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    more = ["--oversubscribe", "--bind-to", "none"] if "Open MPI" in version.stdout else []
    return [path, *more, "-n", "2"]


def finish(words):
    """The ended process with what it printed; its ranks end with it."""
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          start_new_session=True) as process:
        try:
            out, err = process.communicate(timeout=LIMIT)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, out, err


def analyze(words, folder, work):
    """The first paragraph of `analyze` on one line."""
    os.mkdir(folder)
    status, out, err = finish([*words, "sh", "-c", RANK, "rank", folder, work])
    assert status == 0, (status, out, err)
    files = sorted(os.listdir(folder))
    assert files == ["run.rank0.sqlite", "run.rank1.sqlite"], files
    status, out, err = finish([PROGRAM, "analyze", folder])
    assert status == 0, (status, out, err)
    return " ".join(out.split("\n\n")[0].split())


def main():
    words = launcher()
    if words is None:
        print("SKIP: no mpirun: install Open MPI or MPICH")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        slow = analyze(words, "slow", "3ms")
        assert slow.startswith("rank 1 is the slowest of ranks that do not wait"), slow
        assert "cause: waiting for the loader" in slow, slow
        assert "Rank 1 is looked at: data-bound: " in slow, slow
        even = analyze(words, "even", "0")
        assert not even.startswith("rank"), even
        assert "no rank is slower than the others" in even, even
        status, out, err = finish([PROGRAM, "report", "-r", "rank_breakdown", "slow"])
        assert status == 0 and "Rank 1 is the slowest" in out, (status, out, err)


main()
