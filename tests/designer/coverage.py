"""How much of torch's API the rules Designer covers: one-liners, designed, run in the gate, and counted.

    python -m tests.designer.coverage [--only WORD] [--group NAME] [--run]

Each line is one expression of a task; the answer is ``right`` (designed, and right in the sketch gate), ``wrong``,
``refused`` with the sentence, or ``broken`` where something else than a clear refusal was raised. ``--run`` also
compiles the C++ kernel and compares it with torch.
"""

# ruff: noqa: E501 - a table: one case a line
from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

import torch

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.errors import KernellabError
from kernellab.lowering import lower
from kernellab.records import GateState
from kernellab.sketch.check import load_program
from kernellab.sketch.gate import gate
from kernellab.sketch.program.bind import bind
from kernellab.target import Backend, Chip, Target
from kernellab.task import Task, load_task

CPU = Target("cpp", Backend.CPU, Chip("a CPU", "cpu", 2, simd_bits=256, l1_bytes=32 << 10, l2_bytes=1 << 20))

_X = "torch.randn(5, 9)"
_XY = "torch.randn(5, 9), torch.randn(5, 9)"
_POSITIVE = "torch.rand(5, 9) + 0.1"
_UNIT = "torch.rand(5, 9) * 1.8 - 0.9"
_BITS = "torch.randint(0, 256, (5, 9), dtype=torch.int32), torch.randint(0, 256, (5, 9), dtype=torch.int32)"
_SHIFTS = "torch.randint(0, 256, (5, 9), dtype=torch.int32), torch.randint(0, 8, (5, 9), dtype=torch.int32)"
_ONE = "torch.randint(0, 256, (5, 9), dtype=torch.int32)"
_IMAGE = "torch.randn(2, 3, 8, 8)"
_UNARY = [
    "abs",
    "neg",
    "sign",
    "exp",
    "exp2",
    "log",
    "log2",
    "log10",
    "log1p",
    "expm1",
    "sqrt",
    "rsqrt",
    "sin",
    "cos",
    "tanh",
    "erf",
    "sigmoid",
    "relu",
    "floor",
    "ceil",
    "round",
    "trunc",
    "square",
    "reciprocal",
    "isnan",
    "isinf",
    "isfinite",
    "positive",
    "logit_eps",
]
_TRIGONOMETRY = [
    "tan",
    "atan",
    "sinh",
    "cosh",
    "asinh",
    "erfc",
    "frac",
    "signbit",
    "lgamma",
    "deg2rad",
    "rad2deg",
    "sinc",
    "i0",
    "digamma",
]
_IN_UNIT = ["asin", "acos", "atanh", "erfinv"]
_BINARY = [
    "add",
    "sub",
    "mul",
    "div",
    "pow",
    "maximum",
    "minimum",
    "remainder",
    "floor_divide",
    "atan2",
    "hypot",
    "copysign",
    "fmax",
    "fmin",
    "fmod",
    "nextafter",
    "heaviside",
    "logaddexp",
    "logaddexp2",
    "xlogy",
    "ldexp",
    "float_power",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "logical_and",
    "logical_or",
    "logical_xor",
]
_ACTIVATIONS = [
    "relu",
    "gelu",
    "silu",
    "mish",
    "elu",
    "selu",
    "celu",
    "leaky_relu",
    "softplus",
    "softsign",
    "tanhshrink",
    "softshrink",
    "hardshrink",
    "hardtanh",
    "hardswish",
    "hardsigmoid",
    "relu6",
    "logsigmoid",
    "threshold_1",
    "prelu_1",
    "glu",
]


