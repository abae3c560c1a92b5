"""Check asynchronous kernels on a Hopper GPU at ragged sizes, strides, offsets and alignments, against float64.

    python tests/gpu/asynchronous_gpu.py

Prints a line for each case and exits with 1 where an error is more than twice eager PyTorch's, a result differs between
two calls, or a launch did not take the route that its tensors allow.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.lowering import lower
from kernellab.sketch.check import load_program
from kernellab.sketch.program.bind import bind
from kernellab.target import Backend, Target
from kernellab.target.chips import find_chip
from kernellab.task import load_task

_TASK = """import torch
import torch.nn.functional as F

def reference({names}):
    return {value}

def inputs():
    return {tensors}
"""


CLUSTERED = "clusters"
_CLUSTER_HINTS = {
    '"grididx.y"': '"grididx.y", "cluster", 2',
    '"async_store"': '"async_store", 4',
    "num_stages = 3": "num_stages = 4",
}


def _random(*shape: int, dtype: str = "bfloat16") -> str:
    return f"torch.randn({', '.join(map(str, shape))}, dtype=torch.{dtype})"


def cases() -> dict[str, str]:
    """Name -> task."""
    found = {}
    for m, n, k in ((4160, 4104, 200), (2056, 3000, 1032), (4096, 4096, 72)):
        tensors = f"{_random(m, k)}, {_random(k, n)}"
        found[f"product_{m}_{n}_{k}"] = _TASK.format(names="a, b", value="a @ b", tensors=tensors)
    half = ", ".join(_random(*shape, dtype="float16") for shape in ((3000, 520), (2104, 520), (2104,)))
    found["linear_f16"] = _TASK.format(names="x, w, b", value="F.relu(F.linear(x, w, b))", tensors=half)
    batches = f"{_random(7, 600, 200)}, {_random(7, 200, 1000)}"
    found["batched"] = _TASK.format(names="a, b", value="a @ b", tensors=batches)
    for m, n, k in ((4096, 8200, 1032), (4096, 4096, 4104)):
        tensors = f"{_random(m, k)}, {_random(k, n)}"
        found[f"product_{m}_{n}_{k}_in_{CLUSTERED}"] = _TASK.format(names="a, b", value="a @ b", tensors=tensors)
    attention = "F.scaled_dot_product_attention(q, k, v, is_causal={})"
    for width in (64, 128, 256):
        for keys in (1000, 1024, 777):
            for causal in (True, False):
                tensors = ", ".join([_random(2, 6, keys, width)] * 3)
                value = attention.format(causal)
                name = f"attention_{width}_{keys}{'_causal' * causal}"
                found[name] = _TASK.format(names="q, k, v", value=value, tensors=tensors)
    return found


def built(name: str, text: str, folder: Path) -> Any:
    """The module of the rules' first design."""
    target = Target("triton", Backend.CUDA, find_chip(torch.cuda.get_device_name()))
    task = load_task(text, name)
    reply = RulesDesigner().designs(DesignBrief(task, target))[0]
    sketch = reply.sketch
    if name.endswith(CLUSTERED):
        # what the rules do not ask for: two blocks that share loads, a stage more, a result that leaves in parts
        for old, new in _CLUSTER_HINTS.items():
            assert old in sketch, old
            sketch = sketch.replace(old, new)
    program = load_program(sketch, constexpr=reply.constexpr)
    source = lower(program, bind(program, task, reply.constexpr, target), target)
    path = folder / f"{name}.py"
    path.write_text(source.files["kernel.py"])
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def checked(name: str, text: str, folder: Path) -> bool:
    space: dict[str, Any] = {}
    exec(text, space)
    with torch.device("cuda"):
        inputs = space["inputs"]()
    exact = space["reference"](*(t.double() for t in inputs))
    module = built(name, text, folder)

    def error(result: torch.Tensor) -> float:
        return float((result.double() - exact).norm() / exact.norm())

    first, second = module.kernel(*inputs), module.kernel(*inputs)
    routes = set(module._routes.values())
    strided = module.kernel(*(torch.cat([t, t], -1)[..., : t.shape[-1]] for t in inputs))
    shifted = [torch.cat([t.new_zeros(1), t.flatten()])[1:].view(t.shape) for t in inputs]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        beside = module.kernel(*shifted)
    limit = 2 * error(space["reference"](*inputs)) + 1e-4
    errors = [error(result) for result in (first, strided, beside)]
    right = max(errors) <= limit and torch.equal(first, second) and routes == {"asynchronous"} and len(said) == 1
    print(f"{'ok ' if right else 'BAD'} {name:32} {' '.join(f'{e:.1e}' for e in errors)} of {limit:.1e}", flush=True)
    return right


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        # every case is shown, also after one that is bad
        results = [checked(name, text, Path(folder)) for name, text in cases().items()]
    return int(not all(results))


if __name__ == "__main__":
    sys.exit(main())
