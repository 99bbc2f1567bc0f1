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
        raise FileNotFoundError(f"{program}: no program in this build of the package: install the wheel")
    return program


def main() -> NoReturn:
    """Becomes the program, with this process' arguments."""
    program = path()
    os.execv(program, ["millrace", *sys.argv[1:]])
