"""The meaning of names in a Python source: import aliases, names bound once, and names composed of constants.

``getattr(os, "_ex" + "it")``, ``vars(os)["_exit"]`` and ``from os import _exit as leave`` all mean ``os._exit``. Only
constants are folded, and only names that are bound once in a file are followed: later stages handle the rest.
"""

from __future__ import annotations

import ast
import codecs
from collections import Counter
from collections.abc import Iterator

_DEPTH = 12
#: largest length of a constant that is followed; longer ones are neither names nor paths
_LONGEST = 4096


def last_name(node: ast.AST) -> str:
    """The name of a variable or an attribute; "" for anything else."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


class Names:
    """Dotted names and constant strings of one file's expressions."""

    def __init__(self, tree: ast.AST) -> None:
        self._aliases = dict(_imports(tree))
        self._bound = _bound_once(tree)
        #: each node is folded once, since a name joined from itself would otherwise take unlimited time
        self._names: dict[ast.AST, str] = {}
        self._texts: dict[ast.AST, str | None] = {}

    def of(self, node: ast.AST, depth: int = 0) -> str:
        """The dotted name that ``node`` means; empty if it cannot be determined."""
        if depth > _DEPTH:
            return ""
        if node not in self._names:
            # a name defined by itself has no meaning
            self._names[node] = ""
            name = self._of(node, depth)
            self._names[node] = name if len(name) <= _LONGEST else ""
        return self._names[node]

    def text(self, node: ast.AST, depth: int = 0) -> str | None:
        """The constant string that ``node`` evaluates to, if it is not very long; None if it is not constant."""
        if depth > _DEPTH:
            return None
        if node not in self._texts:
            self._texts[node] = None
            text = self._text(node, depth)
            self._texts[node] = text if text is not None and len(text) <= _LONGEST else None
        return self._texts[node]

    def _of(self, node: ast.AST, depth: int) -> str:
        if isinstance(node, ast.Name):
            if node.id in self._aliases:
                return self._aliases[node.id]
            value = self._bound.get(node.id)
            # follow a name bound to a name; a call's result has no name, unless the call fetches something by name
            return (self.of(value, depth + 1) if value is not None else "") or node.id
        if isinstance(node, ast.Attribute):
            base = self.of(node.value, depth + 1)
            return f"{base}.{node.attr}" if base else ""
        if isinstance(node, ast.Subscript):
            return self._item(node, depth)
        if isinstance(node, ast.Call):
            return self._fetched(node, depth)
        return ""

    def _text(self, node: ast.AST, depth: int) -> str | None:
        match node:
            case ast.Constant(value=str() as text):
                return text
            case ast.Constant(value=bytes() as data):
                return data.decode("latin-1")
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return _joined([self.text(left, depth + 1), self.text(right, depth + 1)], "")
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                return _joined([self.text(left, depth + 1), self.text(right, depth + 1)], "/")
            case ast.JoinedStr(values=values):
                return _joined([self._part(v, depth) for v in values], "")
            case ast.Subscript(value=value, slice=ast.Slice(lower=None, upper=None, step=step)) if _minus_one(step):
                whole = self.text(value, depth + 1)
                return whole[::-1] if whole is not None else None
            case ast.Name(id=name) if name in self._bound:
                return self.text(self._bound[name], depth + 1)
            case ast.Call():
                return self._made(node, depth)
        return None

    def bound(self, name: str) -> ast.expr | None:
        """The value of a name that is bound once."""
        return self._bound.get(name)

    def _part(self, node: ast.AST, depth: int) -> str | None:
        """A piece of an f-string; ``{}`` if it is not constant."""
        inner = node.value if isinstance(node, ast.FormattedValue) else node
        text = self.text(inner, depth + 1)
        return "{}" if text is None else text

    def _item(self, node: ast.Subscript, depth: int) -> str:
        """``sys.modules["time"]``, ``vars(time)["sleep"]``, ``time.__dict__["sleep"]``."""
        key = self.text(node.slice, depth + 1)
        base = self.of(node.value, depth + 1)
        if key is None or not base:
            return ""
        if base == "sys.modules":
            return key
        return f"{base.removesuffix('.__dict__')}.{key}" if base.endswith(".__dict__") else ""

    def _fetched(self, node: ast.Call, depth: int) -> str:
        function = self.of(node.func, depth + 1)
        if function == "getattr" and len(node.args) >= 2:
            base, name = self.of(node.args[0], depth + 1), self.text(node.args[1], depth + 1)
            return f"{base}.{name}" if base and name else ""
        if function in ("importlib.import_module", "__import__") and node.args:
            return self.text(node.args[0], depth + 1) or ""
        if function == "vars" and node.args:
            base = self.of(node.args[0], depth + 1)
            return f"{base}.__dict__" if base else ""
        if function == "sys.modules.get" and node.args:
            return self.text(node.args[0], depth + 1) or ""
        return ""

    def _made(self, node: ast.Call, depth: int) -> str | None:
        args = [self.text(a, depth + 1) for a in node.args]
        name = self.of(node.func, depth + 1)
        if name in ("os.path.join", "posixpath.join"):
            return _joined(args, "/")
        if name in ("pathlib.Path", "pathlib.PurePath", "Path", "str") and args:
            return _joined(args, "/")
        if name == "chr" and len(node.args) == 1:
            return _character(node.args[0])
        if isinstance(node.func, ast.Attribute):
            own = self.text(node.func.value, depth + 1)
            if own is None:
                return None
            if node.func.attr == "join" and len(node.args) == 1:
                return _joined(self._list(node.args[0], depth), own)
            if node.func.attr == "replace" and len(args) == 2 and None not in args:
                return own.replace(str(args[0]), str(args[1])) if len(str(args[1])) < 64 else None
            if node.func.attr in ("lower", "upper", "strip", "swapcase"):
                return str(getattr(own, node.func.attr)())
            if node.func.attr == "decode":
                return own
        if name == "codecs.decode" and len(args) == 2 and args[0] is not None and args[1] in ("rot13", "rot_13"):
            return codecs.decode(args[0], "rot13")
        return None

    def _list(self, node: ast.AST, depth: int) -> list[str | None]:
        """The strings of a list, a tuple, reversed(...) of one, or map(chr, [...])."""
        match node:
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return [self.text(item, depth + 1) for item in items]
            case ast.Call(func=ast.Name(id="reversed"), args=[inner]) if depth < _DEPTH:
                return self._list(inner, depth + 1)[::-1]
            case ast.Call(func=ast.Name(id="map"), args=[ast.Name(id="chr"), ast.List(elts=items)]):
                return [_character(item) for item in items]
        text = self.text(node, depth + 1)
        return [None] if text is None else list(text)


def _character(node: ast.AST) -> str | None:
    code = node.value if isinstance(node, ast.Constant) else None
    return chr(code) if isinstance(code, int) and 0 <= code <= 0x10FFFF else None


def _joined(parts: list[str | None], between: str) -> str | None:
    constants = [p for p in parts if p is not None]
    length = sum(map(len, constants)) + len(between) * len(constants)
    return between.join(constants) if parts and len(constants) == len(parts) and length <= _LONGEST else None


def _minus_one(node: ast.expr | None) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and getattr(node.operand, "value", 0) == 1


def _imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname:
                    yield alias.asname, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _bound_once(tree: ast.AST) -> dict[str, ast.expr]:
    """Names that the file binds once, by a plain assignment, with their values. Parameters and loops bind too."""
    count: Counter[str] = Counter()
    values: dict[str, ast.expr] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            count[node.id] += 1
        elif isinstance(node, ast.arg):
            count[node.arg] += 1
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            count[node.name] += 1
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            values[node.targets[0].id] = node.value
        elif isinstance(node, ast.NamedExpr):
            values[node.target.id] = node.value
    return {name: value for name, value in values.items() if count[name] == 1}
