"""Worker processes of Python samples."""

import gc
import logging
import os
import random
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time
import types

import numpy
import process_recipes as recipes
import process_support as support
import pytest

import millrace
from millrace import _core, _maker, _processes
from millrace._shared import shared_list

METHODS = ["forkserver", "fork", "spawn"]
RUNS = int(os.environ.get("MILLRACE_TEST_KILLS", "20"))
HERE = os.path.dirname(os.path.abspath(__file__))


@pytest.fixture(autouse=True)
def nothing_is_left():
    """No descriptors and no zombies are left by a test, but the fork server's."""
    _processes.prepare()
    gc.collect()
    before = len(os.listdir("/proc/self/fd")), len(support.children())
    yield
    gc.collect()
    assert (len(os.listdir("/proc/self/fd")), len(support.children())) == before


def run_script(code, **options):
    """Runs a program of its own, in a file, as multiprocessing wants it."""
    path = options.pop("path")
    path.write_text(textwrap.dedent(code))
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path + [HERE]))}
    return subprocess.Popen([sys.executable, str(path)], env=environ, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


@pytest.mark.parametrize("method", METHODS)
def test_each_sample_once(method):
    pool = support.pool(recipes.Rows(), 1000, context=method)
    assert pool.method == method and len(set(pool.pids)) == 2
    found, bad = support.batches(pool.dataset, shuffle=3)
    assert not bad
    support.check_rows(found, 1000)
    pids = pool.pids
    pool.close()
    support.wait_until(lambda: not any(map(support.is_alive, pids)))


def test_epochs_use_the_same_workers():
    pool = support.pool(recipes.Rows(), 40)
    pids = pool.pids
    for _ in range(3):
        found, _ = support.batches(pool.dataset, epochs=2)
        support.check_rows(found[:5], 40)
        support.check_rows(found[5:], 40, epoch=1)
    assert pool.pids == pids
    pool.close()


def test_a_multiprocessing_context_names_the_method():
    import multiprocessing

    pool = support.pool(recipes.Rows(), 8, context=multiprocessing.get_context("fork"))
    assert pool.method == "fork"
    pool.close()
    with pytest.raises(ValueError, match="'forkserver'"):
        support.pool(recipes.Rows(), 8, context="thread")


@pytest.mark.parametrize("method", METHODS)
def test_worker_info(method):
    pool = support.pool(recipes.Tells([1, 2, 3, 4]), 200, context=method)
    found, _ = support.batches(pool.dataset, workers=4)
    worker, n, pid, ignored, dataset = (numpy.concatenate(field) for field in zip(*found))
    assert set(n.tolist()) == {2} and ignored.all() and set(dataset.tolist()) == {4}
    assert all(pool.pids[k] == p for k, p in zip(worker.tolist(), pid.tolist()))
    assert _processes.get_worker_info() is None
    pool.close()


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_killed_workers_cost_no_sample(method):
    """Workers are killed at random moments: all samples once, bits equal."""
    pool = support.pool(recipes.Slow(), 300, workers=3, context=method)
    choice, done = random.Random(5), threading.Event()
    killed = []

    def kill():
        while len(killed) < RUNS:
            time.sleep(choice.uniform(0.001, 0.02))
            pid = choice.choice(pool.pids)
            try:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
            except ProcessLookupError:
                continue
        done.set()

    thread = threading.Thread(target=kill)
    thread.start()
    while not done.is_set():
        found, bad = support.batches(pool.dataset, shuffle=1, bad="skip")
        index = numpy.concatenate([batch[1] for batch in found])
        # A sample that two kills hit is bad, by the rules; each other one is there, once.
        assert sorted(index.tolist() + [b[0] for b in bad]) == list(range(300))
        assert (numpy.concatenate([b[0] for b in found]) == support.expected(index)).all()
    thread.join()
    found, bad = support.batches(pool.dataset)
    assert not bad
    support.check_rows(found, 300)
    assert len(killed) == RUNS
    pool.close()


@pytest.mark.parametrize("method", METHODS)
def test_restarted_workers_block_the_same_signals(method):
    pool = support.pool(recipes.Rows(), 200, workers=1, context=method)
    support.batches(pool.dataset)
    old, = pool.pids
    blocked = support.blocked_signals(old)
    os.kill(old, signal.SIGKILL)
    found, _ = support.batches(pool.dataset)
    support.check_rows(found, 200)
    new, = pool.pids
    assert new != old
    assert support.blocked_signals(new) == blocked
    pool.close()


@pytest.mark.parametrize("method", METHODS)
def test_a_sample_that_kills_is_bad(method):
    pool = support.pool(recipes.Poison(), 60, context=method)
    found, bad = support.batches(pool.dataset, bad="skip", max_bad="5")
    assert [b[0] for b in bad] == [13]
    index = numpy.concatenate([batch[1] for batch in found])
    assert sorted(index.tolist()) == [k for k in range(60) if k != 13]
    error = pool.error(0, 13)
    assert isinstance(error, _processes.WorkerDied)
    assert error.where.sample == 13
    assert error.status == signal.SIGKILL and "SIGKILL" in str(error)
    pool.close()


def test_abort_signals_no_process_that_has_the_pid_of_a_worker():
    pool = support.pool(recipes.Rows(), 60)
    other = subprocess.Popen(["sleep", "60"])
    try:
        pool._starts.pids[0] = other.pid
        pids = [pool.pids[1]]
        pool.abort()
        support.wait_until(lambda: not any(map(support.is_alive, pids)))
        assert support.is_alive(other.pid)
    finally:
        other.kill()
        other.wait()
        pool.close()


def test_exceptions_keep_their_type():
    pool = support.pool(recipes.Failing(), 40)
    with pytest.raises(RuntimeError, match="sample 7"):
        support.batches(pool.dataset)
    error = pool.error(0, 7)
    assert type(error) is recipes.Refused and error.index == 7
    cause = str(error.__cause__)
    assert "in row" in cause and "process_recipes.py" in cause and "sample 7, epoch 0" in cause
    assert error.__cause__.where.pid in pool.pids
    _, bad = support.batches(pool.dataset, bad="skip", max_bad="5")
    assert [b[0] for b in bad] == [7, 8, 9]
    assert type(pool.error(0, 8)) is RuntimeError and "with a lock" in str(pool.error(0, 8))
    assert type(pool.error(0, 9)) is SystemExit
    assert pool.error(0, 10) is None and pool.error(1, 7) is None
    pool.close()


@pytest.mark.parametrize("recipe, kind", [(recipes.NoStart(), KeyError),
                                          (recipes.NoLoad(), FileNotFoundError)])
def test_a_worker_that_cannot_start(recipe, kind):
    pool = support.pool(recipe, 40)
    with pytest.raises(RuntimeError):
        support.batches(pool.dataset, batch_size=1, workers=1)
    assert type(pool.error(0, 0)) is kind
    pool.close()


def test_timeout_kills_and_tells_where():
    pool = support.pool(recipes.Hangs(), 20, timeout=0.2)
    _, bad = support.batches(pool.dataset, bad="skip", max_bad="2")
    assert [b[0] for b in bad] == [5]
    error = pool.error(0, 5)
    assert isinstance(error, _processes.WorkerTimeout) and isinstance(error, TimeoutError)
    assert "process_recipes.py" in str(error) and "in row" in str(error)
    pool.close()


@pytest.mark.parametrize("method", METHODS)
def test_workers_end_with_their_parent(method, tmp_path):
    program = run_script(f"""
        import os, signal
        import process_recipes, process_support
        if __name__ == "__main__":
            pool = process_support.pool(process_recipes.Sleeps(), 8, context={method!r})
            from millrace import _core
            loader = _core.Loader(pool.dataset, options={{"batch_size": 2}})
            print(*pool.pids, flush=True)
            signal.pause()
        """, path=tmp_path / "program.py")
    pids = list(map(int, program.stdout.readline().split()))
    assert len(pids) == 2
    support.wait_until(lambda: all(map(support.is_alive, pids)))
    time.sleep(0.3)  # some of them are within a sample, some on their way there
    program.kill()
    program.communicate()
    support.wait_until(lambda: not any(map(support.is_alive, pids)), 2)


def test_torch_is_told():
    """A module with the names that we use stands for torch, whose import takes seconds."""
    if "torch" in sys.modules:
        pytest.skip("torch itself is there")
    pool = support.pool(recipes.FakeTorch([5]), 30, workers=3, context="fork")
    found, _ = support.batches(pool.dataset)
    rows = numpy.concatenate([numpy.stack(b, 1) for b in found])
    assert (rows[:, 0] == rows[:, 1]).all() and (rows[:, 2:] == [3, 5, 1]).all()
    pool.close()


@pytest.mark.parametrize("method", METHODS)
def test_keyboard_interrupt(method, tmp_path):
    program = run_script(f"""
        import process_recipes, process_support
        from millrace import _core
        if __name__ == "__main__":
            pool = process_support.pool(process_recipes.Sleeps(), 8, context={method!r})
            print(*pool.pids, flush=True)
            loader = _core.Loader(pool.dataset, options={{"batch_size": 2}})
            loader.next()
        """, path=tmp_path / "program.py", start_new_session=True)
    pids = list(map(int, program.stdout.readline().split()))
    time.sleep(0.5)
    os.killpg(program.pid, signal.SIGINT)  # as a terminal does
    start = time.monotonic()
    _, text = program.communicate(timeout=20)
    support.wait_until(lambda: not any(map(support.is_alive, pids)))
    assert time.monotonic() - start < 5  # on a busy machine; it takes 0.2 s
    assert "KeyboardInterrupt" in text and text.count("Traceback") == 1


def test_what_does_not_pickle_is_forked(caplog):
    with caplog.at_level(logging.WARNING, "millrace"):
        pool = support.pool(recipes.Rows({"a": [1, threading.Lock()]}), 20)
    assert pool.method == "fork"
    assert len(caplog.records) == 1
    assert "dataset['a'][1] cannot be pickled" in caplog.text
    found, _ = support.batches(pool.dataset)
    support.check_rows(found, 20)
    pool.close()


def test_what_does_not_pickle_and_must(monkeypatch):
    recipe = recipes.Rows({"a": [1, threading.Lock()]})
    for method in ("spawn", "forkserver"):
        with pytest.raises(TypeError, match=r"dataset\['a'\]\[1\] cannot be pickled"):
            support.pool(recipe, 20, context=method)
    monkeypatch.setattr(_processes, "_cuda_is_up", lambda: True)
    with pytest.raises(TypeError, match="CUDA"):
        support.pool(recipe, 20)


def test_no_main_guard(tmp_path):
    """A class of a script without a guard, which only its import can find: refused, once."""
    program = run_script("""
        import sys
        sys.modules["cloudpickle"] = None
        import importlib.util
        find = importlib.util.find_spec
        importlib.util.find_spec = lambda n, *a: None if n == "cloudpickle" else find(n, *a)
        import process_recipes, process_support
        class Mine(process_recipes.Rows):
            pass
        pool = process_support.pool(Mine(), 20)
        """, path=tmp_path / "program.py")
    _, text = program.communicate(timeout=60)
    assert program.returncode == 1
    assert "worker processes could not be started" in text
    assert "if __name__ == '__main__'" in text


def test_a_class_of_the_main_module(tmp_path):
    pytest.importorskip("cloudpickle")
    program = run_script("""
        import process_recipes, process_support
        class Odd(Exception):
            pass
        class Mine(process_recipes.Rows):
            def row(self, epoch, index):
                if index == 3:
                    raise Odd("three")
                return super().row(epoch, index)
        pool = process_support.pool(Mine(), 20)
        found, bad = process_support.batches(pool.dataset, bad="skip", max_bad="1")
        print(pool.method, sum(map(len, (b[1] for b in found))), type(pool.error(0, 3)) is Odd)
        """, path=tmp_path / "program.py")
    out, text = program.communicate(timeout=60)
    assert out == "forkserver 19 True\n", text


def test_few_descriptors():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, before[1]))
    try:
        pool = support.pool(recipes.Rows(), 100, workers=8)
        found, _ = support.batches(pool.dataset)
        support.check_rows(found, 100)
        pool.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_killed_fork_server_is_replaced():
    pool = support.pool(recipes.Rows(), 100)
    old = pool.pids
    server = _processes._start._client._pid
    os.kill(server, signal.SIGKILL)
    for pid in old:
        os.kill(pid, signal.SIGKILL)
    found, _ = support.batches(pool.dataset)
    support.check_rows(found, 100)
    support.wait_until(lambda: not set(old) & set(pool.pids))
    assert _processes._start._client._pid != server
    assert support.blocked_signals(_processes._start._client._pid) == 0
    pool.close()
    _processes._start._client.close()
    _processes.prepare()


