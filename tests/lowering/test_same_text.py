"""The same sketch gives the same text in every process: verdicts are found again, and prompts replayed, by the text."""

from __future__ import annotations

import os
import subprocess
import sys

_PRINT = """
from pathlib import Path
import kernellab
from kernellab.agents.briefs import CodeBrief, DesignBrief
from kernellab.agents.rules.coder import RulesCoder
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.target import Backend, Chip, Target
from kernellab.task import load_task

target = Target("cpp", Backend.CPU, Chip("a CPU", "cpu", 2, simd_bits=512, l1_bytes=48 << 10, l2_bytes=1 << 21))
tasks = Path(kernellab.__file__).parent / "bench" / "builtin" / "normalisation"
for name in ("layer_norm", "add_rms_norm", "batch_norm_eval"):
    task = load_task(tasks / f"{name}.py")
    sketch = RulesDesigner().design(DesignBrief(task, target)).sketch
    print(name, RulesCoder().code(CodeBrief(task, target, sketch)).source.hash)
"""


def test_the_text_does_not_hang_on_the_order_of_sets() -> None:
    said = set()
    for seed in ("1", "2", "3"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", _PRINT], env=environment, capture_output=True, text=True, check=True
        )
        said.add(done.stdout)
    assert len(said) == 1, said
