"""The table of ATen's operations: complete, cheap to import, the one place of its knowledge, and true of sketches."""

from __future__ import annotations

import math
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

import kernellab
from kernellab.capture.decompositions.tables import APART, WITH_PLACES
from kernellab.capture.export import export_graph
from kernellab.designer.frontend.table import HANDLERS
from kernellab.designer.schedule import scheduled, styles
from kernellab.operations.aten import ATEN, POINTWISE, aten_op
from kernellab.operations.sketch import OPS
from kernellab.sketch.check import load_program
from kernellab.sketch.cost import cost
from kernellab.sketch.program.program import Apply
from kernellab.sketch.program.walk import statements, subvalues
from kernellab.task import load_task
from kernellab.verifier.audit.trace import trace
from tests.designer.coverage import CPU

ROOT = Path(kernellab.__file__).parent

# -- the rows


def test_the_table_imports_neither_torch_nor_numpy() -> None:
    code = "import sys, kernellab.operations.aten; print([m for m in ('torch', 'numpy', 'sympy') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


def test_every_row_is_an_operation_of_torch_and_of_the_sketch_language() -> None:
    names = {n.split("::")[1].split(".")[0] for n in torch._C._dispatch_get_all_op_names() if n.startswith("aten::")}
    # the backward of scans, a question about a device, and one that older versions of torch have
    other = {"associative_scan", "scan", "device", "slow_conv2d"}
    assert set(ATEN) - names <= other
    assert {op for row in ATEN.values() for op in row.sketch} <= set(OPS)


def test_every_operation_that_a_rule_reads_or_a_capture_replaces_has_a_row() -> None:
    read = set(HANDLERS) - {"bitcast", "steps"}  # what a graph has and ATen has not
    replaced = {name.split(".")[0] for name in (*APART, *WITH_PLACES)}
    assert read | replaced <= set(ATEN)


def test_an_operation_in_place_has_the_row_of_that_out_of_place() -> None:
    assert aten_op("relu_") is ATEN["relu"] and aten_op("__lshift__") is ATEN["__lshift__"]
    assert aten_op("an_operation_of_tomorrow") is None


# -- FLOPs: the audit's are the sketch's

_FLOAT, _INTEGER, _BOOL = (
    "torch.rand(5, 9) + 0.1",
    "torch.randint(1, 99, (5, 9), dtype=torch.int32)",
    "torch.randn(5, 9) > 0",
)
#: calls of operations whose operands are not just tensors of the floats above
_CALLS = {
    "clamp": ("torch.clamp(x, 0.2, 0.8)", [_FLOAT]), "clamp_min": ("torch.clamp_min(x, 0.2)", [_FLOAT]),
    "clamp_max": ("torch.clamp_max(x, 0.8)", [_FLOAT]), "masked_fill": ("x.masked_fill(y, 1.0)", [_FLOAT, _BOOL]),
    "threshold": ("torch.ops.aten.threshold(x, 0.1, 2.0)", [_FLOAT]), "rsub": ("torch.rsub(x, y)", [_FLOAT] * 2),
    "where": ("torch.where(x, y, z)", [_BOOL, _FLOAT, _FLOAT]), "polygamma": ("torch.polygamma(1, x)", [_FLOAT]),
    "lerp": ("torch.lerp(x, y, 0.3)", [_FLOAT] * 2), "addcmul": ("torch.addcmul(x, y, z, value=2)", [_FLOAT] * 3),
    "addcdiv": ("torch.addcdiv(x, y, z, value=2)", [_FLOAT] * 3),
    "glu": ("torch.ops.aten.glu(x)", ["torch.rand(5, 18)"]),
    "lcm": ("torch.lcm(x, y)", [_INTEGER] * 2), "gcd": ("torch.gcd(x, y)", [_INTEGER] * 2),
    "_prelu_kernel": ("torch.nn.functional.prelu(x, y)", [_FLOAT, "torch.rand(9)"]),
    "elu": ("torch.nn.functional.elu(x, 0.5)", [_FLOAT]), "frexp": ("torch.frexp(x)[0]", [_FLOAT]),
    "logit": ("torch.logit(x, 0.01)", ["torch.rand(5, 9)"]), "round": ("torch.round(x)", [_FLOAT]),
    "log_sigmoid_forward": ("torch.nn.functional.logsigmoid(x)", [_FLOAT]),
    "logical_not": ("torch.logical_not(x)", [_BOOL]),
    "hardsigmoid": ("torch.nn.functional.hardsigmoid(x)", [_FLOAT]), "div": ("x / y", [_FLOAT] * 2),
    "nan_to_num": ("torch.nan_to_num(x)", [_FLOAT]),
    **{name: (f"torch.{name}(x, y)", [_BOOL] * 2) for name in ("logical_and", "logical_or", "logical_xor")},
    **{
        name: (f"torch.ops.aten.{name}(x, y)", [_INTEGER] * 2)
        for name in (
            "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift", "__lshift__",
            "__rshift__",
        )
    },
    "bitwise_not": ("torch.bitwise_not(x)", [_INTEGER]),
}  # fmt: skip
_TWO = (
    "add", "sub", "mul", "maximum", "minimum", "remainder", "fmod", "floor_divide", "lt", "le", "gt", "ge", "eq", "ne",
    "fmax", "fmin", "heaviside", "atan2", "hypot", "copysign", "nextafter", "pow", "ldexp", "xlogy", "special_xlog1py",
    "logaddexp", "logaddexp2",
)  # fmt: skip
#: names that torch itself calls by another of the table before anything is counted, and one of two sizes
_SAME_AS = frozenset((
    "subtract", "clip", "relu6", "selu", "prelu", "true_divide", "divide", "float_power", "special_xlogy",
    "special_sinc", "log_sigmoid", "special_ndtr", "isin", "square", "special_erfc", "fix", "mvlgamma",
))  # fmt: skip
ELEMENTWISE = sorted(name for name, row in ATEN.items() if row.role in POINTWISE and name not in _SAME_AS)