def test_shared_lists_are_passed_as_memory():
    words = shared_list("x" * k for k in range(50))
    for method in METHODS:
        pool = support.pool(recipes.Listed(words), 50, context=method)
        found, _ = support.batches(pool.dataset)
        assert numpy.concatenate([b[0] for b in found]).tolist() == list(range(50))
        pool.close()


def test_large_arrays_of_a_data_set_are_shared():
    array = numpy.arange(1 << 20)
    pool = support.pool(recipes.Sums(array), 40)
    found, _ = support.batches(pool.dataset, batch_size=1)
    assert {int(b[0][0]) for b in found} == {int(array.sum())}
    pids = {int(b[1][0]) for b in found}
    assert pids == set(pool.pids)
    for pid in pids:
        with open("/proc/%d/smaps" % pid) as file:
            recipe = file.read().split("memfd:millrace-recipe", 1)[1].split("VmFlags", 1)[0]
        kib = dict(line.split()[:2] for line in recipe.splitlines() if line.endswith("kB"))
        assert int(kib["Rss:"]) > 8000 and int(kib["Anonymous:"]) == 0  # no page of its own
    pool.close()


def tickets(pool, **options):
    found, bad = support.batches(pool.dataset, **options)
    return numpy.concatenate([b[0] for b in found]).tolist(), bad