def lines() -> dict[str, dict[str, tuple[str, str, str]]]:
    """Group -> name -> (arguments, expression, inputs)."""
    unary = {n: ("x", f"torch.{n}(x)", _POSITIVE if "log" in n or "sqrt" in n else _X) for n in _UNARY + _TRIGONOMETRY}
    unary["logit_eps"] = ("x", "torch.logit(x, 0.01)", "torch.rand(5, 9)")
    unary |= {n: ("x", f"torch.{n}(x)", _UNIT) for n in _IN_UNIT}
    unary["acosh"] = ("x", "torch.acosh(x)", "torch.rand(5, 9) + 1.1")
    binary = {n: ("x, y", f"torch.{n}(x, y)", _XY) for n in _BINARY}
    binary["pow"] = ("x, y", "torch.pow(x, y)", f"{_POSITIVE}, torch.randn(5, 9)")
    binary["xlogy"] = ("x, y", "torch.xlogy(x, y)", f"{_X}, {_POSITIVE}")
    activations = {n: ("x", f"F.{n}(x)", _X) for n in _ACTIVATIONS}
    activations["threshold_1"] = ("x", "F.threshold(x, 0.1, 20.0)", _X)
    activations["prelu_1"] = ("x, w", "F.prelu(x, w)", f"{_X}, torch.rand(9)")
    activations["glu"] = ("x", "F.glu(x)", "torch.randn(5, 8)")
    return {
        "unary": unary,
        "binary": binary,
        "activation": activations,
        "integer": {
            "bitwise_and": ("x, y", "x & y", _BITS),
            "bitwise_or": ("x, y", "x | y", _BITS),
            "bitwise_xor": ("x, y", "x ^ y", _BITS),
            "bitwise_not": ("x", "~x", _ONE),
            "shift_left": ("x, y", "x << y", _SHIFTS),
            "shift_right": ("x, y", "x >> y", _SHIFTS),
            "int4_unpack": ("x", "torch.stack((x & 15, x >> 4), -1).flatten(-2).float()", _ONE),
            "integer_product": (
                "a, b", "a.int() @ b.int()",
                "torch.randint(-9, 9, (5, 16), dtype=torch.int8), torch.randint(-9, 9, (16, 7), dtype=torch.int8)",
            ),
            "int_mm": (
                "a, b", "torch._int_mm(a, b)",
                "torch.randint(-9, 9, (32, 16), dtype=torch.int8), torch.randint(-9, 9, (16, 24), dtype=torch.int8)",
            ),
            "integer_remainder": ("x, y", "x % (y + 1)", _BITS),
            "gcd": ("x, y", "torch.gcd(x, y)", _BITS),
            "integer_abs": ("x, y", "(x - y).abs()", _BITS),
        },
        "reduction": {
            "sum": ("x", "x.sum()", _X), "mean": ("x", "x.mean(0)", _X), "amax": ("x", "x.amax(-1)", _X),
            "prod": ("x", "x.prod(1)", _X), "var": ("x", "x.var(-1)", _X), "std": ("x", "x.std(0)", _X),
            "logsumexp": ("x", "x.logsumexp(-1)", _X), "norm": ("x", "x.norm(dim=-1)", _X),
            "argmax": ("x", "x.argmax(-1)", _X), "argmin": ("x", "x.argmin(0)", _X), "any": ("x", "(x > 1).any(1)", _X),
            "all": ("x", "(x > -1).all(1)", _X), "max_with_indices": ("x", "x.max(1)", _X),
            "aminmax": ("x", "torch.aminmax(x, dim=1)", _X), "count_nonzero": ("x", "torch.count_nonzero(x, 1)", _X),
            "median": ("x", "x.median(1).values", _X), "kthvalue": ("x", "x.kthvalue(3, 1).values", _X),
            "nanmean": ("x", "x.nanmean(1)", _X), "nansum": ("x", "x.nansum(1)", _X),
            "quantile": ("x", "x.quantile(0.3, dim=1)", _X), "cov": ("x", "torch.cov(x)", _X),
            "histc": ("x", "torch.histc(x, 4, -2.0, 2.0)", _X), "trace": ("x", "torch.trace(x)", _X),
            "softmax": ("x", "x.softmax(-1)", _X), "log_softmax": ("x", "x.log_softmax(0)", _X),
        },
        "scan": {
            "cumsum": ("x", "x.cumsum(1)", _X), "cumprod": ("x", "x.cumprod(0)", _X),
            "cummax_values": ("x", "x.cummax(1).values", _X), "cummax_indices": ("x", "x.cummax(1)", _X),
            "logcumsumexp": ("x", "x.logcumsumexp(1)", _X), "cummin": ("x", "x.cummin(1).values", _X),
            "diff": ("x", "x.diff(dim=1)", _X), "trapezoid": ("x", "torch.trapezoid(x, dim=1)", _X),
        },
        "order": {
            "sort": ("x", "x.sort(dim=1, stable=True)", _X), "argsort": ("x", "x.argsort(dim=1, stable=True)", _X),
            "topk": ("x", "x.topk(3, 1).values", _X), "searchsorted": (
                "s, v", "torch.searchsorted(s, v)", "torch.arange(12).float(), torch.rand(5, 9) * 12"),
            "searchsorted_rows": (
                "s, v", "torch.searchsorted(s, v, right=True)",
                "torch.arange(12).float().repeat(5, 1), torch.rand(5, 9) * 12"),
            "bucketize": ("v, s", "torch.bucketize(v, s)", "torch.rand(5, 9) * 12, torch.arange(12).float()"),
            "msort": ("x", "torch.msort(x)", _X), "isin": ("x, y", "torch.isin(x, y[0])", _BITS),
        },
        "movement": {
            "roll": ("x", "x.roll((1, -2), (0, 1))", _X),
            "roll_of_three": ("x", "torch.roll(x, (1, 2), (1, 2))", "torch.randn(2, 6, 6, 3)"),
            "window_partition": (
                "x", "torch.roll(x, (-2, -2), (1, 2)).view(2, 2, 4, 2, 4, 3).permute(0, 1, 3, 2, 4, 5)"
                ".reshape(-1, 4, 4, 3)", "torch.randn(2, 8, 8, 3)"),
            "window_reverse": (
                "x", "x.view(2, 2, 2, 4, 4, 3).permute(0, 1, 3, 2, 4, 5).reshape(2, 8, 8, 3)", "torch.randn(8, 4, 4, 3)"),
            "unfold": ("x", "F.unfold(x, 3)", _IMAGE),
            "fold": ("x", "F.fold(x, (6, 6), 2, stride=2)", "torch.randn(2, 12, 9)"),
            "fold_overlapping": ("x", "F.fold(x, (5, 5), 3, padding=1)", "torch.randn(2, 18, 25)"),
            "flip": ("x", "x.flip(0, 1)", _X), "flip_reshaped": ("x", "x.flip(1).reshape(15, 3)", _X),
            "slice_reshaped": ("x", "x[:, 1:7].reshape(-1)", _X), "as_strided": (
                "x", "x.as_strided((3, 4), (9, 2))", _X),
            "as_strided_offset": ("x", "x.as_strided((4, 3), (1, 9), 2)", _X),
            "heads_of_packed": (
                "x", "x.view(4, 3, 3, 2, 4).permute(2, 1, 3, 0, 4)[1].reshape(6, 4, 4)", "torch.randn(4, 3, 24)"),
            "repeat_interleave": ("x", "x.repeat_interleave(3, 1)", _X), "tile": ("x", "x.tile(2, 2)", _X),
            "rot90": ("x", "torch.rot90(x)", _X), "tril": ("x", "x.tril()", _X), "diag": ("x", "x.diagonal()", _X),
            "diag_embed": ("x", "torch.diag_embed(x)", _X), "kron": ("x, y", "torch.kron(x, y)", _XY),
            "meshgrid": ("x, y", "torch.meshgrid(x[0], y[0], indexing='ij')", _XY),
            "pixel_shuffle": ("x", "F.pixel_shuffle(x, 2)", "torch.randn(2, 8, 3, 3)"),
            "pixel_unshuffle": ("x", "F.pixel_unshuffle(x, 2)", _IMAGE),
            "channel_shuffle": ("x", "F.channel_shuffle(x, 2)", "torch.randn(2, 4, 3, 3)"),
            "constant_index": ("x", "x.index_select(1, torch.tensor([3, 1, 2]))", _X),
            "constant_table": ("x", "x * torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]).unsqueeze(1)", _X),
            "reflect": ("x", "F.pad(x, (2, 1), mode='reflect')", "torch.randn(2, 5, 6)"),
            "replicate": ("x", "F.pad(x, (2, 1, 1, 1), mode='replicate')", _IMAGE),
            "circular": ("x", "F.pad(x, (2, 1, 1, 1), mode='circular')", _IMAGE),
            "unflatten": ("x", "x.unflatten(1, (3, 3)).sum(2)", _X),
            "view_dtype": ("x", "x.view(torch.int32)", _X),
            "block_diag": ("x, y", "torch.block_diag(x, y)", _XY),
            "cdist": ("x, y", "torch.cdist(x, y)", _XY), "einsum": ("x, y", "torch.einsum('ij,kj->ik', x, y)", _XY),
            "outer": ("x, y", "torch.outer(x[0], y[1])", _XY), "cross": (
                "x, y", "torch.linalg.cross(x, y)", "torch.randn(5, 3), torch.randn(5, 3)"),
        },
        "image": {
            "adaptive_avg_even": ("x", "F.adaptive_avg_pool2d(x, 4)", _IMAGE),
            "adaptive_avg_uneven": ("x", "F.adaptive_avg_pool2d(x, 5)", _IMAGE),
            "adaptive_avg_1d": ("x", "F.adaptive_avg_pool1d(x, 3)", "torch.randn(2, 3, 8)"),
            "adaptive_max_uneven": ("x", "F.adaptive_max_pool2d(x, 3)", _IMAGE),
            "nearest": ("x", "F.interpolate(x, scale_factor=2, mode='nearest')", _IMAGE),
            "nearest_down": ("x", "F.interpolate(x, size=(5, 3), mode='nearest')", _IMAGE),
            "bilinear": ("x", "F.interpolate(x, scale_factor=2, mode='bilinear')", _IMAGE),
            "bilinear_aligned": ("x", "F.interpolate(x, size=(5, 11), mode='bilinear', align_corners=True)", _IMAGE),
            "bicubic": ("x", "F.interpolate(x, scale_factor=2, mode='bicubic')", _IMAGE),
            "linear": ("x", "F.interpolate(x, scale_factor=2, mode='linear')", "torch.randn(2, 3, 8)"),
            "grid_sample": ("x, g", "F.grid_sample(x, g)", f"{_IMAGE}, torch.rand(2, 4, 4, 2) * 1.8 - 0.9"),
            "max_pool_indices": ("x", "F.max_pool2d(x, 2, return_indices=True)", _IMAGE),
            "max_pool": ("x", "F.max_pool2d(x, 3, 2, 1)", _IMAGE), "avg_pool": ("x", "F.avg_pool2d(x, 3, 2, 1)", _IMAGE),
            "lp_pool": ("x", "F.lp_pool2d(x, 2, 2)", _IMAGE),
            "local_response": ("x", "F.local_response_norm(x, 3)", _IMAGE),
            "batch_norm_training": (
                "x, m, v", "F.batch_norm(x, None, None, training=True)", f"{_IMAGE}, torch.zeros(3), torch.ones(3)"),
            "instance_norm": ("x", "F.instance_norm(x)", _IMAGE), "group_norm": ("x", "F.group_norm(x, 3)", _IMAGE),
            "conv2d": ("x, w", "F.conv2d(x, w, padding=1)", f"{_IMAGE}, torch.randn(4, 3, 3, 3)"),
        },
        "gather": {
            "embedding_bag_sum": (
                "i, o, w", "F.embedding_bag(i, w, o, mode='sum')",
                "torch.randint(0, 11, (9,)), torch.tensor([0, 4, 7]), torch.randn(11, 6)"),
            "embedding_bag_rows": (
                "i, w", "F.embedding_bag(i, w, mode='mean')", "torch.randint(0, 11, (4, 5)), torch.randn(11, 6)"),
            "embedding": ("i, w", "F.embedding(i, w)", "torch.randint(0, 11, (4, 5)), torch.randn(11, 6)"),
            "scatter_add": (
                "x, i, s", "x.scatter_add(1, i, s)", f"{_X}, torch.randint(0, 9, (5, 9)), {_X}"),
            "scatter_amax": (
                "x, i, s", "x.scatter_reduce(1, i, s, 'amax')", f"{_X}, torch.randint(0, 9, (5, 9)), {_X}"),
            "scatter_mean": (
                "x, i, s", "x.scatter_reduce(1, i, s, 'mean')", f"{_X}, torch.randint(0, 9, (5, 9)), {_X}"),
            "index_add": ("x, i, s", "x.index_add(0, i, s)", f"{_X}, torch.randint(0, 5, (4,)), torch.randn(4, 9)"),
            "one_hot": ("i", "F.one_hot(i, 6)", "torch.randint(0, 6, (7,))"),
            "bincount": ("i", "torch.bincount(i, minlength=8)", "torch.randint(0, 8, (20,))"),
            "take": ("x, i", "torch.take(x, i)", f"{_X}, torch.randint(0, 45, (7,))"),
            "masked_fill": ("x", "x.masked_fill(x > 0, -1.0)", _X),
            "tril_indices": ("x", "x[:, torch.arange(0, 9, 2)]", _X),
        },
        "loss": {
            "cross_entropy": ("x, t", "F.cross_entropy(x, t)", f"{_X}, torch.randint(0, 9, (5,))"),
            "smooth_l1": ("x, y", "F.smooth_l1_loss(x, y)", _XY), "huber": ("x, y", "F.huber_loss(x, y)", _XY),
            "kl": ("x, y", "F.kl_div(x, y.softmax(-1), reduction='batchmean')", _XY),
            "bce_logits": ("x, y", "F.binary_cross_entropy_with_logits(x, y.sigmoid())", _XY),
            "bce": ("x, y", "F.binary_cross_entropy(x.sigmoid(), y.sigmoid())", _XY),
            "cosine": ("x, y", "F.cosine_similarity(x, y)", _XY), "mse": ("x, y", "F.mse_loss(x, y)", _XY),
            "poisson": ("x, y", "F.poisson_nll_loss(x, y.abs())", _XY),
            "triplet": ("x, y", "F.triplet_margin_loss(x, y, x + y)", _XY),
            "margin": ("x, y", "F.margin_ranking_loss(x, y, torch.sign(x - y))", _XY),
            "gaussian_nll": ("x, y", "F.gaussian_nll_loss(x, y, y * y + 0.1)", _XY),
        },
        "form": {
            "outputs_swapped": ("x", "(x + 1, x.sum())", _X),
            "outputs_as_dict": ("x", "{'b': x * 2, 'a': x.sum(1)}", _X),
            "gate_and_places": ("x", "(lambda w, i: (w / w.sum(-1, keepdim=True), i))(*x.softmax(-1).topk(2))", _X),
            "float16": ("x", "(x.half() * 2).float()", _X),
            "attention_module": (
                "x, w, o", "F.multi_head_attention_forward(x, x, x, 8, 2, w, None, None, None, False, 0.0, o, None,"
                " training=False, need_weights=False)[0]",
                "torch.randn(4, 3, 8), torch.randn(24, 8), torch.randn(8, 8)"),
            "complex_pairs": ("x", "torch.view_as_real(torch.view_as_complex(x) * 2)", "torch.randn(5, 9, 2)"),
            "addmv": ("b, m, v", "torch.addmv(b, m, v)", "torch.randn(5), torch.randn(5, 9), torch.randn(9)"),
            "addcmul": ("x, y", "torch.addcmul(x, x, y, value=0.5)", _XY), "lerp": ("x, y", "torch.lerp(x, y, 0.3)", _XY),
            "baddbmm": (
                "b, x, y", "torch.baddbmm(b, x, y)", "torch.randn(2, 3, 4), torch.randn(2, 3, 5), torch.randn(2, 5, 4)"),
            "bilinear_form": (
                "x, y, w", "F.bilinear(x, y, w)", "torch.randn(4, 3), torch.randn(4, 5), torch.randn(6, 3, 5)"),
            "nan_to_num": ("x", "torch.nan_to_num(x / 0)", _X), "clamp": ("x", "x.clamp(-0.5, 0.5)", _X),
            "where": ("x, y", "torch.where(x > y, x, y)", _XY), "bucket_of_even": ("x", "(x * 4).to(torch.int32)", _X),
        },
    }  # fmt: skip


