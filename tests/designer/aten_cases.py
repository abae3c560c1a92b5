"""The operations of ATen that practitioners use most, each in a task of one line: all are designed by rules alone.

    python -m tests.designer.aten_cases

prints the table: the operation, and whether its design is right by rules, right with a call of the framework, wrong or
refused. The list is the operations that the four KernelBench levels, AKG's suites and the common networks of torchvision
and transformers call, by count; those that draw numbers or have a size that values decide are left out.
"""

# ruff: noqa: E501 - a table: one case a line
from __future__ import annotations

import sys
import warnings
from collections import Counter

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from tests.designer.coverage import CPU, answer, lines, task_of

_X = "torch.randn(5, 9)"
_XY = "torch.randn(5, 9), torch.randn(5, 9)"
_IMAGE = "torch.randn(2, 3, 8, 8)"
Line = tuple[str, str, str]

#: operations whose case stands in the table of tests/designer/coverage.py under the same name
_THERE = (
    "abs", "neg", "sign", "exp", "exp2", "log", "log2", "log10", "log1p", "expm1", "sqrt", "rsqrt", "sin", "cos", "tan",
    "tanh", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "erf", "erfc", "erfinv", "lgamma", "digamma",
    "i0", "sigmoid", "relu", "floor", "ceil", "round", "trunc", "frac", "square", "reciprocal", "isnan", "isinf", "isfinite",
    "signbit", "sinc", "add", "sub", "mul", "div", "pow", "maximum", "minimum", "remainder", "fmod", "floor_divide", "atan2",
    "hypot", "copysign", "fmax", "fmin", "heaviside", "logaddexp", "xlogy", "eq", "ne", "lt", "le", "gt", "ge",
    "logical_and", "logical_or", "logical_xor", "gelu", "silu", "mish", "elu", "selu", "celu", "leaky_relu", "softplus",
    "softsign", "softshrink", "hardshrink", "hardtanh", "hardswish", "hardsigmoid", "relu6", "logsigmoid", "prelu_1", "glu",
    "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "shift_left", "shift_right", "sum", "mean", "amax", "prod",
    "var", "std", "logsumexp", "norm", "argmax", "argmin", "any", "all", "aminmax", "median", "kthvalue", "histc", "softmax",
    "log_softmax", "cumsum", "cumprod", "cummax_indices", "cummin", "logcumsumexp", "sort", "topk", "searchsorted",
    "bucketize", "roll", "unfold", "fold", "flip", "as_strided", "tile", "tril", "diag", "pixel_shuffle", "reflect",
    "replicate", "cdist", "adaptive_avg_uneven", "adaptive_max_uneven", "nearest", "bilinear", "grid_sample", "max_pool",
    "max_pool_indices", "avg_pool", "batch_norm_training", "group_norm", "conv2d", "embedding_bag_rows", "embedding",
    "scatter_add", "scatter_amax", "index_add", "take", "masked_fill", "cross_entropy", "smooth_l1", "bce_logits", "addmv",
    "addcmul", "lerp", "baddbmm", "clamp", "where",
)  # fmt: skip
_HERE: dict[str, Line] = {
    "mm": ("x, y", "x @ y.T", _XY),
    "bmm": ("x, y", "torch.bmm(x, y)", "torch.randn(2, 3, 5), torch.randn(2, 5, 4)"),
    "addmm": ("b, x, y", "torch.addmm(b, x, y)", "torch.randn(7), torch.randn(5, 9), torch.randn(9, 7)"),
    "linear": ("x, w, b", "F.linear(x, w, b)", "torch.randn(2, 5, 9), torch.randn(7, 9), torch.randn(7)"),
    "cat": ("x, y", "torch.cat((x, y), 1)", _XY),
    "stack": ("x, y", "torch.stack((x, y), 1)", _XY),
    "permute": ("x", "x.permute(2, 0, 1)", "torch.randn(2, 3, 4)"),
    "index_select": ("x, i", "x.index_select(0, i)", f"{_X}, torch.randint(0, 5, (7,))"),
    "gather": ("x, i", "x.gather(1, i)", f"{_X}, torch.randint(0, 9, (5, 4))"),
    "layer_norm": ("x, w, b", "F.layer_norm(x, (9,), w, b)", f"{_X}, torch.randn(9), torch.randn(9)"),
    "rms_norm": ("x, w", "F.rms_norm(x, (9,), w, 1e-6)", f"{_X}, torch.randn(9)"),
    "scaled_dot_product_attention": ("q, k, v", "F.scaled_dot_product_attention(q, k, v, is_causal=True)", "torch.randn(1, 2, 6, 4), torch.randn(1, 2, 6, 4), torch.randn(1, 2, 6, 4)"),
    "conv1d": ("x, w", "F.conv1d(x, w, padding=1)", "torch.randn(2, 3, 8), torch.randn(4, 3, 3)"),
    "conv3d": ("x, w", "F.conv3d(x, w)", "torch.randn(1, 2, 4, 4, 4), torch.randn(3, 2, 3, 3, 3)"),
    "conv_transpose2d": ("x, w", "F.conv_transpose2d(x, w, stride=2)", "torch.randn(1, 3, 4, 4), torch.randn(3, 2, 3, 3)"),
    "constant_pad_nd": ("x", "F.pad(x, (1, 2), value=3.0)", _X),
}  # fmt: skip


def cases() -> dict[str, Line]:
    """Operation -> arguments, expression and inputs of its task."""
    table = {name: line for group in lines().values() for name, line in group.items()}
    return {name: table[name] for name in _THERE} | _HERE


def state_of(name: str, line: Line) -> tuple[str, str]:
    """``right``, ``composed`` (right with a call of the framework), ``wrong``, ``refused`` or ``broken``; the reason."""
    state, reason = answer(name, line)
    if state == "right" and RulesDesigner().design(DesignBrief(task_of(name, line), CPU)).library_calls:
        return "composed", ""
    return state, reason


def main() -> None:
    warnings.simplefilter("ignore")
    totals: Counter[str] = Counter()
    print("| operation | task | state |\n|---|---|---|")
    for name, line in cases().items():
        state, reason = state_of(name, line)
        totals[state] += 1
        print(f"| {name} | `{line[1]}` | {state}{': ' if reason else ''}{' '.join(reason.split())[:200]} |")
        sys.stdout.flush()
    print(f"\n{totals.total()} operations: {dict(totals)}")


if __name__ == "__main__":
    main()
