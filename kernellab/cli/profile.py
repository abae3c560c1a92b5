"""``kernellab profile``: where a model's time goes, what kernels could gain, and kernels put into it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernellab.cli.output import emit, say
from kernellab.errors import ProfileError
from kernellab.options.commands.designs import ProfileOptions

if TYPE_CHECKING:
    from kernellab.model_integration.auto import Step
    from kernellab.model_integration.ranked import Profile


def profile(
    model: Annotated[Path, typer.Argument(help="A file that defines `model` or Model, and inputs or get_inputs.")],
    options: ProfileOptions,
) -> int:
    """Rank a model's regions by what a kernel could gain; with --open or --auto put kernels in and measure the whole.

    Exit 1 when --open or --auto put no kernel in.
    """
    from kernellab.model_integration import profile as profiled
    from kernellab.model_integration.auto import Outcome, minutes_of
    from kernellab.model_integration.display import as_dict
    from kernellab.session.start import check_coder

    speedups: dict[int | str, float] = dict(_assumed_speedup(text) for text in options.what_if)
    minutes = minutes_of(options.auto) if options.auto is not None else None
    if options.dsl is not None:
        check_coder(options.dsl)
    report = profiled(model, train=options.train, device=options.device)
    if not options.as_json:
        _print_report(report, options, speedups)
    installs_kernels = bool(options.open_rows) or minutes is not None
    steps = _install_kernels(report, options, minutes) if installs_kernels else []
    kept = next((step for step in steps if step.outcome is Outcome.KEPT), None)
    if kept is not None:
        say(f"`kernellab export {kept.session} --out {kept.row.name}.py` takes a kernel home.")
    if options.as_json:
        expected = {"what_if": {"speedups": speedups, "step_ms": report.predict(speedups)}} if speedups else {}
        emit({**as_dict(report), **expected, "steps": [_facts(step) for step in steps]})
    return 1 if installs_kernels and kept is None else 0


def _print_report(report: Profile, options: ProfileOptions, speedups: dict[int | str, float]) -> None:
    """The table of rows, the tree of modules with --tree, and the prediction of --what-if."""
    from kernellab.model_integration.display import sentence, table
    from kernellab.model_integration.tree import text

    print(table(report, options.rows), flush=True)
    if options.tree:
        print(f"\n{text(report.measured, report.workload.name)}", flush=True)
    if speedups:
        print(sentence(report, speedups), flush=True)


def _install_kernels(report: Profile, options: ProfileOptions, minutes: float | None) -> list[Step]:
    """Designs kernels for the rows of --open, else row by row, and puts in what is faster."""
    from kernellab.model_integration import go_down
    from kernellab.model_integration.auto import USUAL_MINUTES

    for row in options.open_rows:  # what is wrong with a name is reported before anything is designed
        report.row(row)
    steps = go_down(
        report, minutes=USUAL_MINUTES if minutes is None else minutes, most=options.most, rows=options.open_rows,
        tell=lambda step: say(step.text), dsl=options.dsl,
    )  # fmt: skip
    if not steps:
        say("No row was tried: no kernel is likely to save a hundredth of the step.")
    return steps


def _assumed_speedup(text: str) -> tuple[str, float]:
    row, sign, value = text.rpartition("=")
    try:
        if not sign:
            raise ValueError
        return row, float(value)
    except ValueError:
        raise ProfileError(f"--what-if {text} is not ROW=TIMES.", "Write --what-if 1=2.5.") from None


def _facts(step: Step) -> dict[str, Any]:
    return {
        "row": step.row.number, "name": step.row.name, "outcome": step.outcome.value, "seconds": step.seconds,
        "factor": step.factor, "predicted": step.predicted, "measured": step.measured, "error": step.error,
        "reason": step.reason, "factor_in_place": step.place, "gained": step.gained, "session": step.session,
    }  # fmt: skip
