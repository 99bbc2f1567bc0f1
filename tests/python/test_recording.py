"""millrace.open(): reports, findings and pictures of the recordings in tests/data."""

from __future__ import annotations

import gzip
import pathlib
import sqlite3
import sys
import threading

import millrace
import pytest

DATA = pathlib.Path(__file__).parent.parent / "data"


def unpack(folder: pathlib.Path, name: str) -> str:
    path = folder / f"{name}.sqlite"
    path.write_bytes(gzip.decompress((DATA / f"{name}.sqlite.gz").read_bytes()))
    return str(path)


@pytest.fixture(scope="module")
def mnist(tmp_path_factory: pytest.TempPathFactory) -> str:
    return unpack(tmp_path_factory.mktemp("recording"), "mnist_w0")


def test_report_is_the_recording_s_own_sums(mnist: str) -> None:
    with sqlite3.connect(mnist) as db:
        wanted = dict(db.execute("SELECT s.value, sum(end - start) FROM CUPTI_ACTIVITY_KIND_KERNEL k "
                                 "JOIN StringIds s ON s.id = k.demangledName GROUP BY 1"))
    with millrace.open(mnist) as recording:
        table = recording.report("cuda_gpu_kern_sum")
        assert {row["Name"]: row["Total Time"] for row in table} == wanted
        assert table.columns[0] == ("Time", "%") and table.columns[1] == ("Total Time", "ns")
        assert table.rows == list(table) and table[0] == table.rows[0] and table[-1] == table.rows[-1]
        assert len(table[2:5]) == 3 and table[2:5][0] == table[2]
        assert len(recording.report("cuda_gpu_kern_sum", limit=2)) == 2
        up = recording.report("cuda_gpu_kern_sum", sort="-Total Time")
        assert up[0]["Total Time"] == min(wanted.values())


def test_all_reports_can_be_shown(mnist: str) -> None:
    with millrace.open(mnist) as recording:
        for name, help_text in recording.reports().items():
            table = recording.report(name)
            assert help_text
            assert len({column.name for column in table.columns}) == len(table.columns), name
            assert all(len(line) < 1000 for line in repr(table).split("\n"))
            assert table._repr_html_().count("<tr>") == 1 + min(len(table), 20)
        empty = recording.report("gpu_metrics_sum")
        assert len(empty) == 0 and empty.note and empty.note in repr(empty)


def test_html_is_escaped() -> None:
    from millrace._recording import Column, Table

    table = Table("a<b", "c&d", [Column("<x>", "ns")], [("<script>",)])
    assert "<script>" not in table._repr_html_() and "&lt;script&gt;" in table._repr_html_()
    assert "<x>" not in table._repr_html_() and "a&lt;b" in table._repr_html_()


def test_pandas(mnist: str) -> None:
    pandas = pytest.importorskip("pandas")
    with millrace.open(mnist) as recording:
        table = recording.report("mem_ops")
        frame = table.to_pandas()
    assert isinstance(frame, pandas.DataFrame) and len(frame) == len(table)
    assert list(frame.columns) == [column.name for column in table.columns]
    assert frame["Duration"].sum() == sum(row["Duration"] for row in table)
    assert frame.attrs["units"]["Duration"] == "ns"


