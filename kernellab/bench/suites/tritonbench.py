"""A checkout of TritonBench: files of functions, a line of number signs, and tests that call them.

Part T has PyTorch functions, part G Triton kernels (which need a GPU). TritonBench compares the tests' output, and few
print any. Here the calls in the tests are the task's cases: reference and kernel get the same tensors, and their
results are compared."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from kernellab import python_tree
from kernellab.bench.suites.record import Asked, SuiteTask
from kernellab.errors import TaskError
from kernellab.task import identifier
from kernellab.task.call_inputs.absent import without_missing

_PARTS = {"T": "TritonBench_T_v1", "G": "TritonBench_G_v1"}
#: the line between functions and tests
_BETWEEN = re.compile(r"^#{100,}\s*$", re.M)
_TASK = """{functions}

# -- the calls that its tests make of {name}
from kernellab.task.call_inputs.recorded import Recorded

_recorded = Recorded(globals(), {name!r}, {tests!r})
reference = _recorded.reference
cases = _recorded.cases
"""


def tritonbench(asked: Asked) -> list[tuple[str, SuiteTask]]:
    """One task for each file: the function that its tests call first. ``--only ^T/`` takes a part."""
    checkout = Path(asked.rest)
    roots = [(part, base / name) for base in (checkout / "data", checkout) for part, name in _PARTS.items()]
    tasks = [t for part, root in roots for path in sorted(root.glob("*.py")) if (t := _task(path, part))]
    if not tasks:
        raise TaskError(f"There is no {_PARTS['T']} in {asked.rest!r}.", "Name a checkout of TritonBench.")
    return [(f"{t.category}/{t.title}", t) for t in tasks]


def _task(path: Path, part: str) -> SuiteTask | None:
    text = path.read_text(encoding="utf-8")
    between = _BETWEEN.search(text)
    if between is None:
        return None
    functions, tests = text[: between.start()].rstrip(), text[between.end() :]
    name = called_first(functions, tests)
    if name is None:
        return None
    source_text = f"{functions}\n{tests}"
    stood_in = without_missing(source_text)
    lines = functions.count("\n") + 1
    parts = stood_in.split("\n")
    text = _TASK.format(functions="\n".join(parts[:lines]), tests="\n".join(parts[lines:]), name=name)
    return SuiteTask(identifier(path.stem), part, text, path.stem)


def called_first(functions: str, tests: str) -> str | None:
    """Return the function of ``functions`` (``Class.apply`` too) that ``tests`` call first; None if they call none."""
    try:
        defined = python_tree.parse(functions).body
        calls = [node for node in ast.walk(python_tree.parse(tests)) if isinstance(node, ast.Call)]
    except SyntaxError:
        return None
    names = {node.name: type(node) for node in defined if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    for node in sorted(calls, key=lambda c: (c.lineno, c.col_offset)):
        function = node.func
        if isinstance(function, ast.Name) and names.get(function.id) is ast.FunctionDef:
            return function.id
        if isinstance(function, ast.Attribute) and function.attr == "apply" and isinstance(function.value, ast.Name):
            owner = function.value.id
            if names.get(owner) is ast.ClassDef:
                return f"{owner}.apply"
    return None
