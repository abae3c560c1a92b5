"""``kernellab sketch tune``: measured values for a sketch's tunables, and for a dynamic task one kernel that picks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernellab.cli.language.sketch import Dsl, File, Json, Set, read_program, sketch_app
from kernellab.cli.output import emit, read_text, say, write_files
from kernellab.errors import KernellabError, TargetError
from kernellab.options.entry import numbers
from kernellab.target import Backend, Target
from kernellab.task import Task, load_task

if TYPE_CHECKING:
    from kernellab.tuning import Tuned
    from kernellab.tuning.space import Value
    from kernellab.verifier import Verifier


@sketch_app.command("tune")
def tune(
    file: File,
    task: Annotated[Path, typer.Option("--task", help="The task's Python file.")],
    dsl: Dsl = None,
    set_: Set = None,
    trials: Annotated[int, typer.Option(min=1, help="Measure at most this many points (of each shape class).")] = 16,
    fresh: Annotated[bool, typer.Option(help="Measure again instead of using an earlier search's results.")] = False,
    classes: Annotated[bool, typer.Option(help="Tune a dynamic task for several sizes, with a kernel that picks.")] = (
        True
    ),
    out: Annotated[Path | None, typer.Option(help="A folder for the tuned kernel's files.")] = None,
    json: Json = False,
) -> int:
    """Find the tunables' fastest values by measuring; the cost model says where to look first. Exit 1 when nothing ran.

    A ranking is not a verdict: verify the kernel that is written.
    """
    from kernellab.dsls.machine import detect_target
    from kernellab.tuning.classes import at_sizes, merged, shape_classes
    from kernellab.tuning.measure import WorkerMeasure
    from kernellab.verifier import Verifier

    program = read_program(file, json)
    if isinstance(program, int):
        return program
    if not program.tunables:
        remedy = "Give a constexpr a set to choose from: BLOCK = 256 in {64, 256, 1024}."
        raise KernellabError("The sketch has no tunables.", remedy)
    text, loaded, target = read_text(file, "sketch"), load_task(task), detect_target(dsl)
    if target.backend is Backend.INTERPRETER:
        raise TargetError("Speed cannot be measured in Triton's interpreter.", "Tune on a GPU, or with --dsl cpp.")
    fixed: dict[str, Value] = dict(numbers(set_ or []))
    asked = shape_classes(loaded) if loaded.dims and classes else [dict(loaded.module().default_sizes())]
    found: list[tuple[dict[str, int], Tuned]] = []
    with Verifier() as verifier:
        for sizes in asked:
            here = at_sizes(loaded, sizes) if loaded.dims else loaded
            tuned = _tuned(verifier, here, target, text, fixed, trials, fresh)
            say(f"{', '.join(f'{n}={v}' for n, v in sizes.items()) or 'fixed sizes'}: {tuned.words()}")
            found.append((sizes, tuned))
    usable = [(sizes, t.best) for sizes, t in found if t.best is not None]
    if not usable:
        reasons = [m.reason for _, t in found for m in t.measured if m.reason]
        raise KernellabError(f"Nothing could be measured: {next(iter(reasons), 'no reason given')}", "Verify it first.")
    writer = WorkerMeasure(verifier, loaded, target, fixed)
    sources = [(sizes, writer.source(best)) for sizes, best in usable]
    usual = dict(loaded.module().default_sizes())
    source = next((s for sizes, s in sources if sizes == usual), sources[0][1])
    together = merged(sources) if len(sources) > 1 else None
    if out is not None:
        write_files(out, (together or source).files)
    if json:
        emit({"classes": [_facts(sizes, t) for sizes, t in found], "dispatches": together is not None})
    else:
        for _, best in usable[:1] if together is None else usable:
            print(" ".join(f"--set {name}={value}" for name, value in best.values))
    return 0


def _tuned(
    verifier: Verifier, task: Task, target: Target, text: str, fixed: dict[str, Value], trials: int, fresh: bool
) -> Tuned:
    from kernellab.tuning import WorkerMeasure, cache, tune
    from kernellab.tuning.space import Space

    sizes = {a.name: a.shape for a in task.args} | dict(task.module().default_sizes())
    name = cache.key([text], target, sizes, fixed)
    found = None if fresh else cache.read(name, trials)
    if found is None:
        found = tune([text], Space(task, target, fixed), WorkerMeasure(verifier, task, target, fixed), trials)
        cache.write(name, trials, found)
    return found


def _facts(sizes: dict[str, int], tuned: Tuned) -> dict[str, Any]:
    return {
        "sizes": sizes,
        "constexpr": dict(tuned.best.values) if tuned.best else None,
        "cached": tuned.cached,
        "measured": [
            {"constexpr": dict(m.point.values), "time_ms": m.time.median_ms if m.time else None, "reason": m.reason}
            for m in tuned.measured
        ],
    }