def test_to_pandas_without_pandas(mnist: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with millrace.open(mnist) as recording:
        table = recording.steps()
        with pytest.raises(ImportError, match=r"to_pandas\(\) needs pandas: .*pip install pandas"):
            table.to_pandas()


def test_findings_read_as_text(mnist: str) -> None:
    with millrace.open(mnist) as recording:
        for finding in recording.findings():
            lines = repr(finding).splitlines()
            assert lines[0] == f"{finding.title} ({finding.rule}): {finding.verdict}"
            assert lines[1] == f"  why: {finding.why}"
            assert (f"  advice: {finding.advice}" in lines) == bool(finding.advice)


def test_steps_and_findings(mnist: str) -> None:
    with millrace.open(mnist) as recording:
        steps = recording.steps()
        assert [row["Step"] for row in steps] == list(range(1, len(steps) + 1))
        assert all(row["Compute Alone"] + row["Copy Hidden"] + row["Copy Exposed"] + row["Idle"]
                   == row["Duration"] for row in steps)
        assert recording.summary.startswith("data-bound: ")
        first = recording.findings()[0]
        assert (first.rule, first.verdict, first.per_step) == ("data_starvation", "found", True)
        assert first.advice and first.evidence and 0 < first.saving_percent < 100
        assert {f.verdict for f in recording.findings()} <= {"found", "fine", "cannot tell"}
        assert recording.findings(range="load")[0].rule == "data_starvation"
        by_other = recording.steps(step="load")
        assert abs(len(by_other) - len(steps)) <= 1


def test_pictures(mnist: str, tmp_path: pathlib.Path) -> None:
    with millrace.open(mnist) as recording:
        shown = recording.timeline()
        assert isinstance(shown, millrace.Timeline)
        assert shown.svg.lstrip().startswith("<svg") and shown._repr_html_() == shown.svg
        assert "data-bound" in recording._repr_html_() and "<svg" in recording._repr_html_()
        for name, start in (("a.html", b"<!"), ("a.svg", b"<svg"), ("a.pftrace", b"\n")):
            assert recording.timeline(tmp_path / name) == str(tmp_path / name)
            assert (tmp_path / name).read_bytes().lstrip(b" ").lower().startswith(start)
        with pytest.raises(ValueError, match=r"a\.png: expected a name that ends in \.pftrace"):
            recording.timeline(tmp_path / "a.png")
        with pytest.raises(FileNotFoundError, match="nowhere"):
            recording.timeline(tmp_path / "nowhere" / "a.svg")


def test_diff(mnist: str, tmp_path: pathlib.Path) -> None:
    with millrace.open(mnist) as before, millrace.open(unpack(tmp_path, "mnist_w2")) as after:
        rows = before.diff(after)
        assert len(rows) > 0
        assert len(before.diff(before)) > 0


def test_compare_judges_steps(mnist: str, tmp_path: pathlib.Path) -> None:
    with millrace.open(mnist) as before, millrace.open(unpack(tmp_path, "mnist_w2")) as after:
        faster, slower = before.compare(after), after.compare(before, step="step")
        assert (faster.change, slower.change) == ("faster", "slower")
        assert faster.n_before == faster.n_after == 19
        assert faster.before_ns == slower.after_ns > 2 * faster.after_ns > 0
        assert 0 <= faster.p <= 0.01 and faster.summary.startswith("faster: a step took 15.351 ms")
        assert list(faster.tables) == ["steps", "copies", "longest_copy", "findings"]
        step = faster.tables["steps"][0]
        assert step["Part"] == "step" and step["Verdict"] == "faster"
        assert step["Before"] == pytest.approx(faster.before_ns)
        assert faster.summary in repr(faster) and "<table>" in faster._repr_html_()
        assert before.compare(before).change == "same"
        assert before.compare(after, least_percent=99).change == "same"
        with pytest.raises(ValueError, match="zz"):
            before.compare(after, step="zz")
        with pytest.raises(ValueError, match="-1%: expected 0 or more"):
            before.compare(after, least_percent=-1)
    with pytest.raises(ValueError, match="closed"):
        before.compare(after)


def test_rocpd_is_a_recording() -> None:
    with millrace.open(DATA / "rocpd" / "inline.db") as recording:
        assert recording.summary.startswith("data-bound: the GPU waited 52% of the step")
        assert len(recording.steps()) == 8
        sizes = recording.report("cuda_gpu_mem_size_sum")
        assert {row["Total"] for row in sizes} == {8 << 20, 32}
        assert sizes.note and "8 records whose size is not recorded left out" in sizes.note


def test_errors_name_the_file(tmp_path: pathlib.Path, mnist: str) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere.sqlite"):
        millrace.open(tmp_path / "nowhere.sqlite")
    (tmp_path / "text.sqlite").write_text("no database")
    with pytest.raises(millrace.FormatError, match="text.sqlite: is not a recording"):
        millrace.open(str(tmp_path / "text.sqlite"))
    with pytest.raises(TypeError):
        millrace.open(7)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="null byte"):
        millrace.open("a\0b")
    recording = millrace.open(mnist)
    with pytest.raises(ValueError, match='no report "kernels"; there are nvtx_sum'):
        recording.report("kernels")
    with pytest.raises(ValueError, match="zz"):
        recording.findings(range="zz")
    recording.close()
    recording.close()
    for call in (recording.findings, recording.steps, recording.timeline):
        with pytest.raises(ValueError, match="closed"):
            call()


def test_threads_wait_for_each_other(mnist: str) -> None:
    failed: list[BaseException] = []
    with millrace.open(mnist) as recording:
        wanted = recording.report("cuda_api_sum").rows

        def ask() -> None:
            try:
                for _ in range(5):
                    assert recording.report("cuda_api_sum").rows == wanted
                    assert recording.findings()
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failed
