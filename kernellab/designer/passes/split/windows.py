"""Float32 windows on tensor cores: the copy and the packing before one store each factor as two TF32 values.

x = high + low, each with 11 bits of mantissa: three of the four products of such parts give the product of two float32
to about 2^-22, and the window's loop contains only loads and tensor cores. If it splits on the fly, each element is
split once for every tap that reads it and every block of channels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kernellab.designer.ir.expr import Leaf, Op
from kernellab.designer.ir.launch import Launch, LaunchKind, Plan
from kernellab.designer.passes.rewrite import with_product
from kernellab.designer.passes.round_tf32 import WIDE, factors, rounded, serves


def split_windows(plan: Plan, splits: Callable[[Launch], bool]) -> Plan:
    """Store the factors in two parts for each window over a copy whose products ``splits``.

    ``store(x -> X)`` becomes ``store(high -> X)`` and ``store(round_tf32(x - high) -> X_low)``, with high =
    ``round_tf32(x)``. A window whose factors another launch reads too keeps them unchanged.
    """
    layout, own_name = plan.layout.copied(), plan.layout.name
    windows = [k for k in plan.launches if k.kind is LaunchKind.WINDOW and k.window.packed]
    split = [k for k in windows if k.window.last and len(factors(k)) == 2 and splits(k)]
    stored_names = {o.tensor for k in plan.launches if serves(k) for o in k.outs if o.dtype == WIDE}
    while True:
        read_elsewhere = {own_name(e.tensor) for k in plan.launches if k not in split for e in k.loads}
        splittable = [k for k in split if {own_name(e.tensor) for e in factors(k)} <= stored_names - read_elsewhere]
        if len(splittable) == len(split):
            break
        split = splittable
    low: dict[str, str] = {}
    for factor_tensor in dict.fromkeys(e.tensor for k in split for e in factors(k)):
        for tensor in dict.fromkeys((own_name(factor_tensor), factor_tensor)):
            if tensor not in low:
                low[tensor] = name = layout.fresh(f"{tensor}_low")
                layout.views[name], layout.dtypes[name] = layout.views[tensor], WIDE
                if tensor != own_name(tensor):
                    layout.seconds[name] = low[own_name(tensor)]

    def changed(k: Launch) -> Launch:
        if k in split:
            return _reading(k, low)
        return _storing(k, low) if serves(k) else k

    return Plan(tuple(map(changed, plan.launches)), layout)


def _storing(k: Launch, low: dict[str, str]) -> Launch:
    outs = []
    for o in k.outs:
        if o.tensor in low:
            high = rounded(o.expr)
            rest = rounded(Op("sub", (o.expr, high), WIDE))
            outs += [replace(o, expr=high), replace(o, tensor=low[o.tensor], expr=rest)]
        else:
            outs.append(o)
    return replace(k, outs=outs)


def _reading(k: Launch, low: dict[str, str]) -> Launch:
    win = k.window
    rests = tuple(Leaf(low[e.tensor], e.index, e.dtype, e.line) for e in factors(k))
    return with_product(k, replace(win, parts=rests))
