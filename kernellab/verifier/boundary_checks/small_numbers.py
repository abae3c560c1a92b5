"""Arguments as small as the small numbers of the texts. An epsilon that is added, forgotten or a lower bound decides
a result only where what it protects is of its size, and random inputs are far larger."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator
from itertools import zip_longest
from typing import TYPE_CHECKING

from torch import Tensor

from kernellab.conditions import DrawnLimit, ScalarLimit, SmallArguments, of
from kernellab.errors import TaskError
from kernellab.task import ArgKind
from kernellab.task.dtypes import finite, scaled
from kernellab.verifier.boundary_checks.attempt import is_right
from kernellab.verifier.boundary_checks.drawn import free_floats
from kernellab.verifier.cases import answers
from kernellab.verifier.cases.cases import is_noise
from kernellab.verifier.protocol.rules import CORRECT, EDGES

if TYPE_CHECKING:
    from kernellab.verifier.cases.cases import Case
    from kernellab.verifier.stages.candidate import Stages

#: A float literal of Python or C++; an integer with an exponent is one too.
_LITERAL = re.compile(r"(?<![\w.])((?:\d+\.\d*|\.\d+)(?:[eE][-+]?\d+)?|\d+[eE]-\d+)")
#: The least and largest number that counts as small; the root of a smaller one is still a usual float32.
_LEAST, _MOST = 1e-30, 1e-2


def small_literals(*texts: str) -> list[float]:
    """Return the distinct small numbers in the texts, in their order."""
    found = (float(literal) for text in texts for literal in _LITERAL.findall(text[: 1 << 18]))
    return list(dict.fromkeys(number for number in found if _LEAST <= number <= _MOST))


def small_numbers(stages: Stages, base: Case) -> None:
    """Check arguments about as large as the small numbers of the reference and the source, and as their roots, together
    and with float scalars of that size. A wrong answer is a flag: where digits are lost next to zero, as in
    2 * sigmoid(2 * x) - 1, no epsilon is wrong."""
    if any(limit.least is not None for limit in of(stages.context.findings.conditions, DrawnLimit)):
        return  # the verdict says already that small numbers are not handled
    until = time.monotonic() + EDGES.small_seconds
    for case, words in _cases(stages, base):
        if time.monotonic() > until:
            return
        if _has_finite_answer(case) and not is_right(stages, case) and not is_noise(case):
            stages.context.findings.add(SmallArguments(values=words))
            return


def _cases(stages: Stages, base: Case) -> Iterator[tuple[Case, str]]:
    # by turns: those of a long reference leave room for the source's own
    of_each = zip_longest(small_literals(base.task.text), small_literals(*stages.source.files.values()))
    numbers = [number for pair in of_each for number in pair if number is not None]
    sizes = [size for e in list(dict.fromkeys(numbers))[: EDGES.small_literals] for size in (e, math.sqrt(e))]
    arguments = list(free_floats(base))
    conditions = of(stages.context.findings.conditions, ScalarLimit)
    limited = {limit.argument for limit in conditions if limit.refuted}
    scalars = [
        position for position, (spec, value) in enumerate(zip(base.task.args, base.args, strict=True))
        if spec.kind is ArgKind.SCALAR and isinstance(value, float) and spec.name not in limited
    ]  # fmt: skip
    for size in dict.fromkeys(sizes):
        args = list(base.args)
        for position, _, legal in arguments:
            args[position] = _of_size(args[position], size, legal.high)
        words = [f"{', '.join(name for _, name, _ in arguments)} of about {size:.2g}"] if arguments else []
        if arguments:
            yield base.given(tuple(args)), words[0]
        if scalars:
            for position in scalars:
                args[position] = size
            words.append(f"{', '.join(base.task.args[position].name for position in scalars)} = {size:.2g}")
            yield base.given(tuple(args)), " with ".join(words)


def _of_size(value: Tensor, size: float, high: float) -> Tensor:
    """Return a multiple of ``value`` whose elements have this root of their mean square, cut at a positive ``high``."""
    rms = float(value.double().square().mean().sqrt())
    return scaled(value, size / rms).clamp(max=max(high, 0.0)) if math.isfinite(rms) and rms > 0 else value


def _has_finite_answer(case: Case) -> bool:
    """Return whether the reference answers in time with finite numbers; for others there are other checks."""
    try:
        with answers.within(CORRECT.scalar_seconds):
            return all(map(finite, case.native))
    except TaskError:
        return False
