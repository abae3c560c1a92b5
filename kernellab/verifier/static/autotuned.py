"""Autotuned kernels of Triton that read and write one pointer. Each measured configuration runs on what the ones before
it have written, so that the first call for a key updates its memory many times, unless the autotuner restores it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernellab.verifier.static.names import Names, last_name

#: Arguments of the autotuner, or of one configuration, that put memory in order between two measurements.
_RESTORES = ("restore_value", "reset_to_zero", "pre_hook", "post_hook")
_AUTOTUNERS = ("triton.autotune", "triton.runtime.autotuner.autotune")


def updated_in_place(tree: ast.AST, names: Names) -> Iterator[tuple[str, str, int]]:
    """Yield the name, pointer and line of each autotuned kernel that reads what it writes, without a restored value."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef):
            continue
        tuners = [d for d in node.decorator_list if isinstance(d, ast.Call) and names.of(d.func) in _AUTOTUNERS]
        if not tuners or _restores(tuners):
            continue
        pointer = next(iter(sorted(_read_and_written(node))), None)
        if pointer is not None:
            yield node.name, pointer, node.lineno


def _restores(tuners: list[ast.Call]) -> bool:
    """Does an autotuner, or one of its configurations, restore anything? A ``**`` may hold anything."""
    calls = [part for tuner in tuners for part in ast.walk(tuner) if isinstance(part, ast.Call)]
    given = [(k.arg, k.value) for call in calls for k in call.keywords]
    return any(name is None or (name in _RESTORES and not _is_none(value)) for name, value in given)


def _is_none(value: ast.expr) -> bool:
    return (isinstance(value, ast.Constant) and value.value is None) or (
        isinstance(value, (ast.List, ast.Tuple)) and not value.elts
    )


def _read_and_written(function: ast.FunctionDef) -> set[str]:
    """Parameters of a kernel by which it loads and stores, or that it updates atomically."""
    parameters = {a.arg for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}
    bases: dict[str, set[str]] = {name: {name} for name in parameters}
    assigned = [n for n in ast.walk(function) if isinstance(n, ast.Assign)]
    known = -1
    while known < (known := sum(map(len, bases.values()))):  # a pointer may be kept under one name after another
        for one in assigned:
            for target in one.targets:
                if isinstance(target, ast.Name):
                    bases[target.id] = bases.get(target.id, set()) | _bases(one.value, bases)
    read, written, updated = set[str](), set[str](), set[str]()
    for call in (n for n in ast.walk(function) if isinstance(n, ast.Call)):
        pointer = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "pointer"), None)
        name = last_name(call.func)
        if pointer is None:
            continue
        if name == "load":
            read |= _bases(pointer, bases)
        elif name == "store":
            written |= _bases(pointer, bases)
        elif name.startswith("atomic_"):
            updated |= _bases(pointer, bases)
    return ((read & written) | updated) & parameters


def _bases(node: ast.expr, bases: dict[str, set[str]]) -> set[str]:
    """The parameters at which a pointer may begin: the first operand of the sums that make it."""
    match node:
        case ast.Name(id=name):
            return bases.get(name, set())
        case ast.BinOp(op=ast.Add() | ast.Sub(), left=left):
            return _bases(left, bases)
        case ast.IfExp(body=then, orelse=other):
            return _bases(then, bases) | _bases(other, bases)
        case ast.Call(func=ast.Attribute(value=held, attr="to")):
            return _bases(held, bases)
        case ast.Call(func=function, args=[first, *_]) if last_name(function) in _OF_POINTERS:
            return _bases(first, bases)
        case ast.Call(func=function, keywords=keywords) if last_name(function) in _OF_POINTERS:
            return next((_bases(k.value, bases) for k in keywords if k.arg == "base"), set())
    return set()


#: Functions of Triton that return a pointer made of their first argument, or of ``base``.
_OF_POINTERS = (
    "make_block_ptr", "advance", "multiple_of", "max_contiguous", "max_constancy", "make_tensor_descriptor",
)  # fmt: skip
