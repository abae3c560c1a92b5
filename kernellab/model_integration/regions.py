"""Regions of a model's graph that one kernel could compute: chains of cheap operations, a product with what follows,
attention, and the model's own small modules.

A region is convex: no value leaves it and comes back. Views at its edges stay outside, for they cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from kernellab.model_integration.unit import Op, Unit, nodes_in
from kernellab.operations.aten import Copies, Role, aten_op, copies_of, role_of

_PRODUCTS = (Role.PRODUCT, Role.CONVOLUTION, Role.ATTENTION)
_VIEWS = (Role.RESHAPE, Role.TURN, Role.PART, Role.SAME)
#: nothing that a kernel of one region should do: reading a value, a copy between devices, a check
_OUTSIDE = (Role.READ, Role.QUERY, Role.CAST, Role.RECURRENT, Role.DYNAMIC, Role.LINALG)
#: operations of a chain, tensors that go in, and results
_MOST_OPS, _MOST_INPUTS, _MOST_OUTPUTS = 24, 12, 4
#: products of a module that is offered as one region
_MOST_PRODUCTS = 2


@dataclass(frozen=True, eq=False)
class Region:
    """Operations of one unit that one kernel could compute. ``module`` is the path of the submodule that is exactly
    this region, "" where there is none; ``kind`` is chain, epilogue, attention, submodule or operation."""

    unit: Unit
    ops: tuple[Op, ...]
    kind: str
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    module: str = ""

    @property
    def path(self) -> str:
        """The innermost module that holds all of it."""
        if self.module:
            return self.module
        parts = [op.path.split(".") for op in self.ops if not is_view(op)] or [[""]]
        common = []
        for words in zip(*parts, strict=False):
            if len(set(words)) != 1:
                break
            common.append(words[0])
        return ".".join(common)

    @property
    def words(self) -> str:
        """What it does, in order, without the views: ``add + layer_norm``."""
        return " + ".join(op.word.rstrip("_") for op in self.ops if not is_view(op))

    @property
    def indices(self) -> frozenset[int]:
        return frozenset(op.index for op in self.ops)


def propose(unit: Unit) -> list[Region]:
    """The regions of ``unit``; some lie within others."""
    look = _Look(unit)
    chains = look.chains()
    proposed: list[Region | None] = [look.region(chain, "chain") for chain in chains]
    chain_of = {i: chain for chain in chains for i in chain}
    for op in unit.ops:
        if not is_product(op) or not allowed(op):
            continue
        proposed.append(look.region({op.index}, "operation"))
        after = look.after(op.index)
        following = next((chain_of[i] for i in after if i in chain_of), None)
        if following is not None and after <= following:
            proposed.append(look.region(following | {op.index}, "epilogue"))
    proposed += [look.region(around, "attention") for around in look.attentions()]
    for path, members in look.modules():
        works = [unit.ops[i] for i in members if not is_view(unit.ops[i])]
        products = sum(map(is_product, works))
        if len(works) > 1 and products <= _MOST_PRODUCTS and len(works) <= _MOST_OPS:
            proposed.append(look.region(members, "submodule", path))
    modules = {members: path for path, members in look.modules()}
    kept: dict[frozenset[int], Region] = {}
    for region in proposed:
        if region is None:
            continue
        whole = next((p for m, p in modules.items() if look.trimmed(set(m)) == region.indices), "")
        named = Region(unit, region.ops, region.kind, region.inputs, region.outputs, region.module or whole)
        before = kept.get(region.indices)
        if before is None or (named.module and not before.module):
            kept[region.indices] = named
    return sorted(kept.values(), key=lambda r: min(r.indices))


def region_at(unit: Unit, path: str) -> Region | None:
    """The region that is exactly the module at ``path``, whatever its size; None where no kernel can be it."""
    look = _Look(unit)
    members = next((m for p, m in look.modules(root=True) if p == path), None)
    return look.region(members, "submodule", path) if members else None


def is_product(op: Op) -> bool:
    return role_of(op.word) in _PRODUCTS


def is_view(op: Op) -> bool:
    """Does it only look at a value in another way, or hand it on (dropout that is off)?"""
    if op.word == "getitem":
        return True
    if op.word == "dropout":
        return len(op.node.args) > 2 and op.node.args[2] is False
    row = aten_op(op.word)
    if row is None or row.role not in _VIEWS or row.copies is Copies.ALWAYS:
        return False
    if row.copies is Copies.MAYBE:
        source: Any = op.node.args[0]
        value = source.meta.get("val")
        return value is not None and value.is_contiguous()
    return True


def allowed(op: Op) -> bool:
    """Can a kernel compute it: no randomness, nothing written, tensors as results?"""
    role = role_of(op.word)
    if (role is Role.RANDOM and not is_view(op)) or role in _OUTSIDE:
        return False
    schema = getattr(op.node.target, "_schema", None)
    if schema is not None and schema.is_mutable:
        return False
    value = op.node.meta.get("val")
    values = value if isinstance(value, (tuple, list)) else [value]
    return bool(values) and all(isinstance(v, torch.Tensor) for v in values)


class _Look:
    """A unit's operations as sets of bits: what each depends on, and what depends on it."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.sources = [[unit.by_node[n].index for n in nodes_in((op.node.args, op.node.kwargs)) if n in unit.by_node]
                        for op in unit.ops]  # fmt: skip
        self.users: list[list[int]] = [[] for _ in unit.ops]
        for i, sources in enumerate(self.sources):
            for s in sources:
                self.users[s].append(i)
        self.before = [0] * len(unit.ops)
        for i, sources in enumerate(self.sources):
            for s in sources:
                self.before[i] |= self.before[s] | 1 << s
        self.behind = [0] * len(unit.ops)
        for i in reversed(range(len(unit.ops))):
            for u in self.users[i]:
                self.behind[i] |= self.behind[u] | 1 << u
        self.final = {unit.by_node[n].index for n in nodes_in(unit.outputs) if n in unit.by_node}
        self.written = _written(unit)

    def convex(self, members: Iterable[int]) -> bool:
        own = before = behind = 0
        for i in members:
            own |= 1 << i
            before |= self.before[i]
            behind |= self.behind[i]
        return not before & behind & ~own

    def chains(self) -> list[set[int]]:
        """Connected operations that are no products, each set as large as it can be."""
        chain_of: dict[int, set[int]] = {}
        for op in self.unit.ops:
            if is_product(op) or not self._may(op):
                continue
            own = {op.index}
            for source in self.sources[op.index]:
                other = chain_of.get(source)
                if other is None or other is own or source in own:
                    continue
                joined = own | other
                works = sum(not is_view(self.unit.ops[i]) for i in joined)
                if works <= _MOST_OPS and self.convex(joined) and self._fits(joined):
                    own = joined
            for i in own:
                chain_of[i] = own
        distinct = {id(chain): chain for chain in chain_of.values()}
        return list(distinct.values())

    def _fits(self, members: set[int]) -> bool:
        outputs = sum(bool(set(self.users[i]) - members) for i in members if not is_view(self.unit.ops[i]))
        return outputs <= _MOST_OUTPUTS

    def after(self, index: int) -> set[int]:
        """Who uses a value, with views looked through."""
        later: set[int] = set()
        open_ = list(self.users[index])
        while open_:
            i = open_.pop()
            if is_view(self.unit.ops[i]):
                open_ += self.users[i]
            later.add(i)
        return later

    def attentions(self) -> Iterator[set[int]]:
        """A softmax between two products, with what lies between, or the operation of that name and its copies."""
        ops = self.unit.ops
        for op in ops:
            if role_of(op.word) is Role.ATTENTION and self._may(op):
                copies = {
                    i
                    for i in self.after(op.index)
                    if self._may(ops[i]) and (is_view(ops[i]) or copies_of(ops[i].word) is Copies.MAYBE)
                }
                if len(copies) and self.convex(copies | {op.index}):
                    yield {op.index} | copies
            row = aten_op(op.word)
            if row is None or row.word != "softmax":
                continue
            first = self._nearest(op.index, self.sources)
            last = self._nearest(op.index, self.users)
            if first is not None and last is not None:
                between = {i for i in range(first, last + 1) if self._between(i, first, last)}
                if all(self._may(ops[i]) for i in between):
                    yield between

    def _between(self, i: int, first: int, last: int) -> bool:
        after = i == first or self.before[i] >> first & 1
        return bool(after and (i == last or self.behind[i] >> last & 1))

    def _nearest(self, index: int, step: Sequence[Sequence[int]]) -> int | None:
        """The nearest product before or behind, through cheap operations."""
        open_ = list(step[index])
        seen: set[int] = set()
        while open_:
            i = open_.pop(0)
            if i in seen:
                continue
            seen.add(i)
            if is_product(self.unit.ops[i]):
                return i
            open_ += step[i]
        return None

    def modules(self, root: bool = False) -> Iterator[tuple[str, frozenset[int]]]:
        """Each module's path below the unit's own, and its operations."""
        members: dict[str, set[int]] = {}
        for op in self.unit.ops:
            words = op.path.split(".") if op.path else []
            for n in range(0 if root else 1, len(words) + 1):
                members.setdefault(".".join(words[:n]), set()).add(op.index)
        for path, nodes_of in members.items():
            if root or path != self.unit.path:
                yield path, frozenset(nodes_of)

    def trimmed(self, members: set[int]) -> frozenset[int]:
        """Without the views at the edges: those that others read too, and those that nothing in it reads."""
        left = set(members)
        changed = True
        while changed:
            changed = False
            for i in sorted(left):
                if not is_view(self.unit.ops[i]):
                    continue
                first = not set(self.sources[i]) & left
                shared = bool(set(self.users[i]) - left) or i in self.final
                last = not set(self.users[i]) & left
                if last or (first and shared):
                    left.discard(i)
                    changed = True
        return frozenset(left)

    def region(self, members: Iterable[int], kind: str, module: str = "") -> Region | None:
        """The region of these operations, None where one kernel cannot be it."""
        ops = self.unit.ops
        left = self.trimmed(set(members))
        if not left or all(is_view(ops[i]) for i in left):
            return None
        if not all(self._may(ops[i]) for i in left) or not self.convex(left):
            return None
        inner = {ops[i].node for i in left}
        inputs: list[Node] = []
        for i in sorted(left):
            for node in nodes_in((ops[i].node.args, ops[i].node.kwargs)):
                if node not in inner and node not in inputs:
                    inputs.append(node)
        inputs.sort(key=lambda n: n in self.unit.state or n in self.unit.constants)
        outputs = tuple(ops[i].node for i in sorted(left) if i in self.final or set(self.users[i]) - left)
        if not 0 < len(outputs) <= _MOST_OUTPUTS or len(inputs) > _MOST_INPUTS * (3 if kind == "submodule" else 1):
            return None
        if any(isinstance(n.meta.get("val"), (tuple, list)) for n in (*inputs, *outputs)):
            return None
        if kind == "chain" and sum(not is_view(ops[i]) for i in left) == 1:
            kind = "operation"
        return Region(self.unit, tuple(ops[i] for i in sorted(left)), kind, tuple(inputs), outputs, module)

    def _may(self, op: Op) -> bool:
        return allowed(op) and op.node not in self.written


def _written(unit: Unit) -> set[Node]:
    """Nodes that an operation writes into or that read what is written: in which order they run matters."""
    targets: set[Node] = set()
    for op in unit.ops:
        schema = getattr(op.node.target, "_schema", None)
        if schema is not None and schema.is_mutable:
            written: list[Any] = [a for a, spec in zip(op.node.args, schema.arguments, strict=False)
                                  if spec.alias_info is not None and spec.alias_info.is_write]  # fmt: skip
            for node in nodes_in(written):
                targets |= {node, op.node, *node.users}
    return targets


__all__ = ["Region", "allowed", "is_product", "is_view", "propose", "region_at"]
