"""The notebook examples/python/tour.ipynb: all of its cells run, and show what they promise.

By nbclient and ipykernel where they are installed, else by a small stand-in for Jupyter.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("numpy")

NOTEBOOK = pathlib.Path(__file__).parents[2] / "examples" / "python" / "tour.ipynb"

# Reads cells from stdin, runs them one after the other, and prints what each shows: as Jupyter, the
# value of its last line, as HTML if it has that.
STAND_IN = r"""
import ast, contextlib, io, json, sys

names = {"__name__": "__main__"}


def show(value):
    html = getattr(value, "_repr_html_", None)
    html = html() if html else None
    return "" if value is None else html if html is not None else repr(value)


def run(source):
    tree = ast.parse(source)
    last = ast.Expression(tree.body.pop().value) if isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), names)
        value = eval(compile(last, "cell", "eval"), names) if last else None
    return printed.getvalue() + show(value)


shown = [run(source) for source in json.load(sys.stdin)]
json.dump(shown, sys.stdout)
"""


def has(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def code_cells() -> list[dict]:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def wanted(cell: dict) -> bool:
    """Whether what a cell's tags name is installed."""
    return all(map(has, cell["metadata"].get("tags", [])))


def run_by_stand_in(cells: list[dict]) -> list[str]:
    done = subprocess.run([sys.executable, "-c", STAND_IN], text=True, capture_output=True,
                          cwd=NOTEBOOK.parent, timeout=300,
                          input=json.dumps(["".join(cell["source"]) for cell in cells]))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def run_by_jupyter(cells: list[dict]) -> list[str]:
    import nbclient  # type: ignore[import-not-found,unused-ignore]
    import nbformat  # type: ignore[import-not-found,unused-ignore]

    book = nbformat.reads(NOTEBOOK.read_text(), as_version=4)
    ran = {cell["id"] for cell in cells}
    book.cells = [cell for cell in book.cells if cell.id in ran]
    nbclient.NotebookClient(book, timeout=300, kernel_name="python3",
                            resources={"metadata": {"path": str(NOTEBOOK.parent)}}).execute()
    shown = []
    for cell in book.cells:
        texts = [output.get("text", "") for output in cell.outputs]
        datas = [output.get("data", {}) for output in cell.outputs]
        shown.append("".join(texts + [d.get("text/html", d.get("text/plain", "")) for d in datas]))
    return shown


WAYS = [pytest.param(run_by_stand_in, id="stand-in"),
        pytest.param(run_by_jupyter, id="jupyter", marks=pytest.mark.skipif(
            not (has("nbclient") and has("ipykernel")), reason="no nbclient with ipykernel"))]


@pytest.mark.parametrize("run", WAYS)
def test_cells_show_what_they_promise(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(os.path.abspath, sys.path)))
    cells = [cell for cell in code_cells() if wanted(cell)]
    shown = dict(zip(("".join(cell["source"]) for cell in cells), run(cells)))

    def of(part: str) -> str:
        found = [text for source, text in shown.items() if part in source]
        assert len(found) == 1, part
        return found[0]

    assert "python-threads" in of("loader.explain()")
    assert of("loader.path, total") == "('native', 20000)"
    statistics = of("loader.stats()")
    assert statistics.startswith("<table>") and "20,000" in statistics
    ranges = of("nvtx_sum")
    assert ranges.startswith("<table>") and ":load<" in ranges and ":step<" in ranges
    assert "no device was used" in of("mine.summary")
    assert of("recording.summary").startswith("data-bound: ")
    assert of("recording.steps()[:5]").count("<tr>") == 6
    assert len(of("recording.findings()[0]").splitlines()) == 2
    assert of("recording.timeline()").startswith("<svg ")
    if has("pandas"):
        assert "Idle" in of("to_pandas()") and "<th>mean</th>" in of("to_pandas()")
        assert "saving_percent" in of("DataFrame(")


def test_it_is_small_and_has_no_outputs() -> None:
    assert NOTEBOOK.stat().st_size < 16000
    for cell in code_cells():
        assert cell["outputs"] == [] and cell["execution_count"] is None
