"""A Task is read from its module text alone, in both forms, with symbolic shapes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernellab.errors import TaskError
from kernellab.task import ArgKind, Dim, Task, TaskForm, extent, forget_modules, load_task
from kernellab.task.call_inputs.fit import fit
from kernellab.task.values import in_written_order

STRANGE = "import torch\ndef reference(x): return {}\ndef inputs(): return {}\n"
RMS_NORM = """
import torch
from kernellab import Dim

def reference(x, w, eps: float = 1e-6):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w

M, N = Dim("M", 1, 16384), Dim("N", 64, 8192)
def inputs(M=4096, N=2048):
    return torch.randn(M, N), torch.rand(N)
"""

CONV_MODEL = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, channels, out, kernel):
        super().__init__()
        self.conv = nn.Conv2d(channels, out, kernel)
        self.bn = nn.BatchNorm2d(out)

    def forward(self, x, scale=2.0):
        return torch.relu_(self.bn(self.conv(x))) * scale

def get_inputs():
    return [torch.rand(2, 3, 16, 16)]

def get_init_inputs():
    return [3, 8, 3]
"""


ONE = "def inputs(): return torch.rand(3)\n"


def native(result: str, dims: str = 'Dim("M", 1, 4096), Dim("N", 1, 4096)', inputs: str = "torch.randn(M, N)") -> str:
    return f"""
import numpy as np
import torch
from kernellab import Dim

DIMS = [{dims}]

def inputs(M=512, N=300):
    return {inputs}

def reference(x, *rest):
    return {result}
"""


def test_native_task_names_arguments_dims_and_the_scalar_default() -> None:
    task = load_task(RMS_NORM, "rms")
    assert task.form is TaskForm.NATIVE
    assert [(a.name, a.kind, a.shape) for a in task.args] == [
        ("x", ArgKind.TENSOR, ("M", "N")),
        ("w", ArgKind.TENSOR, ("N",)),
        ("eps", ArgKind.SCALAR, ()),
    ]
    assert task.args[2].default == 1e-6
    assert task.dims == (Dim("M", 1, 16384), Dim("N", 64, 8192))
    assert task.outputs[0].shape == ("M", "N")
    assert task.signature == "x: f32 [M, N], w: f32 [N], eps=1e-06 -> f32 [M, N]"
    assert task.module().default_sizes() == {"M": 4096, "N": 2048}


def test_sample_is_what_the_kernel_gets_and_repeats_with_its_seed() -> None:
    module = load_task(RMS_NORM, "rms").module()
    before = torch.random.get_rng_state()
    first, second = module.sample({"M": 3, "N": 64}, seed=5), module.sample({"M": 3, "N": 64}, seed=5)
    other = module.sample({"M": 3, "N": 64}, seed=6)
    assert torch.equal(first[0], second[0]) and not torch.equal(first[0], other[0])
    assert first[2] == 1e-6
    assert torch.equal(torch.random.get_rng_state(), before)
    (out,) = module.reference(first)
    x, w = first[0], first[1]
    assert torch.allclose(out, x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w)


def test_model_parameters_and_buffers_are_lifted_in_state_dict_order() -> None:
    task = load_task(CONV_MODEL, "conv")
    assert task.form is TaskForm.KERNELBENCH
    assert [a.name for a in task.args] == [
        "x", "scale", "conv_weight", "conv_bias", "bn_weight", "bn_bias", "bn_running_mean", "bn_running_var",
        "bn_num_batches_tracked",
    ]  # fmt: skip
    kinds = [a.kind for a in task.args]
    assert kinds[2:6] == [ArgKind.PARAMETER] * 4
    assert kinds[6:] == [ArgKind.BUFFER] * 3
    assert all(a.static for a in task.args[2:])
    assert task.outputs[0].shape == (2, 8, 14, 14)


def test_lifted_parameters_replace_the_models_own() -> None:
    module = load_task(CONV_MODEL, "conv").module()
    args = list(module.sample())
    own = module.reference(args)[0]
    args[2] = torch.zeros_like(args[2])
    args[3] = torch.zeros_like(args[3])
    changed = module.reference(args)[0]
    assert not torch.allclose(own, changed)
    # a zero convolution in eval mode leaves relu(bn bias) = 0 in every place
    assert torch.count_nonzero(changed) == 0
    assert torch.allclose(module.reference(module.sample())[0], own)