def task_of(name: str, given: tuple[str, str, str]) -> Task:
    arguments, expression, inputs = given
    head = "import torch\nimport torch.nn.functional as F\n\n"
    return load_task(
        f"{head}def reference({arguments}):\n    return {expression}\n\ndef inputs():\n    return ({inputs},)\n", name
    )


def answer(name: str, given: tuple[str, str, str], run: bool = False) -> tuple[str, str]:
    """right, wrong, refused or broken, and the reason."""
    try:
        task = task_of(name, given)
        text = RulesDesigner().design(DesignBrief(task, CPU)).sketch
        result = gate(text, task, seconds=0.2)
        if result.state is not GateState.RIGHT:
            return "wrong", result.reason
        program = load_program(text)
        source = lower(program, bind(program, task, {}, CPU), CPU)
        if run:
            _compare(task, source)
    except KernellabError as error:
        return "refused", str(error)
    except AssertionError as error:
        return "wrong", str(error)
    except Exception as error:
        return "broken", f"{type(error).__name__}: {error}"
    return "right", ""


def _compare(task: Task, source: object) -> None:
    from tests.lowering.test_cpp import load

    with tempfile.TemporaryDirectory() as folder:
        args = task.module().sample(seed=3)
        got = load(source, Path(folder)).kernel(*args)  # type: ignore[arg-type]
        got = got if isinstance(got, tuple) else (got,)
        for one, other in zip(got, task.module().reference(args), strict=True):
            torch.testing.assert_close(one, other, rtol=2e-3, atol=2e-3, equal_nan=True)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", default="")
    options.add_argument("--group", default="")
    options.add_argument("--run", action="store_true")
    given = options.parse_args()
    warnings.simplefilter("ignore")
    totals: Counter[str] = Counter()
    for group, found in lines().items():
        if given.group not in ("", group):
            continue
        counts: Counter[str] = Counter()
        for name, line in found.items():
            if given.only and given.only not in name:
                continue
            began = time.perf_counter()
            state, reason = answer(name, line, given.run)
            counts[state] += 1
            print(f"{state:8} {time.perf_counter() - began:5.1f} s  {group}/{name}  {' '.join(reason.split())[:300]}")
            sys.stdout.flush()
        totals += counts
        print(f"-- {group}: {dict(counts)}", flush=True)
    print(f"-- all {totals.total()}: {dict(totals)}")


if __name__ == "__main__":
    main()
