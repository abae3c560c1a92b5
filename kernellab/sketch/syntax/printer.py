"""From tree to canonical text: four spaces for each level, one statement on each line, keywords last, with comments and
pins."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Union

from kernellab.sketch.syntax import tree

_LEVELS = (
    ("or",), ("and",), ("not",), ("<", "<=", ">", ">=", "==", "!="), ("|",), ("^",), ("&",), ("<<", ">>"), ("+", "-"),
    ("*", "/", "//", "%"),
)  # fmt: skip
_PRECEDENCE = {op: level for level, ops in enumerate(_LEVELS, 1) for op in ops}
_UNARY, _POWER, _ATOM = 11, 12, 13
_PIN = "#: pin"
_BLANKS = re.compile(r" ([-+*/%<>=!&|^]+) ")


def format(source: str | tree.SketchFile) -> str:
    """Return ``source`` in canonical form, a fixed point of parse and print. Raises SketchError for unreadable text."""
    if isinstance(source, str):
        from kernellab.sketch.syntax.parse import parse

        source = parse(source)
    blocks = [_sketch(s) for s in source.sketches]
    text = "\n\n".join("\n".join(lines) for lines in blocks)
    if source.trailing:
        text += ("\n\n" if text else "") + "\n".join(_comment(c) for c in source.trailing)
    return text + "\n" if text else ""


def format_expr(expr: tree.Expr) -> str:
    """Return one expression in canonical form."""
    return _expr(expr)[0]


def format_statement(node: tree.Stmt | tree.Declaration) -> str:
    """Return one line: a statement without comments; for a loop or an if only the header."""
    if isinstance(node, tree.Declaration):
        return _declaration(node)
    return _head(node)


# -- lines -------------------------------------------------------------------------------------------------------------


def _sketch(sketch: tree.Sketch) -> list[str]:
    lines: list[str] = []
    _put(lines, 0, f"sketch {sketch.name} {{", sketch.comments, False)
    for declaration in sketch.declarations:
        _put(lines, 1, _declaration(declaration), declaration.comments, declaration.pinned)
    if sketch.declarations and sketch.body:
        lines.append("")
    _body(lines, 1, sketch.body)
    lines.extend(f"    {_comment(c)}" for c in sketch.trailing)
    lines.append("}")
    return lines


def _put(lines: list[str], depth: int, text: str, comments: tree.Comments, pinned: bool) -> None:
    indent = "    " * depth
    lines.extend(indent + _comment(c) for c in comments.before)
    tail = "" if comments.behind is None else f"  {_comment(comments.behind)}"
    lines.append(indent + text + tail + (f"  {_PIN}" if pinned else ""))


def _comment(text: str) -> str:
    return f"# {text}" if text else "#"


def _body(lines: list[str], depth: int, body: tuple[tree.Stmt, ...]) -> None:
    for stmt in body:
        _stmt(lines, depth, stmt)


def _stmt(lines: list[str], depth: int, stmt: tree.Stmt) -> None:
    if isinstance(stmt, tree.For):
        for hint in stmt.hints:
            _put(lines, depth, _hint(hint), hint.comments, False)
        _put(lines, depth, _head(stmt), stmt.comments, stmt.pinned)
        _body(lines, depth + 1, stmt.body)
    elif isinstance(stmt, tree.If):
        _if(lines, depth, stmt, "if")
    else:
        _put(lines, depth, _head(stmt), stmt.comments, stmt.pinned)


def _if(lines: list[str], depth: int, stmt: tree.If, word: str) -> None:
    _put(lines, depth, f"{word} {format_expr(stmt.cond)}:", stmt.comments, stmt.pinned)
    _body(lines, depth + 1, stmt.then)
    if len(stmt.orelse) == 1 and isinstance(stmt.orelse[0], tree.If):
        _if(lines, depth, stmt.orelse[0], "elif")
    elif stmt.orelse:
        lines.append("    " * depth + "else:")
        _body(lines, depth + 1, stmt.orelse)


def _hint(hint: tree.Hint) -> str:
    return f"@llm_hint({_listed(hint.args)})"


def _head(stmt: tree.Stmt) -> str:
    match stmt:
        case tree.For():
            return f"for {stmt.var} in range({_listed(stmt.range)}):"
        case tree.If():
            return f"if {format_expr(stmt.cond)}:"
        case tree.Assign():
            return f"{_listed(stmt.targets)} = {format_expr(stmt.value)}"
        case tree.CallStmt():
            return format_expr(stmt.call)
        case tree.Move():
            bounds = _listed(stmt.source.items) if isinstance(stmt.source, tree.List) else format_expr(stmt.source)
            keywords = "".join(f", {_keyword(k)}" for k in stmt.keywords)
            return f"{stmt.op}({bounds} -> {format_expr(stmt.dest)}{keywords})"


def _listed(exprs: Iterable[tree.Expr]) -> str:
    return ", ".join(map(format_expr, exprs))


def _declaration(declaration: tree.Declaration) -> str:
    items = declaration.items
    if declaration.kind == "symbols":
        return f"symbols: {', '.join(map(_item, items))};"
    return f"{declaration.kind}: {' '.join(_item(i) + ';' for i in items)}"


def _item(item: Union[tree.SymbolDecl, tree.TensorDecl, tree.ConstDecl, tree.OpaqueDecl, tree.Expr]) -> str:
    match item:
        case tree.SymbolDecl():
            return item.name + _default(item.value)
        case tree.TensorDecl():
            return _tensor(item)
        case tree.ConstDecl():
            choices = f" in {{{_listed(item.choices)}}}" if item.choices else ""
            return item.name + _default(item.value) + choices
        case tree.OpaqueDecl():
            params = ", ".join(map(_tensor, item.params))
            return f"{item.name}({params}) -> [{_listed(item.result_shape)}]: {item.result_dtype}"
        case _:
            return format_expr(item)


def _default(value: tree.Expr | None) -> str:
    return "" if value is None else f" = {format_expr(value)}"


def _tensor(item: tree.TensorDecl) -> str:
    role = f" {item.role}" if item.role else ""
    return f"{item.name}[{_listed(item.shape)}]: {item.dtype}{role}"


# -- expressions -------------------------------------------------------------------------------------------------------


def _expr(expr: tree.Expr) -> tuple[str, int]:
    """Return the text and its precedence."""
    match expr:
        case tree.Name():
            return expr.id, _ATOM
        case tree.Num():
            return _num(expr), (_ATOM if expr.value >= 0 and not _is_negative_zero(expr) else _UNARY)
        case tree.Binary():
            return _binary(expr)
        case tree.Unary(op="not"):
            return f"not {_within(expr.operand, _PRECEDENCE['not'])}", _PRECEDENCE["not"]
        case tree.Unary():
            return f"{expr.op}{_within(expr.operand, _UNARY)}", _UNARY
        case tree.Call():
            return f"{expr.func}({', '.join([*map(format_expr, expr.args), *map(_keyword, expr.keywords)])})", _ATOM
        case tree.Subscript():
            return f"{expr.name}[{', '.join(map(_index, expr.items))}]", _ATOM
        case tree.Indexed():
            value = format_expr(expr.value)
            value = value if isinstance(expr.value, tree.Call) else f"({value})"
            return f"{value}[{', '.join(map(_index, expr.items))}]", _ATOM
        case tree.List():
            return f"[{_listed(expr.items)}]", _ATOM
        case tree.Str():
            quote = "'" if '"' in expr.value else '"'
            return f"{quote}{expr.value}{quote}", _ATOM
        case tree.Bool():
            return ("true" if expr.value else "false"), _ATOM


def _num(expr: tree.Num) -> str:
    return expr.text or repr(expr.value)


def _is_negative_zero(expr: tree.Num) -> bool:
    return _num(expr).startswith("-")


def _binary(expr: tree.Binary) -> tuple[str, int]:
    if expr.op == "**":
        return f"{_within(expr.left, _ATOM)} ** {_within(expr.right, _UNARY)}", _POWER
    level = _PRECEDENCE[expr.op]
    comparison = level == _PRECEDENCE["<"]
    left = _within(expr.left, level + 1 if comparison else level)
    return f"{left} {expr.op} {_within(expr.right, level + 1)}", level


def _within(expr: tree.Expr, level: int) -> str:
    text, binds = _expr(expr)
    return text if binds >= level else f"({text})"


def _keyword(keyword: tree.Keyword) -> str:
    return f"{keyword.name}={format_expr(keyword.value)}"


def _index(item: Union[tree.Expr, tree.Slice, tree.NewAxis]) -> str:
    if isinstance(item, tree.NewAxis):
        return "None"
    if not isinstance(item, tree.Slice):
        return format_expr(item)
    parts = [item.start, item.stop] if item.step is None else [item.start, item.stop, item.step]
    return ":".join("" if b is None else _closed_up(b) for b in parts)


def _closed_up(expr: tree.Expr) -> str:
    """Return a bound of a slice without blanks around operators, so that ``n:n+BLOCK`` reads as two bounds."""
    text = format_expr(expr)
    return _BLANKS.sub(r"\1", text) if '"' not in text and "'" not in text else text
