"""An exported operator below autograd: forwards its kernel, backwards the kernel of its gradients or the reference's
gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from .torch_op import Operator


class Differentiable(torch.autograd.Function):
    """The kernel forwards; backwards the gradients' kernel, or the reference's gradient."""

    @staticmethod
    def forward(ctx: Any, operator: Operator, *args: Any) -> Any:
        ctx.operator = operator
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        ctx.numbers = [a for a in args if not isinstance(a, torch.Tensor)]
        ctx.needs_grad = [t.requires_grad for t in tensors]
        device = tensors[0].device.type
        ctx.autocast = device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device)
        # its kernels have the task's numbers built in
        ctx.training = operator.training if ctx.numbers == operator.numbers else None
        with torch._C._AutoDispatchBelowAutograd():
            if ctx.training is not None:
                ctx.training.set_check_values(operator.check_values)
                results, kept = ctx.training.run(len(operator.outputs), tensors)
                ctx.save_for_backward(*tensors, *kept)
                return results
            ctx.save_for_backward(*tensors)
            return operator.op(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        device, dtype, enabled = ctx.autocast
        if torch.is_autocast_enabled(device) == enabled:
            return Differentiable._back(ctx, grads)
        # a reference that runs again gives what it gave
        with torch.autocast(device, dtype, enabled):
            return Differentiable._back(ctx, grads)

    @staticmethod
    def _back(ctx: Any, grads: Sequence[Any]) -> Any:
        operator, count = ctx.operator, len(ctx.needs_grad)
        tensors, kept = ctx.saved_tensors[:count], ctx.saved_tensors[count:]
        if torch.is_grad_enabled():
            return (None, *operator.differentiable_gradients(grads, tensors, ctx.numbers, ctx.needs_grad))
        if ctx.training is not None:
            computed = iter(ctx.training.gradients(grads, tensors, kept))
            return (None, *(next(computed) if p.is_tensor else None for p in operator.parameters))
        gradients = iter(operator._backward(list(grads), list(tensors), ctx.numbers, ctx.needs_grad))
        needs_grad = iter(ctx.needs_grad)
        return (None, *(next(gradients) if p.is_tensor and next(needs_grad) else None for p in operator.parameters))


__all__ = ["Differentiable"]
