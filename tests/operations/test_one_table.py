"""ATen's operations are listed in one place: no module of the package keeps a list of their names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest

import kernellab
from kernellab.operations.aten import ATEN, _of_sketch, _table

ROOT = Path(kernellab.__file__).parent
#: names from which on a collection is a list of operations, and their share of it
_LEAST, _SHARE = 4, 0.6
#: rooms whose names are those of the sketch's operations, which often are ATen's too
_OF_SKETCHES = (
    "operations/", "sketch/", "lowering/", "designer/emit/", "designer/ir/", "designer/passes/", "designer/tile/",
    "agents/", "knowledge/",
)  # fmt: skip
_RULE = "a rule for each name: the operation's meaning, not a fact about it"
_ALLOWED = "what a candidate may call: a new row must not widen it"
#: module -> why it names operations
EXCEPTIONS = {
    "capture/early/small_matrices.py": "functions of torch that are called otherwise, by torch's names",
    "task/formula/terms.py": "operators of sympy's formulas of sizes, by sympy's names",
    "designer/graph/cuts.py": "reductions that read each element once, of those of the table's role",
    "verifier/boundary_checks/denormals_and_zeros.py": "operators that answer with either zero, or move elements",
    "verifier/survey/operations.py": "where an operation changes its course: a rule for each",
    "verifier/survey/watch.py": "operations whose values decide sizes, for which no large ones are drawn",
    "capture/arithmetic.py": "functions of one number, as they act on a symbolic size",
    "capture/decompositions/order_statistics.py": _RULE,
    "capture/decompositions/pooling.py": _RULE,
    "capture/decompositions/products.py": _RULE,
    "capture/decompositions/scatter.py": _RULE,
    "capture/decompositions/tables.py": _RULE,
    "capture/special_functions.py": _RULE,
    "capture/pairs.py": "methods of a pair that stands for a complex tensor, by torch's name",
    "designer/frontend/convolutions.py": _RULE,
    "designer/frontend/gather.py": _RULE,
    "designer/frontend/norms.py": _RULE,
    "designer/frontend/pointwise.py": _RULE,
    "designer/frontend/pooling.py": _RULE,
    "designer/frontend/products.py": _RULE,
    "designer/frontend/reductions.py": _RULE,
    "designer/frontend/scans.py": _RULE,
    "designer/frontend/scatter/writes.py": _RULE,
    "designer/frontend/views.py": _RULE,
    "designer/frontend/algebra.py": _RULE,
    "designer/frontend/windows.py": "views through which a window of a convolution is followed: a rule for each",
    "designer/frontend/recurrent.py": _RULE,
    "task/recurrent.py": "the recurrent cells, each with an operator of ours",
    "export/runtime/recording.py": "goes along with a kernel, and needs nothing of kernellab",
    "task/call_inputs/cases.py": "functions of torch that a task's inputs() calls",
    "task/sample/shrink.py": "functions of torch that a task's inputs() calls, with the place of their sizes",
    "verifier/survey/ranges.py": "functions of NumPy, by its names, whose results have shapes that no value decides",
    "verifier/cases/device.py": "operators that cuDNN and cuBLAS compute in TF32, each under its flag",
    "verifier/compare/roundings.py": "how far a result may be off: a bound that no row of a table may move",
    "verifier/seal/record.py": _ALLOWED,
    "verifier/static/listed.py": "functions of torch, with all their spellings, that a candidate may not call",
    "verifier/worker/dispatch.py": _ALLOWED,
    "verifier/worker/guards.py": _ALLOWED,
    "model_integration/task_text.py": "how Python writes four operations",
    "teach/read/kernel_code.py": "functions of Triton's language that a learner's kernel may name",
    "teach/read/host_code.py": "functions of torch that allocate, and attributes that are no tensors",
    "capture/family.py": "what a step of a linear recurrence is made of: a rule about steps, for advice alone",
    "capture/selection.py": "of which equal values each order promises the place",
    "task/meta/shape_rules.py": "whose shapes it finds without torch's own kernels for meta tensors",
}


def names_in(node: ast.AST) -> list[str]:
    """The strings of a collection, of a text that is split into words, or of a pattern's alternatives."""
    match node:
        case ast.Set(elts=items) | ast.List(elts=items) | ast.Tuple(elts=items):
            return [i.value for i in items if isinstance(i, ast.Constant) and isinstance(i.value, str)]
        case ast.Dict(keys=keys):
            return [k.value for k in keys if isinstance(k, ast.Constant) and isinstance(k.value, str)]
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str() as text), attr="split")):
            return text.split()
        case ast.Constant(value=str() as text) if "|" in text and "\n" not in text:
            return re.findall(r"\w+", text)
    return []


def is_list_of_operations(words: list[str]) -> bool:
    bare = [word.removeprefix("aten.").split(".")[0] for word in words]
    held = sum(word in ATEN for word in bare)
    return held >= _LEAST and held >= _SHARE * len(words)


@lru_cache(maxsize=1)
def lists() -> dict[str, list[int]]:
    """Module -> the lines of its lists of operations."""
    found: dict[str, list[int]] = {}
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(_OF_SKETCHES) or {"builtin", "_content"} & set(path.parts):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if is_list_of_operations(names_in(node)):
                found.setdefault(name, []).append(node.lineno)
    return found


def test_no_module_lists_operations_without_a_reason() -> None:
    listed = {f"{name}:{lines[0]}" for name, lines in lists().items() if name not in EXCEPTIONS}
    assert not listed, "name them in kernellab/operations/aten_table.py, and ask it by role"


def test_every_exception_is_still_one() -> None:
    assert set(EXCEPTIONS) <= set(lists())


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"mm", "bmm", "addmm", "linear"}', True), ('{"mul": 1, "add": 2, "relu.default": 3, "tan": 4}', True),
        ('"view reshape permute expand".split()', True), ('r"^(sort|argsort|topk|kthvalue)$"', True),
        ('{"float32", "float16", "bfloat16", "mm"}', False), ('("rows", "columns", "add")', False),
    ],
)  # fmt: skip
def test_a_list_of_operations_is_seen_in_each_form(text: str, found: bool) -> None:
    seen: Iterator[bool] = (is_list_of_operations(names_in(node)) for node in ast.walk(ast.parse(text)))
    assert any(seen) is found


def test_an_operation_with_two_rows_is_refused_with_both_places() -> None:
    row = ATEN["sin"]
    with pytest.raises(AssertionError, match=r"sin has two rows, in the entry 'sin' and in aten_table\.py"):
        _table((("the entry 'sin'", row), ("aten_table.py", row)))
    in_sketch = [place for place, entry in _of_sketch() if entry.name == "sin"]
    assert in_sketch == ["the entry 'sin' of kernellab/operations/sketch.py"]
