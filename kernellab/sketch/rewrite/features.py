"""Features by which sketches differ: a normal form without names, and numbers of the schedule."""

from __future__ import annotations

import functools
import hashlib
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from kernellab.sketch.rewrite import edit
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.parse import parse
from kernellab.sketch.syntax.printer import format_statement

#: smallest number that counts as a size of a tile or an extent, and is represented by its logarithm
_LEAST_SIZE = 8
#: prefix of the names of numbers that are a quarter of the logarithm of a loop's step
STEPS = "product of the steps of the"
_Consts = Mapping[str, tree.ConstDecl]


@dataclass(frozen=True)
class Features:
    """``normal`` is the sketch with names masked and sizes as powers of two; ``numbers`` are counts and log2 sizes."""

    normal: str
    numbers: Mapping[str, float]

    @cached_property
    def key(self) -> str:
        """The hash of the normal form: equal for sketches that differ only in names, comments and sets of tunables."""
        return hashlib.sha256(self.normal.encode()).hexdigest()[:16]

    @cached_property
    def total(self) -> float:
        return sum(self.numbers.values())

    def like(self, other: Features, similarity: float) -> bool:
        """Is the similarity at least ``similarity``? The sums alone exclude most pairs."""
        low, high = sorted((self.total, other.total))
        return low >= similarity * high and self.similarity(other) >= similarity

    def similarity(self, other: Features) -> float:
        """Return the similarity of two sketches in [0, 1]: the weighted Jaccard index of their numbers; 1 for equal
        normal forms."""
        if self.normal == other.normal:
            return 1.0
        keys = {*self.numbers, *other.numbers}
        pairs = [(self.numbers.get(k, 0.0), other.numbers.get(k, 0.0)) for k in keys]
        union = sum(map(max, pairs))
        return min(1.0, sum(map(min, pairs)) / union) if union else 1.0


@functools.lru_cache(maxsize=16384)
def features(text: str) -> Features:
    """Return the features of a sketch, from a cache. Raises SketchError: it cannot be read."""
    file = parse(text)
    constants = edit.consts(file)
    masks: dict[str, str] = {}
    lines: list[str] = []
    numbers: defaultdict[str, float] = defaultdict(float)
    for at, sketch in enumerate(file.sketches):
        lines.append("launch")
        numbers["launches"] += 1
        for depth, stmt in _lines(sketch.body, 0):
            plain = _resolved(stmt, constants)
            lines.append(f"{depth} {format_statement(_masked(plain, masks))}")
            numbers[f"line {format_statement(_masked(plain, None))}"] += 1
            if isinstance(stmt, tree.For):
                _schedule(stmt, constants, f"at depth {depth} of launch {at}", numbers)
                lines.append(str(sorted(_hints(stmt, constants))))
    for name in ("num_warps", "num_stages"):
        value = edit.value_of(tree.Name(name), constants)
        if value:
            lines.append(f"{name} {value}")
            numbers[name] += math.log2(value) + 1
    return Features("\n".join(lines), dict(numbers))


def _lines(body: edit.Body, depth: int) -> Iterator[tuple[int, tree.Stmt]]:
    for stmt in body:
        yield depth, stmt
        if isinstance(stmt, tree.For):
            yield from _lines(stmt.body, depth + 1)
        elif isinstance(stmt, tree.If):
            yield from _lines(stmt.then, depth + 1)
            yield from _lines(stmt.orelse, depth + 1)


def _schedule(loop: tree.For, constants: _Consts, where: str, numbers: dict[str, float]) -> None:
    """Add the numbers of one loop: where it runs, its hints, and its step."""
    kind = "parallel" if edit.is_parallel(loop) else "sequential"
    numbers[f"{kind} loops {where}"] += 1
    step = edit.value_of(edit.bounds(loop).step, constants)
    if step:
        numbers[f"{STEPS} {kind} loops {where}"] += math.log2(step) / 4
    for hint in _hints(loop, constants):
        numbers[f"{hint} {where}"] += 1


def _hints(loop: tree.For, constants: _Consts) -> list[str]:
    hints = []
    for word, value in edit.words(loop).items():
        size = edit.value_of(value, constants) if value is not None else None
        hints.append(word if size is None else f"{word} {size}")
    return hints


def _resolved(stmt: tree.Stmt, constants: _Consts) -> tree.Stmt:
    """Return a line with constexprs as their values, and whole numbers that are sizes as powers of two."""

    def value(node: object) -> object:
        if not isinstance(node, (tree.Name, tree.Num)):
            return None
        size = edit.value_of(node, constants)
        if size is None:
            return None
        if abs(size) < _LEAST_SIZE:
            return edit.number(size)
        return tree.Name(f"{'-' if size < 0 else ''}2^{round(math.log2(abs(size)))}")

    return edit.substitute(_header(stmt), value)


def _header(stmt: tree.Stmt) -> tree.Stmt:
    if isinstance(stmt, tree.For):
        return replace(stmt, body=(), hints=())
    return replace(stmt, then=(), orelse=()) if isinstance(stmt, tree.If) else stmt


def _masked(stmt: tree.Stmt, masks: dict[str, str] | None) -> tree.Stmt:
    """Return a line with its names numbered in order (``masks`` has earlier ones), or all of them alike."""

    def mask(word: str) -> str:
        if word.startswith(("2^", "-2^")):  # a size
            return word
        return "_" if masks is None else masks.setdefault(word, f"n{len(masks)}")

    def change(node: object) -> object:
        if isinstance(node, tree.Name):
            return tree.Name(mask(node.id))
        if isinstance(node, tree.Subscript):
            items = edit.substitute(node.items, change)
            return tree.Subscript(mask(node.name), items)
        if isinstance(node, tree.For):
            bounds = tuple(edit.substitute(e, change) for e in node.range)
            return tree.For(mask(node.var), bounds, ())
        return None

    return edit.substitute(stmt, change)
