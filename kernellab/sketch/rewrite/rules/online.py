"""Two passes over a row as one that rescales what it has, and such a pass as two: the softmax's maximum and sum.

In one pass a larger maximum scales down the sum so far: sum' = sum * exp(max - max') + sum of exp(x - max'). Both say
the same in exact arithmetic (Milakov and Gimelshein 2018).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from kernellab.sketch.rewrite import edit
from kernellab.sketch.rewrite.record import Change, Setting
from kernellab.sketch.rewrite.rules.loops import written
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.walk import nodes

_EXPONENTIALS = ("exp", "exp2")


def online(setting: Setting) -> Iterator[Change]:
    """The loop that finds a maximum and the one that sums exponentials below it become one, or one becomes two."""
    for place in edit.places(setting.tree):
        if edit.is_parallel(place.loop) or place.loop.pinned:
            continue
        where = setting.tree.sketches[place.launch].name
        used = edit.used_names(setting.tree)
        joined = _joined(place, used)
        if joined is not None:
            yield place.block(joined), f"finds the maximum and the sum of {where} in one pass over {place.loop.var}"
        parted = _parted(place)
        if parted is not None:
            yield place.put(*parted), f"finds the maximum of {where} in a separate pass over {place.loop.var}"


# -- two passes as one ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sum:
    """``total = total + added``, where ``added`` is a sum of ``power(x - top)``."""

    total: str
    added: tree.Expr
    power: str


def _joined(place: edit.Place, used: set[str]) -> edit.Body | None:
    """The block with this loop and the next as one; None where they are no maximum and sum below it."""
    at, body = place.at, place.body
    first = place.loop
    later = next((i for i in range(at + 1, len(body)) if isinstance(body[i], tree.For)), None)
    second = body[later] if later is not None else None
    if later is None or not isinstance(second, tree.For) or second.range != first.range or second.pinned:
        return None
    top, source = _maximum(first)
    if source is None or not isinstance(first.body[-1], tree.Assign):
        return None
    middle = body[at + 1 : later]
    whole = _whole(middle, top)
    ends = top if whole is None else whole
    total = _sum(second, ends)
    if total is None or any(edit.is_store(n) or isinstance(n, tree.For) for n in nodes((middle, first.body))):
        return None
    before = [s for s in middle if not edit.uses(s) & {top, ends}]
    after = [s for s in middle if edit.uses(s) & {top, ends}]
    if any(set(written(s)) & edit.uses(second) and s in after and written(s) != (ends,) for s in middle):
        return None
    names = {word: tree.Name(edit.fresh(word, used)) for word in ("top_now", "base", "keep")}
    inner = edit.rename(second.body, {second.var: tree.Name(first.var), ends: names["base"]})
    clash = {w for s in inner for w in written(s)} & {w for s in first.body for w in written(s)}
    inner = edit.rename(inner, {w: tree.Name(edit.fresh(w, used)) for w in sorted(clash - {total.total})})
    same, rest = _shared(first.body[:-1], inner[:-1])
    last = inner[-1]
    assert isinstance(last, tree.Assign) and isinstance(last.value, tree.Binary)
    added = edit.rename(last.value.right if _is(last.value.left, total.total) else last.value.left, same)
    power = total.power
    carried = tree.Name(total.total)
    merged = (
        *first.body[:-1],
        _set(names["top_now"], tree.Call("max", (tree.Name(top), source))),
        _set(names["base"], _finite(names["top_now"])),
        _set(names["keep"], tree.Call(power, (tree.Binary("-", tree.Name(top), names["base"]),))),
        *edit.rename(rest, same),
        _set(carried, tree.Binary("+", tree.Binary("*", carried, names["keep"]), added)),
        _set(tree.Name(top), names["top_now"]),
    )
    rescaled: tuple[tree.Stmt, ...] = ()
    if whole is not None:
        # each lane has a separate maximum until here
        lanes = tree.Call(power, (tree.Binary("-", tree.Name(top), tree.Name(whole)),))
        rescaled = (_set(carried, tree.Binary("*", carried, lanes)),)
    loop = replace(first, body=merged)
    return (*body[:at], *before, loop, *after, *rescaled, *body[later + 1 :])


def _maximum(loop: tree.For) -> tuple[str, tree.Expr | None]:
    """The tile of ``top = max(top, found)`` that ends ``loop``, and ``found``; None where it ends otherwise."""
    last = loop.body[-1] if loop.body else None
    value = last.value if isinstance(last, tree.Assign) and len(last.targets) == 1 else None
    if not isinstance(last, tree.Assign) or not isinstance(value, tree.Call) or value.func != "max":
        return "", None
    top = last.targets[0].id
    others = [a for a in value.args if not _is(a, top)]
    if len(value.args) != 2 or len(others) != 1 or edit.mentions((loop.body[:-1], others[0]), top):
        return "", None
    return top, others[0]


def _whole(middle: edit.Body, top: str) -> str | None:
    """The name of the maximum over all lanes, where ``top`` has one for each."""
    for stmt in middle:
        value = stmt.value if isinstance(stmt, tree.Assign) else None
        if not isinstance(stmt, tree.Assign) or not isinstance(value, tree.Call) or value.func != "reduce_max":
            continue
        if value.args and _is(value.args[0], top) and not any(k.name == "keepdims" for k in value.keywords):
            return stmt.targets[0].id
    return None


def _sum(loop: tree.For, top: str) -> _Sum | None:
    """The sum that ``loop`` carries, where ``top`` only lowers what its one exponential takes."""
    last = loop.body[-1] if loop.body else None
    if not isinstance(last, tree.Assign) or not isinstance(last.value, tree.Binary) or last.value.op != "+":
        return None
    total = last.targets[0].id
    sides = (last.value.left, last.value.right)
    added = next((s for s in sides if not _is(s, total)), None)
    if added is None or sum(_is(s, total) for s in sides) != 1 or edit.mentions((loop.body[:-1], added), total):
        return None
    if any(edit.is_store(n) or isinstance(n, (tree.For, tree.If)) for n in nodes(loop.body)):
        return None
    power = _lowers(loop.body[:-1], added, top)
    return _Sum(total, added, power) if power else None


def _lowers(body: edit.Body, added: tree.Expr, top: str) -> str:
    """The exponential whose results are all that depends on ``top``, each summed once; "" where there is more."""
    # follow what depends on top: x - top, then exp of it, then sums and products of that
    state = {top: "top"}
    power = ""
    for stmt in (*body, tree.Assign((tree.Name(""),), added)):
        if not edit.uses(stmt) & set(state):
            continue
        if not isinstance(stmt, tree.Assign) or len(stmt.targets) != 1:
            return ""
        kind, source = _kind(stmt.value, state)
        power = power or source
        if not kind or (source and source != power):
            return ""
        state[stmt.targets[0].id] = kind
    return power if state.get("") == "power" else ""


def _kind(expr: tree.Expr, state: dict[str, str]) -> tuple[str, str]:
    """What ``expr`` is ("top", "lowered", "power", "" for anything else) and its exponential's name."""
    if isinstance(expr, tree.Name):
        return state.get(expr.id, ""), ""
    if isinstance(expr, tree.Subscript):
        return state.get(expr.name, ""), ""
    if isinstance(expr, tree.Binary):
        left, right = (edit.uses(side) & set(state) for side in (expr.left, expr.right))
        if expr.op == "-" and not left and _kind(expr.right, state)[0] == "top":
            return "lowered", ""
        if expr.op == "*" and bool(left) != bool(right):
            kind, power = _kind(expr.left if left else expr.right, state)
            return (kind, power) if kind == "power" else ("", "")
        return "", ""
    if isinstance(expr, tree.Call):
        return _kind_of_call(expr, state)
    return "", ""