@pytest.mark.parametrize(
    ("result", "shape"),
    [
        ("torch.cat([x, x], 0)", ("2*M", "N")),
        ("x.reshape(-1)[1:]", ("M*N - 1",)),
        ("torch.nn.functional.avg_pool1d(x[None], 3, 2)", (1, "M", "(N - 1) // 2")),
        ("x.unfold(1, 2, 1).unfold(1, 1, 5)[..., 0, 0]", ("M", "(N + 3) // 5")),
        ("x.sum()", ()),
        ("x[:, None, :] + x[None, :, :]", ("M", "M", "N")),
        ("torch.cat([x.sum(1), x.sum(0)])", ("M + N",)),
        ("(x, x.sum(1))", ("M", "N")),
        ("(x[:, :, None] * x[:, None]).reshape(x.shape[0], -1)", ("M", "N*N")),
        ("x[torch.tril_indices(len(x), len(x), -1)[0]]", ("(M*M - M) // 2", "N")),
        ("x[torch.combinations(torch.arange(len(x)), 3)[:, 0]]", ("(M*M*M + 2*M - 3*M*M) // 6", "N")),
    ],
)
def test_output_shapes_are_found_over_the_dims(result: str, shape: tuple[int | str, ...]) -> None:
    assert load_task(native(result)).outputs[0].shape == shape


def test_an_output_that_grows_by_no_rule_is_refused_with_what_can_be_done() -> None:
    with pytest.raises(TaskError, match="follows no simple rule") as caught:
        load_task(native("x[: int(np.log2(x.shape[0]))]"))
    assert "separate Dim" not in caught.value.remedy


def test_sizes_that_must_be_multiples_are_found() -> None:
    task = load_task(native("x.reshape(x.shape[0] // 8, 8, -1).sum(1)"))
    assert task.outputs[0].shape == ("M // 8", "N")


