"""``kernellab sketch lift``: a kernel back to its sketch, gated, and on to another DSL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernellab.cli_output import emit, say, settings, write_files
from kernellab.cli_sketch import Json, Set, sketch_app
from kernellab.errors import KernellabError, LoweringError
from kernellab.records import GateState

if TYPE_CHECKING:
    from kernellab.records import GateResult, Source
    from kernellab.task import Task


@sketch_app.command("lift")
def lift(
    source: Annotated[Path, typer.Argument(help="The kernel: a file, or a folder with its files.")],
    task: Annotated[Path, typer.Option("--task", help="The task's Python file.")],
    dsl: Annotated[str | None, typer.Option(help="The source's DSL, where its files do not tell.")] = None,
    to: Annotated[str | None, typer.Option(help="Lower the sketch to this DSL: triton or cpp.")] = None,
    set_: Set = None,
    out: Annotated[Path | None, typer.Option(help="A folder for the sketch and the files in the other DSL.")] = None,
    json: Json = False,
) -> int:
    """Lift the sketch of a kernel that a lowering wrote, and gate it. Exit 1 when the gate finds it wrong.

    Kernels of other origin are lifted by a model: kernellab design TASK --from SOURCE --lift --roles designer=model.
    """
    from kernellab.dsls.sources import read_source
    from kernellab.lowering.lift import retarget
    from kernellab.sketch import format as format_sketch
    from kernellab.task import load_task

    loaded = load_task(task)
    text, gated = lifted(read_source(source, dsl), loaded, dict(settings(set_ or [])))
    files = {}
    if to is not None:
        text = format_sketch(retarget(text, gpu=to != "cpp"))
        files = _lowered(text, loaded, to, dict(settings(set_ or []))).files
    if out is not None:
        write_files(out, {f"{loaded.name}.sketch": text, **{f"source/{n}": t for n, t in files.items()}})
    if json:
        emit(
            {"sketch": text, "matches": gated.state is GateState.RIGHT, "files": files, **gated.model_dump(mode="json")}
        )
    else:
        print(text, end="")
        say(f"{gated.state.value}: {gated.reason}")
    return 1 if gated.state is GateState.WRONG else 0


def lifted(source: Source, task: Task, constexpr: dict[str, int | float]) -> tuple[str, GateResult]:
    """The first reading of ``source`` that is a sketch of ``task``, in canonical form, and the gate's answer to it.

    Raises:
        LoweringError: no lowering of ours wrote it, or no reading of it fits the task.
    """
    from kernellab.lowering.lift import lift as readings
    from kernellab.sketch import format as format_sketch
    from kernellab.sketch.gate import gate

    wrong: tuple[str, GateResult] | None = None
    refused = ""
    for text in readings(source):
        try:
            text = format_sketch(text)
            found = gate(text, task, constexpr=constexpr)
        except KernellabError as error:
            refused = refused or error.message
            continue
        if found.state is not GateState.WRONG:
            return text, found
        wrong = wrong or (text, found)
    if wrong is None:
        raise LoweringError(
            f"What the source says makes no sketch of this task: {refused}", "Check that it is its kernel."
        )
    return wrong


def _lowered(text: str, task: Task, dsl: str, constexpr: dict[str, int | float]) -> Source:
    from kernellab.lowering import lower
    from kernellab.sketch.bind import bind
    from kernellab.sketch.check import load_program
    from kernellab.target_detect import detect_target

    program, target = load_program(text), detect_target(dsl)
    return lower(program, bind(program, task, constexpr, target), target)