def test_objects():
    pool = support.pool(recipes.Objects(), 20, context="fork")
    for _ in range(3):
        sent, bad = tickets(pool, bad="skip", max_bad="1")
        assert [b[0] for b in bad] == [3]
        assert isinstance(pool.error(0, 3), TypeError)
        objects = [pool.take(ticket) for ticket in sent]
        assert [o["index"] for o in objects] == [k for k in range(20) if k != 3]
        for o in objects:
            assert o["text"] == "x" * o["index"] and o["small"] == [1.5, None]
            assert o["large"] == bytearray(b"%d" % (o["index"] % 10)) * 100_000
        with pytest.raises(ValueError, match="taken before"):
            pool.take(sent[0])
    pool.close()
    with pytest.raises(ValueError, match="closed"):
        pool.take(sent[0])


def test_arrays_of_objects_are_views_and_outlive_the_pool():
    pool = support.pool(recipes.Arrays(), 40)
    sent, _ = tickets(pool)
    kept = [pool.take(ticket) for ticket in sent]
    again, _ = tickets(pool)
    others = [pool.take(ticket) for ticket in again]
    pool.close()
    del pool
    gc.collect()
    for k, ((large, small), (other, _)) in enumerate(zip(kept, others)):
        assert not large.flags.owndata and large.flags.writeable
        assert (large == k).all() and (other == k).all() and small.tolist() == list(range(k))
        assert not numpy.shares_memory(large, other)


