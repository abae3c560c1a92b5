"""Attention as sketch text: a block of rows against tiles of keys, what the loop carries scaled down on the way."""

from __future__ import annotations

from dataclasses import dataclass

from kernellab.designer.emit.loops import grid, letter, loop
from kernellab.designer.emit.products import inside, keep_inside, multiply_parts, precise, zero_at_edge
from kernellab.designer.emit.stores import store_all
from kernellab.designer.emit.text import Text, accumulator, filled, plus
from kernellab.designer.emit.writer import Scope, Writer
from kernellab.designer.ir import extents
from kernellab.designer.ir.dtypes import DTYPES
from kernellab.designer.ir.expr import Attend, Axis, Expr
from kernellab.designer.passes.attention import Roles, Scaled, last_key, roles, scaled

_PARTS = ("hi", "mid", "lo")


@dataclass(frozen=True)
class _Attention:
    """One attention on its way: the names of each row's largest score, its sum of weights, and its weighted values."""

    of: Attend
    roles: Roles
    dtype: str
    top: str
    total: str
    acc: str


def attention(w: Writer) -> list[str]:
    """The statements of a launch with an attention."""
    att = w.k.attention
    r = roles(att, [a for a in w.t.order if a in w.k.par])
    assert r is not None
    par = [a for a in (*r.batch, r.row, r.col) if a not in w.t.whole]
    for axis in (*par, r.keys, r.width):
        w.vars[axis] = w.names.fresh(letter(w, axis))
    w.scopes = [Scope(frozenset([r.width]) & w.t.whole)]
    w.narrow = w.t.lanes
    _attend(w, _Attention(att, r, DTYPES[att.dtype], *(w.names.fresh(n) for n in ("row_max", "row_total", "acc"))))
    store_all(w, w.k.outs)
    # neighbouring programs share the keys and values of one head
    order = [a for a in (r.col,) if a in par] + [a for a in par if a is not r.col]
    return grid(w, [*r.batch, *[a for a in order if a not in r.batch]], w.scopes[0].lines)


def _attend(w: Writer, a: _Attention) -> None:
    """The loop over keys, and the division by each row's sum of weights."""
    row, r = w.scopes[0], a.roles
    rows = [w.extent(r.row)]
    row.lines.append(f"{a.top} = {filled(rows, '-inf', a.dtype)}")
    row.lines.append(f"{a.total} = {filled(rows, '0', a.dtype)}")
    row.lines.append(accumulator(a.acc, w.shape((r.row, r.col)), a.dtype))
    hint = '@llm_hint("pipeline", num_stages)' if w.t.stages else '@llm_hint("pipeline")'
    loop(w, [r.keys], lambda: _step(w, a), hint, {r.keys: _keys(w, a)})
    if a.of.zero:
        row.lines.append(f"{a.total} = where({a.total} == 0, 1, {a.total})")
    column = w.spread(Text(a.total, (r.row,)), (r.row, r.col))
    result = Text(f"{a.acc} / {column.text}", (r.row, r.col), 6)
    w.keep.append(a.of)
    row.known[id(a.of)] = w.named(result, "result")


def _keys(w: Writer, a: _Attention) -> str:
    """The range of keys; where a mask hides all beyond a diagonal, up to the last that a row of the tile sees."""
    r = a.roles
    stop, step = str(r.keys.extent), w.t.blocks[r.keys]
    beyond = last_key(a.of.a, r.row, r.keys)
    if beyond is not None:
        size = w.extent(r.row) if r.row in w.t.blocks else "1"
        stop = f"min({stop}, {plus(f'{w.vars[r.row]} + {size}', beyond)})"
    return f"range(0, {stop}, {step})"


def _step(w: Writer, a: _Attention) -> None:
    """One tile of keys."""
    lines, r, n = w.lines, a.roles, w.names.fresh
    exp = "exp2" if a.of.binary else "exp"
    if w.t.descriptors:
        # its load beside the keys': two that stand side by side wait for one barrier
        w.text_of(a.of.b)
    scores, scale = _scores(w, a)
    top, base, keep, weights = n("top"), n("base"), n("keep"), n("weights")
    lines.append(f"{top} = max({a.top}, reduce_max({scores}, axis=1){scale})")
    # a row that has seen nothing yet: its weights are exp(-inf), not exp(-inf + inf)
    lines.append(f"{base} = where({top} == -inf, 0, {top})")
    lines.append(f"{keep} = {exp}({a.top} - {base})")
    lines.append(f"{weights} = {exp}({scores}{scale} - {_column(w, a, base, r.keys)})")
    lines.append(f"{a.total} = {a.total} * {keep} + reduce_sum({weights}, axis=1)")
    if a.of.parts:
        _add_parts(w, a, weights, keep)
    else:
        values = w.text_of(a.of.b)
        if not zero_at_edge(w, a.of.b, r.keys):
            values = keep_inside(w, values, r.keys)
        values = w.spread(values, (r.keys, r.col))
        lines.append(f"{a.acc} = {a.acc} * {_column(w, a, keep, r.col)}")
        shares = f"cast({weights}, {DTYPES[a.of.narrow]})" if a.of.narrow else weights
        lines.append(f"gemm({shares}, {values.text}, {a.acc}{precise(w)})")
    lines.append(f"{a.top} = {top}")


