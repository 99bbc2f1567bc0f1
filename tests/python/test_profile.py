"""millrace.range and millrace.profile, under `millrace profile` and without."""

from __future__ import annotations

import os
import pathlib
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator

import millrace
import pytest


def find_program() -> str | None:
    """The wheel's, else that of the build."""
    from millrace import _program

    try:
        return _program.path()
    except FileNotFoundError:
        beside = pathlib.Path(__file__).parent.parent.parent / "build" / "python" / "build" / "millrace"
        return str(beside) if beside.exists() else None


def spans(path: pathlib.Path, name: str) -> int:
    """How often a Perfetto trace has this text, once for each track that has it and event."""
    return path.read_bytes().count(name.encode())


def recorded(folder: pathlib.Path, code: str, *options: str) -> list[tuple[str, int, int, int]]:
    """Runs code under `millrace profile`. Returns its own ranges: name, start, end, thread."""
    program = find_program()
    if not program:
        pytest.skip("no program millrace in this build")
    path = folder / "r.sqlite"
    done = subprocess.run(
        [program, "profile", "-q", "-f", "-o", str(path), "-t", "nvtx,millrace", *options, "--",
         sys.executable, "-c", code],
        capture_output=True, text=True, timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.returncode == 0, done.stderr
    with sqlite3.connect(path) as db:
        return db.execute(
            "SELECT coalesce(e.text, s.value), start, end, globalTid FROM NVTX_EVENTS e "
            "LEFT JOIN StringIds s ON s.id = e.textId WHERE eventType = 59 AND domainId = 0 "
            "ORDER BY start").fetchall()


def test_ranges_are_recorded(tmp_path: pathlib.Path) -> None:
    rows = recorded(tmp_path, """
import asyncio, threading, millrace
outer = millrace.range("outer")
with outer, outer:
    try:
        with millrace.range("fails"):
            raise KeyError
    except KeyError:
        pass
    threads = [threading.Thread(target=millrace.range("thread")(lambda: None)) for _ in range(3)]
    for t in threads: t.start()
    for t in threads: t.join()
@millrace.range("task")
async def task(n):
    await asyncio.sleep(0.01 * n)
    return n
async def main():
    assert await asyncio.gather(task(3), task(1), task(2)) == [3, 1, 2]
asyncio.run(main())
@millrace.range("generator")
def numbers():
    yield 1
    yield 2
a, b = numbers(), numbers()
assert [next(a), next(b), next(a), list(a), next(b)] == [1, 1, 2, [], 2]
b.close()
with millrace.profile("never.pftrace"): pass
""")
    names = [row[0] for row in rows]
    assert {n: names.count(n) for n in names} == {
        "outer": 2, "fails": 1, "thread": 3, "task": 3, "generator": 2, "profile": 1}
    assert all(end is not None and end >= start for _, start, end, _ in rows)
    assert len({row[3] for row in rows if row[0] == "thread"} | {rows[0][3]}) >= 2
    # Coroutines that end in another order than they began: each has its own end.
    tasks = sorted((end - start for name, start, end, _ in rows if name == "task"), reverse=True)
    first = [row for row in rows if row[0] == "task"][0]
    assert first[2] - first[1] == tasks[0]
    assert not (tmp_path / "never.pftrace").exists() and not os.path.exists("never.pftrace")


def test_own_ranges_do_not_hang_on_the_automatic_ones(tmp_path: pathlib.Path) -> None:
    code = "import millrace\nwith millrace.range('mine'): pass"
    assert [row[0] for row in recorded(tmp_path, code, "--python-ranges", "off")] == ["mine"]


def test_a_range_opens_the_capture(tmp_path: pathlib.Path) -> None:
    code = ("import millrace\nwith millrace.range('before'): pass\n"
            "with millrace.range('on'):\n    with millrace.range('in'): pass\n"
            "with millrace.range('after'): pass")
    assert sorted(row[0] for row in recorded(tmp_path, code, "-c", "nvtx:on")) == ["in", "on"]


def test_without_a_profiler(tmp_path: pathlib.Path) -> None:
    with millrace.range("nothing records this"):
        pass
    path = tmp_path / "a.pftrace"
    with millrace.profile(path) as part:
        with millrace.range("inside the trace"):
            pass
        with pytest.raises(RuntimeError, match="already"):
            with millrace.profile(tmp_path / "b.pftrace"):
                pass
    assert part.lost == 0
    assert spans(path, "inside the trace") >= 1 and spans(path, "profile") >= 1
    assert spans(path, "nothing records this") == 0
    assert not (tmp_path / "b.pftrace").exists()


def test_loader_is_in_the_trace(tmp_path: pathlib.Path) -> None:
    from millrace import _core

    path = tmp_path / "a.pftrace"

    @millrace.profile(path)
    def run() -> int:
        rows = memoryview(bytearray(64 * 4)).cast("B", (64, 4))
        data = _core.Dataset.arrays([("x", rows)])
        loader = _core.Loader(data, options={"batch_size": 8})
        n = 0
        while (batch := loader.next()) is not None:
            n += batch.n
            batch.release()
        loader.close()
        return n

    assert run() == 64 and run.__name__ == "run"
    assert spans(path, "wait: batch") >= 1


def test_trace_is_written_after_an_exception(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.perfetto-trace"
    with pytest.raises(KeyError):
        with millrace.profile(path):
            raise KeyError
    assert path.stat().st_size > 0


def test_errors(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match=r"x\.sqlite: expected .*millrace profile -o"):
        millrace.profile("x.sqlite")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        with millrace.profile(tmp_path / "nowhere" / "a.pftrace"):
            pass
    with millrace.profile(tmp_path / "a.pftrace"):  # the failed one is over
        pass


def test_decorators_keep_what_they_wrap() -> None:
    import inspect

    @millrace.range("r")
    def generator() -> Iterator[int]:
        """Its text."""
        yield 1

    @millrace.range("r")
    async def coroutine() -> None: ...

    plain: Callable[[int], int] = millrace.range("r")(abs)
    assert inspect.isgeneratorfunction(generator) and inspect.iscoroutinefunction(coroutine)
    assert generator.__doc__ == "Its text." and list(generator()) == [1] and plain(-1) == 1


def test_star_import_hides_no_builtin(clean: Callable[..., str]) -> None:
    code = ("from millrace import *\nimport builtins\n"
            "assert open is builtins.open and range is builtins.range\n"
            "import millrace; assert millrace.open is not open; print(profile.__name__)")
    assert clean(code) == "profile\n"
