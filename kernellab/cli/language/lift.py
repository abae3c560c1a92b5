"""``kernellab sketch lift``: a kernel back to its sketch, gated, and on to another DSL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernellab.cli.language.sketch import Json, Set, sketch_app
from kernellab.cli.output import emit, say, write_kernel
from kernellab.lowering.embedded_sketch import carried
from kernellab.options.entry import numbers
from kernellab.records import GateState
from kernellab.task import Task, load_task

if TYPE_CHECKING:
    from kernellab.records import GateResult, Source


@sketch_app.command("lift")
def lift(
    source: Annotated[Path, typer.Argument(help="The kernel: a file, or a folder with its files.")],
    task: Annotated[Path, typer.Option("--task", help="The task's Python file.")],
    dsl: Annotated[str | None, typer.Option(help="DSL of the source; default: detected.")] = None,
    to: Annotated[str | None, typer.Option(help="Lower the sketch to this DSL: triton, cpp or cuda_c.")] = None,
    set_: Set = None,
    out: Annotated[Path | None, typer.Option(help="A folder for the sketch and the files in the other DSL.")] = None,
    json: Json = False,
) -> int:
    """Lift the sketch of a kernel that a lowering wrote, and gate it. Exit 1 when the gate finds it wrong.

    Kernels of other origin are lifted by a model: kernellab design TASK --from SOURCE --lift --roles designer=model.
    """
    from kernellab.dsls.machine import detect_target
    from kernellab.dsls.sources import read_source
    from kernellab.lowering.lift.retarget import move
    from kernellab.sketch.gate import gate

    loaded, values = load_task(task), dict(numbers(set_ or []))
    kernel = read_source(source, dsl)
    text, gated = lifted(kernel, loaded, values)
    files = {}
    if to is not None:
        text, moved = move(text, loaded, detect_target(to), values)
        files, gated = moved.files, gate(text, loaded, constexpr=values)
    if out is not None:
        write_kernel(out, loaded.name, text, files)
    if json:
        emit(
            {"sketch": text, "matches": gated.state is GateState.RIGHT, "files": files, **gated.model_dump(mode="json")}
        )
    else:
        print(text, end="")
        if (own := carried(kernel)) is not None and own.is_edited:
            say("The code was changed after it was lowered: this is what it does now, not the sketch that it carries.")
        say(f"{gated.state.value}: {gated.reason}")
    return 1 if gated.state is GateState.WRONG else 0


def lifted(source: Source, task: Task, constexpr: dict[str, int | float]) -> tuple[str, GateResult]:
    """The sketch of ``source`` in canonical form, and the gate's answer to it.

    Raises:
        LoweringError: no lowering of ours wrote it, or it was edited in a way that no sketch follows.
    """
    from kernellab.lowering.lift import lift as lift_source
    from kernellab.sketch.gate import gate

    text = lift_source(source, task)
    return text, gate(text, task, constexpr=constexpr)
