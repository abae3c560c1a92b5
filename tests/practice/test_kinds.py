"""Constructs that practitioners write: designed by rules, right in the gate, and right as compiled code."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules import designer as rules
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.capture import Graph, capture, export
from kernellab.capture.capture import run_graph
from kernellab.designer.schedule import Scheduled
from kernellab.designer.tile.styles import Style
from kernellab.errors import CaptureError, DesignError
from kernellab.records import GateState
from kernellab.sketch.gate import gate
from kernellab.target import Target
from kernellab.task import Task, load_task
from tests.designer.coverage import CPU
from tests.designer.practice import state_of
from tests.practice.cases import AGAIN, GATHERS, ORDERS, PADS, PARTS, PLACES, SCALARS, SHORT, SIZES, STACKS, task
from tests.practice.counted import COUNTED
from tests.practice.everyday import EVERYDAY
from tests.practice.loops import LOOPS

KINDS = {**SIZES, **SCALARS, **PLACES, **PADS, **GATHERS, **ORDERS, **AGAIN, **PARTS, **SHORT, **STACKS}
KINDS |= {**LOOPS, **EVERYDAY, **COUNTED}
#: what a call of the framework makes
COMPOSED = {
    "softmax_over_the_edges_into_a_node": "scatter_reduce",
    "a_matrix_that_no_rule_makes_and_what_follows_from_it": "linalg_matrix_exp",
    "larger_matrices_inverted": "linalg_inv_ex",
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", KINDS)
def test_a_construct_is_right_and_compiles(name: str) -> None:
    state, reason = state_of(KINDS[name], run=True)
    assert (state, reason) == (("library", COMPOSED[name]) if name in COMPOSED else ("right", ""))


def test_equal_scores_keep_their_order_in_the_gate() -> None:
    """torch promises none: relu leaves zeros, and a mask follows from which of them are the best."""
    text = task(
        "Q 1 20 6, K 4 60 13",
        """
def reference(q, k):
    score = torch.einsum("qhd,kd->hqk", q, k).relu().sum(0)
    return torch.full_like(score, float("-inf")).scatter(-1, score.topk(4, -1).indices, 0.0)
""",
        "torch.randn(Q, 2, 8), torch.randn(K, 8) - 1",
    )
    assert state_of(text) == ("right", "")


def test_what_slides_by_reshapes_is_read_in_one_launch_without_division() -> None:
    task = load_task(STACKS["scores_slid_by_reshapes"], "slid")
    text = RulesDesigner().design(DesignBrief(task, CPU)).sketch
    assert text.count("sketch ") <= 2 and "//" not in text and "%" not in text


@pytest.mark.parametrize(
    ("reference", "inputs", "words"),
    [
        ("def reference(x):\n    y = x[:1]\n    for row in x.split(1):\n        y = y.sin() + row\n    return y",
         "torch.randn(N)", "makes a plain number of the size N"),
        ("def reference(x):\n    return x * sum(range(len(x)))", "torch.randn(N)", "Line .* takes all numbers"),
        ("def reference(x):\n    return torch.stack([*x])", "torch.randn(N, 3)", "Line .* takes all numbers"),
        ("def reference(x):\n    y = x[0]\n    for row in x.unbind()[1:0]:\n        y = y + row\n    return y",
         "torch.randn(N, 3)", "cuts a list along a Dim"),
        ("def reference(x):\n    y = x[0]\n    for i in range(len(x)):\n        for j in range(len(x)):\n"
         "            y = y + x[i] * x[j]\n    return y", "torch.randn(N)", "begins a loop over a Dim in another"),
        ("def reference(x, y):\n    out = []\n    for k in range(2, len(x)):\n        y = x[k].sin()\n"
         "        out.append(y)\n    return y, torch.stack(out)", "torch.randn(N, 3), torch.randn(3)",
         "has no step at N = 2"),
        ("def reference(x):\n    y = x[0]\n    for k in range(len(x)):\n        y = y + x[: k + 1].sum()\n    return y",
         "torch.randn(N)", "loops over a Dim at line"),
        ("def reference(x):\n    y = [x[0]]\n    for k in range(1, len(x)):\n        y.append(y[k // 2] + x[k])\n"
         "    return torch.stack(y)", "torch.randn(N)", "loops over a Dim at line"),
        ("def reference(x):\n    return x * 2", "torch.randn(N // 2)", "does not follow from the arguments"),
    ],
)  # fmt: skip
def test_a_size_that_cannot_be_followed_is_told_as_what_it_is(reference: str, inputs: str, words: str) -> None:
    with pytest.raises(CaptureError, match=words):
        capture(load_task(task("N 2 50 9", reference, inputs), "sized"))


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Distributions look at their values, also where torch.compile has ended that for the process."""
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", True)


