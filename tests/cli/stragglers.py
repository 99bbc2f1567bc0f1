"""millrace train on four ranks, one of which is late, or none: the report names it with its cause.

usage: stragglers.py PROGRAM [ROUNDS]
Environment: SLOW: the module of tests/support/slow_step.c
"""
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile

PROGRAM = os.path.abspath(sys.argv[1])
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 1
RUN = ["mpirun.openmpi", "--oversubscribe", "--bind-to", "none", "-n", "4", PROGRAM, "train",
       "synthetic:n=1e5,shape=16,classes=4", "--classes", "4", "--test", "none", "--model",
       "mlp:8r,4s", "-b", "32", "--workers", "1", "--threads", "1", "-d", "cpu", "--seed", "1"]

for name in list(os.environ):  # nor is this test a rank of something
    if name.startswith(("OMPI_", "PMI", "SLURM_", "TORCHELASTIC_", "RANK", "WORLD_SIZE")):
        del os.environ[name]
# Quiet: mpirun -q, which Open MPI 5 does not know.
os.environ.update(OMPI_MCA_orte_execute_quiet="1", OMPI_ALLOW_RUN_AS_ROOT="1",
                  OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", LC_ALL="C")


def millrace(*words, want=0):
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == want, (words, done)
    return done


def train(*words, **slow):
    environment = {**os.environ, "LD_PRELOAD": os.environ["SLOW"], "SLOW_MS": "4",
                   **{name: str(value) for name, value in slow.items()}}
    done = subprocess.run([*RUN, *words], capture_output=True, text=True, timeout=120,
                          env=environment)
    assert done.returncode == 0, done
    return done


class Busy(Exception):
    """The machine does too much else."""


def ranks(told_ms, longer=1.6, **slow):
    """What a run found. Where its steps took far longer than they were told to, other programs held
    them up, and no rank is to blame: it is run again."""
    for _ in range(6):
        done = train("--json", "--max-steps", "56", **slow)
        found = json.loads(done.stdout)["ranks"]
        if found["step_ms"] < longer * told_ms + 3:
            return found
    raise Busy(found["step_ms"])


def test_live():
    """20 of 20, with ROUNDS = 20."""
    for i in range(ROUNDS):
        rank = i % 4
        data = ranks(19, SLOW_RANK=rank, SLOW_DATA_MS=15)
        compute = ranks(19, SLOW_RANK=3 - rank, SLOW_MORE_MS=15)
        for found, want, cause in ((data, rank, "data"), (compute, 3 - rank, "compute")):
            late = found["straggler"]
            assert late and (late["rank"], late["cause"]) == (want, cause), found
            assert late["cost_ms"] > 8 and found["ranks"][want]["came_last"] > 40, found
            assert found["sentence"].startswith(f"rank {want} ("), found
        # So long that one late waking is no cause; a rank that others hold up is one.
        nobody = ranks(21, longer=1, SLOW_MS=20)
        assert nobody["straggler"] is None, nobody
        assert nobody["sentence"].startswith("no rank held the others up"), nobody
        if ROUNDS > 1:
            print(i + 1, "of", ROUNDS, flush=True)


def test_files():
    """--report-every, --metrics and --report-dir; the files say what the run said."""
    done = train("--max-steps", "100", "--report-every", "200ms", "--metrics", "m.prom",
                 "--report-dir", "reports", SLOW_RANK=1, SLOW_MORE_MS=20)
    told = re.findall(r"step \d+: rank 1 \(.*\) came last in", done.stderr)
    assert len(told) >= 2, done.stderr
    assert "rank 1 (" in done.stdout and "in sums, ms" in done.stdout, done.stdout
    check_metrics("m.prom")
    merged = json.loads(millrace("report", "--ranks", "reports", "--metrics", "n.prom",
                                 "--json").stdout)
    assert merged["of"] == "train" and merged["world"] == 4, merged
    assert merged["straggler"]["rank"] == 1 and merged["straggler"]["cause"] == "compute", merged
    check_metrics("n.prom")


def check_metrics(path):
    """Names, types and values; each family once, in a piece; an end."""
    with open(path) as file:
        lines = file.read().split("\n")
    assert lines[-2:] == ["# EOF", ""], lines[-3:]
    types, values, family = {}, {}, None
    for line in lines[:-2]:
        if line.startswith("# TYPE "):
            _, _, family, kind = line.split(" ")
            assert family not in types, line
            types[family] = kind
        elif not line.startswith("# HELP "):
            found = re.fullmatch(r'(\w+)((?:\{\w+="[^"]*"(?:,\w+="[^"]*")*\})?) (\S+)', line)
            assert found, line
            end = "_total" if types[family] == "counter" else ""
            assert found[1] == family + end, line
            values[found[1] + found[2]] = float(found[3])
    assert values["millrace_ranks"] == 4, values
    last = [v for name, v in values.items() if name.startswith("millrace_rank_last_steps_total")]
    assert len(last) == 4 and sum(last) == values["millrace_steps_total"], values
    late = [name for name in values if name.startswith("millrace_straggler_cost_seconds")]
    assert len(late) == 1 and 'rank="1"' in late[0] and 'cause="compute"' in late[0], late


def report_of(rank, world, steps, **more):
    text = {"millrace_rank": rank, "world": world, "command": "feed", "host": f"node{rank}",
            "sums": False, "lockstep": False, "bottleneck": "read", "read_bytes_per_s": 410e6,
            "stages": [0.12, 0.2, 0, 0, 0.6], "first": 0, "steps_us": steps}
    text.update(more)
    return json.dumps(text)


def write(folder, texts):
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(folder)
    for rank, text in enumerate(texts):
        with open(f"{folder}/rank-{rank:05}.json", "w") as file:
            file.write(text)


def test_merge():
    """Ranks that do not wait for each other; with steps that not all have, and a slow disk."""
    rng = random.Random(4)
    for world in (2, 5):
        texts = []
        for rank in range(world):
            steps = []
            for _ in range(120 + 10 * rank):
                steps += [rng.randrange(400) + (9000 if rank == 1 else 0), 4000, 0]
            slow = {"read_bytes_per_s": 90e6, "stages": [0.73, 0.2, 0, 0, 0]} if rank == 1 else {}
            texts.append(report_of(rank, world, steps, first=7 * rank, **slow))
        write("f", texts)
        text = millrace("report", "--ranks", "f").stdout
        assert "rank 1 (node1) came last in 100% of" in text, text
        assert "would cost the others" in text and "it waited for data 9." in text, text
        assert "read took 73% of its workers' time, 12% of the others'" in text, text
        assert "it read 90.0 MB/s, the others 410 MB/s" in text, text


def test_bad_files():
    good = [report_of(r, 2, [1, 2, 3] * 50) for r in range(2)]
    for texts, why in (
            ([good[0]], "rank 0 of 2, but there is 1 report:"),
            ([good[0], good[0]], "a second report of its rank"),
            ([good[0], "{}"], "no report"),
            ([good[0], good[1][:40]], "no report"),
            ([good[0], report_of(1, 2, [1, 2])], "a step without all its times"),
            ([good[0], report_of(1, 2, [1, 2, -3])], "a step's time"),
            ([good[0], report_of(1, 2, [1, 2, "x"])], "a step's time"),
            ([good[0], report_of(1, 2, [], stages=[1])], "stages"),
            ([good[0], report_of(1, 2, [], first=1e300)], "no report"),
            ([good[0], " " * (1 << 20) + good[1]], "more than 1 MiB")):
        write("bad", texts)
        failed = millrace("report", "--ranks", "bad", want=1)
        assert why in failed.stderr and "bad/rank-0000" in failed.stderr, (why, failed)
    write("bad", [])
    assert "--report-dir" in millrace("report", "--ranks", "bad", want=1).stderr
    millrace("report", "--ranks", "bad", "x.sqlite", want=2)
    write("empty", [report_of(r, 2, []) for r in range(2)])
    assert "in 0 steps" in millrace("report", "--ranks", "empty").stdout


def test_feed():
    """Two processes that know their ranks, and nothing of each other."""
    for rank in "0", "1":
        millrace("feed", "synthetic:n=4000,shape=8", "-q", "-b", "20", "-d", "cpu", "--sink-ms",
                 "1" if rank == "0" else "25", "--batches", "32", "--rank", rank, "--world", "2",
                 "--report-dir", "fed")
    merged = json.loads(millrace("report", "--ranks", "fed", "--json").stdout)
    assert merged["of"] == "feed" and merged["steps"] == 32, merged
    assert merged["straggler"]["rank"] == 1 and merged["straggler"]["cause"] == "compute", merged


def main():
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    try:
        for test in (test_merge, test_bad_files, test_feed):
            test()
        if not shutil.which("mpirun.openmpi"):
            print("no mpirun.openmpi: the ranks that train are left out")
            return 77
        test_files()
        test_live()
    except Busy as busy:
        print("the machine is too busy: steps of", busy, "ms")
        return 77
    finally:
        os.chdir("/")
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
