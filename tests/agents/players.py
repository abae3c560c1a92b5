"""Who answers prompts in a trial: a program, or a person or an agent that reads and writes files.

A player is told the messages of a request and nothing else; errors are put into its replies by the endpoint, the same
ones in every arm (:func:`mutated`), so that arms meet the same weak player.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kernellab.agents.briefs import CodeBrief, DesignBrief
from kernellab.agents.model.reply.blocks import fences
from kernellab.agents.rules.coder import RulesCoder
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.errors import KernellabError
from kernellab.task import load_task
from tests.agents.model_parts import CPU

#: the text of a reply to a request's messages
Player = Callable[[Sequence[dict[str, str]]], str]

TASK = re.compile(r"^# The task: (\w+).*?^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
#: a slip of somebody who knows the language: what is written, and what is written instead
_SLIPS = (
    (r"reduce_sum\(", "reduce_max("), (r"reduce_max\(", "reduce_sum("), (r"\bexp\(", "exp2("), (r"\brsqrt\(", "sqrt("),
    (r"\bsqrt\(", "rsqrt("), (r"(?<=\w) \+ (?=\w)", " - "), (r"(?<=\w) \* (?=\w)", " + "), (r" - (?=\w)", " + "),
    (r" / (?=\w)", " * "), (r"\b1\.0", "2.0"), (r"\b0\.5", "0.25"), (r"axis=1\b", "axis=0"), (r"\bsilu\(", "sigmoid("),
    (r"-inf\b", "0.0"), (r"\b< ", "<= "), (r"\(kl::inside\([^()]*\)\)", "(0)"), (r"0\.0f\b", "1.0f"),
)  # fmt: skip


def mutated(reply: str, chance: random.Random) -> str:
    """``reply`` with one slip in its sketch or code; as it is where no slip fits."""
    blocks = [f for f in fences(reply) if f.language in ("sketch", "cpp", "python")]
    if not blocks:
        return reply
    text = blocks[-1].text
    # what is declared stays: a slip is one of the work, not of the language
    begin = max(text.find("for "), 0)
    places = [(m, new) for old, new in _SLIPS for m in re.finditer(old, text) if m.start() >= begin]
    if not places:
        return reply
    match, new = chance.choice(places)
    return reply.replace(text, text[: match.start()] + new + text[match.end() :], 1)


@dataclass
class Scripted:
    """Answers with the rules' own design or code for the task that the prompt states, whatever else the prompt says.

    It uses no hint and learns from no error; it cannot answer where the rules cannot. What it shows is the road's own
    cost of errors, not what a prompt is worth.
    """

    known: dict[str, tuple[str, dict[str, str]] | None] = field(default_factory=dict)

    def __call__(self, messages: Sequence[dict[str, str]]) -> str:
        told = "\n\n".join(message["content"] for message in messages if message["role"] != "assistant")
        if "You are the Conductor" in told:
            return "coder"
        stated = TASK.search(told)
        if stated is None:
            return "I see no task."
        found = self.right(stated[1], stated[2])
        if found is None:
            return "I do not know how to write this."
        sketch, files = found
        if "You are the Designer" in told:
            return f"As the rules do.\n\n```sketch\n{sketch}```\n"
        given = "\n# Code that was compiled" in told or "\n# Your last code" in told
        shown = ["kernel.cpp"] if given else list(files)
        return "As the rules do.\n\n" + "".join(f"FILE: {name}\n```cpp\n{files[name]}```\n" for name in shown)

    def right(self, name: str, text: str) -> tuple[str, dict[str, str]] | None:
        """The rules' sketch and files for a task; None where they cannot write it."""
        if text not in self.known:
            try:
                task = load_task(text, name)
                design = RulesDesigner().design(DesignBrief(task=task, target=CPU))
                brief = CodeBrief(task=task, target=CPU, sketch=design.sketch, constexpr=design.constexpr)
                self.known[text] = design.sketch, dict(RulesCoder().code(brief).source.files)
            except (KernellabError, StopIteration):
                self.known[text] = None
        return self.known[text]


@dataclass
class Filed:
    """Prompts as files ``N.prompt.md`` of a folder; waits for ``N.answer.md`` beside each, in any other process."""

    folder: Path
    patience_s: float = 3600.0
    asked: int = 0

    def __call__(self, messages: Sequence[dict[str, str]]) -> str:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.asked += 1
        told = "\n\n".join(f"<!-- {message['role']} -->\n{message['content']}" for message in messages)
        (self.folder / f"{self.asked:03}.prompt.md").write_text(told, encoding="utf-8")
        answer, until = self.folder / f"{self.asked:03}.answer.md", time.monotonic() + self.patience_s
        while not answer.exists():
            if time.monotonic() > until:
                return ""
            time.sleep(0.2)
        return answer.read_text(encoding="utf-8")
