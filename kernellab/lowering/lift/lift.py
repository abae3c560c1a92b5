"""From a source that a lowering wrote back to its sketch: migration between DSLs without a model.

A lowered source carries its sketch, which only proposes: it counts when lowering it gives the source's own code again,
token by token. So a carried sketch that lies, or code that a person has changed, never passes for the sketch. Where
single numbers, names or operators were changed, the sketch is changed with them and proved in the same way; any other
edit is refused with the line.
"""

from __future__ import annotations

from kernellab.errors import KernellabError, LoweringError
from kernellab.lowering.embedded_sketch import carried
from kernellab.records import Source
from kernellab.task import Task

_DSLS = ("triton", "cpp", "cuda_c")
_REMEDY = "Lift it by a model (--roles designer=model --lift), or write the sketch by hand."


def lift(source: Source, task: Task) -> str:
    """The sketch of ``source``, in canonical form: what the source does, and not only what it says.

    Raises:
        LoweringError: no lowering of ours wrote it for this task, it does not carry its sketch, or code was changed in
            a way that no sketch follows; the sentence names the line.
    """
    from kernellab.lowering.lift.edited import fixed
    from kernellab.lowering.lift.proof import difference, refusal, unreadable
    from kernellab.sketch.syntax.printer import format as format_sketch

    if source.dsl not in _DSLS:
        raise LoweringError(f"A {source.dsl} source cannot be lifted by rules.", _REMEDY)
    own = carried(source)
    if own is None:
        raise LoweringError("The source does not carry the sketch that it was written from.", _REMEDY)
    text = own.text
    try:
        text = format_sketch(text)
        place = difference(text, source, task)
    except KernellabError as error:
        raise unreadable(source, error, text) from None
    if place is None:
        return text
    followed = fixed(text, place, source, task)
    if followed is None:
        raise refusal(place, source, text)
    return format_sketch(followed)
