"""The program `millrace` that comes with the package."""

from __future__ import annotations

import os
import sys
from typing import NoReturn


def path() -> str:
    """Where the program is. FileNotFoundError: the package was built without it."""
    here = os.path.dirname(os.path.abspath(__file__))
    program = os.path.join(here, "_bin", "millrace")
    if not os.access(program, os.X_OK):
        raise FileNotFoundError(f"{program}: expected the program: was the package built by make wheel?")
    return program


def doctor() -> str:
    """What `millrace doctor` says of this machine: GPUs, limits, libraries that are missing."""
    import subprocess

    done = subprocess.run([path(), "doctor"], capture_output=True, text=True, errors="replace")
    return done.stdout + done.stderr


def main() -> NoReturn:
    """Becomes the program, with this process' arguments."""
    program = path()
    os.execv(program, ["millrace", *sys.argv[1:]])