def test_memory_of_objects_is_used_again():
    pool = support.pool(recipes.Arrays(), 200)
    for k in range(20):
        sent, _ = tickets(pool)
        if k % 2:
            pool.drop()
            with pytest.raises(ValueError, match="dropped"):
                pool.take(sent[0])
        else:
            for ticket in sent:
                pool.take(ticket)
    # 200 samples of 40 KB are in flight at a time; 20 rounds of them were made.
    assert os.fstat(pool._starts.side.fd).st_blocks * 512 < 3 * 200 * 48_000
    pool.close()


def test_objects_survive_kills():
    pool = support.pool(recipes.Arrays(), 60, workers=2, context="fork")
    for _ in range(5):
        sent, _ = tickets(pool)
        support.wait_until(lambda: support.is_alive(pool.pids[0]))
        os.kill(pool.pids[0], signal.SIGKILL)
        objects = [pool.take(ticket) for ticket in sent]
        assert [int(o[0][0, 0]) for o in objects] == list(range(60))
    pool.close()


def test_abort_ends_samples_in_progress():
    pool = support.pool(recipes.Sleeps(), 8, context="fork")
    loader = _core.Loader(pool.dataset, options={"batch_size": 2})
    with pytest.raises(TimeoutError):
        loader.next(timeout=0.2)
    pids = pool.pids
    pool.abort()
    loader.close()
    assert pool.pids == pids
    support.wait_until(lambda: not any(map(support.is_alive, pids)))
    pool.close()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("device, copied", [(None, False), ("cpu", False), ("sim", True)])
def test_workers_know_whether_rows_are_copied(method, device, copied, tmp_path):
    """Rows that a copy engine reads are written around the caches; a program would miss them."""
    found = tmp_path / "copied"
    with millrace.DataLoader(
        recipes.Setups(found), 2, num_workers=2, multiprocessing_context=method, device=device,
        as_="dlpack",
    ) as loader:  # fmt: skip
        assert len(list(loader)) == 2
    assert set(found.read_text().split()) == {str(copied)}


@pytest.mark.parametrize("pinned, copied", [(None, False), ("cuda:0", True)])
def test_pinned_rows_are_copied(pinned, copied, monkeypatch):
    """pin_memory=True where torch sees a GPU: rows stay on the host, and are copied from there."""
    found = []

    class Pool:
        dataset = None

        def __init__(self, *args, copied, **more):
            found.append(copied)

    monkeypatch.setattr(_processes, "Pool", Pool)
    settings = types.SimpleNamespace(pinned=pinned, device=None, context=None)
    _maker.Maker(settings, recipes.Rows(), 4, 1)
    assert found == [copied]


def test_workers_must_be_positive():
    with pytest.raises(ValueError, match="workers: 0"):
        support.pool(recipes.Rows(), 10, workers=0)


def test_a_dropped_pool_ends_its_workers():
    pool = support.pool(recipes.Rows(), 10)
    pids = pool.pids
    del pool
    gc.collect()
    support.wait_until(lambda: not any(map(support.is_alive, pids)))
