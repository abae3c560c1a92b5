"""From a source that a lowering wrote back to its sketch: migration between DSLs without a model.

A lowered source carries its sketch, and says each statement of it in a comment next to the code that does it. Both only
propose: the carried sketch, then what the comments say (declarations from the host function, loops from the code's
nesting). A sketch counts when lowering it gives the source's own code again, token by token. So a comment that lies, or
code that a person has changed, never passes for the sketch. Where single numbers, names or operators were changed, the
sketch is changed with them and proved in the same way; any other edit is refused with the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

from kernellab.errors import KernellabError, LoweringError
from kernellab.lowering.embedded_sketch import bare, carried
from kernellab.lowering.lift.host import read_host
from kernellab.lowering.lift.text import sketches
from kernellab.records import Source
from kernellab.task import Task

_DSLS = ("triton", "cpp", "cuda_c")
_REMEDY = "Lift it by a model (--roles designer=model --lift), or write the sketch by hand."
#: readings of one source that are lowered again
_MOST_READINGS = 64


def lift(source: Source, task: Task) -> str:
    """The sketch of ``source``, in canonical form: what the source does, and not only what it says.

    Raises:
        LoweringError: no lowering of ours wrote it for this task, or code was changed in a way that no sketch
            follows; the sentence names the line.
    """
    from kernellab.lowering.lift.edited import fixed
    from kernellab.lowering.lift.proof import Difference, difference, refusal, unreadable
    from kernellab.sketch.syntax.printer import format as format_sketch

    closest: tuple[str, Difference] | None = None
    failed: tuple[KernellabError, str] | None = None
    for text in islice(_proposals(source), _MOST_READINGS):
        try:
            text = format_sketch(text)
            place = difference(text, source, task)
        except KernellabError as error:
            failed = failed or (error, text)
            continue
        if place is None:
            return text
        if closest is None or place.far > closest[1].far:
            closest = text, place
    if closest is None:
        assert failed is not None
        raise unreadable(source, *failed)
    followed = fixed(*closest, source, task)
    if followed is None:
        raise refusal(closest[1], source, closest[0])
    return format_sketch(followed)


def _proposals(source: Source) -> Iterator[str]:
    """The sketch that ``source`` carries, then what its comments say."""
    own = carried(source)
    if own is None:
        yield from readings(source)
        return
    yield own.text
    # calls of the library leave no loops to read
    with suppress(LoweringError):
        yield from readings(source)


def readings(source: Source) -> Iterator[str]:
    """Sketches that ``source`` says it was written from, likeliest first: a view of an output can be read in several
    ways. None is proved.

    Raises:
        LoweringError: no lowering of ours wrote it.
    """
    from kernellab.lowering.lift import c_source as lift_c
    from kernellab.lowering.lift import triton_source as lift_triton

    if source.dsl not in _DSLS:
        raise LoweringError(f"A {source.dsl} source cannot be lifted by rules.", _REMEDY)
    if called := re.search(r"# \w+ = (library\.\w+)\(.*$", source.files[source.entry_file], re.MULTILINE):
        what = f"A {called[1]} of this source is a call of the library, which has no loops of its own."
        raise LoweringError(what, _REMEDY)
    # what the comments of the code say, not the sketch that it carries
    source = bare(source)
    host = read_host(source)
    bodies = lift_triton.read(source) if source.dsl == "triton" else lift_c.read(source, host)
    if not bodies or not any(body.lines for body in bodies):
        raise LoweringError("The source does not name the sketch that it was written from.", _REMEDY)
    return sketches(bodies, host)
