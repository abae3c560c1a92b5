"""State outside of a source by which one of its calls may tell another something: files that it asks for, the
environment, handlers and levels of loggers, containers that grow and iterators that move on with each call.

Each is flagged by name, in code that runs in a call. None is refused for this: a cache of builds asks for files too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernellab.verifier.static.names import Names, last_name

#: functions and methods of paths that say whether a file is there, or how large or old it is
_FILES = frozenset((
    "os.path.exists", "os.path.lexists", "os.path.isfile", "os.path.isdir", "os.path.islink", "os.path.getsize",
    "os.path.getmtime", "os.path.getatime", "os.path.getctime", "os.path.samefile", "os.stat", "os.lstat", "os.access",
    "os.listdir", "os.scandir", "os.walk", "os.readlink", "os.statvfs", "glob.glob", "glob.iglob", "shutil.which",
    "shutil.disk_usage",
))  # fmt: skip
_OF_PATHS = frozenset((
    "exists", "is_file", "is_dir", "is_symlink", "is_mount", "is_socket", "is_fifo", "lstat", "iterdir", "rglob",
    "samefile", "readlink",
))  # fmt: skip
_OF_ENVIRONMENT = ("os.putenv", "os.unsetenv", *(f"os.environ.{m}" for m in ("update", "setdefault", "pop", "clear")))
#: what a logger keeps, and what changes it
_OF_LOGGERS = frozenset((
    "handlers", "level", "filters", "disabled", "propagate", "manager", "addHandler", "removeHandler", "addFilter",
    "removeFilter", "setLevel", "getEffectiveLevel", "isEnabledFor", "hasHandlers", "loggerDict",
))  # fmt: skip
_GROW = frozenset(("append", "appendleft", "add", "extend", "insert", "put", "push"))


def asked_in_calls(node: ast.AST, names: Names) -> str | None:
    """Describe by what state outside of it a node that runs in each call may tell calls apart; None for none."""
    match node:
        case ast.Call(func=ast.Attribute(attr=method) as function) if method in _OF_PATHS:
            return f"asks for files by {names.of(function) or '.' + method} in a call"
        case ast.Call(func=function) if names.of(function) in _FILES:
            return f"asks for files by {names.of(function)} in a call"
        case ast.Call(func=function) if names.of(function) in _OF_ENVIRONMENT:
            return f"changes the environment by {names.of(function)} in a call"
        case ast.Subscript(value=value, ctx=ast.Store() | ast.Del()) if names.of(value) in (
            "os.environ",
            "os.environb",
        ):
            return "changes the environment in a call"
        case ast.Attribute(value=value, attr=name) if name in _OF_LOGGERS and _is_logger(value, names):
            return f"uses .{name} of a logger, which outlives its call"
    return None


def _is_logger(node: ast.expr, names: Names) -> bool:
    if isinstance(node, ast.Name) and (bound := names.bound(node.id)) is not None:
        node = bound
    if isinstance(node, ast.Call):
        return names.of(node.func) in ("logging.getLogger", "logging.Logger")
    return names.of(node).startswith("logging.")


def growing(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield names, with lines, of containers outside of functions that a function lets grow and whose length the file
    asks for, and of iterators outside that a function moves on: they may count the calls."""
    asked = {
        last_name(node.args[0]) for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("len", "sum", "bool")
        and node.args
    }  # fmt: skip
    for function in ast.walk(tree):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        outer = {n for s in ast.walk(function) if isinstance(s, (ast.Global, ast.Nonlocal)) for n in s.names}
        named = [n for n in ast.walk(function) if isinstance(n, (ast.Name, ast.Attribute))]
        stored = [n for n in named if isinstance(n.ctx, ast.Store)]
        own = {n.id for n in stored if isinstance(n, ast.Name)} - outer
        own |= {a.arg for a in ast.walk(function) if isinstance(a, ast.arg)}
        # a list of layers that a Model's constructor makes
        made = {last_name(n) for n in stored if isinstance(n, ast.Attribute)} if function.name == "__init__" else set()
        for node in ast.walk(function):
            match node:
                case ast.Call(func=ast.Attribute(value=held, attr=method)) if (
                    method in _GROW and last_name(held) in asked
                ):
                    name, base = last_name(held), held
                case ast.Call(func=ast.Name(id="next"), args=[held, *_]):
                    name, base = last_name(held), held
                case _:
                    continue
            while isinstance(base, (ast.Attribute, ast.Subscript)):
                base = base.value
            if name and name not in made and isinstance(base, ast.Name) and base.id not in own - {"self"}:
                yield name, node.lineno
