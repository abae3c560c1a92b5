"""References of the families that are wide rather than deep: what the rules Designer must design beside the others."""

# ruff: noqa: E501 - a table: one case a line
from __future__ import annotations

from tests.designer.designer_cases import _task

_IMAGE = "torch.randn(2, 3, 8, 7)"
_BITS = "torch.randint(0, 1 << 20, (5, 9), dtype=torch.int32)"


def _steps(start: str, step: str, given: str) -> str:
    """A loop over the second dimension of ``x`` with the state ``h``."""
    body = f"    h = {start}\n    for t in range(x.shape[1]):\n        h = {step}\n    return h"
    return f"import torch\n\ndef reference(x, w):\n{body}\n\ndef inputs():\n    return ({given},)\n"


BREADTH: dict[str, str] = {
    # one kernel of many functions: compiling is most of what a case costs
    "trigonometry": _task(
        "x",
        "torch.tan(x), torch.atan(x), torch.asin(x / 4), torch.acos(x / 4), torch.atan2(x, x.abs() - 1), torch.atan2(x, x * 0 - 2.0)",
        "torch.randn(5, 9).clamp(-3.9, 3.9)",
    ),
    "hyperbolic": _task(
        "x",
        "torch.sinh(x), torch.cosh(x), torch.asinh(x), torch.acosh(x.abs() + 1), torch.atanh(x / 4)",
        "torch.randn(5, 9).clamp(-3.9, 3.9)",
    ),
    "special": _task(
        "x, y",
        "torch.erfc(x), torch.lgamma(x), torch.hypot(x, y), torch.hypot(x, torch.full_like(x, 2.0)), torch.copysign(x, y), torch.nextafter(x, y)",
        "torch.randn(5, 9), torch.randn(5, 9)",
    ),
    "of_signs": _task(
        "x, y",
        "torch.signbit(x), torch.heaviside(x, y), torch.frac(x * 3), torch.fmax(x / 0.0 - x / 0.0, y), torch.fmin(x, y)",
        "torch.randn(5, 9), torch.randn(5, 9)",
    ),
    "bits": _task("x, y", "x & y, x | y, x ^ y, ~x, (x > y) & (y > 9)", f"{_BITS}, {_BITS}"),
    "shifts": _task(
        "x, n",
        "x << n, (x - 500000) >> n, torch.stack((x & 15, (x >> 4) & 15), -1).flatten(-2).float()",
        f"{_BITS}, torch.randint(0, 12, (5, 9), dtype=torch.int32)",
    ),
    # outputs in the reference's order, whichever launch writes them first
    "outputs_swapped": _task("x", "x + 1, x.sum()", "torch.randn(33, 65)"),
    "gate_and_places": _task(
        "x", "(lambda w, i: (w / w.sum(-1, keepdim=True), i))(*x.softmax(-1).topk(2))", "torch.randn(33, 65)"
    ),
    "outputs_as_dict": _task("x", "{'b': x * 2, 'a': x.sum(1), 'c': x.sum()}", "torch.randn(33, 65)"),
    # numbers that are known, and many steps
    "default_exponents": _task(
        "x, t, gamma: float = 2.0, alpha: float = 0.25",
        "torch.relu(x) ** gamma + alpha * (1 - torch.sigmoid(x)) ** gamma * t",
        "torch.randn(33, 65), torch.rand(33, 65)",
    ),
    "recurrence": _steps(
        "torch.zeros_like(x[:, 0])", "torch.tanh(x[:, t] + h * w)", "torch.randn(4, 48, 9), torch.randn(9)"
    ),
    "recurrent_products": _steps(
        "torch.zeros(4, 9)", "torch.tanh(x[:, t] + h @ w)", "torch.randn(4, 5, 9), torch.randn(9, 9)"
    ),
    # views that no rectangle states, tables, and places that are computed
    "strided": _task(
        "x", "x.as_strided((4, 3), (1, 9), 2), x[:, 1:7].reshape(-1), x.flip(1).reshape(15, 3)", "torch.randn(5, 9)"
    ),
    "heads_of_packed": _task(
        "x", "x.view(4, 3, 3, 2, 4).permute(2, 1, 3, 0, 4)[1].reshape(6, 4, 4)", "torch.randn(4, 3, 24)"
    ),
    "windows_of_rolled": _task(
        "x",
        "torch.roll(x, (-2, -2), (1, 2)).view(2, 2, 4, 2, 4, 3).permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, 4, 3)",
        "torch.randn(2, 8, 8, 3)",
    ),
    "circular": _task("x", "F.pad(x, (2, 1, 1, 1), mode='circular')", _IMAGE),
    "tables": _task(
        "x",
        "x.index_select(1, torch.tensor([3, 1, 2])) * torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]).unsqueeze(1)",
        "torch.randn(5, 9)",
    ),
    # pictures
    "resized": _task(
        "x", "F.interpolate(x, scale_factor=2, mode='bilinear'), F.interpolate(x, size=(5, 3), mode='nearest')", _IMAGE
    ),
    "sampled": _task("x, g", "F.grid_sample(x, g)", f"{_IMAGE}, torch.rand(2, 4, 4, 2) * 1.8 - 0.9"),
    "uneven_pooling": _task("x", "F.adaptive_avg_pool2d(x, 5)", _IMAGE),
    "batch_statistics": _task("x", "F.batch_norm(x, None, None, training=True)", _IMAGE),
    # integers, and order
    "products_of_integers": _task(
        "a, b",
        "a.int() @ b.int(), torch._int_mm(a, b)",
        "torch.randint(-9, 9, (32, 16), dtype=torch.int8), torch.randint(-9, 9, (16, 24), dtype=torch.int8)",
    ),
    "products_of_bytes": _task(
        "a, b, s, t",
        "(a.float() @ b.float().t()) * s[:, None] * t, (a @ b.t()).float(), a.long() @ b.long().t() * 1_000_003",
        "torch.randint(-128, 128, (32, 48), dtype=torch.int8), torch.randint(-128, 128, (40, 48), dtype=torch.int8), "
        "torch.rand(32), torch.rand(40)",
    ),
    "packed_pairs_by_a_vector": _task(
        "x, p, s",
        "((torch.stack((p & 15, p >> 4), -1).reshape(24, 4, 16).float() - 8) * s[..., None]).reshape(24, 64) @ x",
        "torch.randn(64), torch.randint(0, 256, (24, 32), dtype=torch.uint8), torch.rand(24, 4)",
    ),
    "attention_over_scaled_bytes": _task(
        "q, k, v, s, t",
        "F.scaled_dot_product_attention(q, k.float() * (1 / s)[..., None], v.float() * t.reciprocal()[..., None])",
        "torch.randn(2, 3, 16), torch.randint(-9, 9, (2, 37, 16), dtype=torch.int8), "
        "torch.randint(-9, 9, (2, 37, 16), dtype=torch.int8), torch.rand(2, 37) + 1, torch.rand(2, 37) + 1",
    ),
    "sorted_places": _task(
        "s, v",
        "torch.searchsorted(s, v), torch.bucketize(v, s[0], right=True)",
        "torch.arange(12).float().repeat(5, 1), torch.rand(5, 9) * 12",
    ),
    "running_places": _task("x", "x.cummax(1)", "torch.randn(5, 9)"),
    "logical_xor": _task("x, y", "torch.logical_xor(x, y)", "torch.randn(5, 9).round(), torch.randn(5, 9).round()"),
}
