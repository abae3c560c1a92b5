"""The code from which a Coder's answer starts: the last code of this sketch, otherwise the rules' lowering of it.

A prompt shows only the kernel's own files of it, and in these the sketch's lines by number
(:mod:`kernellab.agents.model.prompts.marks`); edits in an answer refer to that short form.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from kernellab import python_tree
from kernellab.agents.briefs import Attempt, CodeBrief, best_of
from kernellab.agents.model.options import Options
from kernellab.agents.model.prompts.helpers import is_helper
from kernellab.agents.model.prompts.manual_edits import by_hand, lowered_code
from kernellab.agents.model.prompts.marks import in_short
from kernellab.lowering.embedded_sketch import bare, same_code
from kernellab.records import Source, Verdict

_FENCES = {".py": "python", ".cpp": "cpp", ".h": "cpp", ".hpp": "cpp", ".cu": "cuda", ".cuh": "cuda", ".c": "c"}
_SUFFIX = {"cpp": ".cpp", "cuda_c": ".cu"}


def fence_of(file: str) -> str:
    """The language of a file's fenced block in Markdown; "" if unknown."""
    return _FENCES.get("." + file.rpartition(".")[2], "")


@dataclass(frozen=True)
class Base:
    """The files from which an answer starts: the last code of this sketch, otherwise the rules' lowering."""

    source: Source | None
    lowered: Source | None
    main_file: str
    why_not_lowered: str = ""
    #: The manual changes in the earlier sketch's code, as a diff per file; empty without changes.
    by_hand: str = ""
    #: The sketch that a prompt contains in addition to the code; empty without one.
    sketch: str = ""

    @property
    def files(self) -> Mapping[str, str]:
        """The source's files without the embedded sketch: a prompt contains the sketch only once."""
        return bare(self.source).files if self.source else {}

    @property
    def shown(self) -> dict[str, str]:
        """The kernel's own files as a prompt shows them: comments that quote the sketch are replaced by line numbers.

        A lowered source's helpers and host code are omitted.
        """
        return {name: in_short(name, self.files[name], self.sketch) for name in self._own}

    @property
    def _own(self) -> list[str]:
        if self.lowered is None or self.source is None or self.lowered.files.keys() != self.source.files.keys():
            return [name for name in self.files if not is_helper(name)]
        rules = bare(self.lowered).files
        unchanged = {name for name, text in self.files.items() if text == rules.get(name)}
        return [name for name in self.files if name == self.main_file or not (is_helper(name) or name in unchanged)]

    @property
    def zeroed(self) -> list[str]:
        """The lines of the host code, which a prompt omits, that fill a tensor with zeros before a call."""
        if self.source is None or self.source.entry_file in self._own:
            return []
        text = self.files[self.source.entry_file]
        assignments = (node for node in ast.walk(python_tree.parse(text)) if isinstance(node, ast.Assign))
        calls = (n for n in assignments if isinstance(n.value, ast.Call) and ast.unparse(n.value.func) == "torch.zeros")
        return [line for node in calls if (line := ast.get_source_segment(text, node))]

    @property
    def in_short(self) -> frozenset[str]:
        """The files whose text in a prompt differs from their own."""
        return frozenset(name for name, text in self.shown.items() if text != self.files[name])


def base_of(brief: CodeBrief, options: Options) -> Base:
    """Return the files to start from, and the reason if the sketch cannot be lowered."""
    is_blind = without_sketch(brief, options)
    lowered, reason = (None, "") if is_blind else lowered_code(brief)
    sketch = "" if is_blind else brief.sketch
    previous = brief.previous if brief.previous is not None and brief.previous.dsl == brief.target.dsl else None
    if brief.redesigned and lowered is not None:
        diff = by_hand(brief, previous, brief.previous_sketch, brief.previous_constexpr)
        return Base(lowered, lowered, _main_file(brief.target.dsl, lowered), reason, diff, sketch)
    source = previous or lowered
    return Base(source, lowered, _main_file(brief.target.dsl, source), reason, sketch=sketch)


def without_sketch(brief: CodeBrief, options: Options) -> bool:
    """Whether this Coder works from the task only."""
    return not brief.sketch.strip() or "sketch" in options.ablation | brief.ablation


def by_rule(base: Base) -> bool:
    """Whether the code from which an answer starts is the rules' unchanged lowering."""
    return base.source is not None and base.lowered is not None and same_code(base.source, base.lowered)


def best_elsewhere(brief: CodeBrief, base: Base) -> Attempt | None:
    """The best attempt so far if its code differs from that from which an answer starts."""
    best = best_of(brief.history)
    if best is None or best.candidate is None or best.candidate.source.dsl != brief.target.dsl or base.source is None:
        return None
    return None if same_code(best.candidate.source, base.source) else best


def judged(brief: CodeBrief) -> Verdict | None:
    """The verdict on ``brief.previous``; None if it was not judged, or belongs to another sketch."""
    if brief.previous is None or brief.redesigned:
        return None
    for attempt in reversed(brief.history):
        if attempt.candidate is not None and same_code(attempt.candidate.source, brief.previous):
            return attempt.verdict
    return None


def _main_file(dsl: str, source: Source | None) -> str:
    """The file that contains the kernel: the one in the DSL's own language, otherwise the entry."""
    suffix = _SUFFIX.get(dsl)
    if source is None:
        return "kernel.py" if suffix is None else f"kernel{suffix}"
    return next((name for name in sorted(source.files) if suffix and name.endswith(suffix)), source.entry_file)
