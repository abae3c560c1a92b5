"""A small task, and roles that are real objects with little to do, so that a session's own rules can be seen."""

from __future__ import annotations

from collections.abc import Callable

from kernellab.agents.briefs import CodeBrief, CodeReply, DesignBrief, DesignReply
from kernellab.agents.rules.coder import RulesCoder
from kernellab.records import Author, Source
from kernellab.session import Session

TASK = """
import torch

def reference(x):
    return x * 2.0 + 1.0

def inputs():
    return torch.randn(37, 65)
"""

SKETCH = """sketch twice {
    symbols: M, N;
    tensors: X[M, N]: f32; Y[M, N]: f32 out;
    constexpr: BLOCK = 16 in {16, 32};

    @llm_hint("parallel", "coreidx")
    for m in range(M):
        for n in range(0, N, BLOCK):
            load(X[m, n:n+BLOCK] -> x)
            store(x * 2.0 + 1.0 -> Y[m, n:n+BLOCK])
}
"""

WRONG_SKETCH = SKETCH.replace("* 2.0", "* 3.0")
BAD_SKETCH = SKETCH.replace("store(x * 2.0", "store(z * 2.0")


class OneSketch:
    """Gives the sketches it was made with, in turn; the last one again and again."""

    author = Author.RULES

    def __init__(self, *sketches: str) -> None:
        self.sketches = list(sketches or [SKETCH])
        self.briefs: list[DesignBrief] = []

    def design(self, brief: DesignBrief) -> DesignReply:
        self.briefs.append(brief)
        return DesignReply(self.sketches.pop(0) if len(self.sketches) > 1 else self.sketches[0], rationale="as told")


class Clumsy:
    """Writes ``faults`` sources that do not parse, each another one, then what the rules write."""

    author = Author.RULES

    def __init__(self, faults: int) -> None:
        self.faults = faults
        self.briefs: list[CodeBrief] = []
        self._rules = RulesCoder()

    def code(self, brief: CodeBrief) -> CodeReply:
        self.briefs.append(brief)
        if len(self.briefs) <= self.faults:
            text = f"# attempt {len(self.briefs)}\ndef kernel(x)\n    return x\n"
            return CodeReply(Source(dsl="cpp", files={"kernel.py": text}))
        return self._rules.code(brief)


Begin = Callable[..., Session]