def call_of(name: str) -> tuple[str, list[str]]:
    if name in _CALLS:
        return _CALLS[name]
    operands = [_FLOAT] * (2 if name in _TWO else 1)
    return f"torch.ops.aten.{name}({', '.join('xy'[: len(operands)])})", operands


def audited_and_designed(call: str, inputs: list[str]) -> tuple[float, float]:
    """FLOPs of one call as the audit counts them, and as the cost of its sketch does."""
    text = f"import torch\ndef reference({', '.join('xyz'[: len(inputs)])}):\n    return {call}\n"
    task = load_task(f"{text}def inputs():\n    return ({', '.join(inputs)},)\n", "one")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = load_program(scheduled(task, export_graph(task), CPU, styles(CPU)[0]).text)
    applied = (
        value
        for kernel in program.kernels
        for statement in statements(kernel.body)
        for root in statement.values
        for value in subvalues(root)
        if isinstance(value, Apply)
    )
    elements = math.prod(int(e) for e in task.outputs[0].shape)
    return trace(task).other_flops / elements, sum(OPS[value.op].flops for value in applied)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_the_audit_counts_an_elementwise_operation_as_its_sketch_costs(name: str) -> None:
    audited, designed = audited_and_designed(*call_of(name))
    assert audited == designed == ATEN[name].flops


_ROWS, _IMAGES = "torch.rand(6, 960) * 0.9 + 0.05", "torch.rand(2, 8, 16, 20)"
#: rows of the table that count for each element of the operand: a call of it
_OF_OPERANDS = {
    "sum": "x.sum(-1)", "mean": "x.mean(-1)", "amax": "x.amax(-1)", "amin": "x.amin(-1)", "prod": "x.prod(-1)",
    "max": "x.max(-1)[0]", "min": "x.min(-1)[0]", "argmax": "x.argmax(-1)", "argmin": "x.argmin(-1)",
    "var": "x.var(-1)", "std": "x.std(-1)", "linalg_vector_norm": "torch.linalg.vector_norm(x, dim=-1)",
    "logsumexp": "x.logsumexp(-1)", "nansum": "x.nansum(-1)", "count_nonzero": "x.count_nonzero(-1)",
    "aminmax": "torch.aminmax(x, dim=-1)", "_softmax": "x.softmax(-1)", "_log_softmax": "x.log_softmax(-1)",
    "cumsum": "x.cumsum(-1)", "cumprod": "x.cumprod(-1)", "cummax": "x.cummax(-1)[0]", "cummin": "x.cummin(-1)[0]",
    "native_layer_norm": "F.layer_norm(x, (960,), y[0], y[1])", "sort": "x.sort(dim=-1, stable=True)[0]",
    "native_group_norm": "F.group_norm(z, 4)", "native_batch_norm": "F.batch_norm(z, y[0, :8], y[1, :8])",
    "max_pool2d_with_indices": "F.max_pool2d(z, 2)", "avg_pool2d": "F.avg_pool2d(z, 2)",
    "_adaptive_avg_pool2d": "F.adaptive_avg_pool2d(z, 2)", "mse_loss": "F.mse_loss(x, y)",
    "smooth_l1_loss": "F.smooth_l1_loss(x, y)", "huber_loss": "F.huber_loss(x, y)",
    "soft_margin_loss": "F.soft_margin_loss(x, y)", "binary_cross_entropy": "F.binary_cross_entropy(x, y)",
    "binary_cross_entropy_with_logits": "F.binary_cross_entropy_with_logits(x, y)",
}  # fmt: skip
#: what a sketch does beside what must be done: quotients of each row, masks at its end, a place beside its value
_MORE = 3.0


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", _OF_OPERANDS)
def test_the_audit_counts_of_a_reduction_what_its_sketch_does_at_least(name: str) -> None:
    task = load_task(
        "import torch\nF = torch.nn.functional\n"
        f"def reference(x, y, z):\n    return {_OF_OPERANDS[name]}\n"
        f"def inputs():\n    return ({_ROWS}, {_ROWS}, {_IMAGES})\n",
        "one",
    )  # fmt: skip
    audited = trace(task).other_flops
    program = load_program(scheduled(task, export_graph(task), CPU, styles(CPU)[0]).text)
    designed = sum(cost(program, {}).flops.values())
    first = re.findall(r"\b[xyz]\b", _OF_OPERANDS[name])[0]
    operand = math.prod(int(e) for e in task.args["xyz".index(first)].shape)
    assert audited == ATEN[name].flops * operand
    assert audited <= designed * 1.001
    assert designed <= _MORE * audited
