"""The Python versions that kernellab is for, and where this machine has them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

#: the Python versions of pyproject's classifiers
PYTHONS = re.findall(r"Python :: (3\.\d+)", Path(__file__).parents[1].joinpath("pyproject.toml").read_text())


def interpreter(version: str) -> str | None:
    """A Python of that version: on the path, or one of pyenv's; None where this machine has none."""
    told = "import sys; print('.'.join(map(str, sys.version_info[:2])))"
    for place in [f"python{version}", *map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))]:
        if (path := shutil.which(place)) is not None:
            run = subprocess.run([path, "-c", told], capture_output=True, text=True)
            if run.stdout.strip() == version:
                return path
    return None


def watched(root: str, script: str) -> None:
    """Run ``script``, which calls the kernel in ``root``, in this process, and write which of its lines ran."""
    from kernellab.verifier.coverage import inside

    sys.path.insert(0, root)
    inside.watch(root)
    exec(f"import kernel, torch\n{script}", {})
    sys.settrace(None)
    inside.write(root, False)
