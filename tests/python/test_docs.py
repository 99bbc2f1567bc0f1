"""The Python code in the documents runs, block by block, in one namespace a document.

A comment before a block says what it needs:

    <!-- example: torch -->    packages (modules, separated by blanks)
    <!-- example: cpu -->      runs here with device="cpu" instead of "cuda"

A loader that a block only makes gives its first batch.
"""

from __future__ import annotations

import ast
import gzip
import importlib.util
import pathlib
import re
import subprocess
import tarfile
from typing import Any, NamedTuple

import pytest

np = pytest.importorskip("numpy")

from loader_sets import Squares  # noqa: E402

from millrace import _program  # noqa: E402

ROOT = pathlib.Path(__file__).parents[2]
DOCUMENTS = ["README.md", "docs/python.md", "python/README.md"]
BLOCK = re.compile(r"(?:<!-- example: (?P<needs>[a-z ]+) -->\n)?```python\n(?P<code>.*?)```", re.S)


class Block(NamedTuple):
    line: int
    needs: list[str]  # modules
    code: str


def blocks_of(document: str) -> list[Block]:
    text = (ROOT / document).read_text(encoding="utf-8")
    found = []
    for match in BLOCK.finditer(text):
        words = (match["needs"] or "").split()
        code = match["code"]
        if "cpu" in words:
            assert 'device="cuda"' in code, f"{document}: nothing to substitute in\n{code}"
            code = code.replace('device="cuda"', 'device="cpu"')
        line = text.count("\n", 0, match.start("code"))
        found.append(Block(line, [word for word in words if word != "cpu"], code))
    return found


def run(code: str, document: str, line: int, names: dict[str, Any]) -> None:
    tree = ast.parse(code)
    for statement in tree.body:
        call = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) \
                and call.func.id == "DataLoader":
            first = ast.parse("next(iter(0))", mode="eval").body
            first.args[0].args[0] = call  # type: ignore[attr-defined]
            statement.value = first  # type: ignore[attr-defined]
    ast.increment_lineno(tree, line)
    exec(compile(ast.fix_missing_locations(tree), str(ROOT / document), "exec"), names)


def make_files(folder: pathlib.Path) -> None:
    """What the documents' examples read."""
    (folder / "photos").mkdir()
    subprocess.run([_program.path(), "synth", "photos", folder / "photos" / "train", "-n", "12",
                    "--classes", "2", "--side", "64", "-q"], check=True, stdout=subprocess.DEVNULL)
    pictures = sorted((folder / "photos" / "train").rglob("*.png"))
    for shard in range(4):
        with tarfile.open(folder / f"shard-{shard:03}.tar", "w") as tar:
            for k, path in enumerate(pictures[shard::4]):
                tar.add(path, f"{k:04}.png")
    packed = ROOT / "tests" / "data" / "mnist_w0.sqlite.gz"
    (folder / "report1.sqlite").write_bytes(gzip.decompress(packed.read_bytes()))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("docs")
    make_files(folder)
    return folder


def names_for() -> dict[str, Any]:
    """What the examples take for granted."""
    names = {"__name__": "docs", "dataset": Squares(100),
             "images": np.zeros((100, 8, 8), np.uint8), "labels": np.arange(100)}
    if importlib.util.find_spec("torchvision"):
        import torchvision
        from torchvision import transforms

        chain = [transforms.RandomResizedCrop(32), transforms.ToTensor()]
        names.update(torchvision=torchvision, transforms=transforms.Compose(chain))
    return names


@pytest.mark.parametrize("document", DOCUMENTS)
def test_examples_run(document: str, files: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)
    names, left_out = names_for(), []
    for block in blocks_of(document):
        missing = [name for name in block.needs if not importlib.util.find_spec(name)]
        if missing:
            left_out.append(f"line {block.line} needs {', '.join(missing)}")
            continue
        try:
            run(block.code, document, block.line, names)
        except Exception as error:
            raise AssertionError(f"{document}: the example at line {block.line + 1}") from error
    names.clear()
    if left_out:
        pytest.skip("; ".join(left_out))


def test_all_blocks_are_found() -> None:
    """None is hidden by a comment that is written wrong."""
    for document in DOCUMENTS:
        text = (ROOT / document).read_text(encoding="utf-8")
        blocks = blocks_of(document)
        assert len(blocks) == len(re.findall(r"^```py", text, re.M)) > 0
        marks = len(re.findall(r"example:", text))
        assert marks == len(re.findall(r"<!-- example: [a-z ]+ -->\n```python\n", text))
        for block in blocks:
            assert 'device="cuda' not in block.code, f"{document}: line {block.line} needs a mark"