@pytest.mark.usefixtures("looks")
def test_a_distribution_is_traced_without_looks_at_its_values() -> None:
    reference = """
def reference(x, m, s):
    d = torch.distributions.Normal(m, s)
    return d.log_prob(x) + d.cdf(x)
"""
    text = task("N 1 50 9", reference, "torch.randn(N), torch.randn(N), torch.rand(N) + 0.5")
    assert state_of(text, run=True) == ("right", "")
    assert torch.distributions.Normal(0.0, 1.0)._validate_args


@pytest.mark.parametrize(
    ("shape", "read"),
    [
        ("24", "x.view(4, 6)[1, ::2]"), ("5, 12", "x.view(5, 2, 6)[:, 1, :].flip(1)"),
        ("5, 24", "x.view(5, 3, 4, 2)[:, 1, ::2, 1]"), ("5, 24", "(x * 2).view(5, 4, 6)[:, 1, ::2]"),
    ],
)  # fmt: skip
def test_a_fixed_place_of_a_view_counts_in_what_is_read(shape: str, read: str) -> None:
    text = f"import torch\ndef reference(x):\n    return {read}\ndef inputs():\n    return torch.randn({shape})\n"
    assert state_of(text, run=True) == ("right", "")


@pytest.mark.usefixtures("looks")
def test_distributions_look_at_their_values_in_threads_that_do_not_trace() -> None:
    def checked() -> bool:
        return torch.distributions.Normal(0.0, 1.0)._validate_args

    with ThreadPoolExecutor(1) as other:
        assert checked()
        with export._distributions_unchecked():
            assert not checked()
            assert other.submit(checked).result()
            with export._distributions_unchecked():
                assert not checked()
            assert not checked()
        assert checked()
        assert other.submit(checked).result()


def test_a_list_that_begins_with_a_value_is_one_loop_and_that_value() -> None:
    body = "    y = [x[0] * 2]\n    for k in range(1, len(x)):\n        y.append(y[-1] * 0.5 + x[k])\n"
    text = task("N 2 50 9", f"def reference(x):\n{body}    return torch.stack(y)", "torch.randn(N)")
    assert state_of(text) == ("right", "")


@pytest.mark.parametrize("given", ["torch.randn(N)", "torch.randn(N, 6)"])
def test_a_roll_without_dimensions_in_a_loop_turns_all_elements(given: str) -> None:
    body = "    for k in range(len(rate)):\n        u = u + rate[k] * torch.roll(u, -1)\n"
    found = load_task(
        task("S 1 9 3, N 3 20 5", f"def reference(rate, u):\n{body}    return u", f"torch.rand(S), {given}"), "turned"
    )
    args = found.module().sample({"S": 4, "N": 7}, seed=1)
    (want,) = found.module().results(args)
    torch.testing.assert_close(run_graph(capture(found), args)[0], want)


