"""What counts as right where plain equality is no fair rule: written arguments, ties, rounded integers, odd dtypes."""

from __future__ import annotations

import pytest
import torch

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.capture.selection import selections
from kernellab.errors import TaskError
from kernellab.lowering import lower
from kernellab.records import Source, Stage, Trust, Verdict
from kernellab.sketch.check import load_program
from kernellab.sketch.program.bind import bind
from kernellab.target import Backend, Chip, Target
from kernellab.task import load_task
from kernellab.task.audit import admit
from kernellab.verifier import VerifyOptions
from kernellab.verifier.cases import cases
from kernellab.verifier.cases.judged import Comparison
from kernellab.verifier.protocol.rules import ERROR

from .kit import QUICK, QUICK_LOOK, TARGET, Judge


def task_of(reference: str, inputs: str, name: str = "t") -> object:
    head = "import torch\n"
    return load_task(f"{head}{reference}\ndef inputs():\n    return {inputs}\n", name)


FUSED_ADD = task_of(
    "def reference(x, r, w):\n    r.add_(x)\n    return r * torch.rsqrt((r * r).mean(-1, keepdim=True) + 1e-6) * w",
    "torch.randn(32, 96), torch.randn(32, 96), torch.randn(96)",
)
NORM = "* torch.rsqrt((y * y).mean(-1, keepdim=True) + 1e-6) * w\n"
WRITES = {
    "right": (f"    y = r.add_(x)\n    return y {NORM}", True, ""),
    "left out": (f"    y = r + x\n    return y {NORM}", False, "correct"),
    "one element wrong": (f"    y = r + x\n    r.copy_(y)\n    r[-1, -1] += 1\n    return y {NORM}", False, "correct"),
    "another argument too": (f"    y = r.add_(x)\n    x.zero_()\n    return y {NORM}", False, "smoke"),
}


@pytest.mark.parametrize("what", WRITES)
def test_an_argument_that_the_reference_writes_into_is_an_output(what: str, judge: Judge) -> None:
    body, right, stage = WRITES[what]
    verdict = judge(f"import torch\ndef kernel(x, r, w):\n{body}", FUSED_ADD)
    assert verdict.passed is right, verdict.reason
    if not right:
        assert verdict.stage is Stage(stage)
        assert ("'r'" if stage == "correct" else "'x'") in verdict.reason


STEP = task_of(
    "def reference(p, g):\n    p.mul_(0.9).add_(torch.sign(g), alpha=-0.1)", "torch.randn(32, 96), torch.randn(32, 96)"
)
STEPS = {
    "right": ("    p.copy_(p * 0.9 - torch.sign(g) * 0.1)", ""),
    "not done": ("    p * 0.9", "'p'"),
    "done and returned": ("    return p.copy_(p * 0.9 - torch.sign(g) * 0.1)", "1 output"),
}


@pytest.mark.parametrize("what", STEPS)
def test_a_reference_may_return_nothing_where_it_writes_into_an_argument(what: str, judge: Judge) -> None:
    body, fault = STEPS[what]
    verdict = judge(f"import torch\ndef kernel(p, g):\n{body}", STEP)
    assert verdict.passed is not bool(fault) and fault in verdict.reason, verdict.reason


def test_a_kernel_that_returns_nothing_where_the_reference_does_is_refused(judge: Judge) -> None:
    verdict = judge("import torch\ndef kernel(x, r, w):\n    r.add_(x)", FUSED_ADD)
    assert not verdict.passed and "0 outputs" in verdict.reason


ACCUMULATE = task_of(
    "def reference(x, r):\n    r.add_(x, alpha=2)\n    return r, x[0]", "torch.randn(32, 96), torch.randn(32, 96)"
)
SUM_KEPT = task_of("def reference(x, r):\n    r.add_(x)\n    return r + 0", "torch.randn(32, 96), torch.randn(32, 96)")