@settings(max_examples=60, deadline=None)
@given(
    a=st.integers(1, 4),
    b=st.integers(0, 3),
    c=st.integers(1, 3),
    kind=st.sampled_from(["affine", "product", "ceil", "longer", "shorter"]),
)
def test_fit_finds_an_expression_with_the_same_values_elsewhere(a: int, b: int, c: int, kind: str) -> None:
    def value(m: int, n: int) -> int:
        if kind == "affine":
            return a * m + c * n + b
        if kind == "product":
            return a * m * n + b
        if kind in ("longer", "shorter"):
            return max(m, n) if kind == "longer" else min(m, n)
        return -(-m // (c + 1))

    seen = [{"M": m, "N": n} for m, n in [(5, 7), (17, 7), (31, 7), (5, 19), (5, 37), (17, 19), (41, 43), (29, 61)]]
    found = fit([value(**{k.lower(): v for k, v in s.items()}) for s in seen], seen, ["M", "N"])
    assert found is not None
    for m, n in [(101, 53), (64, 256), (77, 6)]:
        assert extent(found, {"M": m, "N": n}) == value(m, n)


def test_numpy_reference_works_on_tensors_both_ways() -> None:
    task = load_task(native("np.exp(x).sum(axis=0)", inputs="np.random.randn(M, N).astype(np.float32)"))
    assert task.framework == "numpy"
    module = task.module()
    args = module.sample({"M": 4, "N": 6})
    assert isinstance(args[0], torch.Tensor) and args[0].dtype == torch.float32
    (out,) = module.reference(args)
    assert isinstance(out, torch.Tensor)
    assert np.allclose(out.numpy(), np.exp(args[0].numpy()).sum(axis=0))


def test_reference_that_changes_its_argument_gets_a_copy() -> None:
    module = load_task(native("torch.relu_(x)")).module()
    args = module.sample({"M": 4, "N": 6})
    before = args[0].clone()
    module.reference(args)
    assert torch.equal(args[0], before)


def test_a_module_that_was_let_go_is_made_anew_with_all_that_was_known() -> None:
    text = "import torch\ndef reference(x, r):\n    r.add_(x)\n    return 2 * r\n"
    task = load_task(text + "def inputs():\n    return torch.ones(2, 3), torch.ones(2, 3)\n", "let_go")
    forget_modules()
    args = task.module().sample()
    doubled, written = task.module().results(args)
    assert args[1].eq(1).all() and written.eq(2).all() and doubled.eq(4).all()
    plain = "import numpy as np\ndef reference(x):\n    return np.where(x > 0, x, 0)\n"
    task = load_task(plain + "def inputs():\n    return np.ones((2, 3), np.float32)\n", "let_go_too")
    forget_modules()
    (made,) = task.module().reference(task.module().sample())
    assert torch.equal(made, torch.ones(2, 3))


def test_policy_is_read_and_checked() -> None:
    text = RMS_NORM + "\nTOLERANCE = 1e-3\nPRECISION = {'matmul': 'tf32'}\nDOMAIN = {'x': 'positive'}\nSTATIC = ['w']\n"
    task = load_task(text)
    assert task.tolerance == {"floor": 1e-3}
    assert task.precision == {"matmul": "tf32"}
    assert task.domain == {"x": "positive"}
    assert task.static == ("w",) and task.arg("w").static and not task.arg("x").static
    with pytest.raises(TaskError, match="not an argument"):
        load_task(RMS_NORM + "\nSTATIC = ['nothing']\n")
    with pytest.raises(TaskError, match="not known"):
        load_task(RMS_NORM + "\nDOMAIN = {'x': 'purple'}\n")
    # what nothing would read is refused
    with pytest.raises(TaskError, match="'rtol'") as refused:
        load_task(RMS_NORM + "\nTOLERANCE = {'rtol': 1e-3, 'atol': 1e-3}\n")
    assert "floor" in refused.value.remedy


def test_another_process_rebuilds_the_same_task_from_text_and_name(tmp_path: Path) -> None:
    payload = tmp_path / "task.json"
    payload.write_text(json.dumps({"text": RMS_NORM, "name": "rms"}))
    code = (
        "import json, sys; from kernellab.task import load_task;"
        "t = load_task(**{('text_or_path' if k == 'text' else k): v for k, v in json.load(open(sys.argv[1])).items()});"
        "print(t.hash, t.signature, t.args)"
    )
    seen = subprocess.run([sys.executable, "-c", code, str(payload)], capture_output=True, text=True, check=True)
    task = load_task(RMS_NORM, "rms")
    assert seen.stdout.strip() == f"{task.hash} {task.signature} {task.args}"


def test_task_is_read_from_a_file_and_named_after_it(tmp_path: Path) -> None:
    path = tmp_path / "12_my-norm.py"
    path.write_text(RMS_NORM)
    assert load_task(path).name == "task_12_my_norm"
    assert isinstance(load_task(str(path)), Task)
    with pytest.raises(TaskError, match="cannot be read"):
        load_task(tmp_path / "missing.py")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def f(:\n    pass\n", "syntax error on line 1"),
        ("x = 1\n", "defines no reference"),
        ("def reference(x): return x\n", "no inputs"),
        ("class Model: pass\n", "no get_inputs"),
        (f"import torch\ndef reference(x): return np.sum(x)\n{ONE}", "'np' is not defined at line 2"),
        (f"import torch\ndef reference(xs): return x.sum()\n{ONE}", "line 2 of the task. Did you mean 'xs'?"),
        ("y = x_from_the_notebook + 1\n", "'x_from_the_notebook' is not defined at line 1"),
        (f"import torch\ndef reference(x, y): return x\n{ONE}", "inputs are 1 and reference takes 2"),
        (
            "import torch\ndef reference(x, y): return x @ y\n"
            "def inputs(): return torch.rand(3, 4), torch.rand(3, 4)\n",
            "raises RuntimeError at line 2",
        ),
        (f"import torch\ndef reference(x): raise ValueError('no')\n{ONE}", "ValueError at line 2: no"),
        ("def reference(x): return x\ndef inputs(): return 'text'\n", "gives a str"),
        ("import torch\ndef reference(x): return 'text'\ndef inputs(): return torch.rand(2)\n", "returns a str"),
        ("import torch\ndef reference(x): pass\ndef inputs(): return torch.rand(2)\n", "returns nothing"),
        ("import module_that_is_not_here\n", "not here at line 1"),
        ("raise SystemExit(3)\n", "SystemExit at line 1"),
        (
            "import torch\nfrom kernellab import Dim\nK = Dim('K', 1, 9)\ndef reference(x): return x\n"
            "def inputs(M=3): return torch.rand(M)\n",
            "does not take the Dim K",
        ),
        (
            "import torch\nfrom kernellab import Dim\nM = Dim('M', 8, 9)\ndef reference(x): return x\n"
            "def inputs(M=3): return torch.rand(M)\n",
            "outside its Dim",
        ),
        (STRANGE.format("x.to_dense()", "torch.eye(3).to_sparse()"), "inputs() gives a sparse tensor as value 1"),
        (STRANGE.format("x", "[torch.ones(3), torch.ones(3).chalf()]"), "a tensor of complex32 as value 2"),
        (STRANGE.format("x", "torch.ones(3, device='meta')"), "on the device meta"),
        (STRANGE.format("x.to_sparse()", "torch.eye(3)"), "The reference returns a sparse tensor"),
    ],
)  # fmt: skip
def test_bad_text_is_one_sentence_with_a_remedy(text: str, said: str) -> None:
    with pytest.raises(TaskError) as caught:
        load_task(text)
    assert said in str(caught.value)
    assert caught.value.remedy
    assert "\n" not in str(caught.value)


def test_sizes_are_read_back_from_arguments() -> None:
    task = load_task(RMS_NORM, "rms")
    assert task.sizes_of(task.module().sample({"M": 7, "N": 65})) == {"M": 7, "N": 65}


def test_importing_the_task_room_does_not_import_torch() -> None:
    rooms = "kernellab.task, kernellab.task.sample.inputs, kernellab.sketch.cost"
    code = f"import sys, {rooms}; print('torch' in sys.modules)"
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert seen.stdout.strip() == "False"