def test_an_order_of_contraction_does_not_fix_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """opt_einsum, where it is installed, compares the sizes that are traced."""

    class Planner:
        @staticmethod
        def contract_path(_: str, *operands: torch.Tensor, **options: object) -> tuple[list[tuple[int, ...]], str]:
            return [(0, 1), (0, 1)] if int(operands[0].shape[0]) < 4 else [(1, 2), (0, 1)], ""

    planner = torch.backends.opt_einsum
    monkeypatch.setattr(planner, "is_available", lambda: True)
    monkeypatch.setattr(planner, "get_opt_einsum", lambda: Planner)
    monkeypatch.setattr(planner, "_opt_einsum", Planner)
    monkeypatch.setattr(planner, "strategy", "auto")
    monkeypatch.setattr(planner, "enabled", True)
    text = task(
        "B 1 4 2, N 1 30 9",
        "def reference(x, y, z):\n    return torch.einsum('bn,bnk,bkj->bj', x, y, z)",
        "torch.randn(B, N), torch.randn(B, N, 5), torch.randn(B, 5, 3)",
    )
    assert capture(load_task(text, "three")).outputs


@pytest.mark.parametrize(
    ("dtype", "instead"), [("uint16", "int32"), ("uint32", "int64"), ("uint64", "x.view(torch.int64)")]
)
def test_unsigned_whole_numbers_are_refused_with_their_own_remedy(dtype: str, instead: str) -> None:
    text = task(
        "N 1 90 9", "def reference(x):\n    return x.to(torch.int32) + 1", f"torch.zeros(N, dtype=torch.{dtype})"
    )
    with pytest.raises(DesignError, match=dtype) as refused:
        RulesDesigner().design(DesignBrief(load_task(text, "unsigned"), CPU))
    assert instead in str(refused.value) and "imaginary" not in str(refused.value)


def test_a_choice_between_one_value_is_that_value() -> None:
    text = task(
        "N 1 90 9", "def reference(x):\n    y = x * 2\n    return torch.where(x > 0, y, x * 2)", "torch.randn(N)"
    )
    assert "where" not in RulesDesigner().design(DesignBrief(load_task(text, "chosen"), CPU)).sketch


def _designed(name: str) -> str:
    return RulesDesigner().design(DesignBrief(load_task(KINDS[name], name), CPU)).sketch


def test_unpacked_weights_are_stored_before_the_product_that_reads_them_for_each_token() -> None:
    *before, product = _designed("weights_of_four_bits_by_a_table").split("sketch ")
    assert "gather(" in "".join(before) and "gather(" not in product and "gemm(" in product


@pytest.mark.parametrize(
    ("at", "is_wrapped"),
    [
        ("p.long()", False), ("(p & 15).long()", False), ("(i & 15)", False), ("(i & 15) >> 2", False),
        ("torch.where(i > 3, i & 3, p.long())", False), ("p.to(torch.int16).long()", False),
        ("p.to(torch.int8).long()", True), ("i >> 2", True), ("torch.where(i > 3, i & 3, i)", True),
        ("(p.short() * p.short()).long()", True),
    ],
)  # fmt: skip
def test_only_a_place_that_may_be_negative_is_counted_from_the_end(at: str, is_wrapped: bool) -> None:
    text = task("N 1 90 20", f"def reference(x, p, i):\n    return x[{at}] * 2.0", "torch.randn(256), "
                "torch.randint(0, 100, (N,), dtype=torch.uint8), torch.randint(0, 90, (N,))")  # fmt: skip
    sketch = RulesDesigner().design(DesignBrief(load_task(text, "looked_up"), CPU)).sketch
    assert ("+ 256" in sketch) is is_wrapped


def test_rounded_activations_are_stored_before_a_product_of_matrices() -> None:
    *before, product = _designed("products_of_scaled_blocks").split("sketch ")
    assert "round(" in "".join(before) and "round(" not in product and "gemm(" in product


