"""Masks as indices: an assignment to the elements of a mask preserves shape; a selection of them has no static shape.

``y[mask] = v`` is ``where(mask, v, y)``: both have ``y``'s shape for any mask. ``y[mask]`` has as many elements as the
mask has trues, which no shape over Dims can express.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kernellab.capture.graph import Extent, Node, Ref
from kernellab.errors import CaptureError

#: descriptions of a line, by the operation in its trace
_SELECTS = {
    "index": "picks elements by a mask",
    "masked_select": "picks elements by a mask",
    "nonzero": "asks where a tensor is not zero",
}


def has_open_size(value: Any) -> bool:
    """Return whether a traced tensor's shape depends on values."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    return any(bool(free_unbacked_symbols(extent)) for extent in value.shape)


def open_size(task: str, line: int, op: str) -> CaptureError:
    """Return the error for an operation whose result has a size that depends on values."""
    name = op.split(".")[1].strip("_0123456789")
    what = _SELECTS.get(name, f"calls {name}")
    return CaptureError(
        f"Line {line} of {task!r} {what}: the result's size depends on the values, and a kernel's shapes may not.",
        "Keep every element: torch.where(mask, f(x), x), or torch.where(mask, x, 0).sum() / mask.sum() for a mean.",
    )


def mask_of(fx: Any, line: int) -> tuple[int, Any] | None:
    """Return the position and mask among the indices of a traced ``index_put``; None if all indices are numbers.

    Raises:
        CaptureError: a mask is used together with other indices.
    """
    if fx.target.__name__.split(".")[0] not in ("index_put", "_unsafe_index_put"):
        return None
    indexed = [(at, index) for at, index in enumerate(fx.args[1]) if index is not None]
    masks = [(at, index) for at, index in indexed if str(index.meta["val"].dtype) in ("torch.bool", "torch.uint8")]
    if not masks or not masks[0][1].meta["val"].shape:
        return None
    if len(indexed) > 1:
        raise CaptureError(
            f"Line {line} assigns by a mask together with other indices, which a sketch cannot express.",
            "Index by the mask alone, or write the assignment with torch.where.",
        )
    return masks[0]


def where_of_put(node: Node, at: int, mask: Sequence[Extent], value: Sequence[Extent]) -> list[Node]:
    """Rewrite ``index_put`` by one mask as nodes that end in ``where``, which has the node's name.

    Args:
        node: the index_put; its indices are a mask at position ``at`` and None.
        mask: the mask's shape.
        value: the shape of the assigned value, which broadcasts to (extents before the mask, trues, extents after it).

    Raises:
        CaptureError: the value has a separate element for each true of the mask.
    """
    after = len(node.shape) - at - len(mask)
    if len(value) > after and value[-after - 1] != 1:
        raise CaptureError(
            f"Line {node.line} assigns one value for each true of a mask, whose number depends on the values.",
            "Give the values the mask's shape and write torch.where(mask, values, x).",
        )
    base, indices, rest = node.args[:3]
    nodes: list[Node] = []

    def unsqueezed(ref: Ref, shape: Sequence[Extent], dtype: str, places: Sequence[int]) -> Ref:
        for place in places:
            shape = (*shape[:place], 1, *shape[place:])
            name = f"{node.name}_in_{len(nodes)}"
            nodes.append(Node(name, "aten.unsqueeze.default", (ref, place), (), shape, dtype, node.line))
            ref = Ref(name)
        return ref

    chosen = unsqueezed(indices[at], mask, "bool", [len(mask) + n for n in range(after)])
    if len(value) > after + 1:
        # the trues are one dimension of the value, but the mask's dimensions in the tensor
        rest = unsqueezed(rest, value, node.dtype, [len(value) - after - 1] * (len(mask) - 1))
    if (node.args[3] if len(node.args) > 3 else node.keyword("accumulate", False)) is True:
        added = Node(f"{node.name}_sum", "aten.add.Tensor", (base, rest), (), node.shape, node.dtype, node.line)
        nodes.append(added)
        rest = Ref(added.name)
    return [*nodes, replace(node, op="aten.where.self", args=(chosen, rest, base), kwargs=())]


__all__ = ["has_open_size", "mask_of", "open_size", "where_of_put"]
