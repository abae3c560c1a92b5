"""What a forward saves for its backward, and the pair of both."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from kernellab import ci
from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.ci.subjects import Subject
from kernellab.errors import CaptureError
from kernellab.export.exportable import VerifiedKernel
from kernellab.export.package import Package, Training, package
from kernellab.export.runtime.torch_op import Operator
from kernellab.model_integration.gradient.derive import PairTexts, pair_texts
from kernellab.model_integration.sources import tensors_in
from kernellab.records import GateState, Source, Stage, Trust, Verdict
from kernellab.sketch.check import load_program
from kernellab.sketch.gate import gate
from kernellab.target import Backend, Chip, Target
from kernellab.task import Task, load_task

TASK = """
import torch
import torch.nn.functional as F
from kernellab import Dim

GRAD = True

def reference({names}):
    {body}

N = Dim("N", 16, 4096)

def inputs(N=96):
    return {given}
"""
_DIM = 'N = Dim("N", 16, 4096)'
SDPA = "F.scaled_dot_product_attention"
QKV = "torch.randn(2, 4, N, 32), torch.randn(2, {kv}, N, 32), torch.randn(2, {kv}, N, 32)"
ONE = QKV.format(kv=4)
#: a forward, its inputs, and what its backward reads of the forward's results
FORMS = {
    "plain": ("q, k, v", f"return {SDPA}(q, k, v)", ONE, (0, 1)),
    "causal": ("q, k, v", f"return {SDPA}(q, k, v, is_causal=True)", ONE, (0, 1)),
    "grouped": (
        "q, k, v", f"return {SDPA}(q, k, v, is_causal=True, enable_gqa=True)", QKV.format(kv=2), (0, 1)
    ),
    "masked": ("q, k, v, m", f"return {SDPA}(q, k, v, m)", f"{ONE}, torch.rand(2, 1, N, N) < 0.7", (0, 1)),
    "turned": (
        "q, k, v", "return (torch.softmax(torch.tanh(q @ k.mT / 6) * 5, -1) @ v).transpose(1, 2)", ONE, (0, 1)
    ),
    "mlp": (
        "x, w, u", "return F.gelu(x @ w) @ u",
        "torch.randn(N, 4096), torch.randn(4096, 48) * 0.02, torch.randn(48, 8)", (1,),
    ),
    "gated": (
        "x, w, u", "return F.silu(x @ w) * (x @ u)",
        "torch.randn(N, 2048), torch.randn(2048, 48) * 0.02, torch.randn(2048, 48) * 0.02", (1, 2),
    ),
}  # fmt: skip


def texts_of(name: str) -> tuple[Task, PairTexts]:
    names, body, given, _ = FORMS[name]
    task = load_task(TASK.format(names=names, body=body, given=given), name)
    return task, pair_texts(task)


def count(text: str) -> int:
    """Products in the last function that is called reference."""
    body = text.rpartition("def reference")[2]
    return body.count(".bmm.") + body.count(".mm.")


@pytest.mark.parametrize("name", FORMS)
def test_a_backward_of_saved_tensors_agrees_with_autograd_and_repeats_no_product_that_is_saved(name: str) -> None:
    task, texts = texts_of(name)
    assert texts.saved == FORMS[name][3]
    # attention repeats its scores, as their matrix is longer to store; of two products none is repeated
    assert count(texts.backward) == (5 if 0 in texts.saved else 4)
    forward, backward = load_task(texts.forward, "forward"), load_task(texts.backward, "backward")
    args = list(task.module().sample({"N": 37}, 3))
    smooth = [a.is_floating_point() for a in args]
    leaves = [a.double().requires_grad_() if s else a for a, s in zip(args, smooth, strict=True)]
    out = task.module().call(leaves)
    above = torch.randn_like(out)
    wanted = torch.autograd.grad(out, [leaf for leaf in leaves if leaf.requires_grad], above)
    made = forward.module().reference(args)
    # the designed text gives what the reference gives
    for plain, want in zip(forward.module().namespace["plain"](*args), made, strict=True):
        torch.testing.assert_close(plain, want, rtol=1e-5, atol=1e-5)
    given = backward.module().reference([above.float(), *args, *(made[at] for at in texts.saved)])
    for gradient, want in zip(given, wanted, strict=True):
        torch.testing.assert_close(gradient.double(), want, rtol=1e-4, atol=1e-4)
    # it reads what is saved: other tensors give other gradients
    others = backward.module().reference([above.float(), *args, *(made[at] + 0.5 for at in texts.saved)])
    assert not all(torch.allclose(a, b, rtol=1e-3) for a, b in zip(given, others, strict=True))


_LONG = "torch.randn(N, 1024), torch.randn(1024, 32) / 32, torch.randn(32, 8)"
#: what once ended in an error, or in a text that is not the forward's
ODD = {
    "a matrix times itself": ("x, u", "return F.gelu(x @ x) @ u", "torch.randn(512, 512) / 22, torch.randn(512, 8)"),
    "last dimension by -1": ("q, k, v", f"return {SDPA}(q, k, v).permute(0, 2, 1, -1)", ONE),
    "shares of parts of a row": (
        "x, w, v", "return torch.softmax((x @ w).view(-1, 4, 8), -1).view(-1, 32) @ v", _LONG
    ),
    "a number that is given": ("x, w, v, s: float = 0.5", "return F.gelu(x @ w * s) @ v", f"{_LONG}, 0.5"),
    "a tuple of one": ("q, k, v", f"return ({SDPA}(q, k, v),)", ONE),
    "an input called outputs": ("outputs, w, made", "return F.gelu(outputs @ w) @ made", _LONG),
    "a width that is a Dim's least": ("q, k, v", f"return {SDPA}(q, k, v)", ONE.replace("32", "64")),
    "written into parts of zeros": ("x, w", "return torch.fft.rfft(x @ w).abs()", _LONG.rpartition(", torch")[0]),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_odd_forwards_have_backwards_that_agree_with_autograd(name: str) -> None:
    names, body, given = ODD[name]
    text = TASK.format(names=names, body=body, given=given).replace('"N", 16', '"N", 64')
    task = load_task(text, "odd")
    texts = pair_texts(task)
    backward = load_task(texts.backward, "backward")
    args = list(backward.module().sample({"N": 72} if task.dims else {}, 3))
    tensors = args[1 : 1 + len(task.tensors)]
    leaves = [t.double().requires_grad_() for t in tensors]
    (out,) = tensors_in(task.module().call([*leaves, *(a.value for a in task.args if not a.is_tensor)]))
    wanted = torch.autograd.grad(out, leaves, args[0].double())
    for gradient, want in zip(backward.module().reference(args), wanted, strict=True):
        torch.testing.assert_close(gradient.double(), want, rtol=1e-3, atol=1e-3)
    if texts.forward:
        forward = load_task(texts.forward, "forward").module()
        for plain, want in zip(forward.namespace["plain"](*tensors), forward.reference(tensors), strict=True):
            torch.testing.assert_close(plain, want, rtol=1e-4, atol=1e-4)


def test_a_loop_of_many_steps_is_no_recursion() -> None:
    body = "h = x @ w\n    for _ in range(600):\n        h = torch.tanh(h)\n    return h @ u"
    text = (
        TASK.format(names="x, w, u", body=body, given=_LONG).replace("N=96", "").replace(_DIM, "").replace("(N,", "(9,")
    )
    assert pair_texts(load_task(text, "deep")).forward


def test_parts_of_a_tensor_that_are_written_are_not_left_out() -> None:
    body = "h = x @ w\n    h[:, :2] = 0\n    return F.gelu(h) @ u"
    with pytest.raises(CaptureError, match="constant tensor"):
        pair_texts(load_task(TASK.format(names="x, w, u", body=body, given=_LONG), "written"))


@pytest.mark.parametrize(
    ("names", "body", "given"),
    [
        ("x, w", "return x @ w", "torch.randn(N, 512), torch.randn(512, 8)"),
        ("x", "return torch.softmax(x, -1)", "torch.randn(N, 64)"),
        # its first product is of few terms
        ("x, w, u", "return F.gelu(x @ w) @ u", "torch.randn(N, 16), torch.randn(16, 48), torch.randn(48, 8)"),
    ],
)  # fmt: skip
def test_nothing_is_saved_that_costs_more_than_it_spares(names: str, body: str, given: str) -> None:
    texts = pair_texts(load_task(TASK.format(names=names, body=body, given=given), "odd"))
    assert not texts.forward and not texts.saved and "_saved" not in texts.backward


def test_texts_make_their_tensors_where_the_inputs_are() -> None:
    """A causal mask is made by ``aten.arange``, which ``torch.device`` does not reach."""
    names, body, given, _ = FORMS["causal"]
    texts = pair_texts(load_task(TASK.format(names=names, body=body, given=given)))
    assert texts.forward is not None and "arange" in texts.forward and "arange" in texts.backward
    for text in (texts.forward, texts.backward):
        module: dict[str, Any] = {}
        exec(text, module)
        with FakeTensorMode():
            tensors = [
                torch.empty((2, 4, 96, 1 if name == "saved2" else 32), device="cuda")
                for name in inspect.signature(module["reference"]).parameters
            ]
            assert {result.device.type for result in module["reference"](*tensors)} == {"cuda"}


def test_on_a_gpu_the_forward_saves_in_its_own_launch_and_the_backward_has_no_forward() -> None:
    text = TASK.format(
        names="q, k, v", body=f"return {SDPA}(q, k, v, is_causal=True)",
        given="tuple(torch.randn(2, 4, 256, 64, dtype=torch.bfloat16) for _ in range(3))",
    ).replace('N = Dim("N", 16, 4096)', "").replace("N=96", "")  # fmt: skip
    texts = pair_texts(load_task(text, "causal"))
    chip = Chip("a GPU", "gpu", 132, shared_bytes=227 << 10, registers_per_core=65536)
    target = Target("triton", Backend.CUDA, chip)
    programs = []
    for each in (texts.forward, texts.backward):
        task = load_task(each, "causal")
        sketch = RulesDesigner().design(DesignBrief(task, target)).sketch
        assert gate(sketch, task, seconds=1).state is GateState.RIGHT, sketch
        programs.append(load_program(sketch))
    forward, backward = programs
    assert [sorted(k.writes) for k in forward.kernels] == [["y0", "y1"]]
    # no forward again: the sums of rows, and two passes that multiply scores at once; no matrix of scores is stored
    written = [name for k in backward.kernels for name in k.writes]
    assert len(backward.kernels) == 3 and len(written) == 4 and {"y0", "y1", "y2"} < set(written)


HEAD = "import torch\n\ncalls = []\n\n\ndef kernel({names}):\n    calls.append(1)\n"
KERNELS = {
    "operator": HEAD.format(names="x, w, u") + "    return torch.nn.functional.gelu(x @ w) @ u\n",
    "operator_forward": HEAD.format(names="x, w, u") + (
        "    h = x @ w\n    return torch.nn.functional.gelu(h) @ u, h\n"
    ),
    # by hand, and scaled, so that it is seen whose gradients are given
    "operator_backward": HEAD.format(names="grad, x, w, u, h") + (
        "    g = torch.ops.aten.gelu_backward(grad @ u.T, h)\n    a = torch.nn.functional.gelu(h)\n"
        "    return 2 * (g @ w.T), 2 * (x.T @ g), 2 * (a.T @ grad)\n"
    ),
}  # fmt: skip


def packed(task: Task, texts: PairTexts, kernels: Mapping[str, str]) -> Package:
    tasks = {"operator": task.text, "operator_forward": texts.forward, "operator_backward": texts.backward}
    made = {}
    for name, text in tasks.items():
        source = Source(dsl="triton", files={"kernel.py": kernels[name]})
        verdict = Verdict(passed=True, stage=Stage.FAST, reason="", trust=Trust.T1)
        made[name] = VerifiedKernel(name, load_task(text, name), source, verdict, Backend.INTERPRETER, "here")
    training = Training(made["operator_forward"], made["operator_backward"], texts.saved)
    return package([made["operator"]], training=training)


def test_an_export_of_a_pair_keeps_what_its_forward_saves_and_its_gradients_are_the_backwards(tmp_path: Path) -> None:
    task, texts = texts_of("mlp")
    whole = packed(task, texts, KERNELS)
    assert "gradients, are the reference's" not in whole.docstring
    operator = Operator(whole.write(tmp_path))
    x, w, u = (a.requires_grad_() for a in task.module().sample({"N": 20}, 1))
    want = torch.nn.functional.gelu(x @ w) @ u
    above = torch.randn_like(want)
    exact = torch.autograd.grad(want, (x, w, u), above)
    for call in (operator.call, torch.compile(operator.op, backend="aot_eager")):
        out = call(x, w, u)
        torch.testing.assert_close(out, want)
        for gradient, one in zip(torch.autograd.grad(out, (x, w, u), above), exact, strict=True):
            torch.testing.assert_close(gradient, 2 * one, rtol=1e-4, atol=1e-4)
    # a second derivative is the reference's
    out = operator.call(x, w, u)
    (first,) = torch.autograd.grad(out, x, above, create_graph=True)
    torch.testing.assert_close(first, exact[0], rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        torch.testing.assert_close(operator.call(x, w, u), want)
    # where no kernel of the gradients takes the call, its reference does
    wide = [t.detach().double().requires_grad_() for t in (x, w, u)]
    with pytest.warns(RuntimeWarning, match="was not verified for"):
        out = operator.call(*wide)
    given = torch.autograd.grad(out, wide, above.double())
    for gradient, one in zip(given, exact, strict=True):
        torch.testing.assert_close(gradient.float(), one, rtol=1e-4, atol=1e-4)


def test_each_kernel_of_a_pairs_export_is_checked_in_a_repository(tmp_path: Path) -> None:
    task, texts = texts_of("mlp")
    packed(task, texts, KERNELS).write(tmp_path)
    found = ci.subjects([tmp_path])
    assert all(isinstance(each, Subject) for each in found)
    sources = {each.name.rpartition("#")[2]: each.source.files for each in found if isinstance(each, Subject)}
    whole = next(name for name in sources if name not in ("forward", "backward"))
    assert {whole: KERNELS["operator"], **{w: KERNELS[f"operator_{w}"] for w in ("forward", "backward")}} == {
        name: files["kernel.py"] for name, files in sources.items()
    }


#: kernels that no call below reaches, or that fail, so that it is seen that the reference runs
UNREACHED = dict.fromkeys(KERNELS, "def kernel(*args):\n    raise AssertionError('not verified for this')\n")
OTHER_CALLS = {
    "dtype": lambda t: t.bfloat16(),
    "heads": lambda t: t[:, :3],
    "rank": lambda t: t[:, 0],
    "width": lambda t: t[..., :8],
    "size": lambda t: t[:, :, :5],
    "empty": lambda t: t[:, :, :0],
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", OTHER_CALLS)
def test_a_pairs_export_gives_the_references_gradients_where_its_kernels_do_not_take_the_call(
    name: str, compiled: bool, tmp_path: Path
) -> None:
    """The texts of what is saved have the task's dtypes and shapes; bfloat16 and another rank failed in them."""
    task, texts = texts_of("causal")
    operator = Operator(packed(task, texts, UNREACHED).write(tmp_path))
    torch._dynamo.reset()
    call = torch.compile(operator.op, backend="aot_eager") if compiled else operator.call
    leaves = [OTHER_CALLS[name](t).detach().requires_grad_() for t in task.module().sample(seed=2)]
    want = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=True)
    above = torch.randn_like(want)
    exact = torch.autograd.grad(want, leaves, above)
    out = call(*leaves)
    assert torch.equal(out, want)
    for gradient, one in zip(torch.autograd.grad(out, leaves, above), exact, strict=True):
        assert torch.equal(gradient, one)


