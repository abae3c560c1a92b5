"""Contents of timed calls, and what is looked at in them: nothing repeats, and no timed call goes unchecked."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernellab.records import Source, Stage
from kernellab.task import load_task
from kernellab.verifier.cases.judged import Comparison
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.protocol import stats
from kernellab.verifier.protocol.control import AddressRange, Output
from kernellab.verifier.protocol.rules import TIMING
from kernellab.verifier.stages.fast import _wrong_when_timed
from kernellab.verifier.timing import contents as of_contents
from kernellab.verifier.timing.checks import Checks
from kernellab.verifier.timing.contents import Contents, distinct_dims, independent, loose_arguments
from kernellab.verifier.timing.sides import Canary, WrongWhenTimed, secret_rounds

from .kit import Judge


def _unary(reference: str, drawn: str) -> str:
    return f"import torch\ndef reference(x):\n    return {reference}\ndef inputs():\n    return ({drawn},)\n"


def _contents(text: str) -> Contents:
    task = load_task(text)
    args = task.module().sample()
    return Contents(task, args, loose_arguments(task, args))


DOMAINS = {
    "integers": "torch.randint(0, 50, (64,))",
    "permutations": "torch.randperm(64)",
    "masks": "torch.rand(40, 30) > 0.5",
    "added masks": "torch.where(torch.rand(40, 30) > 0.5, 0.0, float('-inf'))",
    "whole floats": "torch.randint(0, 3, (64,)).float()",
    "probabilities": "torch.softmax(torch.randn(16, 20), -1)",
    "sorted": "torch.randn(16, 20).sort(-1).values",
    "range": "torch.rand(64) * 3 + 2",
    "complex": "torch.randn(16, 8, dtype=torch.complex64)",
    "any": "torch.randn(64, 33)",
    "large": "torch.randn(300, 200)",
    "halves": "torch.randn(64, 33).half()",
    "one number": "torch.randn(1)",
}


FACTOR = """import torch
def reference(a):
    return torch.linalg.cholesky(a)
def inputs():
    m = torch.randn(12, 9, 9)
    return (m @ m.transpose(1, 2) / 9 + 0.5 * torch.eye(9),)
