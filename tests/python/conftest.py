"""What the tests of the Python package share."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

# A job in the background of a script has SIGINT ignored, and hands that on to the programs of tests.
signal.signal(signal.SIGINT, signal.default_int_handler)


def run(code: str, timeout: float = 60, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs code in an interpreter of its own."""
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, **environment},
    )


@pytest.fixture
def clean() -> Callable[..., str]:
    """Runs code that must end with status 0 and write nothing to stderr; gives its stdout."""

    def check(code: str, **more: str) -> str:
        done = run(code, **more)
        assert (done.returncode, done.stderr) == (0, ""), f"{done.returncode}: {done.stderr}"
        return done.stdout

    return check
