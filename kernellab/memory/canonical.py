"""A captured graph in canonical form: its computation, independent of names, sizes and spelling.

Views, copies and casts are skipped, spellings of one operation share a word, and operands of commutative operations are
unordered. The hash of the outputs (a Merkle hash over the graph) identifies the computation; labels of each node with
its neighbourhood (Weisfeiler and Lehman 1968; Shervashidze et al. 2011) measure the similarity of computations. For
``(x * w).sum(-1)``, the node of the sum has the labels ``reduce_sum last``, the same with its operand's label in
brackets, and with a digest of its operands' own labels.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from kernellab.capture import Graph, Node, Ref, Sym
from kernellab.operations.aten import ATEN, Role, aten_op, base_name, named

#: Operations that select or copy elements without computing: equal computations may differ in them.
VIEWS = named(Role.RESHAPE, Role.SAME, Role.CAST)
#: Operations whose operands may be in any order.
COMMUTATIVE = frozenset(row.word for row in ATEN.values() if row.commutes)
#: Operations for which the position of the reduced or scanned axis is part of the computation.
ALONG = frozenset(row.word for row in ATEN.values() if row.along_axis)
#: Numbers that are part of the computation; any other number is a constant whose value does not matter.
_SIGNIFICANT = (0, 1, 2, 3, 4, 0.5, -0.5, -1, 0.25)
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
    flat = _without_views(graph)
    uses = _uses(flat.steps)
    forms: dict[str, _Form] = {}
    for argument in graph.inputs:
        leaf = "constant" if argument.name in graph.constants else "tensor"
        # inputs have no names here: their uses distinguish them, such as x * x from x * w
        forms[argument.name] = _Form(leaf, leaf, _digest(leaf, uses.get(argument.name, "")), (leaf,))
    for step in flat.steps:
        operands = [_result(forms[operand.name], operand.result) for operand in step.operands]
        hashes = [form.hash for form in operands]
        if step.commutes:
            hashes.sort()
        forms[step.name] = _Form(step.word, step.label, _digest(step.label, *hashes), _labels(step.label, operands))
    outputs = [_result(forms[output.name], output.result) for output in map(flat.source, graph.outputs)]
    # equal values count once
    distinct = {forms[step.name].hash: forms[step.name] for step in flat.steps}.values()
    labels: Counter[str] = Counter()
    for form in distinct:
        labels.update(form.labels)
    words = Counter(form.word for form in distinct)
    return Canonical(_digest("outputs", *(form.hash for form in outputs)), dict(labels), dict(words))


class _Operand(NamedTuple):
    """A value of the graph: a node or input by its name, and which of its results."""

    name: str
    result: int = 0


@dataclass(frozen=True)
class _Step:
    """An operation: its word, the attributes that belong to the computation, and its operands."""

    name: str
    word: str
    attributes: tuple[str, ...]
    operands: tuple[_Operand, ...]

    @property
    def label(self) -> str:
        return " ".join((self.word, *self.attributes))

    @property
    def commutes(self) -> bool:
        return self.word in COMMUTATIVE


@dataclass(frozen=True)
class _Form:
    """A value: its operation's word, its label, the hash of everything below it, and its labels by depth."""

    word: str
    label: str
    hash: str
    labels: tuple[str, ...]


def _result(form: _Form, index: int) -> _Form:
    """One result of an operation with several; the first has the operation's own hash."""
    return replace(form, hash=_digest(form.hash, f"#{index}")) if index else form


@dataclass(frozen=True)
class _Flat:
    """A graph's operations without views, in order; ``views`` maps each view to the value that it shows."""

    steps: list[_Step]
    views: dict[str, _Operand]

    def source(self, ref: Ref) -> _Operand:
        """Resolve a reference through views."""
        viewed = self.views.get(ref.name, _Operand(ref.name))
        return _Operand(viewed.name, ref.item or viewed.result)


def _without_views(graph: Graph) -> _Flat:
    """The operations without views; biased products are split into product and sum."""
    flat = _Flat([], {})
    ranks = {argument.name: len(argument.shape) for argument in graph.inputs}
    for node in graph.nodes:
        name, refs = base_name(node.op), list(node.refs())
        ranks[node.name] = len(node.shape)
        operands = tuple(map(flat.source, refs))
        if name in VIEWS and operands:
            flat.views[node.name] = operands[0]
        elif name in ("addmm", "baddbmm", "addmv") or (name == "linear" and len(operands) == 3):
            bias, factors = (operands[2], operands[:2]) if name == "linear" else (operands[0], operands[1:])
            product = f"{node.name}'s product"
            flat.steps.append(_Step(product, "product", (), factors))
            flat.steps.append(_Step(node.name, "add", (), (bias, _Operand(product))))
        else:
            word = word_of(node)
            attributes = _attributes(node, word, ranks[refs[0].name] if refs else 0)
            flat.steps.append(_Step(node.name, word, tuple(attributes), operands))
    return flat


class _Use(NamedTuple):
    """A step that uses a value, and the value's place among its operands; "" if their order does not matter."""

    step: _Step
    place: str


def _uses(steps: list[_Step]) -> dict[str, str]:
    """Map each value to a digest of its consumers and their consumers, :data:`ROUNDS` deep."""
    users: dict[str, list[_Use]] = defaultdict(list)
    for step in steps:
        for place, operand in enumerate(step.operands):
            users[operand.name].append(_Use(step, "" if step.commutes else str(place)))
    digests: dict[str, str] = {}
    for _ in range(ROUNDS + 1):
        digests = {name: _uses_digest(uses, digests) for name, uses in users.items()}
    return digests


def _uses_digest(uses: list[_Use], digests: Mapping[str, str]) -> str:
    """The digest of a value's uses, from those of the values that they make."""
    return _digest(*sorted(_digest(step.label, place, digests.get(step.name, "")) for step, place in uses))


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
        return [_axes_class(node, rank)]
    if word == "transpose":
        return []
    texts = [_number(a) for a in node.args if not isinstance(a, (Ref, tuple, list)) and a is not None]
    if word in COMMUTATIVE:
        texts.sort()
    modes = [
        f"{key}={value}" for key, value in node.kwargs if isinstance(value, str) and key in ("approximate", "reduce")
    ]
    return texts + modes


def _axes_class(node: Node, rank: int) -> str:
    """The class of the axes: all, the last, inner ones, the first, or several."""
    value = node.args[1] if len(node.args) > 1 else None
    numbers = value if isinstance(value, (tuple, list)) else (value,)
    is_axes = not isinstance(value, (bool, Ref, Sym))
    axes = sorted({int(n) % rank for n in numbers if is_axes and isinstance(n, int)}) if rank else []
    if not axes or len(axes) == rank:
        return "all"
    if axes == list(range(rank - len(axes), rank)):
        return "last"
    return "first" if axes == list(range(len(axes))) else "inner"


def _number(value: Any) -> str:
    if isinstance(value, (bool, str)):
        return str(value)
    if isinstance(value, (int, float)):
        return f"{float(value):g}" if value in _SIGNIFICANT else "number"
    return "number"


def _labels(own: str, operands: list[_Form]) -> tuple[str, ...]:
    """A node's labels: its own, with its operands', and with theirs."""
    labels = [own]
    for depth in range(ROUNDS):
        operand_labels = sorted(form.labels[min(depth, len(form.labels) - 1)] for form in operands)
        labels.append(f"{own}({_digest(*operand_labels) if depth else ','.join(operand_labels)})")
    return tuple(labels)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


__all__ = ["ALONG", "Canonical", "canonical", "word_for", "word_of"]
