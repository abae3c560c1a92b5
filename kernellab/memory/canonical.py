"""A captured graph in canonical form: its computation, independent of names, sizes and spelling.

Views, copies and casts are skipped, spellings of one operation share a word, and operands of commutative operations
are unordered. The hash of the outputs (a Merkle hash over the graph) identifies the computation; labels of each node
with its neighbourhood (Weisfeiler and Lehman 1968; Shervashidze et al. 2011) measure the similarity of computations.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kernellab.capture import Graph, Node, Ref, Sym
from kernellab.operations.aten import ATEN, Role, aten_op, base_name, named

#: Operations that select or copy elements without computing: equal computations may differ in them.
VIEWS = named(Role.RESHAPE, Role.SAME, Role.CAST)
#: Operations whose operands may be in any order.
COMMUTATIVE = frozenset(row.word for row in ATEN.values() if row.commutes)
#: Operations for which the position of the reduced or scanned axis is part of the computation.
ALONG = frozenset(row.word for row in ATEN.values() if row.along_axis)
#: Numbers that are part of the computation; any other number is a constant whose value does not matter.
_TOLD = (0, 1, 2, 3, 4, 0.5, -0.5, -1, 0.25)
#: Depth of a node's label.
ROUNDS = 2


@dataclass(frozen=True)
class Canonical:
    """A graph's computation: the outputs' ``hash``, each node's labels, and the count of each word."""

    hash: str
    labels: Mapping[str, int]
    words: Mapping[str, int]


def canonical(graph: Graph) -> Canonical:
    """Return the canonical form of ``graph``. Equal hashes mean equal computations up to names, sizes and views."""
    steps, alias = _steps(graph)
    uses = _uses(steps)
    forms: dict[str, _Form] = {}
    for argument in graph.inputs:
        leaf = "constant" if argument.name in graph.constants else "tensor"
        # inputs have no names here: their uses distinguish them, such as x * x from x * w
        forms[argument.name] = _Form(leaf, _digest(leaf, uses.get(argument.name, "")), (leaf,))
    for step in steps:
        below = [_item(forms[name], item) for name, item in step.operands]
        hashes = [form.hash for form in below]
        if step.commutes:
            hashes.sort()
        forms[step.name] = _Form(step.told, _digest(step.told, *hashes), _labels(step.told, below))
    outputs = [_item(forms[name], item) for name, item in (_source(alias, ref) for ref in graph.outputs)]
    nodes = {forms[step.name].hash: forms[step.name] for step in steps}
    labels: Counter[str] = Counter()
    for form in nodes.values():
        labels.update(form.labels)
    words = Counter(form.told.split(" ", 1)[0] for form in nodes.values())
    return Canonical(_digest("outputs", *(form.hash for form in outputs)), dict(labels), dict(words))


@dataclass(frozen=True)
class _Step:
    """An operation: its word with attributes, and its operands as (name, index of the result)."""

    name: str
    told: str
    operands: tuple[tuple[str, int], ...]

    @property
    def word(self) -> str:
        return self.told.split(" ", 1)[0]

    @property
    def commutes(self) -> bool:
        return self.word in COMMUTATIVE


@dataclass(frozen=True)
class _Form:
    """A value: its word with attributes, the hash of everything below it, and its labels by round."""

    told: str
    hash: str
    labels: tuple[str, ...]


def _item(form: _Form, item: int) -> _Form:
    return replace(form, hash=_digest(form.hash, f"#{item}")) if item else form


def _source(alias: Mapping[str, tuple[str, int]], ref: Ref) -> tuple[str, int]:
    """Resolve a reference through views."""
    name, item = alias.get(ref.name, (ref.name, 0))
    return name, ref.item or item


