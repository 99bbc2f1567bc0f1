"""millrace bench comm under Open MPI and MPICH: rows of every size, the definitions of bandwidth,
rank 0 alone prints, ranks that disagree; with the tests' NCCL and driver also sums in graphs.

usage: bench_comm.py PROGRAM [FAKE_NCCL FAKE_DRIVER_FOLDER]
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

PROGRAM = os.path.abspath(sys.argv[1])
LAUNCHERS = {
    "openmpi": ["mpirun.openmpi", "--oversubscribe", "--bind-to", "none"],
    "mpich": ["mpiexec.mpich"],
}
LIMIT = 60  # seconds: for what hangs

for name in list(os.environ):  # nor is this test a rank of something
    if name.startswith(("OMPI_", "PMI", "SLURM_", "TORCHELASTIC_", "RANK", "WORLD_SIZE")):
        del os.environ[name]
# Quiet: mpirun -q, which Open MPI 5 does not know.
os.environ.update(OMPI_MCA_orte_execute_quiet="1", OMPI_ALLOW_RUN_AS_ROOT="1",
                  OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", LC_ALL="C")


def run(words, want=0, **env):
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT,
                          env={**os.environ, **env})
    assert done.returncode == want, (words, done)
    return done


def bench(*args):
    return [PROGRAM, "bench", "comm", "-q", "--repeats", "1", *args]


def check(result, world, kinds):
    assert result["world"] == world, result
    rows = result["sums"]
    assert [r["bytes"] for r in rows] == [n for n in (4, 64, 1024) for _ in kinds], rows
    assert [(r["order"], r["way"]) for r in rows] == 3 * kinds, rows
    for r in rows:
        if world == 3 and r["order"] == "tree":
            assert r["left_out"] == "3 ranks are no power of two", r
            continue
        rate = r["bytes"] / r["time_us"] * 1e6
        assert abs(r["algorithm_bytes_per_s"] / rate - 1) < 1e-9, r
        assert abs(r["bus_bytes_per_s"] / rate / (2 * (world - 1) / world) - 1) < 1e-9, r


def by_mpi(mpi, world, device):
    sizes = ["--min-bytes", "4", "--max-bytes", "1KiB", "--factor", "16"]
    words = [*LAUNCHERS[mpi], "-n", str(world), *bench("-d", device, *sizes, "--json")]
    result = json.loads(run(words).stdout)  # rank 0 alone prints: one object
    assert result["engine"] == "mpi" and result["link_bytes_per_s"] is None, result
    check(result, world, [("fast", "launched"), ("tree", "launched")])


def page(mpi):
    """Its last line is on the page, which leads to its subject."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "comm.html")
        words = bench("-d", "cpu", "--max-bytes", "4KiB", "--plot", path)
        last = run([*LAUNCHERS[mpi], "-n", "2", *words]).stdout.splitlines()[-1]
        with open(path, encoding="utf-8") as file:
            text = file.read()
    assert last.startswith("2 ranks by mpi: a sum takes "), last
    assert last in text and "docs/learn/sums.md" in text, text


def misuse(mpi):
    alone = run(bench("-d", "cpu"), 2)
    assert "this is the only rank" in alone.stderr, alone
    # Not two programs with ":" between them: Debian 13's mpirun (Open MPI 5.0.7) crashes then.
    options = 'exec "$@" --max-bytes $((8 / (1 + ${OMPI_COMM_WORLD_RANK:-$PMI_RANK})))KiB'
    differ = run([*LAUNCHERS[mpi], "-n", "2", "sh", "-c", options, "sh", *bench("-d", "cpu")], 2)
    assert "max" in differ.stderr and "8192" in differ.stderr, differ
    empty = bench("-d", "cpu", "--min-bytes", "2KiB", "--max-bytes", "1KiB")
    order = run([*LAUNCHERS[mpi], "-n", "2", *empty], 2)
    assert "--min-bytes 2048 is above --max-bytes 1024" in order.stderr, order


def by_nccl(nccl, driver):
    """Ranks that the variables of torchrun's kind describe, without MPI; sums in graphs."""
    env = {"MILLRACE_NCCL": nccl, "LD_LIBRARY_PATH": driver, "WORLD_SIZE": "2",
           "LOCAL_WORLD_SIZE": "2", "NCCL_COMM_ID": f"127.0.0.1:{20000 + os.getpid() % 20000}"}
    sizes = ["--min-bytes", "4", "--max-bytes", "1KiB", "--factor", "16"]
    words = bench("--comm", "nccl", *sizes, "--json")
    ranks = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env={**os.environ, **env, "RANK": str(r), "LOCAL_RANK": str(r)})
             for r in range(2)]
    try:
        ends = [rank.communicate(timeout=LIMIT) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], ends
    assert ends[1][0] == "", ends
    result = json.loads(ends[0][0])
    assert result["engine"] == "nccl" and result["launcher"] == "env", result
    check(result, 2, [(order, way) for order in ("fast", "tree") for way in ("launched", "graph")])


def main():
    if len(sys.argv) > 3:
        by_nccl(*sys.argv[2:4])
    found = [mpi for mpi, words in LAUNCHERS.items() if shutil.which(words[0])]
    if not found:
        print("SKIP: neither mpirun.openmpi nor mpiexec.mpich is here: packages openmpi-bin, mpich")
        return 77
    for mpi in found:
        by_mpi(mpi, 2, "cpu")
    by_mpi(found[0], 3, "sim")
    misuse(found[0])
    page(found[0])
    return 0


if __name__ == "__main__":
    folder = tempfile.mkdtemp(prefix="millrace-comm.")
    os.chdir(folder)
    try:
        code = main()
    finally:
        os.chdir("/")
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(code)