def test_an_argument_that_a_dim_does_not_take_says_what_it_takes() -> None:
    text = native("x", dims='Dim("M", 1, 64, multiple=8), Dim("N", 1, 64)')
    with pytest.raises(TaskError, match=r"'multiple'.*Write Dim\(.*Multiples are written in inputs"):
        load_task(text)


def test_a_device_that_is_not_here_is_named_with_the_way_around_it() -> None:
    text = "import torch\ndef reference(x):\n    return x + torch.zeros(3, device='npu')\n"
    text += "def inputs():\n    return torch.ones(3)\n"
    with pytest.raises(TaskError, match=r"names the device 'npu' at line 3, which .* Take the device of an argument"):
        load_task(text)


def test_a_mask_of_a_narrower_float_is_read_as_such_in_float64() -> None:
    task = load_task("""
import torch
import torch.nn.functional as F

def reference(q, k, v, seen):
    return F.scaled_dot_product_attention(q, k, v, torch.where(seen, 0.0, float("-inf")))

def inputs():
    return *(torch.randn(2, 4, 70, 32) for _ in range(3)), torch.rand(70, 70) < 0.9
""")
    args = task.module().sample(seed=0)
    narrow, wide = (task.module().results(each)[0] for each in (args, [*(a.double() for a in args[:3]), args[3]]))
    assert wide.dtype == torch.float64
    torch.testing.assert_close(narrow.double(), wide, rtol=1e-4, atol=1e-5)


def test_an_einsum_of_several_operands_keeps_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[bool] = []
    task = load_task(
        "import torch\ndef reference(a, b, c):\n    return torch.einsum('ij,jk,kl->il', a, b, c)\n"
        "def inputs():\n    return torch.randn(8, 4), torch.randn(4, 8), torch.randn(8, 2)\n"
    )
    einsum = torch.einsum

    def watched(*args: object) -> torch.Tensor:
        taken.append(torch.backends.opt_einsum.enabled)
        return einsum(*args)

    module, before = task.module(), torch.backends.opt_einsum.enabled
    monkeypatch.setattr(torch, "einsum", watched)
    module.results(module.sample(seed=0))
    assert taken == [False] and torch.backends.opt_einsum.enabled is before


@pytest.mark.parametrize("quotient", ["a // b", "a % b", "torch.fmod(a, b)", "torch.div(a, b, rounding_mode='trunc')"])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_the_least_whole_number_divided_by_minus_one_is_an_error(quotient: str, dtype: str) -> None:
    task = load_task(
        f"import torch\n\ndef reference(a, b):\n    return {quotient}\n\n"
        f"def inputs():\n    return torch.arange(1, 5, dtype=torch.{dtype}), -torch.ones(4, dtype=torch.{dtype})\n",
        "quotient",
    )
    least = torch.full((4,), torch.iinfo(getattr(torch, dtype)).min, dtype=getattr(torch, dtype))
    with pytest.raises(TaskError, match="divided by -1"):
        task.module().results([least, -torch.ones_like(least)])
    assert task.module().results([least + 1, -torch.ones_like(least)])[0].numel() == 4


def test_references_that_run_together_keep_the_order_until_the_last_has_run(monkeypatch: pytest.MonkeyPatch) -> None:
    planner = torch.backends.opt_einsum
    monkeypatch.setattr(planner, "is_available", lambda: True)
    monkeypatch.setattr(planner, "enabled", True)
    first, second = in_written_order(), in_written_order()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert planner.enabled is False
    second.__exit__(None, None, None)
    assert planner.enabled is True


@pytest.mark.parametrize("by", ["torch.tensor([-1], dtype=torch.int8)", "torch.tensor(-1)"])
def test_the_least_whole_number_is_found_in_the_dtype_of_the_division(by: str) -> None:
    text = f"import torch\n\ndef reference(a):\n    return torch.div(a, {by}, rounding_mode='trunc')\n\n"
    task = load_task(text + "def inputs():\n    return (torch.arange(4, dtype=torch.int32),)\n", "quotient")
    with pytest.raises(TaskError, match="divided by -1"):
        task.module().results([torch.full((4,), -(2**31), dtype=torch.int32)])


def test_an_extent_that_follows_no_dim_is_named_by_its_argument() -> None:
    text = (
        "import torch\nfrom kernellab import Dim\nN = Dim('N', 1, 64)\n"
        "def reference(places, scores):\n    return scores * 2\n"
        "def inputs(N=8):\n    return torch.zeros(N), torch.randn(3, (N * N * 37) % 61 + 2)\n"
    )
    with pytest.raises(TaskError, match=r"extent of scores in dimension 1 \(from 0\) follows no simple rule"):
        load_task(text, "odd")
