"""The program that comes with the package."""

from __future__ import annotations

import os
import subprocess
import sys

import millrace
import pytest
from millrace import _program


def run(*command: str, **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **more)  # type: ignore[call-overload]


def test_module_is_the_program():
    done = run(sys.executable, "-m", "millrace", "--version")
    assert done.returncode == 0 and millrace.__version__ in done.stdout
    assert run(sys.executable, "-m", "millrace", "what").returncode == 2


def test_entry_point():
    if not os.environ.get("MILLRACE_WHEEL"):
        pytest.skip("not installed as a wheel")
    program = os.path.join(os.path.dirname(sys.executable), "millrace")
    if not os.path.exists(program):
        pytest.skip("installed without scripts (pip --target)")
    assert millrace.__version__ in run(program, "--version").stdout


def test_profile(tmp_path):  # type: ignore[no-untyped-def]
    """The recorder is found, gets into a Python, and writes what the program reads."""
    code = "import time; time.sleep(0.05); print('hello')"
    done = run(
        _program.path(), "profile", "-o", "r.sqlite", "--", sys.executable, "-c", code, cwd=tmp_path
    )
    assert done.returncode == 0 and "hello" in done.stdout, done.stderr
    assert (tmp_path / "r.sqlite").read_bytes()[:6] == b"SQLite"
    assert run(_program.path(), "analyze", "r.sqlite", cwd=tmp_path).returncode in (0, 1)


def test_doctor():
    text = _program.doctor()
    assert "millrace" in text or "memory" in text.lower()


def test_feed_without_libzip(tmp_path):  # type: ignore[no-untyped-def]
    """The wheel cannot read npz, and says what to do."""
    if not os.environ.get("MILLRACE_WHEEL"):
        pytest.skip("not the wheel")
    (tmp_path / "a.npz").write_bytes(b"PK\x05\x06" + b"\0" * 18)
    with pytest.raises(NotImplementedError, match="built without libzip.*npy"):
        millrace._core.Dataset.open(f"npz:{tmp_path}/a.npz")