@pytest.mark.parametrize(("name", "steps"), [("heat_in_three_dimensions", 3), ("waves_around_a_torus", 4)])
def test_each_step_of_a_stencil_is_a_launch(name: str, steps: int) -> None:
    launches = _designed(name).split("sketch ")[1:]
    assert steps <= len(launches) <= 2 * steps
    assert max(len(text.splitlines()) for text in launches) < 60


def test_a_roll_needs_no_remainder_for_each_element() -> None:
    sketch = _designed("waves_around_a_torus")
    assert "% X" in sketch and not re.search(r"% [XY]\) % [XY]", sketch)


def test_a_long_sorted_row_is_halved_and_not_summed() -> None:
    sketch = _designed("places_in_long_sorted_rows")
    assert "reduce_sum" not in sketch and "gather(edges" in sketch


def test_rows_shorter_than_a_vector_are_reduced_side_by_side() -> None:
    distances = _designed("nearest_points_of_two_clouds").split("sketch ")[1]
    assert "for m in range(0, M, BLOCK)" in distances and "in range(3)" in distances
    assert "reduce_sum" not in distances


def test_what_does_not_vary_along_channels_is_computed_once_for_all_of_them() -> None:
    coordinates, _, channels = _designed("channels_at_moved_places").partition("for j in range(6):")
    assert "floor(" in coordinates and "gather(" not in coordinates
    assert "floor(" not in channels and channels.count("gather(") == 4


def test_a_part_of_a_stack_is_read_without_asking_where_it_lies() -> None:
    sketch = _designed("densities_streamed_on_a_grid")
    assert sketch.count("sketch ") == 1 and sketch.count("gather(") == 4 and "< H" not in sketch


def test_the_middle_of_few_values_needs_no_sort() -> None:
    sketch = _designed("middle_of_the_neighbours")
    assert "sort(" not in sketch and "min(" in sketch


def test_steps_that_read_their_predecessor_at_several_places_are_stored() -> None:
    sketch = _designed("paths_summed_over_their_steps")
    assert sketch.count("sketch ") >= 4 and len(sketch.splitlines()) < 800


def test_an_extreme_of_many_places_is_one_call_of_the_library() -> None:
    text = KINDS["softmax_over_the_edges_into_a_node"]
    assert "scatter_reduce.two" in RulesDesigner().design(DesignBrief(load_task(text, "edges"), CPU)).sketch
    few = text.replace("nodes.shape[0]", "9").replace("randint(0, N", "randint(0, 9")
    assert "library" not in RulesDesigner().design(DesignBrief(load_task(few, "few"), CPU)).sketch


def test_places_found_in_a_sorted_row_are_stored_for_all_that_read_them() -> None:
    reference = """
def reference(x, ends):
    row = torch.bucketize(torch.arange(x.shape[0]), ends, right=True)
    return x / torch.zeros(ends.shape[0] + 1).index_add(0, row, x)[row]
"""
    text = task("E 1 90 30, N 1 40 9", reference, "torch.rand(E) + 1, torch.arange(N) * 2")
    launches = RulesDesigner().design(DesignBrief(load_task(text, "jagged"), CPU)).sketch.split("sketch ")[1:]
    assert sum("(ends[" in launch for launch in launches) == 1


def test_a_branch_by_a_size_is_refused_by_its_line_and_condition() -> None:
    text = task(
        "N 2 400 91",
        """
def reference(x):
    if x.shape[-1] % 2:
        x = F.pad(x, (0, 1))
    return x[:, ::2] + x[:, 1::2]
""",
        "torch.randn(5, N)",
    )
    state, reason = state_of(text)
    assert state == "refused" and "Line 8" in reason and "different branches at different sizes" in reason
    assert "Mod(N, 2)" in reason


def test_a_list_of_what_steps_begin_with_ends_before_the_last_result() -> None:
    for order, joined in (("range(x.shape[1])", "out"), ("range(x.shape[1] - 1, -1, -1)", "out[::-1]")):
        text = task(
            "B 1 20 6, T 1 60 13",
            f"""
def reference(x):
    h, out = torch.zeros(x.shape[0]), []
    for t in {order}:
        out.append(h)
        h = h * 0.9 + x[:, t]
    return torch.stack({joined}, 1), h
""",
            "torch.randn(B, T)",
        )
        assert state_of(text, run=True) == ("right", "")


