from __future__ import annotations

import subprocess
import sys


def test_the_package_runs_as_a_module() -> None:
    shown = subprocess.run([sys.executable, "-m", "kernellab", "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout.startswith("kernellab")