def test_under_autocast_a_pairs_kernels_run_as_verified_and_its_reference_as_in_the_forward(tmp_path: Path) -> None:
    task, texts = texts_of("mlp")
    operator = Operator(packed(task, texts, KERNELS).write(tmp_path))
    x, w, u = (t.requires_grad_() for t in task.module().sample({"N": 20}, 1))
    want = torch.nn.functional.gelu(x @ w) @ u
    exact = torch.autograd.grad(want.sum(), (x, w, u))
    with torch.autocast("cpu", torch.bfloat16):
        out = operator.call(x, w, u)
        torch.testing.assert_close(out, want)
        for gradient, one in zip(torch.autograd.grad(out.sum(), (x, w, u)), exact, strict=True):
            torch.testing.assert_close(gradient, 2 * one, rtol=1e-4, atol=1e-4)
        # products of two dtypes, which autocast alone takes
        narrow = x.detach().bfloat16().requires_grad_()
        with pytest.warns(RuntimeWarning, match="was not verified for"):
            out = operator.call(narrow, w, u)
        want = torch.nn.functional.gelu(narrow @ w) @ u
    assert torch.equal(out, want)
    exact = torch.autograd.grad(want.sum(), (narrow, w, u))
    for gradient, one in zip(torch.autograd.grad(out.sum(), (narrow, w, u)), exact, strict=True):
        assert gradient.dtype == one.dtype and torch.equal(gradient, one)


