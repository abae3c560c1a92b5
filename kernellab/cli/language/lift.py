"""``kernellab sketch lift``: a kernel back to its sketch, gated, and on to another DSL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernellab.cli.language.sketch import sketch_app
from kernellab.cli.output import emit, say, write_kernel
from kernellab.cli.parameters import command
from kernellab.lowering.embedded_sketch import carried
from kernellab.options.commands.language import LiftOptions
from kernellab.records import GateState
from kernellab.task import Task, load_task

if TYPE_CHECKING:
    from kernellab.records import GateResult, Source


@command(sketch_app, "lift")
def lift(
    source: Annotated[Path, typer.Argument(help="The kernel: a file, or a folder with its files.")],
    options: LiftOptions,
) -> int:
    """Lift the sketch of a kernel that a lowering wrote, and gate it. Exit 1 when the gate finds it wrong.

    Kernels of other origin are lifted by a model: kernellab design TASK --from SOURCE --lift --roles designer=model.
    """
    from kernellab.dsls.machine import detect_target
    from kernellab.dsls.sources import read_source
    from kernellab.lowering.lift.retarget import move
    from kernellab.sketch.gate import gate

    loaded, values = load_task(options.task), dict(options.constexprs)
    kernel = read_source(source, options.dsl)
    text, gated = lifted(kernel, loaded, values)
    files = {}
    if options.to is not None:
        text, moved = move(text, loaded, detect_target(options.to), values)
        files, gated = moved.files, gate(text, loaded, constexpr=values)
    if options.out is not None:
        write_kernel(options.out, loaded.name, text, files)
    if options.as_json:
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
