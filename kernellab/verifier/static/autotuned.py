"""Autotuned kernels of Triton that read and write one pointer. Each measured configuration runs on what the ones before
it have written, so that the first call for a key updates its memory many times, unless the autotuner restores it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from kernellab.verifier.static.names import Names, last_name

#: Arguments of the autotuner, in its order, or of one configuration, that put memory in order between two measurements.
_RESTORES = ("reset_to_zero", "restore_value", "pre_hook", "post_hook")
#: The autotuner's arguments before these: configs, key, prune_configs_by.
_BEFORE = 3
_AUTOTUNERS = ("triton.autotune", "triton.runtime.autotuner.autotune")


def updated_in_place(tree: ast.AST, names: Names) -> Iterator[tuple[str, str, int]]:
    """Yield the name, pointer and line of each autotuned kernel that reads what it writes, without a restored value."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef):
            continue
        tuners = [d for d in node.decorator_list if isinstance(d, ast.Call) and names.of(d.func) in _AUTOTUNERS]
        if not tuners or not _measures(tuners[0], names) or _restores(tuners, names):
            continue
        pointer = next(iter(sorted(_read_and_written(node))), None)
        if pointer is not None:
            yield node.name, pointer, node.lineno


def _configs(tuner: ast.Call, names: Names) -> ast.expr | None:
    """The configurations of an autotuner, also where a name holds them."""
    value = tuner.args[0] if tuner.args else next((k.value for k in tuner.keywords if k.arg == "configs"), None)
    return names.bound(value.id) or value if isinstance(value, ast.Name) else value


def _measures(tuner: ast.Call, names: Names) -> bool:
    """Does an autotuner measure? One configuration alone it runs without."""
    configs = _configs(tuner, names)
    if not isinstance(configs, (ast.List, ast.Tuple)):
        return True
    return len(configs.elts) > 1 or any(isinstance(one, ast.Starred) for one in configs.elts)


def _restores(tuners: list[ast.Call], names: Names) -> bool:
    """Does an autotuner, or one of its configurations, restore anything? A ``**`` may hold anything."""
    parts = [part for tuner in tuners for part in (tuner, _configs(tuner, names)) if part is not None]
    calls = [call for part in parts for call in ast.walk(part) if isinstance(call, ast.Call)]
    given = [(k.arg, k.value) for call in calls for k in call.keywords]
    given += [(name, value) for tuner in tuners for name, value in zip(_RESTORES, tuner.args[_BEFORE:], strict=False)]
    return any(name is None or (name in _RESTORES and not _is_none(value)) for name, value in given)


def _is_none(value: ast.expr) -> bool:
    return (isinstance(value, ast.Constant) and value.value is None) or (
        isinstance(value, (ast.List, ast.Tuple)) and not value.elts
    )


def _read_and_written(function: ast.FunctionDef) -> set[str]:
    """Parameters of a kernel whose memory it reads and then writes, or adds to. What it writes first, and what a
    repetition leaves as it is (a maximum, a lock), is the same after each measurement."""
    parameters = {a.arg for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}
    bases: dict[str, set[str]] = {name: {name} for name in parameters}
    read, written, updated = set[str](), set[str](), set[str]()
    steps = (n for n in ast.walk(function) if isinstance(n, (ast.Assign, ast.AnnAssign, ast.Call)))
    for step in sorted(steps, key=_end):
        if not isinstance(step, ast.Call):
            targets: Sequence[ast.expr] = step.targets if isinstance(step, ast.Assign) else [step.target]
            for target in targets:
                if isinstance(target, ast.Name) and step.value is not None:
                    bases[target.id] = _bases(step.value, bases)
            continue
        pointer = step.args[0] if step.args else next((k.value for k in step.keywords if k.arg == "pointer"), None)
        places = _bases(pointer, bases) if pointer is not None else set[str]()
        name = last_name(step.func)
        if name == "load":
            read |= places - written
        elif name == "store":
            updated |= places & read
            written |= places
        elif name in ("atomic_add", "atomic_xor"):
            updated |= places - written
    return updated & parameters


def _end(node: ast.Assign | ast.AnnAssign | ast.Call) -> tuple[int, int, bool]:
    """When a step takes place: where its text ends, and a call before what is assigned of it."""
    return node.end_lineno or 0, node.end_col_offset or 0, not isinstance(node, ast.Call)


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
