"""The text of ``library.aten``: any functional ATen operation, written as torch names it.

``y = library.aten(x, call="kthvalue.default(x0, 3, -1)[0]")``: ``x0``, ``x1``, ... are the operands by position, other
names are the file's symbols, ``"torch.float32"`` (in single quotes) is a dtype, ``[n]`` picks one of several results.
Calls may be nested, so that a value that no tensor of a sketch can hold (a complex number) stays inside."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import inf
from typing import Any

from kernellab import python_tree
from kernellab.operations.aten import Role, named

#: operations that cannot be repeated, or whose result has no fixed size: refused in a call
_TAGS = ("nondeterministic_seeded", "data_dependent_output", "dynamic_output_shape")
#: operations that draw random numbers only for dropout, with the position of that argument
_DROPOUT = {f"{name}.input": 5 for name in named(Role.RECURRENT) if not name.endswith("_cell")}
#: operations that trust their operands' indices, give memory that nothing has written, or are of formats other than a
#: tensor's elements in memory. A quick answer, and no protection: a worker computes the call, and others crash as well
_UNCHECKED = re.compile(
    r"unsafe(?!_view)|sparse|coalesce|nested|jagged|empty|resize|convert_indices|segment_reduce|backward|weight_norm_int"
    r"|embedding_bag|(?<!fake_)quantize|mkldnn|cudnn|nnpack|_pack_|unpool|efficientzerotensor"
)
_OPERAND = re.compile(r"x(\d+)")
_NUMBERS = {"inf": float("inf"), "nan": float("nan")}
_ARITHMETIC: Mapping[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", operator.add), ast.Sub: ("-", operator.sub), ast.Mult: ("*", operator.mul),
    ast.FloorDiv: ("//", operator.floordiv), ast.Mod: ("%", operator.mod),
}  # fmt: skip


class BadCall(ValueError):
    """The text of a call is invalid: ``what`` is wrong, and the remedy."""

    def __init__(self, what: str, remedy: str = 'Write call="kthvalue.default(x0, 3, -1)[0]".') -> None:
        super().__init__(what)
        self.what, self.remedy = what, remedy


@lru_cache(maxsize=512)
def read_call(text: str) -> ast.expr:
    """Return the call as a tree; every name and operation in it is known.

    Raises:
        BadCall: it is no call, names no operation of ATen, or one that draws numbers, reads or writes a file, changes
            its operands or has a result whose size depends on values; it has several results and picks none.
    """
    try:
        tree = python_tree.parse(text, mode="eval").body
    except (SyntaxError, ValueError, MemoryError) as error:
        raise BadCall(f"The text of the call cannot be read: {error}") from None
    inner = tree.value if isinstance(tree, ast.Subscript) else tree
    if not isinstance(inner, ast.Call):
        raise BadCall("The text is not a call of an operation.")
    _check_names(tree)
    results = _returned(inner)
    if tree is inner and (len(results) > 1 or "List" in "".join(results)):
        raise BadCall(f"{ast.unparse(inner.func)} has several results.", "Pick one of them: end the call with [0].")
    return tree


def _returned(call: ast.Call) -> list[str]:
    """Return the types of the results of a call in a tree that :func:`_check_names` accepts."""
    match call.func:
        case ast.Attribute(value=ast.Name(id=name), attr=overload):
            return [str(result.type) for result in _operation(name, overload)._schema.returns]
    raise AssertionError(ast.dump(call))


def operands_of(tree: ast.expr) -> frozenset[int]:
    """Return the positions of the operands that a call reads."""
    return frozenset(int(m.group(1)) for n in _names(tree) if (m := _OPERAND.fullmatch(n)))


def symbols_of(tree: ast.expr) -> frozenset[str]:
    """Return the names in a call that are neither operands nor numbers: symbols of the file."""
    return frozenset(n for n in _names(tree) if not _OPERAND.fullmatch(n) and n not in _NUMBERS)


def call_text(tree: ast.expr, operands: Sequence[str], size: Callable[[str], str]) -> str:
    """Return the call as Python: ``operands`` in place of x0, x1, ..., and ``size`` for each symbol."""

    def text(node: ast.expr) -> str:
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=overload)):
                arguments = [*map(text, node.args), *(f"{k.arg}={text(k.value)}" for k in node.keywords)]
                return f"torch.ops.aten.{name}.{overload}({', '.join(arguments)})"
            case ast.Subscript(value=value, slice=item):
                return f"{text(value)}[{text(item)}]"
            case ast.Name(id=name):
                operand = _OPERAND.fullmatch(name)
                if operand:
                    return operands[int(operand.group(1))]
                return f'float("{name}")' if name in _NUMBERS else size(name)
            case ast.Constant(value=str() as word):
                return word if word.startswith("torch.") else repr(word)
            case ast.Constant(value=value):
                return f'float("{value}")' if value in (inf, -inf) else repr(value)
            case ast.Tuple(elts=items) | ast.List(elts=items):
                return f"[{', '.join(map(text, items))}]"
            case ast.BinOp(left=left, op=op, right=right):
                return f"({text(left)} {_ARITHMETIC[type(op)][0]} {text(right)})"
            case ast.UnaryOp(operand=inner):
                return f"-{text(inner)}"
        raise AssertionError(ast.dump(node))

    return text(tree)


def evaluate(tree: ast.expr, operands: Sequence[Any], size: Callable[[str], int], f64: bool) -> Any:
    """Return the call's value for tensors; ``f64``: float dtypes in the call become float64."""
    import torch

    def value(node: ast.expr) -> Any:
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=overload)):
                keywords = {str(k.arg): value(k.value) for k in node.keywords}
                return _operation(name, overload)(*map(value, node.args), **keywords)
            case ast.Subscript(value=inner, slice=item):
                return value(inner)[value(item)]
            case ast.Name(id=name):
                operand = _OPERAND.fullmatch(name)
                if operand:
                    return operands[int(operand.group(1))]
                return _NUMBERS[name] if name in _NUMBERS else size(name)
            case ast.Constant(value=str() as word) if word.startswith("torch."):
                constant = getattr(torch, word.removeprefix("torch."))
                is_widened = f64 and isinstance(constant, torch.dtype) and constant.is_floating_point
                return torch.float64 if is_widened else constant
            case ast.Constant(value=operand):
                return operand
            case ast.Tuple(elts=items) | ast.List(elts=items):
                return [value(i) for i in items]
            case ast.BinOp(left=left, op=op, right=right):
                return _ARITHMETIC[type(op)][1](value(left), value(right))
            case ast.UnaryOp(operand=inner):
                return -value(inner)
        raise AssertionError(ast.dump(node))

    return value(tree)