"""


def test_contents_are_drawn_where_the_reference_does_not_take_mixed_ones(judge: Judge) -> None:
    contents = _contents(FACTOR)
    assert not any(contents.loose) and contents.drawn
    for _ in range(8):
        torch.linalg.cholesky(contents.next()[0])
    assert _contents(FACTOR.replace("torch.linalg.cholesky(a)", "a.exp()")).loose == [True]
    verdict = judge("import torch\ndef kernel(a):\n    return torch.linalg.cholesky(a)\n", load_task(FACTOR, "factor"))
    assert verdict.passed and verdict.time is not None, verdict.reason


@pytest.mark.parametrize("domain", DOMAINS)
def test_no_two_timed_contents_are_equal_in_any_domain(domain: str) -> None:
    contents = _contents(_unary("x + 0", DOMAINS[domain]))
    seen = [contents.next()[0].clone() for _ in range(12)]
    assert not any(torch.equal(a, b) for i, a in enumerate([*seen, contents.base[0]]) for b in seen[:i])
    assert not contents.repeated
    assert all(x.dtype == seen[0].dtype and x.shape == seen[0].shape for x in seen)


def test_what_may_be_mixed_is_drawn_again_all_the_same_where_that_is_cheap() -> None:
    """Lines of sixteen numbers are known again by their signs and by which of them is the largest."""

    def prints(x: torch.Tensor) -> set[tuple[bool | int, ...]]:
        lines = x.reshape(-1)[: x.numel() // 16 * 16].view(-1, 16)
        return {(*line.lt(0).tolist(), int(line.abs().argmax()), int(line.abs().argmin())) for line in lines}

    task = load_task(_unary("x + 0", "torch.randn(300, 200)"))
    args = task.module().sample()
    mixed = Contents(task, args, loose_arguments(task, args))
    known = prints(args[0])
    found = mixed.next()[0]
    assert not mixed.drawn and prints(found) <= known
    mixed = Contents(task, args, loose_arguments(task, args), redraws=True)
    shares = []
    for _ in range(20):
        found = mixed.next()[0]
        shares.append(len(prints(found) & known) / len(known))
        assert mixed.drawn == (shares[-1] < 0.1), shares
    assert min(shares) < 0.1
    # what is the same for each seed is mixed, as ever
    task = load_task(_unary("x + 0", "torch.ones(300, 200)"))
    args = task.module().sample()
    same = Contents(task, args, loose_arguments(task, args), redraws=True)
    seen = [same.next()[0].clone() for _ in range(6)]
    assert not same.drawn and not same.repeated and not torch.equal(seen[0], seen[1])


def test_calls_that_take_longer_on_contents_that_were_drawn_are_those_that_are_told() -> None:
    draw = random.Random(5)
    noise = [draw.lognormvariate(0, 0.03) for _ in range(60)]
    assert stats.larger([1.5 * n for n in noise[:12]], noise[12:], 0.08)
    assert not stats.larger([1.05 * n for n in noise[:12]], noise[12:], 0.08)
    assert not stats.larger([1.5 * n for n in noise[:4]], noise[4:], 0.08), "few say nothing"
    wide = [draw.lognormvariate(0, 0.8) for _ in range(24)]
    assert not stats.larger([1.2 * n for n in wide[:12]], wide[12:], 0.08), "nor does what another's work has spread"


#: draws of integers, and whether the first argument may change alone
WHOLE = {
    "ids": ("torch.randint(0, 50, (8, 16))", "torch.randint(0, 50, (8, 16))", True),
    "few ids of more": ("torch.randint(0, 50, (8, 16))", "torch.randint(0, 50_000, (8, 16))", True),
    "places": ("torch.arange(64)", "torch.randint(0, 9, (64,))", False),
    "orders of rows": ("torch.rand(8, 16).argsort(-1)", "torch.randint(0, 9, (8, 16))", False),
    "beginnings and ends": ("(s := torch.randint(0, 90, (32,)))", "s + torch.randint(0, 20, (32,))", False),
    "ends and beginnings": ("(s := torch.randint(0, 90, (32,)))", "s - torch.randint(0, 20, (32,))", False),
}


@pytest.mark.parametrize("kind", WHOLE)
def test_integers_that_depend_on_others_do_not_change_alone(kind: str) -> None:
    one, two, alone = WHOLE[kind]
    draw = f"import torch\ndef reference(a, b):\n    return a + b\ndef inputs():\n    return {one}, {two}\n"
    module = load_task(draw).module()
    assert independent(module.sample(seed=1), module.sample(seed=2), 0) == alone


def test_the_dimensions_along_which_integers_are_never_equal() -> None:
    chosen = torch.stack([torch.randperm(64)[:8] for _ in range(64)])
    assert distinct_dims(chosen) == [1] and distinct_dims(chosen.mT) == [0]
    assert distinct_dims(torch.randint(0, 9, (64, 64))) == [] and distinct_dims(chosen > 8) == []


def test_which_tasks_take_mixed_contents_is_remembered_of_the_last_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_contents, "_REMEMBERED", 3)
    for rows in range(2, 9):
        _contents(_unary("x + 1", f"torch.randn({rows}, 20)"))
    assert len(of_contents._ACCEPTS_MIXED) == 3


def test_contents_that_cannot_be_new_are_told() -> None:
    contents = _contents(_unary("x + 1", "torch.arange(64)"))
    contents.next()
    assert contents.repeated == 0
    contents.next()
    assert contents.repeated == 1


def test_domains_are_kept() -> None:
    def drawn(what: str) -> torch.Tensor:
        found: torch.Tensor = _contents(_unary("x + 0", what)).next()[0]
        return found

    assert torch.allclose(drawn(DOMAINS["probabilities"]).sum(-1), torch.ones(16))
    assert bool((drawn(DOMAINS["sorted"]).diff(dim=-1) >= 0).all())
    assert set(drawn(DOMAINS["added masks"]).unique().tolist()) == {0.0, float("-inf")}
    assert drawn(DOMAINS["permutations"]).unique().numel() == 64
    units = drawn("torch.rand(1200, 100)")
    assert float(units.min()) >= 0 and float(units.max()) <= 1


def test_sums_of_new_contents_are_not_to_be_had_from_earlier_ones() -> None:
    """Whoever knows the first contents and all their prefix sums, and how far new ones are turned, learns nothing."""
    contents = _contents(_unary("x.sum()", "torch.randn(1 << 17)"))
    one, two = contents.next(0)[0].clone(), contents.next(1)[0]
    for piece in (1 << 10, 1 << 12):
        old = one.unfold(0, piece, 16).double().sum(-1)
        new = two[: 8 * piece].view(8, piece).double().sum(-1)
        assert float((old[:, None] - new).abs().min(0).values.median()) > 1e-6


def test_integers_are_drawn_by_the_task_itself_and_all_of_one_seed() -> None:
    contents = _contents(
        "import torch\ndef reference(x, i, j):\n    return x[i + j]\n"
        "def inputs():\n    i = torch.randint(0, 50, (64,))\n    return torch.randn(100), i, 49 - i\n"
    )
    seen = [contents.next() for _ in range(6)]
    assert all(torch.equal(i + j, torch.full((64,), 49)) for _, i, j in seen), "one counts the other's places"
    assert all(not torch.equal(a[1], b[1]) for n, a in enumerate(seen) for b in seen[:n])


def test_static_arguments_and_parameters_stay_what_they_are() -> None:
    contents = _contents(
        "import torch\ndef reference(x, w, i):\n    return x[i] * w\nSTATIC = ['w']\n"
        "def inputs():\n    return torch.randn(50, 8), torch.randn(8), torch.randint(0, 50, (9,))\n"
    )
    one, two = contents.next(), contents.next()
    assert one[1] is two[1] is contents.base[1] and not torch.equal(one[0], two[0])


def test_canaries_come_in_secret_rounds_early_and_late_and_one_after_the_last() -> None:
    canaries = [*(Canary((), lambda outputs: None) for _ in range(3)), Canary((), lambda outputs: None, last=True)]
    drawn = [secret_rounds(canaries, 3, 100, random.Random(seed)) for seed in range(60)]
    assert all(sum(map(len, d.values())) == 4 and d[100] == canaries[3:] for d in drawn)
    others = [r for d in drawn for r, found in d.items() for c in found if not c.last]
    assert set(others) >= {0, 1, 2} and max(others) < 100
    assert 50 < sum(r < 3 for r in others) < 130 and any(3 <= r < 20 for r in others) and any(r > 30 for r in others)


def test_what_is_still_to_be_timed_is_shown_to_nobody_before() -> None:
    contents = _contents(_unary("torch.cumsum(x, 0)", "torch.randint(0, 1 << 30, (64,))"))
    for _ in range(3):
        block = [contents.next(i)[0] for i in range(TIMING.block_calls)]
        assert not any(torch.equal(contents.uncounted()[0], new) for new in block)


def test_an_output_lies_in_an_input_wherever_it_begins() -> None:
    def inside(data: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
        return Output(data, data, 1 << 20, "float32", shape, strides).lies_in([AddressRange(8192, 12288)])

    assert inside(8192, (4,), (1,)) and inside(4096, (2048,), (1,)) and inside(12284, (4,), (1,))
    assert inside(0, (2, 2), (2048, 1))
    assert not inside(4096, (1024,), (1,)) and not inside(12288, (4,), (1,)) and not inside(8192, (0, 4), (4, 1))


def test_outputs_are_compared_with_a_baseline_s_and_where_those_differ_with_the_reference(judge: Judge) -> None:
    args = judge.relu_add.module().sample()
    right = torch.relu(args[0]) + args[1]
    checks = Checks(Comparison(judge.relu_add), 1 << 20)
    checks.check_with(args, [right], [right.clone()])
    # a baseline that is off does not make a right kernel wrong, nor a wrong one right
    checks.check_with(args, [right], [right + 1])
    assert checks.done == 2
    with pytest.raises(WrongWhenTimed):
        checks.check_with(args, [right + 1], [right + 2])


CHAIN = """
import torch
def reference(x, w):
    return torch.nn.functional.gelu(x * w + w) * torch.sigmoid(x) + x * w
