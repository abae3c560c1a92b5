"""The host code of an exercise in Triton allocates and launches: what computes there is found before anything runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

#: what host code may call: allocation, layout, and numbers of shapes
_CALLS = frozenset((
    "empty", "empty_like", "empty_strided", "zeros", "zeros_like", "contiguous", "numel", "size", "stride", "dim",
    "cdiv", "next_power_of_2", "min", "max", "int", "len", "range", "tuple",
))  # fmt: skip
_MODULES = frozenset(("torch", "triton", "triton.language"))


def host_fault(module: ast.Module) -> tuple[int, str] | None:
    """The first line of host code that is more than an allocation or a launch, and a sentence; None for none."""
    jitted = {s.name for s in module.body if isinstance(s, ast.FunctionDef) and _is_jitted(s)}
    for statement in module.body:
        if isinstance(statement, ast.FunctionDef):
            if statement.name in jitted:
                continue
            if statement.name == "kernel":
                if found := next(_faults(statement, jitted), None):
                    return found
                continue
        elif isinstance(statement, (ast.Import, ast.ImportFrom)):
            names = [a.name for a in statement.names] if isinstance(statement, ast.Import) else [statement.module]
            if set(names) <= _MODULES:
                continue
        elif isinstance(statement, (ast.Assign, ast.Expr)) and isinstance(statement.value, (ast.Constant, ast.Tuple)):
            continue
        return (
            statement.lineno,
            "The module holds @triton.jit functions and one host function, `kernel`; this is neither.",
        )
    return None


def _faults(host: ast.FunctionDef, jitted: set[str]) -> Iterator[tuple[int, str]]:
    arguments = host.args
    tensors = {a.arg for a in arguments.args[: len(arguments.args) - len(arguments.defaults)]}
    launches = [node for node in ast.walk(host) if _is_launch(node, jitted)]
    inputs = tensors.copy()
    passed = {a.id for call in launches if isinstance(call, ast.Call) for a in call.args if isinstance(a, ast.Name)}
    passed -= inputs
    for node in ast.walk(host):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            tensors |= {t.id for t in node.targets if isinstance(t, ast.Name) and not _is_number(node.value)}
    for node in ast.walk(host):
        line = getattr(node, "lineno", host.lineno)
        if isinstance(node, ast.Call) and node not in launches:
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name not in _CALLS:
                yield line, f"Host code calls {name or 'something'}; it may allocate and launch, the kernel computes."
        elif isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Compare, ast.AugAssign)):
            if any(_is_tensor(part, tensors) for part in ast.iter_child_nodes(node)):
                yield line, "Host code computes with a tensor; it may allocate and launch, the kernel computes."
        elif isinstance(node, (ast.Assign, ast.Delete)) and any(isinstance(t, ast.Subscript) for t in node.targets):
            yield line, "Host code writes elements; it may allocate and launch, the kernel computes."
        elif isinstance(node, ast.Return) and node.value is not None:
            results = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            if not all(isinstance(r, ast.Name) and r.id in passed for r in results):
                yield line, "What is returned is no tensor that a launch of this module was given."


def _is_jitted(function: ast.FunctionDef) -> bool:
    return any(isinstance(d, ast.Attribute) and d.attr == "jit" for d in function.decorator_list)


def _is_launch(node: ast.AST, jitted: set[str]) -> bool:
    """``kernel[grid](...)``"""
    called = node.func if isinstance(node, ast.Call) else None
    return isinstance(called, ast.Subscript) and isinstance(called.value, ast.Name) and called.value.id in jitted


def _is_tensor(node: ast.AST, tensors: set[str]) -> bool:
    if isinstance(node, ast.Call):
        return not _is_number(node)
    if isinstance(node, ast.Subscript):
        return _is_tensor(node.value, tensors)
    return isinstance(node, ast.Name) and node.id in tensors


def _is_number(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name in ("numel", "size", "stride", "dim", "cdiv", "next_power_of_2", "min", "max", "int", "len")
