"""JupyterLab's MCP server finds the tools as plain functions; the extra resolves together with Jupyter AI 3."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from packaging.utils import canonicalize_name

from kernellab.tools import tools

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]


def loaded() -> list[tuple[str, Any]]:
    """As jupyter-server-mcp does: the entry point's list of module:function, each imported."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    module, _, name = project["entry-points"]["jupyter_server_mcp.tools"]["kernellab"].partition(":")
    specs = getattr(import_module(module), name)()
    return [(spec.partition(":")[2], getattr(import_module(spec.partition(":")[0]), spec.partition(":")[2]))
            for spec in specs]  # fmt: skip


def test_each_tool_is_a_function_with_its_requests_arguments() -> None:
    found = loaded()
    assert [name for name, _ in found] == list(tools())
    for name, function in found:
        signature = inspect.signature(function)
        assert list(signature.parameters) == list(tools()[name].request.model_fields)
        assert function.__doc__ == tools()[name].description and function.__name__ == name


def test_a_function_gives_plain_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    result = dict(loaded())["read_document"](document="language/overview.md")
    assert "sketch" in result["text"]["text"] and json.dumps(result)


def test_the_extra_resolves_together_with_jupyter_ai(tmp_path: Path) -> None:
    """pip alone decides, without installing anything; only `make prove` asks it."""
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["agents"]
    report = tmp_path / "report.json"
    asked = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--dry-run",
        "--quiet",
        "--ignore-installed",
        "--report",
        str(report),
    ]
    done = subprocess.run([*asked, "jupyter-ai>=3", *extra], capture_output=True, text=True, timeout=900, check=False)
    if "No matching distribution found for jupyter-ai" in done.stderr:
        pytest.skip("no package index has jupyter-ai 3")
    assert done.returncode == 0, done.stderr[-2000:]
    packages = [one["metadata"] for one in json.loads(report.read_text())["install"]]
    versions = {canonicalize_name(package["name"]): package["version"] for package in packages}
    assert versions["jupyter-ai"].startswith("3.") and {"mcp", "agent-client-protocol"} <= set(versions)