def inputs():
    return torch.randn(64, 256).bfloat16(), torch.randn(256).bfloat16()
"""


def test_a_fused_bf16_output_is_compared_without_another_run_of_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    task = load_task(CHAIN)
    comparison = Comparison(task)
    args = task.module().sample()
    (eager,) = task.module().results(args)
    (exact,) = task.module().results([a.double() for a in args])
    fused = exact.bfloat16()
    assert not comparison.as_theirs([fused], [eager])
    checks = Checks(comparison, 1 << 20)
    runs: list[object] = []
    monkeypatch.setattr(Checks, "check", lambda *given: runs.append(given))
    checks.check_with(args, [fused], [eager])
    assert checks.done == 1 and not runs
    one = fused.clone()
    one.view(-1)[7] += 2.0
    for wrong in (one, fused * 1.03, fused.float(), torch.zeros_like(fused), fused[:1]):
        checks.check_with(args, [wrong], [eager])
    assert len(runs) == 5


TWO_OUTPUTS = """
import torch
def reference(x):
    return (x + 1000.0) - 1000.0, x * 2.0
def inputs():
    return (torch.randn(256, 640),)
"""


def test_no_number_of_calls_makes_the_rules_of_a_timed_output_less() -> None:
    """The first output is far from eager's and right in float64, again and again; the second then has zeros for all
    but its large elements, which neither the whole norm nor any single element's bound shows."""
    task = load_task(TWO_OUTPUTS)
    x = 1e-6 * torch.randn(256, 640)
    x[:64, :64] = 1.0
    checks = Checks(Comparison(task), 1 << 20)
    for _ in range(4):
        checks.check((x,), [x.clone(), 2 * x])
    with pytest.raises(WrongWhenTimed) as wrong:
        checks.check((x,), [x.clone(), torch.where(x == 1.0, 2 * x, 0.0)])
    assert wrong.value.wrong.output == 1


