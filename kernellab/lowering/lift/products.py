"""The loads of a product in C++ whose operands are multiplied where they lie in memory, from their addresses."""

from __future__ import annotations

import ast
import re

from kernellab.errors import LoweringError
from kernellab.lowering.lift.text import Host, inside, split

_REMEDY = "Undo the edit, lift its sketch by a model, or write it by hand."
#: names and numbers that are multiplied
_Factors = tuple[int, tuple[str, ...]]


def operand_lines(text: str, code: str, host: Host, before: list[str]) -> list[str]:
    """Statements that load the operands of the product ``text`` and turn them round; ``before`` are those visible.

    Raises:
        LoweringError: an operand is read through an address that cannot be read back as a slice.
    """
    call = re.search(r"\b(?:gemm|dot)\(", text)
    operands = split(inside(text, call.end()))[:2] if call else []
    places = [split(inside(code, m.end())) for m in re.finditer(r"kl::matrix\(", code)]
    found: list[str] = []
    for operand, place in zip(operands, places, strict=False):
        name = re.fullmatch(r"(transpose\()?(\w+)(?:, perm=\[1, 0\])?\)?", operand)
        tensor = place[0].partition(" + ")[0]
        if name is None or tensor not in host.shapes or any(_makes(line, name[2]) for line in before):
            continue
        found += _load(name[2], bool(name[1]), tensor, place, host.shapes[tensor])
    return found


def _makes(line: str, name: str) -> bool:
    return re.search(rf"^{name} = |-> {name}[,)]", line) is not None


def _load(name: str, spelled_turned: bool, tensor: str, place: list[str], shape: list[str]) -> list[str]:
    strides = [_factors(" * ".join(f"({s})" for s in shape[n + 1 :]) or "1") for n in range(len(shape))]
    starts = _starts(place[0].partition(" + ")[2] or "0", strides)
    down, right = (_dimension(stride, strides) for stride in place[1:3])
    if starts is None or down is None or right is None or down == right or len(place) != 5:
        raise LoweringError(
            f"The product reads {name!r} through an address that cannot be read back as a slice.", _REMEDY
        )
    extents = {down: _extent(place[3]), right: _extent(place[4])}
    index = list(starts)
    for n, extent in extents.items():
        index[n] = f"0:{extent}" if starts[n] == "0" else f"{starts[n]}:{starts[n]}+{extent}"
    turned = down > right
    if turned == spelled_turned:
        return [f"load({tensor}[{', '.join(index)}] -> {name})"]
    loaded = name.removesuffix("_turned") + "_tile" if name.endswith("_turned") else f"{name}_stored"
    return [f"load({tensor}[{', '.join(index)}] -> {loaded})", f"{name} = transpose({loaded}, perm=[1, 0])"]


def _extent(text: str) -> str:
    """``kl::inside(size, start, extent)`` or the extent itself."""
    return split(text[len("kl::inside(") : -1])[2] if text.startswith("kl::inside(") else text


def _dimension(stride: str, strides: list[_Factors]) -> int | None:
    """The dimension with that stride; among extents of 1, the one that moves."""
    wanted = _factors(stride)
    return max((n for n, s in enumerate(strides) if s == wanted), default=None)


def _starts(offset: str, strides: list[_Factors]) -> list[str] | None:
    """Where a tile starts in each dimension, from the offset of its first element."""
    starts: list[list[str]] = [[] for _ in strides]
    for sign, term in _terms(ast.parse(offset.replace("kl::", "kl__"), mode="eval").body):
        number, names = _factors(ast.unparse(term))
        for n, (stride, extents) in enumerate(strides):
            left = list(names)
            for extent in extents:
                if extent in left:
                    left.remove(extent)
                else:
                    break
            else:
                if number % stride == 0:
                    rest = number // stride
                    parts = [*([str(rest)] if rest != 1 or not left else []), *left]
                    starts[n].append(f"{sign} {' * '.join(parts)}")
                    break
        else:
            return None
    return [" ".join(s).removeprefix("+ ").replace("kl__", "") if s and s != ["+ 0"] else "0" for s in starts]


def _terms(node: ast.expr, sign: str = "+") -> list[tuple[str, ast.expr]]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        other = sign if isinstance(node.op, ast.Add) else "-" if sign == "+" else "+"
        return [*_terms(node.left, sign), *_terms(node.right, other)]
    return [(sign, node)]


def _factors(text: str) -> _Factors:
    number, names = 1, []
    todo: list[ast.expr] = [ast.parse(text, mode="eval").body]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            todo += [node.left, node.right]
        elif isinstance(node, ast.Constant) and isinstance(node.value, int):
            number *= node.value
        else:
            spelled = ast.unparse(node)
            names.append(spelled if isinstance(node, (ast.Name, ast.Call)) else f"({spelled})")
    return number, tuple(sorted(names))
