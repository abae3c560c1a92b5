"""Behaviour of eager on this machine, for strict precision.

torch's flags allow cuDNN to use TF32 for float32 convolutions, and cuDNN decides by shape and device: on an H200 it
does for 65 of KernelBench's 93 graphs with convolutions, at full size. A strict kernel must match eager to 1e-4; where
eager used TF32, only a kernel that rounds in the same way can.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kernellab.capture import Ref, capture
from kernellab.capture.graph import Node
from kernellab.designer.frontend.convolutions import CONVOLUTIONS
from kernellab.errors import KernellabError
from kernellab.options.fidelity import STRICT
from kernellab.target import Backend, Target
from kernellab.task import Task

if TYPE_CHECKING:
    import torch

#: relative Frobenius distance beyond which two results are not two orders of the same float32 sum: TF32's is 2.9e-4
_APART = 2e-5


def as_asked(task: Task, fidelity: str, target: Target) -> Task:
    """Return ``task`` with the requested ``fidelity``; if it is strict and ``target`` is this machine's GPU, also with
    the behaviour of eager observed there."""
    import torch

    looks = fidelity == STRICT and target.backend is Backend.CUDA and torch.cuda.is_available()
    return replace(task, fidelity=fidelity, rounded=rounded(task) if looks else frozenset())


def rounded(task: Task, device: str = "cuda") -> frozenset[str]:
    """Return the weights, by their names in the captured graph, whose float32 convolutions eager computes in TF32 on
    ``device``, at the task's own sizes. Empty if unknown: the reference cannot be captured, or memory is short."""
    if task.precision.get("conv", "tf32") != "tf32":
        return frozenset()
    try:
        graph = capture(task)
        sizes = task.module().default_sizes()
        extents = {i.name: i.shape for i in graph.inputs} | {n.name: n.shape for n in graph.nodes}

        def shape(ref: Ref) -> tuple[int, ...]:
            return tuple(e if isinstance(e, int) else int(e.value(sizes)) for e in extents[ref.name])

        rounds_by_weight: dict[str, bool] = {}
        for node in graph.nodes:
            if node.aten not in CONVOLUTIONS or node.dtype != "float32":
                continue
            image, weight = node.args[:2]
            rest = tuple(tuple(a) if isinstance(a, Sequence) and not isinstance(a, str) else a for a in node.args[3:])
            # with a bias cuDNN may choose another algorithm
            rounds = _rounds(node.op, shape(image), shape(weight), _bias(node, shape), rest, device)
            rounds_by_weight[weight.name] = rounds_by_weight.get(weight.name, True) and rounds
    except (KernellabError, KeyError, TypeError):
        return frozenset()
    return frozenset(name for name, rounds in rounds_by_weight.items() if rounds)


def _bias(node: Node, shape: Callable[[Ref], tuple[int, ...]]) -> int:
    """Return the number of elements of a convolution's bias; 0 without one."""
    bias = node.args[2] if len(node.args) > 2 else None
    return shape(bias)[0] if isinstance(bias, Ref) else 0


@lru_cache(maxsize=256)
def _rounds(
    op: str, image: tuple[int, ...], weight: tuple[int, ...], bias: int, rest: tuple[Any, ...], device: str
) -> bool:
    """Return whether the result differs by TF32's rounding from the one with TF32 disallowed."""
    import torch

    _, name, overload = op.split(".")
    function = getattr(getattr(torch.ops.aten, name), overload)
    arguments = [list(a) if isinstance(a, tuple) else a for a in rest]
    generator = torch.Generator(device).manual_seed(0)
    try:
        x, w = (torch.randn(s, device=device, generator=generator) for s in (image, weight))
        b = torch.zeros(bias, device=device) if bias else None

        def result(allowed: bool) -> torch.Tensor:
            with torch.no_grad(), torch.backends.cudnn.flags(enabled=True, allow_tf32=allowed):
                return function(x, w, b, *arguments)  # type: ignore[no-any-return]

        free, exact = result(True), result(False)
        return float(free.sub_(exact).norm()) > _APART * float(exact.norm())
    except (RuntimeError, TypeError):
        return False


__all__ = ["as_asked", "rounded"]
