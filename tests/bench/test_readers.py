"""Suites of other projects, each on small files of our own in its layout."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path

import pytest
import torch

from kernellab.bench.scale import scaled
from kernellab.bench.suites import SuiteTask, load_suite
from kernellab.capture import capture
from kernellab.errors import TaskError
from kernellab.task import Dim, load_task, quality, small_sizes

LISTED = """
import torch
import no_such_helper

class Model(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x, mask, mode):
        y = x * self.scale if mode == "times" else x
        return y if mask is None else y * mask

def get_inputs_dyn_list():
    return [[torch.randn(m, n), None, "times"] for m, n in ((3, 16), (7, 64), (20, 2048))]

def get_init_inputs():
    return [2.5]
"""


def _only(spec: str, only: str = "") -> SuiteTask:
    (task,) = load_suite(spec, only)
    return task


def _akg(root: Path, text: str, part: str = "dynamic_shape") -> Path:
    folder = root / "akg_agents" / "benchmark" / "akg_kernels_bench" / part / "elemwise"
    folder.mkdir(parents=True)
    (folder / "scale.py").write_text(text)
    return root


def test_cases_of_one_operator_are_one_task_of_symbolic_sizes(tmp_path: Path) -> None:
    found = _only(f"akg:{_akg(tmp_path, LISTED)}")
    assert found.category == "dynamic/elemwise" and found.dynamic
    task = load_task(found.text, found.name)
    assert [(a.name, a.shape) for a in task.args] == [("x", ("D0", "D1"))], "None and the word are fixed"
    assert task.dims == (Dim("D0", 1, 20), Dim("D1", 1, 2048))
    (x,) = task.module().sample({"D0": 5, "D1": 33}, seed=1)
    assert torch.equal(task.module().reference([x])[0], x * 2.5)
    assert not quality(task)


def test_a_case_has_its_own_values_and_other_sizes_those_of_the_nearest(tmp_path: Path) -> None:
    text = LISTED.replace("torch.randn(m, n)", "torch.arange(m).sort().values.float()[:, None].expand(m, n)")
    module = load_task(_only(f"akg:{_akg(tmp_path, text)}").text, "scale").module()
    assert module.sample({"D0": 7, "D1": 64})[0][:, 0].tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert module.sample({"D0": 4, "D1": 64})[0][:, 3].tolist() == [0, 1, 3, 5], "left out evenly, and still sorted"


def test_a_smaller_case_is_taken_where_the_largest_does_not_fit(tmp_path: Path) -> None:
    found = _only(f"akg:{_akg(tmp_path, LISTED)}")
    small = scaled(load_task(found.text, found.name), 8192)
    assert small.words == "case 2 -> 1"
    assert load_task(small.text, found.name).module().default_sizes() == {"D0": 7, "D1": 64}


def test_cases_that_no_ranges_hold_leave_the_largest_alone(tmp_path: Path) -> None:
    text = LISTED.replace("y = x", "assert x.shape[0] in (3, 7, 20)\n        y = x")
    task = load_task(_only(f"akg:{_akg(tmp_path, text)}").text, "scale")
    assert not task.dims and task.args[0].shape == (20, 2048)


def _cases(body: str, drawn: str, sizes: str) -> str:
    return (
        f"import torch\nclass Model(torch.nn.Module):\n    def forward(self, x, *more):\n        return {body}\n"
        f"def get_inputs_dyn_list():\n    return [[{drawn}] for m, n in {sizes}]\n"
    )


def test_a_case_with_more_outputs_leaves_the_chosen_one_alone() -> None:
    task = load_task(_cases("torch.split(x, 64, 1)", "torch.randn(m, n)", "((3, 16), (7, 60), (9, 128))"))
    assert not task.dims and [o.shape for o in task.outputs] == [(9, 64), (9, 64)]


def test_sizes_at_which_the_reference_returns_less_are_not_tried() -> None:
    task = load_task(_cases("torch.chunk(x, 2, 1)", "torch.randn(m, n)", "((3, 16), (7, 60), (9, 128))"))
    assert len(task.outputs) == 2 and all(size["D1"] > 1 for size in small_sizes(task))
    assert len(capture(task).outputs) == 2


def test_a_reference_of_multiples_is_captured_at_multiples() -> None:
    sizes = "((3, 32), (7, 64), (9, 128))"
    task = load_task(_cases("torch.nn.functional.group_norm(x, 8).relu()", "torch.randn(m, n, 5)", sizes))
    assert task.dims and [n.aten for n in capture(task).nodes] == ["group_norm", "relu"]


def test_an_index_stays_inside_an_extent_that_follows_from_a_dim() -> None:
    drawn = "torch.randn(m, 2 * n), torch.randint(0, 2 * n, (m, n))"
    module = load_task(_cases("torch.gather(x, 1, *more)", drawn, "((3, 16), (7, 60), (9, 128))")).module()
    x, index = module.sample({"D0": 5, "D1": 11})
    assert x.shape == (5, 22) and int(index.max()) < 22


def test_cases_that_differ_in_more_than_sizes_are_said_to_be_left_out(tmp_path: Path) -> None:
    text = LISTED.replace('"times"] for', '"times" if m > 3 else "not"] for')
    task = load_task(_only(f"akg:{_akg(tmp_path, text)}").text, "scale")
    assert task.notes == ("1 case of 3 differ in more than sizes and are left out",)


def test_a_missing_import_is_told_of_where_the_reference_needs_it(tmp_path: Path) -> None:
    text = LISTED.replace("y = x * self.scale if", "y = no_such_helper.times(x, self.scale) if")
    found = _only(f"akg:{_akg(tmp_path, text)}")
    with pytest.raises(TaskError, match=r"imports what is not here at line 11: no_such_helper is not installed"):
        load_task(found.text, found.name)


def test_lists_of_tensors_are_arguments_one_by_one() -> None:
    text = """