@pytest.mark.parametrize("returned", ["r, x[0]", "r.clone(), x[0].clone()"])
def test_an_output_may_be_the_argument_that_the_reference_returns(returned: str, judge: Judge) -> None:
    verdict = judge(f"import torch\ndef kernel(x, r):\n    r.add_(2 * x)\n    return {returned}\n", ACCUMULATE)
    assert verdict.passed, verdict.reason
    # torch writes into no tensor whose elements share their memory
    assert "expanded" not in verdict.label


def test_an_output_is_no_argument_where_the_reference_returns_new_memory(judge: Judge) -> None:
    verdict = judge("import torch\ndef kernel(x, r):\n    return r.add_(x)\n", SUM_KEPT)
    assert not verdict.passed
    assert verdict.evidence.signature == "aliases-input"


ADDS = """
import torch
import triton
import triton.language as tl

@triton.jit
def add(x, r, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x + at, mask=at < n) + tl.load(r + at, mask=at < n)
    tl.store({to} + at, total, mask=at < n)
    tl.store(y + at, 2 * total, mask=at < n)

def kernel(x, r):
    y = torch.empty_like(x)
    add[(triton.cdiv(x.numel(), 256),)](x, r, y, x.numel(), BLOCK=256)
    return y
"""


@pytest.mark.parametrize("to", ("r", "y"))
def test_a_triton_kernel_writes_it_in_the_interpreter(to: str, judge: Judge) -> None:
    task = task_of("def reference(x, r):\n    r.add_(x)\n    return 2 * r", "torch.randn(8, 40), torch.randn(8, 40)")
    target = Target("triton", Backend.INTERPRETER, Chip("test", "cpu", 2))
    source = Source(dsl="triton", files={"kernel.py": ADDS.replace("{to}", to)})
    verdict = judge.verifier.verify(task, source, target, options=VerifyOptions(level=Trust.T1))
    assert verdict.passed is (to == "r"), verdict.reason
    assert verdict.passed or "'r'" in verdict.reason


def test_the_rules_kernel_writes_it_too(judge: Judge) -> None:
    program = load_program(RulesDesigner().design(DesignBrief(FUSED_ADD, TARGET)).sketch)
    source = lower(program, bind(program, FUSED_ADD, {}, TARGET), TARGET)
    assert "    r.copy_(" in source.files["kernel.py"]
    verdict = judge.verifier.verify(FUSED_ADD, source, TARGET, options=VerifyOptions(budget=0.05, level=Trust.T1))
    assert verdict.passed and not verdict.label, verdict.reason


SORT = task_of("def reference(x):\n    return torch.sort(x, dim=-1)", "torch.randint(0, 9, (12, 40)).float()")
TIES = {
    "another order of equals": (
        "    v, i = torch.sort(x.flip(-1), dim=-1, stable=True)\n    return v, x.shape[-1] - 1 - i\n", True
    ),
    "one place twice": (
        "    v, i = torch.sort(x, dim=-1, stable=True)\n    i[:, 1] = i[:, 0]\n    return v, i\n", False
    ),
    "a wrong place": ("    v, i = torch.sort(x, dim=-1)\n    i[0] = i[0].flip(-1)\n    return v, i\n", False),
    "outside": ("    v, i = torch.sort(x, dim=-1)\n    i[-1, -1] = 40\n    return v, i\n", False),
}  # fmt: skip


@pytest.mark.parametrize("what", TIES)
def test_indices_are_compared_by_what_they_select(what: str, judge: Judge) -> None:
    body, right = TIES[what]
    verdict = judge(f"import torch\ndef kernel(x):\n{body}", SORT)
    assert verdict.passed is right, verdict.reason


def found_of(expression: str, x: torch.Tensor) -> list[object]:
    return selections(lambda args: eval(expression, {"torch": torch, "x": args[0]}), (x,))


