"""Measured tiles of a chip: rows of ``knowledge/hardware/<chip>.tiles.toml`` that override the model.

A row has a ``kind``, a condition ``when`` on quantities that the rule of that kind names, and values; the first row of
a kind whose condition holds applies. Conditions are comparisons, ``and``, ``or`` and ``not`` of integer expressions,
quoted words, and functions that the rule supplies, such as ``tiles(128, 64)``.
"""

from __future__ import annotations

import ast
import operator
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Union

from kernellab import python_tree
from kernellab.errors import KernellabError
from kernellab.target import Chip
from kernellab.target.chips import known_chips

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: types of the quantities in a condition
Quantity = Union[int, bool, str, Callable[..., int]]
#: types of the values that a row sets
Value = Union[int, bool]

_SOURCE = ("dsls", "date", "sweep")
_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One measured decision; ``dsls`` are the languages in which it was measured."""

    kind: str
    dsls: tuple[str, ...]
    when: str
    values: Mapping[str, Value]
    #: the date and the script or sweep of the measurement
    date: str
    sweep: str

    def holds(self, quantities: Mapping[str, Quantity]) -> bool:
        """Return whether the row's condition holds. Raise KeyError for a quantity that the rule does not name."""
        return bool(_evaluate(_parsed(self.when), quantities))


@dataclass(frozen=True)
class Rows:
    """The rows of one chip; none for a chip that was not measured."""

    rows: tuple[Row, ...] = ()

    def first(self, kind: str, dsl: str, quantities: Mapping[str, Quantity]) -> Mapping[str, Value] | None:
        """Return the values of the first row of ``kind`` that holds; None if the model must decide.

        Raises:
            KernellabError: a condition uses an unknown quantity of this kind.
        """
        for row in self.rows:
            if row.kind != kind or dsl not in row.dsls:
                continue
            try:
                if row.holds(quantities):
                    return row.values
            except KeyError as error:
                quantity_names = ", ".join(quantities)
                raise KernellabError(
                    f"A row of the kind {kind!r} asks for {error.args[0]!r}: {row.when}", f"Use {quantity_names}."
                ) from None
        return None


def rows_of(chip: Chip) -> Rows:
    """Return the measured rows of a chip, by its product name."""
    name = chip.name.lower()
    fitting = [e for e in known_chips() if e.match and all(word in name for word in e.match)]
    if not fitting:
        return Rows()
    best = max(fitting, key=lambda entry: len(entry.match))
    path = best.path.with_suffix(".tiles.toml")
    return read_rows(path) if path.exists() else Rows()


@lru_cache(maxsize=16)
def read_rows(path: Path) -> Rows:
    """Return the rows of one file.

    Raises:
        KernellabError: the file is not TOML, a key of a row is missing, or a condition is not an expression.
    """
    try:
        fields = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise KernellabError(f"{path} is not TOML: {error}.", "Fix that line.") from None
    parsed_rows = []
    source = fields.get("source", {})
    for number, entry in enumerate(fields.get("row", []), start=1):
        # defaults of all rows, defaults of its kind, and its own values
        merged = {**{k: v for k, v in source.items() if k in _SOURCE}, **source.get(entry.get("kind"), {}), **entry}
        try:
            kind, when, dsls, date, sweep = (merged.pop(key) for key in ("kind", "when", *_SOURCE))
            _parsed(when)
        except KeyError as error:
            raise KernellabError(f"{path}: row {number} has no {error.args[0]!r}.", "Add it.") from None
        except (SyntaxError, ValueError) as error:
            raise KernellabError(f"{path}: row {number}: {error}", "Write a condition on its quantities.") from None
        parsed_rows.append(Row(kind, tuple(dsls), when, merged, str(date), sweep))
    return Rows(tuple(parsed_rows))


@lru_cache(maxsize=256)
def _parsed(when: str) -> ast.expr:
    body = python_tree.parse(when, mode="eval").body
    allowed = (ast.BoolOp, ast.boolop, ast.UnaryOp, ast.Not, ast.Compare, ast.BinOp, *_OPERATORS, ast.Call)
    for node in ast.walk(body):
        if not isinstance(node, (*allowed, ast.Name, ast.Load, ast.Constant)):
            raise ValueError(f"{ast.unparse(node)!r} is not allowed in a condition")
    return body


def _evaluate(node: ast.expr, known: Mapping[str, Quantity]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return known[name]
        case ast.BoolOp(op=ast.And(), values=values):
            return all(_evaluate(v, known) for v in values)
        case ast.BoolOp(values=values):
            return any(_evaluate(v, known) for v in values)
        case ast.UnaryOp(operand=operand):
            return not _evaluate(operand, known)
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](_evaluate(left, known), _evaluate(right, known))
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            values = [_evaluate(v, known) for v in (left, *comparators)]
            return all(_OPERATORS[type(op)](a, b) for op, a, b in zip(ops, values, values[1:], strict=False))
        case ast.Call(func=ast.Name(id=name), args=args):
            function = known[name]
            assert callable(function), name
            return function(*(_evaluate(a, known) for a in args))
    raise ValueError(f"{ast.unparse(node)!r} is not allowed in a condition")