def _add_parts(w: Writer, a: _Attention, weights: str, keep: str) -> None:
    """The weights split into parts in registers, times the stored parts of the values, summed apart."""
    r = a.roles
    names = [w.names.fresh(f"{weights}_{word}") for word in _PARTS]
    rest = weights
    for name in names:
        w.lines.append(f"{name} = cast({rest}, bf16)")
        rest = f"{rest} - {name}"
    values = [w.spread(w.text_of(e), (r.keys, r.col)).text for e in (a.of.b, *a.of.parts)]
    step = w.names.fresh("step")
    w.lines.append(accumulator(step, w.shape((r.row, r.col)), a.dtype))
    multiply_parts(w, step, names, values)
    w.lines.append(f"{a.acc} = {a.acc} * {_column(w, a, keep, r.col)} + {step}")


# -- scores ------------------------------------------------------------------------------------------------------------


def _scores(w: Writer, a: _Attention) -> tuple[str, str]:
    """The name of this tile's scores, -inf where they are masked or past the last key, and what they lack."""
    r, inner = a.roles, a.of.inner
    name = w.names.fresh("scores")
    full = (r.row, r.keys)
    if r.width in w.t.whole and not inner.parts:
        left, right = _sides(w, a)
        w.lines.append(f"{name} = dot({left}, {right}{precise(w)})")
    else:
        w.lines.append(accumulator(name, w.shape(full), a.dtype))
        if r.width in w.t.whole:
            _inner_parts(w, a, name)
        else:
            loop(w, [r.width], lambda: _add_scores(w, a, name))
    w.scopes[-1].known[id(inner)] = Text(name, full)
    w.keep.append(inner)
    plain = scaled(a.of.a, r.row, r.keys) if w.t.lanes else None
    if plain is not None:
        _mask(w, a, name, plain, full)
        return name, f" * {plain.scale!r}"
    value = w.text_of(a.of.a)
    if r.keys not in w.t.exact and not _hidden_at_edge(a):
        value = Text(f"where({w.valid(r.keys, full)}, {value.text}, -inf)", full)
    if value.text != name:
        w.lines.append(f"{name} = {value.text}")
    return name, ""


def _mask(w: Writer, a: _Attention, name: str, plain: Scaled, full: tuple[Axis, ...]) -> None:
    """-inf where scores are masked or past the last key, without their scale: one step with what follows."""
    r, lines = a.roles, w.lines
    tests = []
    if plain.seen is not None:
        test = w.spread(w.text_of(plain.seen), full).text
        tests.append(test if plain.shown else f"logical_not({test})")
    if r.keys not in w.t.exact and not _hidden_at_edge(a):
        tests.append(w.valid(r.keys, full))
    if not tests:
        return
    test = tests[0] if len(tests) == 1 else f"logical_and({', '.join(tests)})"
    masked = f"{name} = where({test}, {name}, -inf)"
    if plain.seen is None:
        first = str(r.keys.extent)
    elif plain.last is not None and len(tests) == 1 and r.row in w.t.blocks:
        first = plus(w.vars[r.row], plain.last + 1)
    else:
        lines.append(masked)
        return
    # measured on an H200, 4096 keys: up to a fifth less time than a mask on every tile
    lines += [f"if {w.vars[r.keys]} + {w.extent(r.keys)} > {first}:", f"    {masked}"]


def _hidden_at_edge(a: _Attention) -> bool:
    """Does the mask hide from every row all that lies past the last key?"""
    beyond = last_key(a.of.a, a.roles.row, a.roles.keys)
    return beyond is not None and beyond <= 0 and extents.same(a.roles.row.extent, a.roles.keys.extent)


def _add_scores(w: Writer, a: _Attention, name: str) -> None:
    """The part of the scores that one tile of the width gives."""
    if a.of.inner.parts:
        # in a long chain of their own tensor cores round towards zero
        part = w.names.fresh("part")
        w.lines.append(accumulator(part, w.shape((a.roles.row, a.roles.keys)), a.dtype))
        _inner_parts(w, a, part)
        w.lines.append(f"{name} = {name} + {part}")
        return
    left, right = _sides(w, a)
    w.lines.append(f"gemm({left}, {right}, {name}{precise(w)})")


def _sides(w: Writer, a: _Attention) -> tuple[str, str]:
    r, inner = a.roles, a.of.inner
    left, right = inside(w, (inner.a, inner.b), r.width)
    return w.spread(left, (r.row, r.width)).text, w.spread(right, (r.width, r.keys)).text


def _inner_parts(w: Writer, a: _Attention, name: str) -> None:
    r, inner = a.roles, a.of.inner

    def texts(factors: tuple[Expr, ...], axes: tuple[Axis, ...]) -> list[str]:
        return [w.spread(w.text_of(e), axes).text for e in factors]

    left = texts((inner.a, *inner.parts[:2]), (r.row, r.width))
    multiply_parts(w, name, left, texts((inner.b, *inner.parts[2:]), (r.width, r.keys)))


def _column(w: Writer, a: _Attention, name: str, across: Axis) -> str:
    """A value for each row, beside a tile along ``across``."""
    return w.spread(Text(name, (a.roles.row,)), (a.roles.row, across)).text