def test_a_named_tuple_reaches_the_reference_as_what_it_is() -> None:
    reference = """
from typing import NamedTuple

class State(NamedTuple):
    mean: torch.Tensor
    square: torch.Tensor

def reference(p, state):
    assert isinstance(state, State)
    return p - state.mean / state.square.sqrt(), State(state.mean * 2, state.square)
"""
    text = task("N 1 90 9", reference, "torch.randn(N), State(torch.randn(N), torch.rand(N) + 1)")
    found = load_task(text, "stated")
    assert found.module().argument_names() == ["p", "state_mean", "state_square"]
    # another module of the same text runs its class again
    again = load_task(text, "stated").module()
    again.learn(found.module().learnt())
    args = again.sample({"N": 5})
    torch.testing.assert_close(again.results(args)[0], args[0] - args[1] / args[2].sqrt())
    assert state_of(text) == ("right", "")


def test_a_sum_counts_each_copy_of_an_expanded_row() -> None:
    reference = """
def reference(x, y):
    rows = x[None].expand(y.shape[0] // x.shape[0], -1, -1).reshape(-1, x.shape[1])
    return rows.sum(0), rows.amax(0), (rows * y).sum(0) / rows.sum()
"""
    text = task("T 1 60 7", reference, "torch.rand(T, 5), torch.rand(3 * T, 5)")
    assert state_of(text) == ("right", "")


def test_the_best_of_a_row_of_several_dimensions_need_no_library() -> None:
    reference = """
def reference(score, seen):
    best, at = score.view(score.shape[0], -1).topk(3, -1)
    return best, at % score.shape[2], seen.gather(1, at // score.shape[2])
"""
    text = task("B 1 9 4, V 3 60 12", reference, "torch.randn(B, 4, V), torch.randint(0, 9, (B, 4))")
    assert state_of(text) == ("right", "")
    assert RulesDesigner().design(DesignBrief(load_task(text, "beams"), CPU)).sketch.count("sketch ") <= 4


def test_equal_values_keep_their_order_in_a_call_of_the_library() -> None:
    call = "def reference(x):\n    return x.topk(4, -1).indices * 2"
    found = load_task(task("B 1 9 4, N 4 60 12", call, "torch.randn(B, N).round()"), "best")
    sketch = """
sketch best {
    symbols: B, N;
    tensors: x[B, N]: f32; at[B, 4]: i64 temp;

    at = library.aten(x, call="topk.default(x0, 4)[1]")
}

sketch best_twice {
    symbols: B;
    tensors: at[B, 4]: i64 temp; y[B, 4]: i64 out;

    @llm_hint("parallel", "coreidx")
    for b in range(B):
        load(at[b, 0:4] -> at_tile)
        store(at_tile * 2 -> y[b, 0:4])
}
"""
    result = gate(sketch, found, seconds=1)
    assert result.state is GateState.RIGHT, result.reason


def test_a_schedule_without_a_rule_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    made = rules.scheduled

    def broken(task: Task, graph: Graph, target: Target, style: Style, **options: Any) -> Scheduled:
        if style.fused or style.library:
            raise KeyError("an axis")
        return made(task, graph, target, style, **options)

    monkeypatch.setattr(rules, "scheduled", broken)
    text = task(
        "N 1 60 9",
        "def reference(x, y, z):\n    return x @ y @ z",
        "torch.randn(N, N), torch.randn(N, N), torch.randn(N, N)",
    )
    chained = load_task(text, "chained")
    graph = rules.prepared(capture(chained))
    assert not any(style.fused for style in rules.schedules(chained, graph, CPU))
    assert rules.composed(chained, graph, CPU) == []