import torch

def reference(parts, scale=2.0, *, dim=1, out=None):
    return torch.cat(parts, dim) * scale

def inputs():
    return [(torch.randn(4, 3), torch.randn(4, 5)), 3.0]
"""
    task = load_task(text, "joined")
    assert [(a.name, a.value) for a in task.args] == [("parts_0", None), ("parts_1", None), ("scale", 3.0), ("dim", 1)]
    args = task.module().sample()
    assert torch.equal(task.module().reference(args)[0], torch.cat(args[:2], 1) * 3.0)


TESTED = (
    "import torch\n\ndef clipped(x, low=-1.0, *, high=None, out=None):\n    return x.clamp(low, high)\n\n"
    + "#" * 146
    + """

import torch
from clipped import clipped

def test_clipped():
    results = {}
    x = torch.randn(4, 9, device="cuda")
    results["one"] = clipped(x, -0.5)
    results["two"] = clipped(x.cuda().to("cuda"), high=0.5)
    results["three"] = clipped(torch.randn(3, 5, 2, device=torch.device("cuda")), low=-0.5)
    results["four"] = clipped(torch.randn(40, 9, device="cuda"), -0.5)
    return results

test_results = test_clipped()
"""
)


def test_the_calls_of_a_files_tests_are_its_cases(tmp_path: Path) -> None:
    (tmp_path / "data" / "TritonBench_T_v1").mkdir(parents=True)
    (tmp_path / "data" / "TritonBench_T_v1" / "clipped.py").write_text(TESTED)
    found = _only(f"tritonbench:{tmp_path}", "^T/")
    task = load_task(found.text, found.name)
    assert [(a.name, a.shape, a.value) for a in task.args] == [("x", ("D0", 9), None), ("low", (), -0.5)]
    assert task.notes == ("2 cases of 4 differ in more than sizes and are left out",)
    args = task.module().sample(seed=3)
    assert args[0].shape == (40, 9) and args[0].device.type == "cpu"
    assert torch.equal(args[0], task.module().sample(seed=3)[0]), "both sides get the same values"
    assert torch.equal(task.module().reference(args)[0], args[0].clamp(-0.5))


DEFINITION = {
    "name": "scaled_rows_h8",
    "op_type": "rows",
    "axes": {
        "rows": {"type": "var"},
        "ends": {"type": "var"},
        "twice": {"type": "expr", "expression": "2 * rows"},
        "h": {"type": "const", "value": 8},
    },
    "constraints": ["ends == rows + 1"],
    "inputs": {
        "x": {"shape": ["twice", "h"], "dtype": "float16"},
        "places": {"shape": ["ends"], "dtype": "int32"},
        "eps": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"y": {"shape": ["rows", "h"], "dtype": "float32"}},
    "reference": "import torch\n\ndef run(x, places, eps):\n    return x[::2].float() * places[1:, None] + eps",
}
SCALAR = {"type": "scalar", "value": 0.25}


def _definition(root: Path, workloads: list[dict[str, object]], **changed: object) -> Path:
    (root / "definitions" / "rows").mkdir(parents=True)
    (root / "workloads" / "rows").mkdir(parents=True)
    (root / "definitions" / "rows" / "scaled_rows_h8.json").write_text(json.dumps({**DEFINITION, **changed}))
    lines = [json.dumps({"definition": "scaled_rows_h8", "workload": w}) for w in workloads]
    (root / "workloads" / "rows" / "scaled_rows_h8.jsonl").write_text("\n".join(lines))
    return root


def _workload(rows: int, **inputs: object) -> dict[str, object]:
    given = {"x": {"type": "random"}, "places": {"type": "random"}, "eps": SCALAR, **inputs}
    return {"uuid": "u", "axes": {"rows": rows, "ends": rows + 1}, "inputs": given}


def test_a_definition_is_a_task_whose_variable_axes_are_dims(tmp_path: Path) -> None:
    found = _only(f"flashinfer:{_definition(tmp_path, [_workload(n) for n in (4, 90, 16)])}", "^rows/")
    task = load_task(found.text, found.name)
    assert task.dims == (Dim("rows", 1, 90),) and found.note == "the middle one of 3 workloads"
    assert task.module().default_sizes() == {"rows": 16}
    assert [(a.name, a.shape, a.dtype) for a in task.args] == [
        ("x", ("2*rows", 8), "float16"), ("places", ("rows + 1",), "int32"), ("eps", (), "float64"),
    ]  # fmt: skip
    assert not quality(task)


def test_the_operator_of_a_trace_is_the_function_with_the_inputs_names(tmp_path: Path) -> None:
    helper = "import torch\n\ndef _scaled(t):\n    return t[::2].float()\n\n\n"
    traced = f"{helper}def _scaled_rows_reference(x, places, eps):\n    return _scaled(x) * places[1:, None] + eps"
    found = _only(f"flashinfer:{_definition(tmp_path, [_workload(4)], reference=traced)}")
    task = load_task(found.text, found.name)
    x, places, eps = task.module().sample({"rows": 3})
    assert torch.equal(task.module().reference([x, places, eps])[0], x[::2].float() * places[1:, None] + eps)


def test_stored_and_made_inputs_fix_the_sizes(tmp_path: Path) -> None:
    values = torch.arange(5, dtype=torch.int32)
    header = json.dumps({"p": {"dtype": "I32", "shape": [5], "data_offsets": [0, 20]}}).encode()
    (tmp_path / "blob").mkdir()
    (tmp_path / "blob" / "p.safetensors").write_bytes(
        struct.pack("<Q", len(header)) + header + values.numpy().tobytes()
    )
    made = "\n\ndef make(axes, device):\n    return {'x': torch.ones(axes['twice'], axes['h']).half() * axes['eps']}"
    workload = _workload(
        4,
        x={"type": "custom"},
        places={"type": "safetensors", "path": "elsewhere/blob/p.safetensors", "tensor_key": "p"},
    )
    root = _definition(
        tmp_path, [workload], reference=DEFINITION["reference"] + made, custom_inputs_entrypoint="make"
    )  # fmt: skip
    found = _only(f"flashinfer:{root}")
    task = load_task(found.text, found.name)
    assert not task.dims and "sizes are fixed" in found.note
    x, places, eps = task.module().sample()
    assert torch.equal(x, torch.full((8, 8), 0.25).half()) and torch.equal(places, values) and eps == 0.25


def test_a_reference_that_is_given_its_outputs_returns_them(tmp_path: Path) -> None:
    (tmp_path / "L1" / "scaled_rows").mkdir(parents=True)
    folder = tmp_path / "L1" / "scaled_rows"
    run = "def run(x, places, eps, y):\n    y.copy_(x.float() * places[1:, None] + eps)"
    inputs = {**DEFINITION["inputs"], "x": {"shape": ["rows", "h"], "dtype": "float16"}}  # type: ignore[dict-item]
    changed = {**DEFINITION, "op_type": None, "reference": run, "inputs": inputs}
    (folder / "definition.json").write_text(json.dumps(changed))
    (folder / "workload.jsonl").write_text(json.dumps(_workload(6)) + "\n")
    found = _only(f"solexec:{tmp_path}", "^L1/")
    task = load_task(found.text, found.name)
    assert task.outputs[0].shape == ("rows", 8) and task.outputs[0].dtype == "float32"
    x, places, eps = task.module().sample({"rows": 3})
    assert torch.equal(task.module().reference([x, places, eps])[0], x.float() * places[1:, None] + eps)


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"axes": {"rows": {"type": "vary"}}}, "axes.rows.type"),
        ({"axes": {**DEFINITION["axes"], "twice": {"type": "expr", "expression": "open('x')"}}}, "not an expression"),  # type: ignore[dict-item]
        ({"inputs": {"x": {"shape": ["wide"], "dtype": "float16"}}}, "no axis 'wide'"),
        ({"reference": "def go(x):\n    return x"}, r"defines no run\(\)"),
        ({"reference": "def a(x, places, eps): ...\ndef b(x, places, eps): ..."}, r"defines no run\(\)"),
    ],
)
def test_a_faulty_definition_fails_with_what_is_wrong_and_the_others_are_read(
    tmp_path: Path, changed: dict[str, object], word: str
) -> None:
    root = _definition(tmp_path, [_workload(4)])
    right = next(root.rglob("*.json"))
    (right.parent / "faulty.json").write_text(json.dumps({**DEFINITION, "name": "faulty", **changed}))
    (right.parent / "torn.json").write_text("{")
    tasks = {task.title: task for task in load_suite(f"flashinfer:{root}")}
    assert len(tasks) == 3 and load_task(tasks[DEFINITION["name"]].text, "right").outputs
    for name, fault in (("faulty", word), ("torn", "is not a definition")):
        assert re.search(fault, tasks[name].note)
        with pytest.raises(TaskError, match=fault):
            load_task(tasks[name].text, name)


@pytest.mark.parametrize("kind", ["akg", "tritonbench", "flashinfer", "solexec"])
def test_a_checkout_of_something_else_is_refused(kind: str, tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="There is no"):
        load_suite(f"{kind}:{tmp_path}")


def test_values_of_a_large_case_are_not_drawn_to_find_out_its_shapes() -> None:
    text = _cases("x[x > 0]", "torch.randn(m, n)", "((3, 16), (1 << 15, 1 << 14))")
    with pytest.raises(TaskError, match=r"those of case 1 take 2 GB. Choose a smaller case, for example CASE = 0"):
        load_task(text)