def test_a_timed_result_is_another_call_s_only_where_much_of_it_is_wrong(judge: Judge) -> None:
    """One spike that a rounding decides otherwise is no result that was kept from an earlier call."""
    task = judge.relu_add
    args = task.module().sample()
    right = torch.relu(args[0]) + args[1]
    one = right.clone()
    one.view(-1)[7] += 64.0
    stages: Any = SimpleNamespace(source=Source(dsl="cpp", files={}, entry_file="", entry=""), answers=())
    for got, word in ((one, "wrong-values"), (torch.randn_like(right) * 9, "stale")):
        with pytest.raises(WrongWhenTimed) as wrong:
            Checks(Comparison(task), 1 << 20).check(args, [got])
        assert word in str(_wrong_when_timed(stages, wrong.value)), word


def test_a_timed_output_of_another_shape_or_dtype_is_no_answer(judge: Judge) -> None:
    args = judge.relu_add.module().sample()
    right = torch.relu(args[0]) + args[1]
    checks = Checks(Comparison(judge.relu_add), 1 << 20)
    for other in (right.double(), right[:1], right.reshape(-1), right[None]):
        with pytest.raises(WorkerFailure, match="in a timed call output 0"):
            checks.check(args, [other])
        with pytest.raises(WorkerFailure, match="in a timed call output 0"):
            checks.check_with(args, [other], [right])


def test_elements_that_share_memory_are_found_where_their_span_is_wide() -> None:
    def shared(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
        return Output(0, 0, 1 << 20, "float32", shape, strides).overlaps

    assert shared((4, 8), (0, 1)) and shared((2, 3), (4, 2)) and shared((3, 3), (2, 4))
    assert not shared((4, 8), (8, 1)) and not shared((4, 8), (1, 4)) and not shared((0, 8), (0, 1))


def test_a_timed_output_that_is_not_contiguous_is_told(judge: Judge) -> None:
    code = f"{TELL}def kernel(x, y):\n    found = torch.relu(x) + y\n"
    code += "    return found.t().contiguous().t() if timed(x) else found\n"
    verdict = judge.parts("fast", code)
    assert verdict.passed and "output 0 not contiguous" in verdict.label, verdict


#: tells timed calls by the places of their inputs, which take turns, and by results of before that nothing holds; what
#: is allocated for a checked call may by chance do so for a few calls, but not for ten
TELL = """
import torch, weakref
seen, results = [], []
def timed(x):
    seen.append(x.data_ptr())
    turns = len(seen) > 9 and len(set(seen[-10::2])) == len(set(seen[-9::2])) == 1 and seen[-1] != seen[-2]
    return turns and not any(one() is not None for one in results[-8:-2])
def noted(result):
    results.append(weakref.ref(result))
    return result
"""
LATER = {
    "mutates-input": "x.relu_().add(y)",
    "aliases-input": "y.add_(x.relu())",
    "overlaps-itself": "(torch.relu(x) + y)[:1].expand(48, 70)",
    "stale": "torch.relu(x) + 1.01 * y",
}


@pytest.mark.parametrize("signature", LATER)
def test_what_no_check_has_seen_of_a_kernel_is_refused_when_it_is_timed(judge: Judge, signature: str) -> None:
    code = f"{TELL}def kernel(x, y):\n    return noted({LATER[signature]} if timed(x) else torch.relu(x) + y)\n"
    verdict = judge.parts("fast", code)
    assert not verdict.passed and verdict.stage in (Stage.ROBUST, Stage.FAST), verdict.reason
    # calls whose results are held may look the same: what is only wrong is seen there
    assert verdict.stage is Stage.FAST or signature in ("overlaps-itself", "stale"), verdict.reason
    if verdict.stage is Stage.FAST:
        assert verdict.evidence is not None and verdict.evidence.signature == signature, verdict.reason


def test_other_families_are_met_among_timed_calls(judge: Judge) -> None:
    task = load_task(_unary("torch.softmax(x, -1)", "torch.randn(64, 70)"))
    e = "torch.exp(x) / torch.exp(x).sum(-1, keepdim=True)"
    verdict = judge.parts(
        "fast", f"{TELL}def kernel(x):\n    return noted({e} if timed(x) else torch.softmax(x, -1))\n", task
    )
    assert not verdict.passed and verdict.stage in (Stage.ROBUST, Stage.FAST), verdict.reason
    assert "timed call is wrong" in verdict.reason
