"""Is a candidate's code, to the byte, what the rules make of its sketch?

Then no one has to look for a fault in the code: it computes what the sketch says. If the gate found the sketch right
on its small sizes and the Verifier finds the numbers wrong, the fault shows at sizes or values that the gate did not
try (a carry between tiles, cancellation, overflow), and it lies in the sketch.
"""

from __future__ import annotations

from kernellab.agents.briefs import CodeBrief, RouteBrief
from kernellab.agents.rules.coder import RulesCoder
from kernellab.errors import KernellabError
from kernellab.lowering.embedded_sketch import same_code


def is_verbatim(brief: RouteBrief) -> bool:
    """Lowers the sketch again and compares; False without a candidate, a sketch or a lowering."""
    if brief.candidate is None or not brief.sketch:
        return False
    told = CodeBrief(brief.task, brief.target, brief.sketch, constexpr=brief.candidate.constexpr)
    try:
        return same_code(RulesCoder().code(told).source, brief.candidate.source)
    except KernellabError:
        return False