def test_an_index_keeps_its_meaning_through_views_and_casts() -> None:
    x = torch.tensor([[3.0, 1.0, 3.0, 2.0], [0.0, 5.0, 5.0, 5.0]])
    (found,) = found_of("[torch.topk(x, 2).indices[:, 1:].to(torch.int32).t()]", x)
    native = torch.topk(x, 2).indices[:, 1:].t()
    assert not found.wrong(native, native, ERROR.floor).any()
    other = torch.tensor([[0 if int(native[0, 0]) == 2 else 2, 3]])
    assert not found.wrong(other, native, ERROR.floor).any()
    assert found.wrong(torch.tensor([[1, 3]]), native, ERROR.floor).tolist() == [[True, False]]


def test_the_first_of_equals_is_promised_by_argmax_and_by_a_stable_sort() -> None:
    x = torch.tensor([[1.0, 1.0, 0.0]])
    for expression in ("[torch.argmax(x, -1)]", "[torch.max(x, -1).indices]", "[x.argmax(-1, keepdim=True)]"):
        (found,) = found_of(expression, x)
        assert found.wrong(torch.ones_like(found.base), torch.zeros_like(found.base), ERROR.floor).all()
    (found,) = found_of("[torch.sort(x, dim=-1, stable=True).indices]", x)
    assert found.wrong(torch.tensor([[2, 1, 0]]), torch.tensor([[2, 0, 1]]), ERROR.floor).any()


def test_near_ties_of_computed_values_are_ties() -> None:
    x = torch.tensor([[1.0, 1.0 + 1e-7, 0.0]])
    (found,) = found_of("[torch.argmax(torch.softmax(x, -1), -1)]", x)
    assert not found.wrong(torch.tensor([0]), torch.tensor([1]), ERROR.floor).any()
    assert found.wrong(torch.tensor([2]), torch.tensor([1]), ERROR.floor).all()


def test_a_divided_index_of_a_near_tie_is_right_by_any_place_of_that_name() -> None:
    x = torch.tensor([[0.0, 2.0, -1.0, 2.0 + 1e-7, 0.5, -2.0]])
    beam, token, moved = found_of(
        "[a // 3 for a in [(x * 1).topk(1, 1)[1]]] + [(x * 1).topk(1, 1)[1] % 3 + 1, (x * 1).topk(1, 1)[1] * 2 + 1]", x
    )
    for found, want, alike, wrong in ((beam, 1, 0, 2), (token, 1, 2, 3), (moved, 7, 3, 8)):
        native = torch.tensor([[want]])
        assert not found.wrong(native, native, ERROR.floor).any()
        assert not found.wrong(torch.tensor([[alike]]), native, ERROR.floor).any()
        assert found.wrong(torch.tensor([[wrong]]), native, ERROR.floor).all()
    (first,) = found_of("[x.argmax(-1) // 3]", torch.ones(1, 6))
    assert first.wrong(torch.tensor([1]), torch.tensor([0]), ERROR.floor).all(), "argmax promises the first"


#: the row and the column of the three largest; each kernel's order of equal ones is its own
LARGEST = task_of(
    "def reference(x):\n    at = x.flatten(1).topk(3, -1).indices\n    return at // 4, at % 4", "torch.randn(30, 5, 4)"
)


