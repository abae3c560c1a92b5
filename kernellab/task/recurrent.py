"""Recurrent layers of many steps: one operation for each layer and direction, which is not unrolled.

In a trace it is a separate operator with a shape rule: ATen's operator is unrolled step by step for its shapes. In a
graph it has the name of ATen's operator, whose arguments it takes."""

# mypy: disable-error-code="no-any-return"
# a function returns NotImplemented to leave an operation as it is
from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

#: most steps, over all layers and directions, of an unrolled layer: each is traced, checked and designed; the same for
#: halves, whose states a launch of all steps would round at every step
_MOST_STEPS, _MOST_OF_HALVES = 16, 256
CELLS = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def by_layers(cell: str) -> Callable[..., Any]:
    """Return a stack of layers, each in one or two directions, as calls of ``cell`` for one layer in one direction."""

    def stack(
        x: Tensor, hx: Any, weights: Any, has_bias: Any = True, layers: int = 1, dropout: float = 0.0,
        train: bool = False, both: bool = False, batch_first: bool = False,
    ) -> Any:  # fmt: skip
        import torch

        if not isinstance(weights, (list, tuple)) or not isinstance(layers, int) or (dropout and train):
            return NotImplemented
        directions = 2 if both else 1
        each = len(weights) // (layers * directions)
        if not _is_long(x, layers * directions, batch_first) or each != (4 if has_bias else 2):
            return NotImplemented
        # the operator has no gradient: a differentiated layer is unrolled
        states = hx if isinstance(hx, (list, tuple)) else (hx,)
        if torch.is_grad_enabled() and any(t.requires_grad for t in (x, *states, *weights)):
            return NotImplemented
        run = _operators()[cell]
        starts: Sequence[Tensor] = hx if cell == "lstm" else (hx,)
        ends: list[list[Tensor]] = [[] for _ in starts]
        time = 1 if batch_first else 0
        for layer in range(layers):
            outputs = []
            for backwards in range(directions):
                k = layer * directions + backwards
                own_starts = [s[k : k + 1] for s in starts]
                steps = x.flip(time) if backwards else x
                result = run(
                    steps, own_starts if cell == "lstm" else own_starts[0], list(weights[k * each : (k + 1) * each]),
                    has_bias, 1, 0.0, train, False, batch_first,
                )  # fmt: skip
                # the last state is the last output; reading it from the layer would be a second call
                ends[0].append(result[0].select(time, -1).unsqueeze(0))
                for end, state in zip(ends[1:], result[2:], strict=True):
                    end.append(state)
                outputs.append(result[0].flip(time) if backwards else result[0])
            x = torch.cat(outputs, -1) if both else outputs[0]
        return (x, *(torch.cat(end, 0) for end in ends))

    return stack


def _is_long(x: Tensor, runs: int, batch_first: bool) -> bool:
    """Are there too many steps to unroll?"""
    steps = x.shape[1 if batch_first and x.dim() == 3 else 0]
    most = _MOST_OF_HALVES if x.element_size() < 4 else _MOST_STEPS
    return isinstance(steps, int) and steps * runs > most


@lru_cache(maxsize=1)
def _operators() -> dict[str, Any]:
    """Return the operator of each cell."""
    import torch
    from torch.utils.flop_counter import register_flop_formula

    library: Any = torch.library.Library("kernellab", "FRAGMENT")  # type: ignore[no-untyped-call]
    for cell in CELLS:
        state, ends = ("Tensor[]", "Tensor, Tensor") if cell == "lstm" else ("Tensor", "Tensor")
        library.define(
            f"{cell}(Tensor x, {state} hx, Tensor[] weights, bool has_bias, int layers, float dropout, bool train, "
            f"bool both, bool batch_first) -> (Tensor, {ends})"
        )
        torch.library.register_fake(f"kernellab::{cell}", _shapes, lib=library)
        register_flop_formula(getattr(torch.ops.kernellab, cell))(_flops)
    _KEPT.append(library)
    return {cell: getattr(torch.ops.kernellab, cell).default for cell in CELLS}


#: references: torch removes a library of operators without one
_KEPT: list[Any] = []


def _shapes(x: Tensor, hx: Any, weights: Any, *rest: Any) -> tuple[Tensor, ...]:
    """Return the shapes of one layer in one direction: an output for each step, and the last states."""
    states = hx if isinstance(hx, (list, tuple)) else (hx,)
    return (x.new_empty((*x.shape[:-1], states[0].shape[-1])), *(s.new_empty(s.shape) for s in states))


def _flops(x: Any, hx: Any, weights: Any, *rest: Any, **more: Any) -> int:
    """Return the FLOPs of its products from the shapes of its arguments."""
    return 2 * math.prod(x[:-1]) * sum(math.prod(w) for w in weights if len(w) == 2)


#: the operator of a cell in a traced program -> ATen's operator
ATEN = {f"kernellab.{cell}.default": f"aten.{cell}.input" for cell in CELLS}
#: function of torch -> its replacement
RECURRENT: dict[str, Callable[..., Any]] = {cell: by_layers(cell) for cell in CELLS}


def called(func: Any, replacements: Mapping[str, Callable[..., Any]], *args: Any, **kwargs: Any) -> Any:
    """Return the result of ``func``, or that of the function in ``replacements`` for its name, if that supports the
    call."""
    replacement = replacements.get(getattr(func, "__name__", ""))
    if replacement is None:
        return func(*args, **kwargs)
    if "input" in kwargs and not args:  # torch's name of the first argument
        args, kwargs = (kwargs["input"],), {name: value for name, value in kwargs.items() if name != "input"}
    result = replacement(*args, **kwargs) if _takes(replacement, args, kwargs) else NotImplemented
    return func(*args, **kwargs) if result is NotImplemented else result


def _takes(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError:
        return False
    return True
