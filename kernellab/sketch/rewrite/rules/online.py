"""Two passes over a row as one that rescales what it has, and such a pass as two: the softmax's maximum and sum.

In one pass a larger maximum scales down the sum so far::

    for ..: top = max(top, x)             <->   for ..: top_now = max(top, x)
    for ..: sum = sum + exp(x - top)                    base = where(top_now == -inf, 0, top_now)
                                                        keep = exp(top - base)
                                                        sum = sum * keep + exp(x - base)
                                                        top = top_now

Both say the same in exact arithmetic (Milakov and Gimelshein 2018).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from kernellab.sketch.rewrite import edit
from kernellab.sketch.rewrite.record import Change, Setting
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.walk import nodes, written

_EXPONENTIALS = ("exp", "exp2")


def online(setting: Setting) -> Iterator[Change]:
    """The loop that finds a maximum and the one that sums exponentials below it become one, or one becomes two."""
    for place in edit.places(setting.tree):
        if edit.is_parallel(place.loop) or place.loop.pinned:
            continue
        where = setting.tree.sketches[place.launch].name
        used = edit.used_names(setting.tree)
        passes = _passes(place)
        if passes is not None:
            block = _one_pass(place, passes, used)
            yield place.block(block), f"finds the maximum and the sum of {where} in one pass over {place.loop.var}"
        separate = _two_passes(place.loop)
        if separate is not None:
            yield place.put(*separate), f"finds the maximum of {where} in a separate pass over {place.loop.var}"


# -- two passes as one ------------------------------------------------------------------------------------------------


class _Maximum(NamedTuple):
    """``tile = max(tile, candidate)``, the last statement of a loop."""

    tile: str
    candidate: tree.Expr


class _Sum(NamedTuple):
    """``total = total + added``, where ``added`` is a sum of ``exponential(x - maximum)``."""

    total: str
    added: tree.Expr
    exponential: str


@dataclass(frozen=True)
class _Passes:
    """A loop that finds a maximum, the statements behind it, and the next loop, which sums exponentials below it."""

    first: tree.For
    maximum: _Maximum
    #: statements between the loops, without and with a use of the maximum
    independent: edit.Body
    dependent: edit.Body
    second: tree.For
    #: the position of the second loop in the block
    second_at: int
    sum: _Sum
    #: the maximum over all lanes, where each lane has one; None where the tile is the maximum itself
    over_lanes: str | None

    @property
    def subtracted(self) -> str:
        """The tile that the second loop subtracts."""
        return self.over_lanes or self.maximum.tile


def _passes(place: edit.Place) -> _Passes | None:
    """Return this loop and the next as two passes of a softmax; None if they are not."""
    first, body = place.loop, place.body
    second_at = next((i for i in range(place.at + 1, len(body)) if isinstance(body[i], tree.For)), None)
    second = body[second_at] if second_at is not None else None
    if second_at is None or not isinstance(second, tree.For) or second.range != first.range or second.pinned:
        return None
    maximum = _maximum(first)
    if maximum is None:
        return None
    between = body[place.at + 1 : second_at]
    over_lanes = _over_lanes(between, maximum.tile)
    subtracted = over_lanes or maximum.tile
    total = _sum(second, subtracted)
    if total is None or any(edit.is_store(n) or isinstance(n, tree.For) for n in nodes((between, first.body))):
        return None
    dependent = tuple(s for s in between if edit.uses(s) & {maximum.tile, subtracted})
    # the second loop may use what depends on the maximum only to subtract it
    if any(set(written(s)) & edit.uses(second) and written(s) != (subtracted,) for s in dependent):
        return None
    independent = tuple(s for s in between if not edit.uses(s) & {maximum.tile, subtracted})
    return _Passes(first, maximum, independent, dependent, second, second_at, total, over_lanes)


def _one_pass(place: edit.Place, passes: _Passes, used: set[str]) -> edit.Body:
    """Return the block of the loop with both passes as one."""
    first, second = passes.first, passes.second
    top, total = tree.Name(passes.maximum.tile), tree.Name(passes.sum.total)
    exponential = passes.sum.exponential
    top_now, base, keep = (tree.Name(edit.fresh(word, used)) for word in ("top_now", "base", "keep"))
    change: dict[str, tree.Expr] = {second.var: tree.Name(first.var), passes.subtracted: base}
    statements, added = edit.rename((second.body[:-1], passes.sum.added), change)
    clashes = {w for s in statements for w in written(s)} & {w for s in first.body for w in written(s)}
    change = {w: tree.Name(edit.fresh(w, used)) for w in sorted(clashes)}
    statements, added = edit.rename((statements, added), change)
    same, rest = _without_repeated(first.body[:-1], statements)
    merged = (
        *first.body[:-1],
        _set(top_now, tree.Call("max", (top, passes.maximum.candidate))),
        _set(base, _finite(top_now)),
        _set(keep, tree.Call(exponential, (tree.Binary("-", top, base),))),
        *edit.rename(rest, same),
        _set(total, tree.Binary("+", tree.Binary("*", total, keep), edit.rename(added, same))),
        _set(top, top_now),
    )
    rescaled: edit.Body = ()
    if passes.over_lanes is not None:
        # each lane has a separate maximum until here
        lanes = tree.Call(exponential, (tree.Binary("-", top, tree.Name(passes.over_lanes)),))
        rescaled = (_set(total, tree.Binary("*", total, lanes)),)
    return (
        *place.body[: place.at],
        *passes.independent,
        replace(first, body=merged),
        *passes.dependent,
        *rescaled,
        *place.body[passes.second_at + 1 :],
    )


def _maximum(loop: tree.For) -> _Maximum | None:
    """Return the maximum that ends ``loop``; None if it ends otherwise, or something else in it reads the tile."""
    match loop.body[-1:]:
        case (tree.Assign(targets=(top,), value=tree.Call(func="max", args=(left, right))),):
            candidates = [side for side in (left, right) if side != top]
            if len(candidates) == 1 and not edit.mentions((loop.body[:-1], candidates[0]), top.id):
                return _Maximum(top.id, candidates[0])
    return None


def _over_lanes(between: edit.Body, top: str) -> str | None:
    """Return the name of the maximum over all lanes, where ``top`` has one for each; None without it."""
    for stmt in between:
        match stmt:
            case tree.Assign(targets=(target, *_), value=tree.Call(func="reduce_max", args=(tile, *_)) as call):
                if tile == tree.Name(top) and not any(k.name == "keepdims" for k in call.keywords):
                    return target.id
    return None


def _sum(loop: tree.For, maximum: str) -> _Sum | None:
    """Return the sum that ``loop`` carries, where ``maximum`` only lowers what its one exponential takes."""
    match loop.body[-1:]:
        case (tree.Assign(targets=(total, *_), value=tree.Binary(op="+", left=left, right=right)),):
            terms = [side for side in (left, right) if side != total]
        case _:
            return None
    if len(terms) != 1 or edit.mentions((loop.body[:-1], terms[0]), total.id):
        return None
    if any(edit.is_store(n) or isinstance(n, (tree.For, tree.If)) for n in nodes(loop.body)):
        return None
    exponential = _exponential_below(loop.body[:-1], terms[0], maximum)
    return _Sum(total.id, terms[0], exponential) if exponential else None


class _Role(Enum):
    """How a value depends on the maximum."""

    MAXIMUM = "maximum"
    #: x - maximum
    DIFFERENCE = "difference"
    #: an exponential of a difference, a sum of such, or its product with values that do not depend on the maximum
    POWER = "power"


_Roles = dict[str, _Role]


def _exponential_below(body: edit.Body, added: tree.Expr, maximum: str) -> str:
    """Return the exponential whose results are all that depends on ``maximum``, each summed once; "" where there is
    more."""
    roles = {maximum: _Role.MAXIMUM}
    exponentials: set[str] = set()
    for part in (*body, added):
        if _depends(part, roles):
            calls = (n for n in nodes(part) if isinstance(n, tree.Call) and n.func in _EXPONENTIALS)
            exponentials |= {call.func for call in calls if _depends(call, roles)}
        if part is added or not _depends(part, roles):
            continue
        role = _role(part.value, roles) if isinstance(part, tree.Assign) and len(part.targets) == 1 else None
        if not isinstance(part, tree.Assign) or role is None:
            return ""
        roles[part.targets[0].id] = role
    return exponentials.pop() if _role(added, roles) is _Role.POWER and len(exponentials) == 1 else ""


def _depends(node: object, roles: _Roles) -> bool:
    return bool(edit.uses(node) & roles.keys())


def _role(expr: tree.Expr, roles: _Roles) -> _Role | None:
    """Return how ``expr`` depends on the maximum; None if it does not, or in a way that a rescaling does not undo."""
    match expr:
        case tree.Name(id=name) | tree.Subscript(name=name):
            return roles.get(name)
        case tree.Binary(op="-", left=left, right=right) if not _depends(left, roles):
            return _Role.DIFFERENCE if _role(right, roles) is _Role.MAXIMUM else None
        case tree.Binary(op="*", left=left, right=right):
            factors = [side for side in (left, right) if _depends(side, roles)]
            return _power(factors[0], roles) if len(factors) == 1 else None
        case tree.Call(func=func, args=(value,)) if func in _EXPONENTIALS:
            return _Role.POWER if _role(value, roles) is _Role.DIFFERENCE else None
        case tree.Call(func="reduce_sum", args=(value, *rest)) if not _depends(tuple(rest), roles):
            return _power(value, roles)
        case tree.Call(func="where", args=(condition, value, tree.Num(value=0))) if not _depends(condition, roles):
            return _power(value, roles)
    return None


def _power(expr: tree.Expr, roles: _Roles) -> _Role | None:
    return _Role.POWER if _role(expr, roles) is _Role.POWER else None


def _without_repeated(have: edit.Body, more: edit.Body) -> tuple[dict[str, tree.Expr], edit.Body]:
    """Return the tiles of ``more`` that ``have`` computes already, as new names, and the rest of its statements."""
    same: dict[str, tree.Expr] = {}
    rest: list[tree.Stmt] = []
    for stmt in more:
        plain = edit.rename(stmt, same)
        twin = next((h for h in have if len(written(plain)) == 1 and _into(h, written(plain)[0]) == plain), None)
        if twin is not None:
            same[written(stmt)[0]] = tree.Name(written(twin)[0])
        else:
            rest.append(stmt)
    return same, tuple(rest)


def _into(stmt: tree.Stmt, tile: str) -> tree.Stmt | None:
    """Return a load or an assignment to one tile as if it wrote ``tile``; None for another statement."""
    if isinstance(stmt, tree.Assign) and len(stmt.targets) == 1:
        return replace(stmt, targets=(tree.Name(tile),))
    return replace(stmt, dest=tree.Name(tile)) if edit.is_load(stmt) else None


# -- one pass as two --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rescaling:
    """The statements of a loop that carry the maximum and the factor of each step (see the example of the module)."""

    #: the position of ``now = max(top, ..)``
    update_at: int
    update: tree.Assign
    top: str
    now: str
    #: ``base = where(now == -inf, 0, now)``; None where ``now`` itself is subtracted
    base: tree.Assign | None
    #: ``keep = exp(top - base)``
    keep: tree.Assign


def _rescaling(body: edit.Body) -> _Rescaling | None:
    """Return how a loop rescales, whose last statement is ``top = now``; None if it does not."""
    match body[-1:]:
        case (tree.Assign(targets=(tree.Name(id=top),), value=tree.Name(id=now)),):
            pass
        case _:
            return None
    assigns = [(at, stmt) for at, stmt in enumerate(body) if isinstance(stmt, tree.Assign)]
    update_at, update = next(((at, s) for at, s in assigns if _is_maximum(s, top, now)), (None, None))
    if update_at is None or update is None:
        return None
    exact = next((s for _, s in assigns if s.value == _finite(tree.Name(now))), None)
    base = exact or next((s for _, s in assigns if _is_finite(s.value, now)), None)
    subtracted = base.targets[0].id if base is not None else now
    keep = next((s for _, s in assigns if _is_factor(s.value, top, subtracted)), None)
    return None if keep is None else _Rescaling(update_at, update, top, now, base, keep)


def _two_passes(loop: tree.For) -> edit.Body | None:
    """Return a pass that finds the maximum, and the rest of the loop with it known; None if it does not rescale."""
    rescaling = _rescaling(loop.body)
    if rescaling is None:
        return None
    at, top, now, base = rescaling.update_at, rescaling.top, rescaling.now, rescaling.base
    rest: list[tree.Stmt] = []
    for stmt in (*loop.body[:at], *loop.body[at + 1 : -1]):
        if stmt in (base, rescaling.keep):
            continue
        plain = _without_factor(stmt, rescaling.keep.targets[0].id)
        if plain is None:
            return None
        rest.append(plain)
    needed = tuple(_needed(loop.body[:at], rescaling.update))
    if base is not None and any(edit.uses(s) & {top, now} for s in (*needed, *rest)):
        return None
    if edit.mentions(needed, base.targets[0].id if base is not None else now):
        return None
    finds = replace(loop, body=(*needed, replace(rescaling.update, targets=(tree.Name(top),))))
    second = tuple(s for s in rest if not (isinstance(s, tree.Assign) and s.targets == (s.value,)))
    guard = () if base is None else (replace(base, value=_finite(tree.Name(top))),)
    if base is None:
        second = edit.rename(second, {now: tree.Name(top)})
    return (finds, *guard, replace(loop, body=second, comments=replace(loop.comments, before=())))


def _is_maximum(stmt: tree.Assign, top: str, now: str) -> bool:
    """Is it ``now = max(top, ..)``?"""
    value = stmt.value
    is_max = stmt.targets[0].id == now and isinstance(value, tree.Call) and value.func == "max"
    return is_max and isinstance(value, tree.Call) and sum(a == tree.Name(top) for a in value.args) == 1


def _is_finite(expr: tree.Expr, now: str) -> bool:
    """Is it ``where(now == -inf, 0, now)``, with any zero?"""
    match expr, _finite(tree.Name(now)):
        case tree.Call(func="where", args=(condition, tree.Num(value=0), other)), tree.Call(args=(is_lowest, _, top)):
            return condition == is_lowest and other == top
    return False


def _is_factor(expr: tree.Expr, top: str, subtracted: str) -> bool:
    difference = tree.Binary("-", tree.Name(top), tree.Name(subtracted))
    return isinstance(expr, tree.Call) and expr.func in _EXPONENTIALS and expr.args == (difference,)


def _without_factor(stmt: tree.Stmt, factor: str) -> tree.Stmt | None:
    """Return ``stmt`` with its target no longer multiplied by ``factor``; None if the factor does something else."""
    if not edit.mentions(stmt, factor):
        return stmt
    if not isinstance(stmt, tree.Assign) or len(stmt.targets) != 1:
        return None
    target = stmt.targets[0]

    def unscaled(node: object) -> tree.Name | None:
        if not isinstance(node, tree.Binary) or node.op != "*":
            return None
        sides = (node.left, node.right)
        return target if target in sides and any(_tile_of(side) == factor for side in sides) else None

    plain = edit.substitute(stmt.value, unscaled)
    return None if edit.mentions(plain, factor) else replace(stmt, value=plain)


def _tile_of(expr: tree.Expr) -> str:
    """Return the tile of ``x`` or ``x[:, None]``; "" for another expression."""
    return expr.id if isinstance(expr, tree.Name) else expr.name if isinstance(expr, tree.Subscript) else ""


def _needed(before: edit.Body, stmt: tree.Stmt) -> list[tree.Stmt]:
    """Return the statements of ``before`` that ``stmt`` needs."""
    names = edit.uses(stmt)
    needed: list[tree.Stmt] = []
    for other in reversed(before):
        if set(written(other)) & names:
            names |= edit.uses(other)
            needed.insert(0, other)
    return needed


def _set(name: tree.Name, value: tree.Expr) -> tree.Assign:
    return tree.Assign((name,), value)


def _finite(top: tree.Name) -> tree.Expr:
    """Return ``top``, or 0 where nothing was seen yet: -inf - -inf is no number."""
    lowest = tree.Num(-float("inf"), "-inf")
    return tree.Call("where", (tree.Binary("==", top, lowest), edit.number(0), top))