def _kind_of_call(call: tree.Call, state: dict[str, str]) -> tuple[str, str]:
    if not call.args or any(edit.uses(a) & set(state) for a in call.args[1:] if call.func != "where"):
        return "", ""
    if call.func in _EXPONENTIALS and len(call.args) == 1:
        return ("power", call.func) if _kind(call.args[0], state)[0] == "lowered" else ("", "")
    if call.func == "reduce_sum":
        kind, power = _kind(call.args[0], state)
        return (kind, power) if kind == "power" else ("", "")
    if call.func == "where" and len(call.args) == 3:
        condition, value, other = call.args
        zero = isinstance(other, tree.Num) and other.value == 0
        kind, power = _kind(value, state)
        if zero and kind == "power" and not edit.uses(condition) & set(state):
            return kind, power
    return "", ""


def _shared(have: edit.Body, more: edit.Body) -> tuple[dict[str, tree.Expr], edit.Body]:
    """What ``more`` makes that ``have`` made already, by name, and the rest of it."""
    same: dict[str, tree.Expr] = {}
    rest: list[tree.Stmt] = []
    for stmt in more:
        plain = edit.rename(stmt, same)
        twin = next((h for h in have if len(written(plain)) == 1 and _as(h, written(plain)[0]) == plain), None)
        if twin is not None:
            same[written(stmt)[0]] = tree.Name(written(twin)[0])
        else:
            rest.append(stmt)
    return same, tuple(rest)


def _as(stmt: tree.Stmt, name: str) -> tree.Stmt | None:
    """A load or an assignment to one tile, as if to ``name``."""
    if isinstance(stmt, tree.Assign) and len(stmt.targets) == 1:
        return replace(stmt, targets=(tree.Name(name),))
    return replace(stmt, dest=tree.Name(name)) if edit.is_load(stmt) else None


# -- one pass as two --------------------------------------------------------------------------------------------------


