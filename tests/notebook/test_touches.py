"""What a sketch touches, step by step: against counts that can be reckoned by hand."""

from __future__ import annotations

import re

from notebook_parts import SKETCH, TASK

from kernellab.notebook.learn.picture import moving_svg
from kernellab.notebook.views.access_map import MOST_ELEMENTS, as_text, touches
from kernellab.notebook.views.facts import Facts
from kernellab.task import load_task

DYNAMIC = """
import torch
from kernellab import Dim
M, N = Dim("M", 1, 64), Dim("N", 1, 64)
def reference(x, w):
    return x * w
def inputs(M=8, N=40):
    return torch.randn(M, N), torch.randn(N)
"""
ROWS = """sketch scaled {
    symbols: M, N;
    tensors: x[M, N]: f32; w[N]: f32; y[M, N]: f32 out;
    constexpr: B = 32 in {16, 32};
    @llm_hint("parallel")
    for m in range(M):
        for n in range(0, N, B):
            load(x[m, n:n+B] -> a)
            load(w[n:n+B] -> b)
            store(a * b -> y[m, n:n+B])
}
"""


def test_each_step_names_its_elements_and_reuse_is_counted() -> None:
    found = touches(ROWS, Facts(task=load_task(DYNAMIC, "scaled")))
    assert found["reason"] == ""
    x, w, y = found["tensors"]
    rows, columns = x["shape"]
    assert rows > 1 and max(rows * columns, columns) <= MOST_ELEMENTS
    assert (set(x["reads"]), set(w["reads"]), set(y["reads"])) == ({1}, {rows}, {0})
    assert (set(x["writes"]), set(y["writes"])) == ({0}, {1})
    tiles = -(-columns // 16)
    assert found["total"] == len(found["steps"]) == rows * tiles
    first, last = found["steps"][0], found["steps"][-1]
    assert first["at"] == "m = 0, n = 0"
    assert [(p["tensor"], p["write"], p["line"]) for p in first["parts"]] == [
        (0, False, 8),
        (1, False, 9),
        (2, True, 10),
    ]
    whole = min(16, columns)
    assert [p["ranges"] for p in first["parts"]] == [[[0, whole]], [[0, whole]], [[0, whole]]]
    assert last["parts"][2]["ranges"][0][0] == (rows - 1) * columns + (tiles - 1) * 16
    assert last["parts"][2]["outside"] == 16 * tiles - columns
    moved = 4 * (2 * rows * columns + rows * columns)
    assert f"{moved / 1000:.3g} kB slow" in [figure["text"] for figure in found["bytes"]]


def test_each_step_names_the_tiles_that_are_made_in_it() -> None:
    """An accumulator belongs to the steps of its loop; what is made where nothing is accessed, to the next step."""
    sums = (
        ROWS.replace("y[M, N]: f32 out", "y[M]: f32 out")
        .replace("        for n", "        total = full([B], 0.0)\n        for n")
        .replace(
            "            store(a * b -> y[m, n:n+B])",
            "            total = total + a * b\n        store(reduce_sum(total, axis=0) -> y[m])",
        )
    )
    task = load_task(DYNAMIC.replace("return x * w", "return (x * w).sum(-1)"), "scaled")
    found = touches(sums, Facts(task=task))
    assert found["reason"] == ""
    (_, _, y), blocks = found["tensors"], -(-found["tensors"][0]["shape"][1] // 16)
    first = found["steps"][0]["tiles"]
    assert [(t["name"], t["shape"], t["line"]) for t in first] == [
        ("total", [16], 7), ("a", [16], 9), ("b", [16], 10), ("total", [16], 11),
    ]  # fmt: skip
    row = found["steps"][: blocks + 1]
    assert [[t["name"] for t in step["tiles"]] for step in row[1:]] == [["a", "b", "total"]] * (blocks - 1) + [[]]
    drawn = moving_svg(found, text=sums)
    assert "total[16]" in drawn and f"y[{y['shape'][0]}]" in drawn
    # without style sheets and drawings a sentence says so, which the picture's own style sheet hides
    (key,) = re.findall(r"<form method='dialog' class='([\w-]+)'>", drawn)
    assert "not trusted" in re.sub(r"<style>.*?</style>|<svg.*?</svg>", "", drawn)
    assert f".{key} .klp{{display:none}}" in drawn and drawn.count("class='klp'") == 1


def test_it_is_told_as_text_too() -> None:
    told = as_text(touches(ROWS, Facts(task=load_task(DYNAMIC, "scaled"))))
    assert "each element read once" in told and "each element written once" in told
    assert "m = 0, n = 0: loads" in told and "past the edge" in told and "B = 16" in told


def test_a_task_of_fixed_shapes_is_drawn_smaller() -> None:
    found = touches(SKETCH, Facts(task=load_task(TASK, "add_one")))
    assert found["reason"] == "" and found["total"] > 1


def test_what_cannot_be_run_says_why() -> None:
    facts = Facts(task=load_task(DYNAMIC, "scaled"))
    assert "Unknown name 'bb'" in touches(ROWS.replace("a * b", "a * bb"), facts)["reason"]
    assert "has not been read yet" in as_text(touches(ROWS, Facts()))


def test_a_long_tensor_is_drawn_where_the_gate_has_no_shorter_one() -> None:
    task = "import torch\ndef reference(x):\n    return 2.0 * x\ndef inputs():\n    return torch.randn({})\n"
    text = """
sketch doubled {{
    tensors: x[{0}]: f32; y[{0}]: f32 out;
    @llm_hint("parallel")
    for n in range(0, {0}, 1024):
        load(x[n:n+1024] -> a)
        store(2.0 * a -> y[n:n+1024])
}}
"""
    found = touches(text.format(8192), Facts(task=load_task(task.format(8192), "doubled")))
    assert found["reason"] == "" and found["tensors"][0]["shape"] == [8192] and found["total"] == 8
    longer = touches(text.format(16384), Facts(task=load_task(task.format(16384), "doubled")))
    assert "8192 elements that a picture shows" in longer["reason"]
