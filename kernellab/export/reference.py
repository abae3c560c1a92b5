"""A task's reference as a stand-alone file: the statements that it needs, and ``call(*args)``."""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Iterator
from typing import Any

from kernellab import python_tree
from kernellab.errors import TaskError
from kernellab.task import Task, TaskForm

_HEAD = '''"""The reference of {name}: the function that decides what is right.

The statements are the task's own; `call` takes a kernel's arguments.
"""

'''

_NATIVE = """

def prepare():
    pass


def call({names}):
    return {result}
"""

_MODEL = '''

_models = []


def prepare():
    """The Model, built once with a fixed seed; each call brings its own parameters and buffers."""
    import torch

    if not _models:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            _models.append({model}{evaluated})
    return _models[0]


def call({names}):
    from torch.func import functional_call

    return functional_call(prepare(), dict(zip({keys}, [{state}])), ({positional}), {{{keywords}}})
'''

_NUMPY = """

def _array(x):
    return x.detach().cpu().numpy() if hasattr(x, "detach") else x
"""


def reference_text(task: Task) -> str:
    """Return ``reference.py``: the statements that the task's reference needs, without its inputs and without
    kernellab.

    Raises:
        TaskError: the reference itself uses something of kernellab.
    """
    module = task.module()
    native = task.form is TaskForm.NATIVE
    roots = {"reference"} if native else {"Model", "get_init_inputs"}
    kept = _needed(task.text, roots)
    names = [a.name for a in task.args]
    state = [a.name for a in task.args if a.key]
    passed = [_Name(n) for n in names[: len(names) - len(state)]]
    if module.numpy:
        passed = [_Name(f"_array({n})") for n in passed]
    positional, keywords = module.bind(passed)
    text = _HEAD.replace("{name}", task.name) + kept
    if native:
        arguments = [_spelt(v) for v in positional] + [f"{k}={_spelt(v)}" for k, v in keywords.items()]
        body = _NATIVE.replace("{result}", f"reference({', '.join(arguments)})")
        return text + (_NUMPY if module.numpy else "") + body.replace("{names}", ", ".join(names))
    init, named = module.init_arguments()
    constructor = [_spelt(v) for v in init] + [f"{k}={_spelt(v)}" for k, v in named.items()]
    if not _plain([init, named]):
        constructor = ["*get_init_inputs()"]
    values = {
        "{model}": f"Model({', '.join(constructor)})",
        "{evaluated}": ".eval()" if module.evaluates else "",
        "{names}": ", ".join(names),
        "{keys}": repr([a.key for a in task.args if a.key]),
        "{state}": ", ".join(state),
        "{positional}": "".join(f"{_spelt(v)}, " for v in positional),
        "{keywords}": ", ".join(f"{k!r}: {_spelt(v)}" for k, v in keywords.items()),
        "{{": "{",
        "}}": "}",
    }
    body = _MODEL
    for key, value in values.items():
        body = body.replace(key, value)
    return text + body


class _Name(str):
    """A piece of code for a value."""


def _spelt(value: Any) -> str:
    """Return a call's value as code: an argument's name, a container of these, or the value itself."""
    import torch

    if isinstance(value, _Name):
        return str(value)
    if isinstance(value, (list, tuple)):
        inner = ", ".join(map(_spelt, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return f'float("{value}")'
    if isinstance(value, torch.device):
        return f"__import__('torch').device({str(value)!r})"
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return f"__import__('torch').{str(value).removeprefix('torch.')}"
    return repr(value)


def _plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_plain, value))
    if isinstance(value, dict):
        return all(map(_plain, value.values()))
    return value is None or isinstance(value, (bool, int, float, str))


def _used(scope: symtable.SymbolTable) -> set[str]:
    """Return the module's names that a scope and its inner scopes use, without those that are also local names."""
    outer = scope.get_type() == "module"
    own = {s.get_name() for s in scope.get_symbols() if s.is_referenced() and (outer or s.is_global())}
    return own.union(*map(_used, scope.get_children()))


def _needed(text: str, roots: set[str]) -> str:
    """Return the statements that bind ``roots`` and, transitively, every name that they use; in their order."""
    tree = python_tree.parse(text)
    lines = text.splitlines()
    binds = [(node, set(_bound(node))) for node in tree.body]
    needed, kept = set(roots), set[int]()
    while True:
        binding = {i for i, (_, names) in enumerate(binds) if names & needed} - kept
        if not binding:
            break
        for i in binding:
            kept.add(i)
            needed |= _used(symtable.symtable(ast.unparse(binds[i][0]), "reference", "exec"))
    pieces: list[str] = []
    for i, (node, names) in enumerate(binds):
        future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        if not future and i not in kept:
            continue
        if _of_kernellab(node):
            raise TaskError(
                f"The reference uses {' and '.join(sorted(names & needed))} of kernellab, which an export leaves out.",
                "Write what the reference needs in torch alone.",
            )
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        # several statements on one line are rare, and a repeated line is harmless
        space = "\n\n" if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and pieces else ""
        pieces.append(space + "\n".join(lines[first - 1 : node.end_lineno]))
    return "\n".join(pieces) + "\n"


def _bound(node: ast.stmt) -> Iterator[str]:
    """Yield the module's names that a statement binds."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
        yield node.name
        return
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        for alias in node.names:
            yield alias.asname or alias.name.partition(".")[0]
        return
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store) and not hasattr(builtins, inner.id):
            yield inner.id
        elif isinstance(inner, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)):
            yield from _bound(inner)


def _of_kernellab(node: ast.stmt) -> bool:
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").partition(".")[0] == "kernellab"
    return isinstance(node, ast.Import) and any(a.name.partition(".")[0] == "kernellab" for a in node.names)