@pytest.mark.parametrize(("rows", "columns", "right"), [(0, 0, True), (1, 1, True), (0, 1, False)])
def test_two_names_of_a_place_belong_together(rows: int, columns: int, right: bool) -> None:
    case = cases.case(LARGEST, {}, cases.Family.OWN)
    x = torch.randint(0, 4, case.args[0].shape).float()
    case = case.given((x,))
    orders = [
        torch.sort(x.flatten(1), dim=-1, descending=True, stable=True).indices[:, :3],
        19 - torch.sort(x.flatten(1).flip(-1), dim=-1, descending=True, stable=True).indices[:, :3],
    ]
    wrong = Comparison(LARGEST).first_wrong(case, [orders[rows] // 4, orders[columns] % 4])
    assert (wrong is None) is right
    assert right or (wrong is not None and wrong.output == 1 and "another place" in wrong.mismatch.message)


def test_of_computed_zeros_of_both_signs_the_first_counts() -> None:
    (found,) = found_of("[torch.argmax(torch.relu(x) * torch.tensor([-1.0, 1.0]), -1)]", torch.tensor([[-1.0, -2.0]]))
    assert found.wrong(torch.tensor([1]), torch.tensor([0]), ERROR.floor).all()
    assert not found.wrong(torch.tensor([0]), torch.tensor([0]), ERROR.floor).any()


QUANT = task_of(
    "def reference(x):\n    s = x.abs().amax(-1, keepdim=True) / 127\n"
    "    return torch.clamp(torch.round(x / s), -128, 127).to(torch.int8), s",
    "torch.randn(256, 1024)",
)


def test_a_level_that_roundings_decide_may_be_the_next_one() -> None:
    case = cases.case(QUANT, {}, cases.Family.NORMAL)
    (x,) = case.args
    scale = x.abs().amax(-1, keepdim=True) / 127
    low, high = case.nudged[0].between
    got = torch.round(x * (1 / scale)).clamp(-128, 127)
    assert ((low <= got) & (got <= high)).all()
    truncated = torch.trunc(x / scale).clamp(-128, 127)
    assert ((truncated < low) | (truncated > high)).double().mean() > 0.4


BYTES = "torch.arange(256, dtype=torch.uint8).repeat(4, 1)"
BLENDED = task_of(
    "def reference(y, v):\n    return (y.float() * 1.5 - v.float() * 0.3).round().clamp(0, 255).to(torch.uint8)",
    f"{BYTES}, {BYTES}.flip(1).contiguous()",
)
HALVED = task_of("def reference(y):\n    return (y.float() / 2).floor().to(torch.uint8)", BYTES)


def test_bytes_computed_in_float32_may_be_the_next_ones_only_where_a_rounding_decides() -> None:
    case = cases.case(BLENDED, {}, cases.Family.NORMAL)
    y, v = (a.double() for a in case.args)
    low, high = case.nudged[0].between
    tie = ((y * 15 - v * 3) % 10 == 5) & (y * 15 > v * 3) & (y * 15 - v * 3 < 2545)
    assert tie.any() and torch.equal(high > low, tie)


def test_what_float32_holds_exactly_leaves_no_choice() -> None:
    case = cases.case(HALVED, {}, cases.Family.NORMAL)
    low, high = case.nudged[0].between
    assert torch.equal(low, case.args[0].long() // 2) and torch.equal(low, high)


F32 = "torch.randn(40, 64)"
ODD = {
    "fp8 in": ("x.float() * 2", f"{F32}.to(torch.float8_e4m3fn)", "x.float() * 2", "(x.float() * 2).clamp(max=4)"),
    "fp8 out": ("(x * 3).to(torch.float8_e5m2)", F32, "(x * 3).to(torch.float8_e5m2)", "x.to(torch.float8_e5m2)"),
    "complex in": ("x * x", "torch.randn(40, 64, dtype=torch.complex64)", "x * x", "x * x.conj().resolve_conj()"),
    "complex that rounds otherwise": (
        "torch.fft.fft(x)",
        F32,
        "torch.fft.fft(x.double()).to(torch.complex64)",
        "torch.fft.fft(x) * 1.01",
    ),
    "complex out": ("torch.fft.fft(x)", F32, "torch.fft.fft(x)", "torch.fft.ifft(x)"),
    "uint16": ("x.flip(0)", "torch.randint(0, 99, (40, 64)).to(torch.uint16)", "x.flip(0)", "x.clone()"),
    "uint64": ("x.flip(0)", "torch.randint(0, 99, (40, 64)).to(torch.uint64)", "x.flip(0)", "x.clone()"),
}


@pytest.mark.parametrize("what", ODD)
def test_odd_dtypes_are_verified(what: str, judge: Judge) -> None:
    reference, inputs, right, wrong = ODD[what]
    task = task_of(f"def reference(x):\n    return {reference}", inputs, "odd")

    def verdict(body: str, options: VerifyOptions) -> Verdict:
        return judge(f"import torch\ndef kernel(x):\n    return {body}\n", task, options)

    accepted = verdict(right, QUICK)
    assert accepted.passed, accepted.reason
    refused = verdict(wrong, QUICK_LOOK)
    assert not refused.passed and refused.stage is Stage.CORRECT


def test_what_cannot_be_verified_is_refused_at_admission() -> None:
    with pytest.raises(TaskError, match="take 80000 GB, and this machine has"):
        admit(task_of("def reference(x):\n    return x * 2", "torch.randn(10_000_000, 1_000_000)", "large"))
    with pytest.raises(TaskError, match="outputs are empty"):
        admit(task_of("def reference(x):\n    return x * 2", "torch.randn(0, 64)", "empty"))


#: of a few half-planes, the first that holds a point: points on the edges of several, by products that are equal
HELD = task_of(
    "def reference(p, q):\n"
    "    side = p[:, 0, None] * q[None, :, 1] - p[:, 1, None] * q[None, :, 0]\n"
    "    at = torch.where(side >= 0, torch.arange(q.shape[0]), 99).min(-1).values\n"
    "    return torch.where(at == 99, -1, at)",
    "torch.randint(1, 9, (64, 1)) * torch.tensor([0.1, 0.7]), torch.randint(1, 9, (6, 1)) * torch.tensor([0.1, 0.7])",
)


def _first_held(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """With the second product rounded and the first not, as a fused multiply-add leaves them."""
    second = (p[:, 1, None] * q[None, :, 0]).double()
    side = p[:, 0, None].double() * q[None, :, 1].double() - second
    at = torch.where(side >= 0, torch.arange(len(q)), 99).min(-1).values
    return torch.where(at == 99, -1, at)


def test_a_place_that_zeros_of_cancelling_products_decide_may_be_any_that_roundings_give() -> None:
    from kernellab.verifier.cases import answers, rounded_answers
    from kernellab.verifier.compare.compare import compare
    from kernellab.verifier.compare.records import Limits

    along = torch.tensor([0.1, 1.1])
    p, q = (torch.arange(n, 0, -1)[:, None] * along for n in (64, 5))
    # three points lie on the edges, and the others apart from them
    p[3:] = torch.randn(61, 2)
    references = answers.references(HELD, (p, q))
    (reference,) = rounded_answers.settled(HELD, (p, q), references)
    got, native = _first_held(p, q), reference.native
    assert not torch.equal(got, native)
    assert (got - native).abs().max() > 1, "neighbours were open before"
    assert compare(got, references[0], Limits.of("int64"))[0] is not None
    assert compare(got, reference, Limits.of("int64"))[0] is None
    # what no rounding gives stays wrong, and so does what one gives elsewhere
    elsewhere = got.clone()
    elsewhere[5] = got[5] + 1
    for wrong in (got + 7, torch.full_like(got, 98), elsewhere):
        assert compare(wrong, reference, Limits.of("int64"))[0] is not None


RESTS = task_of(
    "def reference(x, y):\n    return ((x * y - y * x * 0.99999994) * 1e8).round().long()",
    "torch.rand(64, 32), torch.rand(64, 32)",
)


@pytest.mark.parametrize("scale", [0.5, 0.9, 1.2, 2.0])
def test_a_scale_that_is_wrong_is_no_rounding_where_these_decide_all_integers(scale: float) -> None:
    from kernellab.verifier.cases import answers, rounded_answers
    from kernellab.verifier.compare.compare import compare
    from kernellab.verifier.compare.records import Limits

    x, y = torch.rand(64, 32), torch.rand(64, 32)
    (reference,) = rounded_answers.settled(RESTS, (x, y), answers.references(RESTS, (x, y)))
    got = (reference.native * scale).round().long()
    assert not torch.equal(got, reference.native)
    assert compare(got, reference, Limits.of("int64"))[0] is not None
    assert compare(reference.native, reference, Limits.of("int64"))[0] is None