def _steps(graph: Graph) -> tuple[list[_Step], dict[str, tuple[str, int]]]:
    """The operations without views, with biased products split into product and sum; and each view's source."""
    steps: list[_Step] = []
    alias: dict[str, tuple[str, int]] = {}
    ranks = {argument.name: len(argument.shape) for argument in graph.inputs}
    for node in graph.nodes:
        name, refs = base_name(node.op), list(node.refs())
        ranks[node.name] = len(node.shape)
        operands = [_source(alias, ref) for ref in refs]
        if name in VIEWS and operands:
            alias[node.name] = operands[0]
        elif name in ("addmm", "baddbmm", "addmv") or (name == "linear" and len(operands) == 3):
            bias, factors = (operands[2], operands[:2]) if name == "linear" else (operands[0], operands[1:])
            steps.append(_Step(f"{node.name}'s product", "product", tuple(factors)))
            steps.append(_Step(node.name, "add", (bias, (f"{node.name}'s product", 0))))
        else:
            word = word_of(node)
            described = " ".join([word, *_attributes(node, word, ranks[refs[0].name] if refs else 0)])
            steps.append(_Step(node.name, described, tuple(operands)))
    return steps, alias


def _uses(steps: list[_Step]) -> dict[str, str]:
    """Map each value to a digest of its consumers and their consumers, :data:`ROUNDS` deep."""
    users: dict[str, list[tuple[_Step, str]]] = defaultdict(list)
    for step in steps:
        for place, (name, _) in enumerate(step.operands):
            users[name].append((step, "" if step.commutes else str(place)))
    uses: dict[str, str] = {}
    for _ in range(ROUNDS + 1):
        uses = {
            name: _digest(*sorted(_digest(s.told, place, uses.get(s.name, "")) for s, place in listed))
            for name, listed in users.items()
        }
    return uses


def word_for(name: str) -> str:
    """The common word for all spellings of an operation; the name itself if it is not an ATen operation."""
    row = aten_op(name)
    return row.word if row else name


def word_of(node: Node) -> str:
    """The common word for a node's operation; transposed convolutions are distinguished."""
    name = base_name(node.op)
    if name == "convolution" and len(node.args) > 6 and node.args[6] is True:
        return "transposed_convolution"
    return word_for(name)


def _attributes(node: Node, word: str, rank: int) -> list[str]:
    """The attributes that determine a node's computation: the reduced axes, exponents, modes."""
    if word == "pow":
        exponent = node.args[1] if len(node.args) > 1 else 2
        return [_number(exponent)]
    if word in ALONG:
        return [_along(node, rank)]
    if word == "transpose":
        return []
    texts = [_number(a) for a in node.args if not isinstance(a, (Ref, tuple, list)) and a is not None]
    if word in COMMUTATIVE:
        texts.sort()
    modes = [
        f"{key}={value}" for key, value in node.kwargs if isinstance(value, str) and key in ("approximate", "reduce")
    ]
    return texts + modes


def _along(node: Node, rank: int) -> str:
    """The class of the axes: all, the last, inner ones, the first, or several."""
    axes: list[int] = []
    for value in node.args[1:2]:
        if isinstance(value, (bool, Ref, Sym)):
            continue
        axes = [int(v) for v in value if isinstance(v, int)] if isinstance(value, (tuple, list)) else (
            [int(value)] if isinstance(value, int) else []
        )  # fmt: skip
    axes = sorted({axis % rank for axis in axes}) if rank else []
    if not axes or len(axes) == rank:
        return "all"
    if axes == list(range(rank - len(axes), rank)):
        return "last"
    return "first" if axes == list(range(len(axes))) else "inner"


def _number(value: Any) -> str:
    if isinstance(value, (bool, str)):
        return str(value)
    if isinstance(value, (int, float)):
        return f"{float(value):g}" if value in _TOLD else "number"
    return "number"


def _labels(own: str, below: list[_Form]) -> tuple[str, ...]:
    """A node's labels: its own, with its operands', and with theirs."""
    labels = [own]
    for depth in range(ROUNDS):
        operand_labels = sorted(form.labels[min(depth, len(form.labels) - 1)] for form in below)
        labels.append(f"{own}({_digest(*operand_labels) if depth else ','.join(operand_labels)})")
    return tuple(labels)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


__all__ = ["ALONG", "Canonical", "canonical", "word_for", "word_of"]
