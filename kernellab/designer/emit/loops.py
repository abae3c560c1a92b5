"""The loops of a launch as sketch text: the grid of its parallel axes, and nests around what a rule adds."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kernellab.designer.emit.text import indented
from kernellab.designer.emit.writer import Scope, Writer
from kernellab.designer.ir import extents
from kernellab.designer.ir.expr import Axis
from kernellab.designer.ir.extents import Chunks
from kernellab.designer.ir.normal import ADD


def begin(w: Writer, letters: Mapping[Axis, str] | None = None) -> tuple[list[Axis], list[Axis]]:
    """Names the loops and opens the outermost block; the parallel axes that are loops, and the reduced ones."""
    k, t = w.k, w.t
    par = [a for a in t.order if a in k.par and a not in t.whole]
    red = [a for a in t.order if a in k.red]
    for axis in (*par, *red):
        w.vars[axis] = w.names.fresh((letters or {}).get(axis) or letter(w, axis))
        if k.scans and k.scans[0].reverse and axis in k.scans[0].axes:
            # a reverse scan walks its axis from the end
            w.counters[axis] = w.vars[axis]
            w.vars[axis] = f"{_last(w, axis)} - {w.vars[axis]}"
    w.scopes = [Scope(frozenset(a for a in red if a in t.whole))]
    return par, red


def letter(w: Writer, axis: Axis) -> str:
    """The variable of a loop: that of a Dim where the axis is one."""
    text = str(axis.extent)
    if text.isidentifier() and text.upper() == text:
        return text.lower()
    position = w.t.order.index(axis) if axis in w.t.order else 0
    return "chunk" if axis is w.k.chunk else "ijkabcdefgh"[position % 11]


def grid(w: Writer, par: list[Axis], body: list[str]) -> list[str]:
    """Parallel loops over ``par`` around ``body``."""
    on_cpu = w.t.core == "coreidx"
    keeps = set(w.k.stored_axes) if on_cpu and any(o.put == ADD for o in w.k.outs) else set()
    if keeps & set(par):
        # additions in order: iterations that run at once have columns of their own
        for axis in reversed([a for a in par if a not in keeps]):
            body = [f"for {w.vars[axis]} in {span(w, axis)}:", *indented(body)]
        par = [a for a in par if a in keeps]
    dims = {1: ("",), 2: (".y", ".x"), 3: (".z", ".y", ".x")}.get(len(par), ("",) * len(par))
    heads = []
    for axis, dim in zip(par, dims, strict=True):
        swizzle = f', "swizzle", {w.t.swizzle}' if w.t.swizzle and axis is par[-1] else ""
        core = w.t.core if on_cpu else f"{w.t.core}{dim}"
        heads.append((f'"parallel", "{core}"{swizzle}', f"{w.vars[axis]} in {span(w, axis)}"))
    return nested(heads or [(f'"parallel", "{w.t.core}"', f"{w.names.fresh('once')} in range(1)")], body)


def nested(heads: list[tuple[str, str]], body: list[str]) -> list[str]:
    """Loops around ``body``, outermost first, each a hint and what stands between ``for`` and the colon."""
    lines: list[str] = []
    for depth, (hint, head) in enumerate(heads):
        lines += indented([f"@llm_hint({hint})", f"for {head}:"], depth)
    return lines + indented(body, len(heads))


def span(w: Writer, axis: Axis) -> str:
    """The range that the loop over an axis runs through, in steps of its tile."""
    step = w.t.blocks.get(axis)
    chunk = w.k.chunk
    if chunk is None or axis is chunk or axis is not next((a for a in w.t.order if a in w.k.red), None):
        return f"range(0, {axis.extent}, {step})" if step else f"range({axis.extent})"
    size = chunk_size(w)
    if axis in w.counters:
        # pieces are walked from the end, past the edge of the last one too
        return f"range(0, {size}, {step})" if step else f"range({size})"
    at = f"{w.vars[chunk]}*{size}"
    stop = f"min({at} + {size}, {axis.extent})"
    return f"range({at}, {stop}, {step})" if step else f"range({at}, {stop})"


def chunk_size(w: Writer) -> str:
    """The constexpr with the elements of a piece, where programs reduce one each."""
    assert w.k.chunk is not None and isinstance(w.k.chunk.extent, Chunks)
    return w.k.chunk.extent.size


def _last(w: Writer, axis: Axis) -> str:
    """Where the last tile of an axis starts that is walked from its end."""
    step = w.t.blocks.get(axis)
    if w.k.chunk is not None:
        return f"{w.vars[w.k.chunk]}*{chunk_size(w)} + {chunk_size(w)} - {step or 1}"
    if not step:
        return str(extents.add(axis.extent, -1))
    stop = f"{axis.extent}" if axis in w.t.exact else f"ceil({axis.extent}, {step})*{step}"
    return f"{stop} - {step}"


def loop(
    w: Writer, axes: list[Axis], body: Callable[[], None], hint: str = "", ranges: Mapping[Axis, str] | None = None
) -> None:
    """Nests loops over ``axes`` in the current block around what ``body()`` writes; the innermost has the ``hint``."""
    axis, *rest = axes
    inner = Scope(w.scopes[-1].axes | {axis})
    w.scopes.append(inner)
    if rest:
        loop(w, rest, body, hint, ranges)
    else:
        body()
    w.scopes.pop()
    head = f"for {w.counters.get(axis, w.vars[axis])} in {(ranges or {}).get(axis) or span(w, axis)}:"
    w.lines.extend([*([hint] if hint and not rest else []), head, *indented(inner.lines)])


def nest(w: Writer, heads: list[str], body: Callable[[], None], hint: str = "") -> None:
    """As :func:`loop`, of loops whose heads are given."""
    if not heads:
        body()
        return
    inner = Scope(frozenset())
    w.scopes.append(inner)
    nest(w, heads[1:], body, hint)
    w.scopes.pop()
    w.lines.extend([*([hint] if hint and len(heads) == 1 else []), heads[0], *indented(inner.lines)])
