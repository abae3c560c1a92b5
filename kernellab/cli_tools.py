"""``kernellab doctor`` and ``kernellab lab``."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from kernellab.cli_output import emit
from kernellab.errors import KernellabError


def doctor(json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False) -> int:
    """What this machine can do: chips, compilers, each DSL ready or why not, sandbox, models."""
    from kernellab.doctor import diagnose, report

    if json:
        found = diagnose()
        emit(found.to_dict())
        return 0 if any(dsl.ready for dsl in found.dsls.values()) else 1
    print(report())
    return 0


def lab(
    notebook: Annotated[str | None, typer.Argument(help="A tutorial's name, or a path; default: the folder.")] = None,
    out: Annotated[Path, typer.Option(help="Where the tutorials are copied to.")] = Path("kernellab-notebooks"),
) -> int:
    """Open JupyterLab on the tutorials, copied so that you may change them."""
    import shutil

    from kernellab.content import content

    if importlib.util.find_spec("jupyterlab") is None:
        raise KernellabError("JupyterLab is not installed.", f"{sys.executable} -m pip install jupyterlab")
    if notebook is not None and Path(notebook).exists():
        place = Path(notebook)
    else:
        source = content("notebooks")
        names = sorted(path.name for path in source.glob("*.ipynb"))
        chosen = [name for name in names if notebook is None or name.removesuffix(".ipynb").endswith(notebook)]
        chosen = chosen or [name for name in names if notebook and notebook in name]
        if not chosen:
            raise KernellabError(f"There is no tutorial {notebook!r}.", f"Choose one of {', '.join(names) or 'none'}.")
        out.mkdir(parents=True, exist_ok=True)
        for name in names:
            if not (out / name).exists():
                shutil.copyfile(source / name, out / name)
        place = out / chosen[0]
    return subprocess.run([sys.executable, "-m", "jupyterlab", str(place)], check=False).returncode and 1
