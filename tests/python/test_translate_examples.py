"""The example scripts run with torch's DataLoader, and with millrace's by one changed import."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torchvision")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "python"
TORCHS = "from torch.utils.data import DataLoader"


@pytest.mark.parametrize("name", ["mnist.py", "imagefolder.py"])
@pytest.mark.parametrize("loader", ["torch", "millrace"])
def test_example(name: str, loader: str, tmp_path: Path) -> None:
    text = (EXAMPLES / name).read_text()
    assert text.count(TORCHS) == 1
    if loader == "millrace":
        import millrace

        if "DataLoader" not in millrace.__all__:
            pytest.skip("this build has no DataLoader")
        text = text.replace(TORCHS, "from millrace import DataLoader")
    script = tmp_path / name
    script.write_text(text)
    done = subprocess.run(
        [sys.executable, str(script), "--epochs", "1", "--workers", "0"],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("epoch 0: loss ")
