"""Recurrent layers of many steps: one operation a layer and direction, which stays whole instead of being unrolled."""

# mypy: disable-error-code="no-any-return"
# NotImplemented is how a function leaves an operation whole
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

#: steps, over all layers and directions, up to which a layer is unrolled: each is traced, checked and designed
_MOST_STEPS = 256
CELLS = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def by_layers(cell: str) -> Callable[..., Any]:
    """A stack of layers, each in one or two directions, as calls of ``cell`` that take one layer in one direction."""

    def stack(
        x: Tensor, hx: Any, weights: Any, has_bias: Any = True, layers: int = 1, dropout: float = 0.0,
        train: bool = False, both: bool = False, batch_first: bool = False,
    ) -> Any:  # fmt: skip
        import torch

        if not isinstance(weights, (list, tuple)) or not isinstance(layers, int) or (dropout and train):
            return NotImplemented
        ways = 2 if both else 1
        if not is_long(x, layers * ways, batch_first) or layers * ways == 1:
            return NotImplemented
        each = len(weights) // (layers * ways)
        run = getattr(torch, cell)
        starts: Sequence[Tensor] = hx if cell == "lstm" else (hx,)
        ends: list[list[Tensor]] = [[] for _ in starts]
        time = 1 if batch_first else 0
        for layer in range(layers):
            made = []
            for way in range(ways):
                k = layer * ways + way
                own = [s[k : k + 1] for s in starts]
                given = x.flip(time) if way else x
                found = run(
                    given, own if cell == "lstm" else own[0], weights[k * each : (k + 1) * each],
                    has_bias, 1, 0.0, train, False, batch_first,
                )  # fmt: skip
                # the last state is the last output: asked of the layer, it would be a second call of it
                ends[0].append(found[0].select(time, -1).unsqueeze(0))
                for end, state in zip(ends[1:], found[2:], strict=True):
                    end.append(state)
                made.append(found[0].flip(time) if way else found[0])
            x = torch.cat(made, -1) if both else made[0]
        return (x, *(torch.cat(end, 0) for end in ends))

    return stack


def is_long(x: Tensor, runs: int, batch_first: bool) -> bool:
    """Would unrolling take more steps than are designed one by one?"""
    steps = x.shape[1 if batch_first and x.dim() == 3 else 0]
    return isinstance(steps, int) and steps * runs > _MOST_STEPS


def whole_cells(program: Any) -> set[str]:
    """The recurrent operations of an exported program that are to stay whole, by ATen's names."""
    found = set()
    for node in program.graph.nodes:
        name = str(node.target).removeprefix("aten.")
        if name in {f"{cell}.input" for cell in CELLS}:
            x = node.args[0].meta["val"]
            if is_long(x, int(node.args[4]) * (2 if node.args[7] else 1), bool(node.args[8])):
                found.add(name)
    return found


#: function of torch -> what is called in its place
RECURRENT: dict[str, Callable[..., Any]] = {cell: by_layers(cell) for cell in CELLS}
