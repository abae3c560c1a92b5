"""Replacement of expressions under others, in values and in whole launches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kernellab.designer.ir.expr import Dot, Expr, mapped
from kernellab.designer.ir.launch import Launch


class Rewrite:
    """Replaces each expression ``e`` by ``change(e)`` unless that is None; shared expressions stay shared."""

    def __init__(self, change: Callable[[Expr], Expr | None]) -> None:
        self.change = change
        #: each expression that was visited, which keeps its id in use, and what replaces it
        self._done: dict[int, tuple[Expr, Expr]] = {}

    def __call__(self, e: Expr) -> Expr:
        if id(e) not in self._done:
            result = self.change(e)
            if result is None:
                result = mapped(e, self)
            self._done[id(e)] = (e, result)
        return self._done[id(e)][1]


def with_product(k: Launch, product: Dot, value: Expr | None = None) -> Launch:
    """Return the launch with another product; ``value``, by default the product itself, replaces it in the outputs."""
    before, after = k.dot, product if value is None else value
    rewrite = Rewrite(lambda e: after if e is before else None)
    return replace(k, dot=product, outs=[replace(o, expr=rewrite(o.expr)) for o in k.outs])
