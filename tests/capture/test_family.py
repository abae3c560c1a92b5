"""The family of a task is read from what it computes: 36 kinds of operators, none in a wrong family."""

from __future__ import annotations

import ast
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from kernellab.capture.export import export_graph
from kernellab.capture.family import Family, family_of
from kernellab.capture.graph import Graph
from kernellab.content import content
from kernellab.errors import CaptureError
from kernellab.knowledge import Knowledge
from kernellab.task import load_task

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


#: name -> families that are right for it, the body of its reference, the inputs that it is called with
KINDS: dict[str, dict[str, Any]] = tomllib.loads((Path(__file__).with_name("kinds.toml")).read_text())


def graph_of(name: str) -> Graph:
    body, given = textwrap.indent(KINDS[name]["body"], "    "), KINDS[name]["inputs"]
    names = ", ".join(keyword.arg or "" for keyword in ast.parse(f"f({given})").body[0].value.keywords)
    text = f"import torch\n\n\ndef reference({names}):\n{body}\n\n\ndef inputs():\n"
    return export_graph(load_task(f"{text}    return tuple(dict({given}).values())\n", name))


def test_there_are_39_kinds() -> None:
    assert len(KINDS) == 39


@pytest.mark.parametrize("name", KINDS)
def test_no_kind_is_in_a_wrong_family(name: str) -> None:
    try:
        found = family_of(graph_of(name)).value
    except CaptureError:
        found = ""  # no graph, no family
    assert found in KINDS[name]["families"]


@pytest.mark.parametrize(
    "task",
    ["normalisation/add_rms_norm", "order/gate_of_experts", "movement/rotary", "loss/cosine", "indexing/index_add",
     "softmax/logsumexp", "matmul/matvec", "scan/reverse_cumsum", "pooling/max_pool1d_dilated",
     "movement/roll_pad", "pointwise/rounded"],
)  # fmt: skip
def test_the_built_in_suites_folders_are_the_vocabulary(task: str) -> None:
    path = Path(content("knowledge")).parent / "kernellab" / "bench" / "builtin" / f"{task}.py"
    assert family_of(export_graph(load_task(path))).value == task.partition("/")[0]


@pytest.mark.parametrize(
    ("step", "family"),
    [("v = d * v + x[:, t]", "scan"), ("v = d * v + x[:, t]; v = v * (v <= 1.0)", ""),
     ("v = torch.maximum(v + d, x[:, t])", "")],
)  # fmt: skip
def test_only_a_linear_recurrence_is_a_scan(step: str, family: str) -> None:
    body = f"def reference(x, d):\n    v = x[:, 0]\n    for t in range(1, 8):\n        {step}\n    return v\n"
    text = f"import torch\n\n\n{body}\n\ndef inputs():\n    return torch.randn(4, 8), torch.rand(4)\n"
    assert family_of(export_graph(load_task(text, "steps"))).value == family


@pytest.mark.parametrize(
    ("step", "family"),
    [("h = torch.sigmoid(d) * h + x[:, t]; y.append(torch.tanh(h))", "scan"),
     ("h = torch.maximum(h + d, x[:, t]); y.append(h)", "")],
)  # fmt: skip
def test_a_loop_over_a_dim_is_a_scan_where_its_state_is_linear(step: str, family: str) -> None:
    loop = f"    h, y = torch.zeros_like(x[:, 0]), []\n    for t in range(x.shape[1]):\n        {step}\n"
    head = 'import torch\nfrom kernellab import Dim\n\nT = Dim("T", 2, 64)\n\n\ndef reference(x, d):\n'
    text = f"{head}{loop}    return torch.stack(y, 1)\n\n\ndef inputs(T=8):\n"
    task = load_task(f"{text}    return torch.randn(4, T), torch.rand(4)\n", "loop")
    assert family_of(export_graph(task)).value == family


def test_every_document_of_known_designs_is_of_a_family() -> None:
    assert set(Knowledge.load().families) <= {family.value for family in Family if family is not Family.NONE}


@pytest.mark.parametrize(("taken", "family"), [("x[indices]", "indexing"), ("x", "scan")])
def test_a_scan_that_only_says_where_elements_are_read_makes_no_scan(taken: str, family: str) -> None:
    text = f"""
import torch


def reference(counts, indices, x):
    ends = torch.cumsum({"counts, 0" if taken != "x" else "x, 0"})
    return {"torch.zeros(6, 4).index_add_(0, ends, x[indices])" if taken != "x" else "ends * 2.0"}


def inputs():
    return torch.ones(5, dtype=torch.int64), torch.randint(0, 5, (5,)), torch.randn(5, 4)
"""
    assert family_of(export_graph(load_task(text, "places"))).value == family


def test_distances_are_of_no_family_whatever_product_comes_before() -> None:
    body = (
        "    outer = x.sum(1)[:, None] * t.sum(1)[None, :]\n    return ((x[:, None] - t[None]) ** 2).sum(-1), outer\n"
    )
    given = "def inputs():\n    return torch.randn(5, 4), torch.randn(6, 4)\n"
    text = f"import torch\n\n\ndef reference(x, t):\n{body}\n\n{given}"
    assert family_of(export_graph(load_task(text, "distances"))) is Family.NONE


@pytest.mark.parametrize(
    ("body", "given", "family"),
    [
        # a softmax of scores between two products, written out
        ("s = (q @ k.mT).exp(); return (s / s.sum(-1, keepdim=True)) @ v", "q, k, v", "attention"),
        # a decay between two products is no softmax of scores
        ("return (q @ k.mT) @ (v * g.cumsum(0).exp()[:, None])", "q, k, v, g", "matmul"),
        # what a mask leaves is summed
        (
            "m = (g > 0).float()[:, None]; c = q - (q * m).sum(0) / m.sum(); return c / (c * c * m).mean(0).sqrt()",
            "q, g", "normalisation",
        ),
        ("return (q * g[:, None]).sum(0)", "q, g", "matmul"),
        # elements at places that are computed from an argument, and at places that are not
        ("i = (g * 8).long().clamp(0, 31); return q[i] * 2", "q, g", "indexing"),
        ("i = torch.arange(32) % 4; return q[i] * 2", "q", "pointwise"),
    ],
)  # fmt: skip
def test_known_designs_are_of_what_the_task_does(body: str, given: str, family: str) -> None:
    shapes = {"q": "32, 16", "k": "32, 16", "v": "32, 16", "g": "32"}
    drawn = ", ".join(f"torch.randn({shapes[name]})" for name in given.split(", "))
    lines = body.replace("; ", "\n    ")
    text = f"import torch\n\n\ndef reference({given}):\n    {lines}\n\n\ndef inputs():\n    return ({drawn},)\n"
    assert family_of(export_graph(load_task(text, "known"))).value == family
