"""``kernellab sketch tune``: measured values for a sketch's tunables, at the task's default sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernellab.cli.language.sketch import File, read_program, sketch_app
from kernellab.cli.output import emit, read_text, say, write_kernel
from kernellab.cli.parameters import command
from kernellab.errors import KernellabError, TargetError
from kernellab.options.commands.language import TuneOptions
from kernellab.target import Backend
from kernellab.task import load_task

if TYPE_CHECKING:
    from kernellab.tuning import Tuned
    from kernellab.tuning.space import Value


@command(sketch_app, "tune")
def tune(file: File, options: TuneOptions) -> int:
    """Find the tunables' fastest values by measuring; the cost model says where to look first. Exit 1 when nothing ran.

    A ranking is not a verdict: verify the kernel that is written.
    """
    from kernellab.dsls.machine import detect_target
    from kernellab.tuning import WorkerMeasure, cache
    from kernellab.tuning import tune as search
    from kernellab.tuning.space import Space
    from kernellab.verifier import Verifier

    program = read_program(file, options.as_json)
    if isinstance(program, int):
        return program
    if not program.tunables:
        remedy = "Give a constexpr a set to choose from: BLOCK = 256 in {64, 256, 1024}."
        raise KernellabError("The sketch has no tunables.", remedy)
    text, loaded, target = read_text(file, "sketch"), load_task(options.task), detect_target(options.dsl)
    if target.backend is Backend.INTERPRETER:
        raise TargetError("Speed cannot be measured in Triton's interpreter.", "Tune on a GPU, or with --dsl cpp.")
    fixed: dict[str, Value] = dict(options.constexprs)
    sizes = {a.name: a.shape for a in loaded.args} | dict(loaded.module().default_sizes())
    name = cache.key([text], target, sizes, fixed)
    with Verifier() as verifier:
        measure = WorkerMeasure(verifier, loaded, target, fixed)
        tuned = None if options.fresh else cache.read(name, options.trials)
        if tuned is None:
            tuned = search([text], Space(loaded, target, fixed), measure, options.trials)
            cache.write(name, options.trials, tuned)
        say(tuned.words())
        if tuned.best is None:
            reason = next((m.reason for m in tuned.measured if m.reason), "no reason given")
            raise KernellabError(f"Nothing could be measured: {reason}", "Verify it first.")
        if options.out is not None:
            write_kernel(options.out, loaded.name, tuned.best.sketch, measure.source(tuned.best).files)
    if options.as_json:
        emit(_facts(tuned))
    else:
        print(" ".join(f"--set {name}={value}" for name, value in tuned.best.values))
    return 0


def _facts(tuned: Tuned) -> dict[str, Any]:
    return {
        "constexpr": dict(tuned.best.values) if tuned.best else None,
        "cached": tuned.cached,
        "measured": [
            {"constexpr": dict(m.point.values), "time_ms": m.time.median_ms if m.time else None, "reason": m.reason}
            for m in tuned.measured
        ],
    }