def test_tensors_of_other_strides_are_saved_by_the_reference_too() -> None:
    task, texts = texts_of("causal")
    forward = load_task(texts.forward, "forward").module()
    args = task.module().sample(seed=2)
    turned = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in args]
    for one, other in zip(forward.reference(turned), forward.reference(args), strict=True):
        torch.testing.assert_close(one, other)


def test_another_number_than_the_tasks_has_the_references_gradients(tmp_path: Path) -> None:
    """The backward has the task's numbers built in."""
    text = TASK.format(
        names="x, w, u, scale: float = 0.5", body="return F.gelu(x @ w * scale) @ u",
        given="torch.randn(N, 4096), torch.randn(4096, 48) * 0.02, torch.randn(48, 8)",
    )  # fmt: skip
    task = load_task(text, "mlp")
    texts = pair_texts(task)
    taking = {name: kernel.replace("(x, w, u)", "(x, w, u, scale=0.5)") for name, kernel in KERNELS.items()}
    operator = Operator(packed(task, texts, taking).write(tmp_path))
    x, w, u = (t.requires_grad_() for t in task.module().sample({"N": 20}, 1)[:3])
    want = torch.nn.functional.gelu(x @ w * 0.25) @ u
    exact = torch.autograd.grad(want.sum(), (x, w, u))
    with pytest.warns(RuntimeWarning, match="scale is 0.25"):
        out = operator.call(x, w, u, 0.25)
    for gradient, one in zip(torch.autograd.grad(out.sum(), (x, w, u)), exact, strict=True):
        torch.testing.assert_close(gradient, one, rtol=1e-4, atol=1e-4)
