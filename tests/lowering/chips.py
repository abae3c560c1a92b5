"""What the rules design first, compiled for every chip that ``knowledge/hardware`` describes and Triton compiles for.

``python -m tests.lowering.chips [CHIPS] [WORDS]`` does so for the built-in suite's tasks whose names hold a word (all
of them without one: hours), ``--families`` for one task a family: a line a kernel, marked where it exceeds the chip.
Nothing is run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Union

from kernellab.agents.briefs import CodeBrief, DesignBrief
from kernellab.agents.rules.coder import RulesCoder
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.bench.suites import load_suite
from kernellab.dsls.machine import named_chip
from kernellab.lens.gpu.limits import capability_of
from kernellab.lens.look import arguments
from kernellab.model_integration.gradient.derive import backward_text
from kernellab.target import Backend, Chip, Target
from kernellab.task import Task, load_task

Facts = Mapping[str, int]
CHIPS = ("a100", "rtx4090", "h100", "h200", "b200", "mi300x")
_AMD = {"mi300x": "gfx942"}
#: registers that one thread may have
MOST_REGISTERS = {"cuda": 255, "hip": 512}
_TASK = """import torch
import torch.nn.functional as F

def reference({names}):
    return {result}

def inputs():
    return {given},
"""
_NARROW = "torch.randn({}, dtype=torch.bfloat16)"


def _task(names: str, result: str, *shapes: str, made: str = _NARROW) -> str:
    return _TASK.format(names=names, result=result, given=", ".join(made.format(shape) for shape in shapes))


_HEADS = ("2, 8, 1024, 128", "2, 2, 1024, 128", "2, 2, 1024, 128")
_ATTENTION = _task("q, k, v", "F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)", *_HEADS)
#: one task a family of kernels, at sizes that models have
FAMILIES = {
    "product, bias, GELU": _task("x, w, b", "F.gelu(F.linear(x, w, b))", "2048, 1024", "4096, 1024", "4096"),
    "product f32": _task("x, w", "x @ w", "1024, 1024", "1024, 1024", made="torch.randn({})"),
    "product fp8": _task("x, w", "(x.float() @ w.float().t()).to(torch.bfloat16)", "2048, 1024", "2048, 1024",
                         made="torch.randn({}).to(torch.float8_e4m3fn)"),
    "attention": _ATTENTION,
    "attention backward": _ATTENTION,
    "attention f32, width 96": _task("q, k, v", "F.scaled_dot_product_attention(q, k, v, is_causal=True)",
                                     *["16, 8, 512, 96"] * 3, made="torch.randn({})"),
    "attention with ReLU, f32": _TASK.format(
        names="q, k, v", given=", ".join(["torch.randn(16, 12, 1024, 64)"] * 3),
        result="F.relu((q @ k.transpose(-2, -1) * 0.125).masked_fill("
               "torch.ones(1024, 1024, device=q.device).tril() == 0, float('-inf'))) @ v"),
    "decode": _task("q, k, v", "F.scaled_dot_product_attention(q, k, v, enable_gqa=True)", "8, 32, 1, 128",
                    "8, 8, 8192, 128", "8, 8, 8192, 128"),
    "convolution": _task("x, w", "F.conv2d(x, w, padding=1)", "32, 128, 28, 28", "128, 128, 3, 3"),
    "layer norm": _task("x, w, b", "F.layer_norm(x, (4096,), w, b)", "8192, 4096", "4096", "4096"),
    "softmax": _task("x", "torch.softmax(x, -1)", "4096, 32768"),
    "cumulative sum": _task("x", "torch.cumsum(x, -1)", "4096, 8192", made="torch.randn({})"),
    "sort": _task("x", "torch.sort(x, -1).values", "4096, 1024", made="torch.randn({})"),
    "embedding": _TASK.format(names="w, i", result="F.embedding(i, w)",
                              given="torch.randn(32000, 4096, dtype=torch.bfloat16), torch.randint(0, 32000, (8192,))"),
}  # fmt: skip
PRODUCTS = ("product, bias, GELU", "product f32", "product fp8", "attention", "attention backward", "convolution")


def family(name: str) -> Task:
    text = FAMILIES[name]
    return load_task(backward_text(load_task(text, "forward")) if name.endswith("backward") else text, "family")


def architecture(chip: str) -> str:
    return _AMD.get(chip) or f"sm_{capability_of(named_chip(chip))}"


def compiled(wanted: Iterable[tuple[str, Task, str]]) -> dict[str, Union[dict[str, Facts], str]]:
    """Name -> facts of each kernel of the first design of (name, task, chip), or the compiler's error."""
    with tempfile.TemporaryDirectory() as folder:
        names = {}
        for number, (name, task, chip) in enumerate(wanted):
            place = Path(folder) / f"k{number}.py"
            target = Target("triton", Backend.CUDA, named_chip(chip))
            sketch = RulesDesigner().designs(DesignBrief(task, target))[0].sketch
            place.write_text(RulesCoder().code(CodeBrief(task, target, sketch)).source.files["kernel.py"])
            facts = {"architecture": architecture(chip), "cores": target.chip.cores, "arguments": [*arguments(task)]}
            place.with_suffix(".json").write_text(json.dumps(facts))
            names[place.stem] = name
        env = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
        env["TRITON_CACHE_DIR"] = f"{folder}/cache"
        script = Path(__file__).with_name("compile_for_chips.py")
        done = subprocess.run([sys.executable, str(script), folder], capture_output=True, text=True, env=env)
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
        return {names[stem]: found for stem, found in json.loads(done.stdout.splitlines()[-1]).items()}


def excess(facts: Facts, chip: Chip) -> list[str]:
    """What a kernel asks for that the chip does not have."""
    most = MOST_REGISTERS["hip" if "MI300X" in chip.name else "cuda"]
    limits = {"shared": chip.shared_bytes, "registers": most}
    return [f"{name} {facts[name]:,} of {limit:,}" for name, limit in limits.items() if facts[name] > limit]


def _lines(found: Mapping[str, Union[dict[str, Facts], str]], chip: str) -> Iterator[str]:
    for name, kernels in found.items():
        if isinstance(kernels, str):
            yield f"{chip}\t{name}\tREFUSED {kernels.strip().splitlines()[0][:160]}"
            continue
        for kernel, facts in kernels.items():
            beyond = excess(facts, named_chip(chip))
            said = " ".join(f"{key}={value}" for key, value in facts.items())
            yield f"{chip}\t{name}\t{kernel}\t{said}{' EXCEEDS ' + ', '.join(beyond) if beyond else ''}"


def main(words: list[str]) -> None:
    chips = [word for word in words if word in CHIPS] or list(CHIPS)
    words = [word for word in words if word not in CHIPS]
    if "--families" in words:
        only = [word for word in words if word in FAMILIES] or list(FAMILIES)
        for chip in chips:
            found = compiled((name, family(name), chip) for name in only)
            print("\n".join(_lines(found, chip)), flush=True)
        return
    for problem in load_suite("builtin"):
        if not words or any(word in problem.name for word in words):
            for chip in chips:
                found = compiled([(problem.name, load_task(problem.text, problem.name), chip)])
                print("\n".join(_lines(found, chip)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