def _check_names(node: ast.expr) -> None:
    """Raise BadCall unless every part of a call is an operand, a size, a number, or a call of an operation."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=overload)):
            _operation(name, overload)
            names = [keyword.arg for keyword in node.keywords]
            if None in names or len(set(names)) < len(names):
                raise BadCall(f"{name}.{overload} has an argument twice, or one without a name after **.")
            if (at := _DROPOUT.get(f"{name}.{overload}")) and not _is_zero(node.args[at : at + 1]):
                raise BadCall(f"{name}.{overload} draws numbers for its dropout.", "Write 0.0 as its dropout.")
            parts: list[ast.expr] = [*node.args, *(k.value for k in node.keywords)]
        case ast.Subscript(value=value, slice=ast.Constant(value=int())):
            parts = [value]
        case ast.Name():
            parts = []
        case ast.Constant(value=str() as word) if word.startswith("torch.") and not _is_constant(word):
            raise BadCall(f"{word!r} is no dtype of torch.", 'Write "torch.float32" in single quotes.')
        case ast.Constant(value=bool() | int() | float() | str() | None):
            parts = []
        case ast.Tuple(elts=items) | ast.List(elts=items):
            parts = items
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            parts = [left, right]
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            parts = [inner]
        case _:
            raise BadCall(f"'{ast.unparse(node)}' is neither an operand, a size, a number nor a call.")
    for part in parts:
        _check_names(part)


def _is_constant(word: str) -> bool:
    """Does the word name a constant of torch: a dtype, a memory format or a layout? It stands in lowered sources."""
    import torch

    named = getattr(torch, word.removeprefix("torch."), None)
    return isinstance(named, (torch.dtype, torch.memory_format, torch.layout))


def _is_zero(arguments: list[ast.expr]) -> bool:
    return len(arguments) == 1 and isinstance(arguments[0], ast.Constant) and arguments[0].value == 0


@lru_cache(maxsize=512)
def _operation(name: str, overload: str) -> Any:
    """Return ATen's operation. Raises BadCall: there is no such operation, or a sketch may not call it."""
    import torch

    function = getattr(getattr(torch.ops.aten, name, None), overload, None)
    if not isinstance(function, torch._ops.OpOverload):
        raise BadCall(f"torch.ops.aten has no operation {name}.{overload}.")
    # an operation that gives no tensor, or takes a text and no tensor, works on something else, such as a file
    parameters = " ".join(str(argument.type) for argument in function._schema.arguments)
    results = [str(result.type) for result in function._schema.returns]
    if (
        not results
        or not all("Tensor" in result for result in results)
        or ("str" in parameters and "Tensor" not in parameters)
    ):
        raise BadCall(f"{name}.{overload} does not compute tensors from its operands.", "Name an operation that does.")
    if _UNCHECKED.search(name) or re.search(r"\bunsafe\b", str(function._schema)):
        raise BadCall(f"{name}.{overload} does not check its operands.", "Name an operation that does.")
    tags = () if f"{name}.{overload}" in _DROPOUT else _TAGS
    if function._schema.is_mutable or any(getattr(torch.Tag, tag) in function.tags for tag in tags):
        raise BadCall(
            f"{name}.{overload} draws numbers, changes its operands, or has a result of a size that values decide.",
            "Name an operation whose result follows from its operands, in a shape that follows from theirs.",
        )
    return function


def _names(tree: ast.expr) -> Iterator[str]:
    called = {id(n.func.value) for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)}
    yield from (n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and id(n) not in called)
