"""The kind of a problem, from its captured graph alone: never from its name or its file."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kernellab.capture import Graph
from kernellab.errors import KernellabError
from kernellab.task import Task

#: first match wins; softmax and its like count as elementwise (activations) where nothing else is done
_KINDS: Mapping[str, str] = {
    "attention": r"scaled_dot_product|_attention",
    "conv": r"conv",
    "matmul": r"(^|_)(mm|bmm|addmm|baddbmm|matmul|linear|einsum|mv|addmv|dot)($|_)",
    "scan": r"^(cumsum|cumprod|cummax|cummin|logcumsumexp|flip_cumsum)",
    "loss": r"loss|nll|cross_entropy|kl_div|cosine_embedding|binary_cross_entropy",
}
_REDUCES = re.compile(
    r"norm|pool|^(sum|mean|amax|amin|max|min|argmax|argmin|prod|var|std|var_mean|logsumexp|any|all|median|topk|sort)$"
)
OTHER = "other"


def category(task: Task) -> str:
    """attention, conv, matmul, scan, loss, norm/pool/reduce, elementwise; ``other`` where no graph can be captured."""
    from kernellab.capture import capture

    try:
        return of_graph(capture(task))
    except KernellabError:
        return OTHER


def of_graph(graph: Graph) -> str:
    """The kind of a captured graph."""
    names = [n.op.split(".")[1] for n in graph.nodes if n.op.count(".") >= 1]
    if _is_attention(names):
        return "attention"
    for kind, pattern in _KINDS.items():
        if any(re.search(pattern, name) for name in names):
            return kind
    reduces = any(_REDUCES.search(name) for name in names)
    if reduces and _is_loss(graph):
        return "loss"
    return "norm/pool/reduce" if reduces else "elementwise"


def _is_attention(names: list[str]) -> bool:
    """A softmax between two products."""
    kinds = "".join("s" if "softmax" in n else "m" if re.search(_KINDS["matmul"], n) else "" for n in names)
    return re.search("m+s+m", kinds) is not None


def _is_loss(graph: Graph) -> bool:
    """One number made of two or more tensors."""
    shapes = [_shape(graph, ref.name) for ref in graph.outputs]
    tensors = [i for i in graph.inputs if i.shape]
    return len(shapes) == 1 and shapes[0] == () and len(tensors) >= 2


def _shape(graph: Graph, name: str) -> tuple[object, ...]:
    for node in graph.nodes:
        if node.name == name:
            return tuple(node.shape)
    return next((tuple(i.shape) for i in graph.inputs if i.name == name), ())
