"""How the operations of a backward are taken apart, so that a graph of plain operations is left.

torch's own decompositions are taken where an export reads what they are made of; norms and a convolution's backward
have rules here. Each rule is a function of the operation's arguments that gives its results.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch

from kernellab.model_integration.gradient.attention import safe_softmax, softmax
from kernellab.operations.aten import ATEN

#: taps of a channel's own window up to which a gradient of its weights has a sum for each; chosen, not measured
_FEW_TAPS = 49


def decompositions(saves: bool) -> dict[Any, Any]:
    """How operations of forward and backward are taken apart, down to pointwise operations, reductions, products and
    moves; ``saves``: a softmax as :mod:`kernellab.model_integration.gradient.attention` has it."""
    every = torch._decomp.decomposition_table
    table: dict[Any, Any] = {}
    for name in (row.name for row in ATEN.values() if row.apart_in_backward):
        packet = getattr(torch.ops.aten, name, None)
        overloads = [getattr(packet, overload) for overload in packet.overloads()] if packet else []
        table |= {op: every[op] for op in overloads if op in every}
    rules = {
        torch.ops.aten.native_layer_norm: _layer_norm, torch.ops.aten.native_group_norm: _group_norm,
        torch.ops.aten.convolution_backward: _convolution_backward,
    }  # fmt: skip
    if saves:
        rules |= {torch.ops.aten._softmax: softmax, torch.ops.aten._safe_softmax: safe_softmax}
    return table | {packet.default: rule for packet, rule in rules.items()}


def _layer_norm(x: Any, shape: Sequence[int], weight: Any, bias: Any, eps: float) -> tuple[Any, Any, Any]:
    """torch's own decomposition is of primitives that an export does not take."""
    dims = list(range(x.dim() - len(shape), x.dim()))
    wide = _wide(x)
    mean = wide.mean(dims, keepdim=True)
    centred = wide - mean
    rate = ((centred * centred).mean(dims, keepdim=True) + eps).rsqrt()
    normed = centred * rate
    normed = normed * weight if weight is not None else normed
    normed = normed + bias if bias is not None else normed
    return normed.to(x.dtype), mean, rate


def _wide(x: Any) -> Any:
    return x.float() if x.element_size() == 2 else x


def _group_norm(
    x: Any, weight: Any, bias: Any, samples: int, channels: int, positions: int, groups: int, eps: float
) -> tuple[Any, Any, Any]:
    """The same over the channels of a group and all positions."""
    normed, mean, rate = _layer_norm(x.reshape(samples, groups, -1), [channels // groups * positions], None, None, eps)
    normed = normed.reshape(x.shape)
    across = [1, channels, *([1] * (x.dim() - 2))]
    normed = normed * weight.reshape(across) if weight is not None else normed
    normed = normed + bias.reshape(across) if bias is not None else normed
    return normed.to(x.dtype), mean.squeeze(-1), rate.squeeze(-1)


def _convolution_backward(
    grad: Any, x: Any, weight: Any, bias: Any, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
    transposed: bool, output_padding: Sequence[int], groups: int, needs_grad: Sequence[bool],
) -> Any:  # fmt: skip
    """A convolution of the gradient for the input's, and one with samples summed as channels for the weight's."""
    convolution = torch.ops.aten.convolution.default
    to_x = to_weight = to_bias = None
    if needs_grad[0] and transposed:
        to_x = convolution(grad, weight, None, stride, padding, dilation, False, [0] * len(stride), groups)
    elif needs_grad[0]:
        sizes = zip(x.shape[2:], grad.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True)
        left = [n - ((m - 1) * s - 2 * p + d * (k - 1) + 1) for n, m, k, s, p, d in sizes]
        to_x = convolution(grad, weight, None, stride, padding, dilation, True, left, groups)
    if needs_grad[1]:
        # windows lie over what is the longer: of a transposed convolution its result
        read, above = (grad, x) if transposed else (x, grad)
        to_weight = _window_sums(read, above, weight.shape, stride, padding, dilation, groups)
    if needs_grad[2]:
        to_bias = grad.sum([0, *range(2, grad.dim())])
    return to_x, to_weight, to_bias


def _window_sums(
    read: Any, above: Any, shape: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
    groups: int,
) -> Any:  # fmt: skip
    """The sums, over samples and positions, of each element of ``above`` times the elements under its window."""
    kernel, rank = shape[2:], len(stride)
    if groups == read.shape[1] == above.shape[1] and math.prod(kernel) <= _FEW_TAPS:
        # a channel by itself: a sum for each tap, all of one read
        padded = torch.nn.functional.pad(read, [p for p in reversed(padding) for _ in range(2)])
        taps = []
        for tap in itertools.product(*map(range, kernel)):
            under = padded
            for dim, (k, n) in enumerate(zip(tap, above.shape[2:], strict=True)):
                start, step = k * dilation[dim], stride[dim]
                under = torch.ops.aten.slice.Tensor(under, dim + 2, start, start + (n - 1) * step + 1, step)
            taps.append((_wide(under) * _wide(above)).sum([0, *range(2, rank + 2)]))
        return torch.stack(taps, 1).reshape(shape).to(read.dtype)
    samples = read.transpose(0, 1)
    if groups > 1:
        by_group = read.reshape(read.shape[0], groups, read.shape[1] // groups, *read.shape[2:])
        samples = by_group.transpose(0, 2).flatten(1, 2)
    convolution = torch.ops.aten.convolution.default
    sums = convolution(samples, above.transpose(0, 1), None, dilation, padding, stride, False, [0] * rank, groups)
    for dim, size in enumerate(kernel, start=2):
        sums = sums.narrow(dim, 0, size)
    return sums.transpose(0, 1)
