"""How many tokens has each section of the roles' first prompts, and of the first one after wrong values?

    python -m tests.agents.prompt_sizes [TASK ...]

Tokens are estimated as prompts are (:func:`kernellab.models.tokens.estimate`), for a CPU and C++, with the documents.
``--json`` prints them as JSON, so that two versions can be laid side by side.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from kernellab.agents.briefs import Attempt, CodeBrief, DesignBrief
from kernellab.agents.model import ModelCoder, ModelDesigner
from kernellab.agents.model.options import Options
from kernellab.agents.rules.coder import RulesCoder
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.knowledge import Knowledge
from kernellab.records import Candidate, Evidence, Stage, Verdict
from kernellab.target import Backend, Chip, Target
from kernellab.task import load_task

TASKS = ("softmax/softmax", "matmul/linear_relu", "attention/causal", "quantisation/nibbles", "reduction/row_variance")
BUILTIN = Path(__file__).resolve().parents[2] / "kernellab" / "bench" / "builtin"
CHIP = Chip(
    "a CPU", "cpu", 2, simd_bits=512, l1_bytes=48 << 10, l2_bytes=1 << 21, l3_bytes=32 << 20, bandwidth=30e9,
    peak_flops={"f32": 2e11},
)  # fmt: skip
CPU = Target("cpp", Backend.CPU, CHIP)


def prompts(path: Path) -> dict[str, list[tuple[str, int]]]:
    """By prompt: each section's name and tokens, in order."""
    task = load_task(path)
    knowledge: Any = Knowledge.load(CPU, None)
    design = DesignBrief(task=task, target=CPU)
    no_talk: Any = None
    coder = ModelCoder(no_talk, knowledge, Options())
    found = {"designer": ModelDesigner(no_talk, knowledge, Options()).prompt(design)}
    reply: Any = RulesDesigner().design(design)
    code = CodeBrief(task=task, target=CPU, sketch=reply.sketch, constexpr=dict(reply.constexpr))
    found["coder"] = coder.prompt(code)
    lowered: Any = RulesCoder().code(code)
    source = lowered.source.model_copy(
        update={"files": {**lowered.source.files, "kernel.cpp": lowered.source.files["kernel.cpp"] + "// by hand\n"}}
    )
    wrong = Verdict(
        passed=False, stage=Stage.CORRECT, reason="All elements are wrong.",
        evidence=Evidence(signature="wrong-values", first_wrong=[0, 0], got=0.5, want=0.25, wrong_fraction=1.0,
                          error_map=["x" * 48] * 16),
    )  # fmt: skip
    tried = Attempt(
        candidate=Candidate(id="c1", source=source, sketch=reply.sketch), sketch=reply.sketch, verdict=wrong
    )
    again = CodeBrief(
        task=task, target=CPU, sketch=reply.sketch, constexpr=dict(reply.constexpr), previous=source, history=(tried,)
    )
    found["coder, wrong values"] = coder.prompt(again)
    return {role: [(s.name, s.tokens) for s in prompt.sections] for role, prompt in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", default=TASKS)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    tables = {name: prompts(BUILTIN / f"{name}.py") for name in given.tasks}
    if given.json:
        print(json.dumps(tables))
        return
    for role in next(iter(tables.values())):
        print(f"\n{role}\n| section | {' | '.join(tables)} |\n|---|{'---|' * len(tables)}")
        names = dict.fromkeys(name for table in tables.values() for name, _ in table[role])
        for name in names:
            print(f"| {name} | {' | '.join(str(dict(table[role]).get(name, '')) for table in tables.values())} |")
        print(f"| all | {' | '.join(str(sum(n for _, n in table[role])) for table in tables.values())} |")


if __name__ == "__main__":
    main()
