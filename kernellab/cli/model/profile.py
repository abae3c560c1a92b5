"""``kernellab profile``: where a model's time goes, what kernels could gain, and kernels put into it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernellab.cli.output import emit, say
from kernellab.errors import ProfileError

if TYPE_CHECKING:
    from kernellab.model_integration.auto import Step


def profile(
    model: Annotated[Path, typer.Argument(help="A file that defines `model` or Model, and inputs or get_inputs.")],
    train: Annotated[
        bool, typer.Option("--train", help="Profile a training step: forward, loss and backward.")
    ] = False,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; default: a GPU where there is one.")] = None,
    rows: Annotated[int, typer.Option(min=1, help="Rows of the table.")] = 15,
    tree: Annotated[bool, typer.Option("--tree", help="The tree of modules, with total and own time, too.")] = False,
    what_if: Annotated[
        list[str] | None,
        typer.Option(
            "--what-if", metavar="ROW=TIMES", help="Predict the model with a row so many times as fast; repeatable."
        ),
    ] = None,
    open_row: Annotated[
        list[str] | None,
        typer.Option(
            "--open", metavar="ROW", help="Design a kernel for a row (number, name or module) and install it."
        ),
    ] = None,
    auto: Annotated[
        str | None,
        typer.Option(metavar="minutes=30", help="Design kernels row by row with the rules, install and measure them."),
    ] = None,
    most: Annotated[int | None, typer.Option(min=1, help="With --auto: stop after this many kernels.")] = None,
    dsl: Annotated[str | None, typer.Option(help="The kernels' DSL; default: triton with a GPU, else cpp.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> int:
    """Rank a model's regions by what a kernel could gain; with --open or --auto put kernels in and measure the whole.

    Exit 1 when --open or --auto put no kernel in.
    """
    from kernellab.model_integration import go_down
    from kernellab.model_integration import profile as profiled
    from kernellab.model_integration.auto import Outcome, minutes_of
    from kernellab.model_integration.display import as_dict, sentence, table
    from kernellab.model_integration.tree import text
    from kernellab.session.start import check_coder

    assumed: dict[int | str, float] = dict(_assumed(text) for text in what_if or [])
    minutes = minutes_of(auto) if auto is not None else None
    if dsl is not None:
        check_coder(dsl)
    report = profiled(model, train=train, device=device)
    if not json:
        print(table(report, rows), flush=True)
        if tree:
            print(f"\n{text(report.measured, report.workload.name)}", flush=True)
        if assumed:
            print(sentence(report, assumed), flush=True)
    steps: list[Step] = []
    kept: Step | None = None
    if open_row or minutes is not None:
        chosen = open_row or []
        # what is wrong with a name is reported before anything is designed
        for which in chosen:
            report.row(which)
        steps = go_down(
            report, minutes=30.0 if minutes is None else minutes, most=most, rows=chosen,
            tell=lambda step: say(step.text), dsl=dsl,
        )  # fmt: skip
        if not steps:
            say("No row was tried: no kernel is likely to save a hundredth of the step.")
        kept = next((step for step in steps if step.outcome is Outcome.KEPT), None)
        if kept is not None:
            say(f"`kernellab export {kept.session} --out {kept.row.name}.py` takes a kernel home.")
    if json:
        expected = {"what_if": {"speedups": assumed, "step_ms": report.predict(assumed)}} if assumed else {}
        emit({**as_dict(report), **expected, "steps": [_plain(step) for step in steps]})
    asked = bool(open_row) or minutes is not None
    return 1 if asked and kept is None else 0


def _assumed(text: str) -> tuple[str, float]:
    row, sign, value = text.rpartition("=")
    try:
        if not sign:
            raise ValueError
        return row, float(value)
    except ValueError:
        raise ProfileError(f"--what-if {text} is not ROW=TIMES.", "Write --what-if 1=2.5.") from None


def _plain(step: Step) -> dict[str, Any]:
    return {
        "row": step.row.number, "name": step.row.name, "outcome": step.outcome.value, "seconds": step.seconds,
        "factor": step.factor, "predicted": step.predicted, "measured": step.measured, "error": step.error,
        "reason": step.reason, "factor_in_place": step.place, "gained": step.gained, "session": step.session,
    }  # fmt: skip