def _parted(place: edit.Place) -> edit.Body | None:
    """A pass that finds the maximum, and the rest of the loop with it known; None where the loop does not rescale."""
    body = place.loop.body
    last = body[-1] if body else None
    if not isinstance(last, tree.Assign) or not isinstance(last.value, tree.Name) or len(last.targets) != 1:
        return None
    top, now = last.targets[0].id, last.value.id
    at = next((i for i, s in enumerate(body) if _is_maximum(s, top, now)), None)
    if at is None:
        return None
    base = next((s for s in body if isinstance(s, tree.Assign) and s.value == _finite(tree.Name(now))), None)
    if base is None:
        base = next((s for s in body if isinstance(s, tree.Assign) and _is_finite(s.value, now)), None)
    low = base.targets[0].id if base is not None else now
    keep = next((s for s in body if isinstance(s, tree.Assign) and _is_factor(s.value, top, low)), None)
    if keep is None:
        return None
    factor = keep.targets[0].id
    rest: list[tree.Stmt] = []
    for stmt in (*body[:at], *body[at + 1 : -1]):
        if stmt in (base, keep):
            continue
        plain = _without(stmt, factor)
        if plain is None:
            return None
        rest.append(plain)
    needed = _slice(body[:at], body[at])
    if any(edit.uses(s) & {top, now} for s in (*needed, *rest) if base is not None) or edit.mentions(
        tuple(needed), low
    ):
        return None
    update = body[at]
    assert isinstance(update, tree.Assign)
    finds = replace(place.loop, body=(*needed, replace(update, targets=(tree.Name(top),))))
    guard = () if base is None else (replace(base, value=_finite(tree.Name(top))),)
    second = tuple(s for s in rest if not (isinstance(s, tree.Assign) and s.targets == (s.value,)))
    if base is None:
        second = edit.rename(second, {now: tree.Name(top)})
    comments = replace(place.loop.comments, before=())
    return (finds, *guard, replace(place.loop, body=second, comments=comments))


def _is_maximum(stmt: tree.Stmt, top: str, now: str) -> bool:
    if not isinstance(stmt, tree.Assign) or stmt.targets[0].id != now:
        return False
    value = stmt.value
    return isinstance(value, tree.Call) and value.func == "max" and sum(_is(a, top) for a in value.args) == 1


def _is_finite(expr: tree.Expr, now: str) -> bool:
    """``where(now == -inf, 0, now)``, with any zero."""
    expected = _finite(tree.Name(now))
    assert isinstance(expected, tree.Call)
    if not isinstance(expr, tree.Call) or expr.func != "where" or len(expr.args) != 3:
        return False
    zero = isinstance(expr.args[1], tree.Num) and expr.args[1].value == 0
    return zero and (expr.args[0], expr.args[2]) == (expected.args[0], expected.args[2])


def _is_factor(expr: tree.Expr, top: str, low: str) -> bool:
    difference = tree.Binary("-", tree.Name(top), tree.Name(low))
    return isinstance(expr, tree.Call) and expr.func in _EXPONENTIALS and expr.args == (difference,)


def _without(stmt: tree.Stmt, factor: str) -> tree.Stmt | None:
    """``stmt`` with its own tile no longer multiplied by ``factor``; None where the factor does something else."""
    if not edit.mentions(stmt, factor):
        return stmt
    if not isinstance(stmt, tree.Assign) or len(stmt.targets) != 1:
        return None
    own = stmt.targets[0]

    def scaled(node: object) -> tree.Name | None:
        if not isinstance(node, tree.Binary) or node.op != "*":
            return None
        sides = (node.left, node.right)
        return own if any(_is(s, own.id) for s in sides) and any(_names(s) == factor for s in sides) else None

    plain = edit.substitute(stmt.value, scaled)
    return None if edit.mentions(plain, factor) else replace(stmt, value=plain)


def _names(expr: tree.Expr) -> str:
    return expr.id if isinstance(expr, tree.Name) else expr.name if isinstance(expr, tree.Subscript) else ""


def _slice(before: edit.Body, stmt: tree.Stmt) -> list[tree.Stmt]:
    """The statements of ``before`` that ``stmt`` needs."""
    needed = edit.uses(stmt)
    statements: list[tree.Stmt] = []
    for other in reversed(before):
        if set(written(other)) & needed:
            needed |= edit.uses(other)
            statements.insert(0, other)
    return statements


def _set(name: tree.Name, value: tree.Expr) -> tree.Assign:
    return tree.Assign((name,), value)


def _is(expr: tree.Expr, name: str) -> bool:
    return isinstance(expr, tree.Name) and expr.id == name


def _finite(top: tree.Name) -> tree.Expr:
    """``top``, or 0 where nothing was seen yet: -inf - -inf is no number."""
    lowest = tree.Num(-float("inf"), "-inf")
    return tree.Call("where", (tree.Binary("==", top, lowest), edit.number(0), top))
