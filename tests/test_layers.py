"""The public surface is small, quick and lazy; the rooms import downwards only (import-linter)."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import kernellab

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]


def in_new_process(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_importing_the_package_imports_nothing_heavy() -> None:
    heavy = ("torch", "pydantic", "numpy", "lancedb", "IPython", "ipywidgets", "plotly", "openai")
    code = f"import sys, kernellab; print([name for name in {heavy} if name in sys.modules])"
    assert in_new_process(code) == "[]"


def test_every_public_name_is_there() -> None:
    for name in kernellab.__all__:
        assert getattr(kernellab, name) is not None
    assert set(kernellab.__all__) <= set(dir(kernellab))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'desgin'"):
        kernellab.desgin  # noqa: B018


def test_the_version_is_the_projects() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" in project["project"]["dynamic"] and "version" not in project["project"]
    assert project["tool"]["hatch"]["version"]["path"] == "kernellab/__init__.py"
    assert kernellab.__version__ == metadata.version("kernellab")


def test_the_rooms_import_downwards_only() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    result = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout


def test_the_contract_names_every_module() -> None:
    """A room that the contract does not name would be held to nothing."""
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    named = {
        part.strip(" ()") for layer in contract["layers"] for part in layer.replace("|", " ").replace(":", " ").split()
    }
    there = {
        f"kernellab.{path.stem}"
        for path in (ROOT / "kernellab").iterdir()
        if (path / "__init__.py").exists() or (path.suffix == ".py" and path.stem != "__init__")
    }
    assert there <= named, sorted(there - named)
