"""Shapes are found without memory, and without torch's compiler where torch's own kernels tell them."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
import torch

from kernellab.capture import capture
from kernellab.errors import TaskError
from kernellab.task import faking, load_task
from kernellab.task.meta.shape_rules import result
from kernellab.task.module import TaskModule
from kernellab.task.sample.sizes import runs_at
from kernellab.task.shapes import Shapes, infer
from kernellab.teach.exercise import course

TASK = """import torch
from kernellab import Dim

M, N = Dim("M", 1, 64), Dim("N", 1, 64)
TABLE = torch.arange(8.0)

def reference(x, y):
{body}

def inputs(M=24, N=40):
    return torch.randn(M, N), torch.randn(N)
"""
BODIES = {
    "views": "return (x * y)[:, ::2].transpose(0, 1).reshape(-1, x.shape[0]).contiguous()",
    "dtypes": "return x > 0, x.argmax(-1), (x.to(torch.int32) + 1.5), torch.where(x > 0, x.half(), 1)",
    "reduced": "return x.sum(), x.mean(0, keepdim=True), x.var(1), x.amax((0, 1)), x.softmax(0)",
    "device": "return x + torch.ones(x.shape[1], device=x.device) if x.is_cpu else x",
    "table": "return x.sum(0)[:8] * TABLE[: min(8, x.shape[1])].sum()",
    "constant": "return x * torch.tensor(2.0).item() + torch.tensor([1.0])",
    "written": "x += y\n    return x[0]",
    "steps": "return torch.stack([x[:, :1], x[:, -1:]], 1), torch.cat([x, y[None]])",
    "caught": "try:\n        n = int(y[0])\n    except RuntimeError:\n        n = 1\n    return x[:n]",
    "values": "return x * float(y.max())",
    "wrong": "return x @ x",
    "channels last": "x = x.expand(2, 4, -1, -1).contiguous(memory_format=torch.channels_last)\n"
    "    return torch.nn.functional.conv2d(x, torch.ones(8, 4, 3, 3)).relu() + 1",
    "format asked": "return x[None, None].expand(2, 4, -1, -1).contiguous().contiguous("
    "memory_format=torch.channels_last)",
    "any of none": "return torch.any(x > 0, dim=())",
    "moved": "x = x.to(y.device)\n    x += 1\n    return x",
    "sampled": "return torch.nn.functional.grid_sample(x.expand(3, 2, -1, -1), "
    "y[:8].view(1, 2, 2, 2).expand(3, -1, -1, -1), align_corners=True)",
    "sampled by three": "return torch.nn.functional.grid_sample(x[None, None], y[:6].view(1, 1, 2, 3))",
    "placed": "return x + torch.zeros(3, device='meta').shape[0]",
}


def _refused() -> object:
    raise RuntimeError


def _found(text: str) -> tuple[Shapes | str, bool, bool]:
    module = TaskModule("task", text)
    try:
        shapes: Shapes | str = infer(module)
    except TaskError as error:
        shapes = str(error)
    return shapes, module.needs_values, module.mutates


@pytest.mark.parametrize("body", BODIES)
def test_meta_tensors_tell_what_fake_ones_tell(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = TASK.format(body="    " + BODIES[body])
    found = _found(text)
    monkeypatch.setattr(faking, "on_meta", _refused)
    assert found == _found(text)


def test_the_shape_of_sampled_images_needs_no_decomposition() -> None:
    sample = torch.ops.aten.grid_sampler_2d.default
    images, grid = torch.empty(3, 2, 5, 7, device="meta"), torch.empty(3, 4, 6, 2, device="meta")
    sampled = result(sample, (images, grid, 0, 0, False), {})
    assert sampled is not None and sampled.shape == (3, 2, 4, 6) and sampled.dtype == torch.float32
    assert result(sample, (images, grid[:2], 0, 0, False), {}) is None


def test_a_real_tensor_is_not_written() -> None:
    table = torch.arange(8.0)
    with pytest.raises(faking.Unsure), faking.on_meta():
        table.add_(1)
    assert torch.equal(table, torch.arange(8.0))


def test_a_lessons_task_loads_no_compiler() -> None:
    exercises = [e.id for lesson in list(course().lessons.values())[:5] for e in lesson.exercise]
    texts = [course().task_text(e) for e in exercises[::2]]
    assert len(texts) > 8 and all(texts)
    code = (
        "import sys\nfrom kernellab.task import load_task\n"
        f"for text in {texts!r}: load_task(text, 'task')\n"
        "print('torch._dynamo' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "False"


KEPT = """import torch
from functools import lru_cache

@lru_cache
def table(n):
    return torch.arange(n - 1, -1, -1)

def reference(x):
    return x.index_select(1, table(x.shape[-1]))

def inputs():
    return (torch.randn(3, 4),)
"""


def test_a_tensor_that_a_reference_keeps_at_a_size_that_was_tried_has_its_values() -> None:
    dim = "from kernellab import Dim\nN = Dim('N', min=2, max=64)\n"
    text = KEPT.replace("def inputs():", "def inputs(N=8):").replace("3, 4", "3, N")
    task = load_task(dim + text, "kept")
    assert runs_at(task, (("N", 11),))
    x = torch.randn(3, 11)
    assert torch.equal(task.module().reference([x])[0], x.flip(1))


def test_a_tensor_that_a_reference_keeps_has_its_values() -> None:
    task = load_task(KEPT, "kept")
    capture(task)
    (x,) = task.module().sample(seed=1)
    assert torch.equal(task.module().reference([x])[0], x.flip(1))


def test_a_torch_for_cuda_keeps_the_guard_of_traces_in_a_thread_that_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    makers: list[threading.Thread] = []
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    made = lambda: makers.append(threading.current_thread())  # noqa: E731
    monkeypatch.setattr(torch._C, "_ensureCUDADeviceGuardSet", made, raising=False)
    faking._keep_guard.cache_clear()

    def traced() -> None:
        with faking.tracing():
            pass

    for _ in range(2):
        session = threading.Thread(target=traced)
        session.start()
        session.join()
    faking._keep_guard.cache_clear()
    assert len(makers) == 1 and makers[0].is_alive()


def test_a_loop_over_pairs_of_rows_ends_by_a_sentence_with_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """import torch

def reference(x):
    return torch.stack([(x[i] - x[j]).abs().sum() for i in range({0}) for j in range({0})])

def inputs():
    return torch.randn({0}, 4)
"""
    monkeypatch.setattr("kernellab.task.meta.modes._MOST_CALLS", 5000)
    assert load_task(text.format(16)).outputs[0].shape == (256,)
    with pytest.raises(TaskError, match=r"5,000 calls of torch.*line 4"):
        load_task(text.format(64))


def test_the_steps_of_an_extent_are_looked_for_nearby_first() -> None:
    text = TASK.format(body="    return torch.stack([x[i] * x[j] for i in range(len(x)) for j in range(i)])")
    module = TaskModule("pairs", text.replace('"M", 1, 64', '"M"'))
    made, seen = module.namespace["inputs"], []

    def inputs(M: int = 24, N: int = 40) -> object:
        seen.append(M)
        return made(M, N)

    module.namespace["inputs"] = inputs
    assert infer(module).outputs[0].shape == ("(M*M - M) // 2", "N")
    assert max(seen) < 200
