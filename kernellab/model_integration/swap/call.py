"""A kernel as something that a model can call: eagerly, under autograd, and inside torch.compile.

Eagerly it is the kernel's own function. Where gradients are asked for, the backward is the reference's, which is run
again (Chen et al. 2016, Training Deep Nets with Sublinear Memory Cost), unless the kernel has its own. Inside
torch.compile it is an operator of torch's registry, whose fake kernel is the reference.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from kernellab.model_integration.regions import Region
from kernellab.model_integration.task_text import reference_text

_NAMESPACE = "kernellab_swap"


@dataclass(frozen=True)
class Replacement:
    """What takes the place of ``region``: ``function(*inputs)`` gives its outputs as a tuple; ``reference`` does as the
    model did. ``backward(gradients, inputs)`` gives the inputs' gradients, None where it is the reference's."""

    region: Region
    function: Callable[..., tuple[Tensor, ...]]
    reference: Callable[..., tuple[Tensor, ...]]
    label: str
    backward: Callable[..., Sequence[Tensor | None]] | None = None


def replacement_of(region: Region, kernel: Callable[..., Any], label: str, backward: Any = None) -> Replacement:
    """``kernel`` in the place of ``region``; it gives one tensor, or a tuple in the order of the region's outputs."""
    reference = compiled_reference(region)

    def function(*args: Tensor) -> tuple[Tensor, ...]:
        outputs = kernel(*args)
        return tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)

    return Replacement(region, function, reference, label, backward)


def compiled_reference(region: Region) -> Callable[..., tuple[Tensor, ...]]:
    """The region as the model computes it, as a function of its inputs."""
    space: dict[str, Any] = {"torch": torch}
    exec(reference_text(region), space)  # the text that :func:`reference_text` has just written
    written = space["reference"]
    single = len(region.outputs) == 1

    def reference(*args: Tensor) -> tuple[Tensor, ...]:
        outputs = written(*args)
        return (outputs,) if single else tuple(outputs)

    return reference


def callable_of(replacement: Replacement) -> Callable[..., tuple[Tensor, ...]]:
    """``replacement`` as a function that works eagerly, under autograd and inside torch.compile."""
    op = _registered(replacement)
    single = len(replacement.region.outputs) == 1
    eager = eagerly(replacement)

    def call(*args: Tensor) -> tuple[Tensor, ...]:
        if torch.compiler.is_compiling():
            results = op(*args)
            return (results,) if single else tuple(results)
        return eager(*args)

    return call


def eagerly(replacement: Replacement) -> Callable[..., tuple[Tensor, ...]]:
    """``replacement`` as a function that works eagerly and under autograd."""
    function = replacement.function
    trained = _trained(replacement)

    def call(*args: Tensor) -> tuple[Tensor, ...]:
        if torch.is_grad_enabled() and any(a.requires_grad for a in args):
            return trained(*args)
        return function(*args)

    return call


def gradients(
    replacement: Replacement, args: Sequence[Tensor], grads: Sequence[Tensor | None]
) -> tuple[Tensor | None, ...]:
    """The gradients of the inputs ``args`` for those of the outputs, in order; None where there is none."""
    if replacement.backward is not None:
        return tuple(replacement.backward(grads, args))
    with torch.enable_grad():
        leaves = [a.detach().requires_grad_(a.is_floating_point() or a.is_complex()) for a in args]
        outputs = replacement.reference(*leaves)
    return through(outputs, leaves, grads)


def through(
    outputs: Sequence[Tensor], leaves: Sequence[Tensor], grads: Sequence[Tensor | None]
) -> tuple[Tensor | None, ...]:
    """Autograd's gradients of ``leaves`` from those of ``outputs``; None where there is none."""
    pairs = [(o, g) for o, g in zip(outputs, grads, strict=True) if g is not None and o.requires_grad]
    trainable = [leaf for leaf in leaves if leaf.requires_grad]
    if not pairs or not trainable:
        return (None,) * len(leaves)
    computed = iter(torch.autograd.grad([o for o, _ in pairs], trainable, [g for _, g in pairs], allow_unused=True))
    return tuple(next(computed) if leaf.requires_grad else None for leaf in leaves)


def _trained(replacement: Replacement) -> Callable[..., tuple[Tensor, ...]]:
    class Swapped(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *args: Tensor) -> tuple[Tensor, ...]:
            ctx.save_for_backward(*args)
            return replacement.function(*args)

        @staticmethod
        def backward(ctx: Any, *grads: Tensor | None) -> Any:
            return gradients(replacement, ctx.saved_tensors, grads)

    def trained(*args: Tensor) -> tuple[Tensor, ...]:
        outputs: tuple[Tensor, ...] = Swapped.apply(*args)  # type: ignore[no-untyped-call]
        return outputs

    return trained


@lru_cache(maxsize=1)
def _library() -> Any:
    """The operators' registry; what is registered lives as long as this object."""
    return torch.library.Library(_NAMESPACE, "FRAGMENT")  # type: ignore[no-untyped-call]


def _registered(replacement: Replacement) -> Callable[..., Any]:
    """An operator of torch's registry that calls the kernel."""
    library, region = _library(), replacement.region
    readable = "".join(c if c.isalnum() else "_" for c in replacement.label)[:40]
    name = f"{readable}_{hashlib.sha256(f'{id(replacement)}:{replacement.label}'.encode()).hexdigest()[:12]}"
    single = len(region.outputs) == 1
    arguments = ", ".join(f"Tensor x{i}" for i in range(len(region.inputs)))
    returns = "Tensor" if single else f"({', '.join('Tensor' for _ in region.outputs)})"
    library.define(f"{name}({arguments}) -> {returns}")
    qualified_name = f"{_NAMESPACE}::{name}"

    def as_declared(function: Callable[..., tuple[Tensor, ...]]) -> Callable[..., Any]:
        return lambda *args: function(*args)[0] if single else function(*args)

    for key in ("CPU", "CUDA"):
        library.impl(name, as_declared(replacement.function), key)
    torch.library.register_fake(qualified_name, as_declared(replacement.reference), lib=library)

    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        return gradients(replacement, ctx.saved_tensors, grads)

    def setup(ctx: Any, inputs: tuple[Tensor, ...], output: Any) -> None:
        ctx.save_for_backward(*inputs)

    torch.library.register_autograd(qualified_name, backward, setup_context=setup, lib=library)
    op: Callable[..., Any] = getattr(getattr(torch.ops, _NAMESPACE), name).default
    return op


__all__ = ["Replacement", "callable_of", "compiled_reference", "eagerly", "gradients", "replacement_of", "through"]
