"""``kernellab sketch check | print | run | cost | lower``: the language's services."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernellab.cli.output import emit, read_text, say, write_kernel
from kernellab.cli.parameters import command
from kernellab.errors import KernellabError, SketchError, TargetError
from kernellab.options.commands.base import JsonOptions
from kernellab.options.commands.language import (
    SketchCheckOptions,
    SketchCostOptions,
    SketchLowerOptions,
    SketchRunOptions,
)
from kernellab.records import Diagnostic, GateState
from kernellab.sketch.program.bind import bind, check_constexprs
from kernellab.task import load_task

if TYPE_CHECKING:
    from kernellab.sketch.cost import Cost
    from kernellab.sketch.program.program import Program

sketch_app = typer.Typer(help="The sketch language's services.", no_args_is_help=True, rich_markup_mode=None)

File = Annotated[Path, typer.Argument(help="The sketch.")]


@command(sketch_app, "check")
def check(file: File, options: SketchCheckOptions) -> int:
    """List its errors and warnings. Exit 1 on errors, 0 on warnings."""
    from kernellab.sketch.check import check as check_sketch

    text = read_text(file, "sketch")
    chip = None
    if options.dsl is not None:
        from kernellab.dsls.machine import detect_target

        chip = detect_target(options.dsl).chip
    checked = check_sketch(text, chip=chip, constexpr=options.constexprs)
    if checked.program is not None:
        _known(checked.program, options.constexprs)
    _tell(file, checked.diagnostics, options.as_json)
    if not options.as_json and not checked.diagnostics:
        say(f"{file}: no findings")
    return 0 if checked.ok else 1


@command(sketch_app, "print")
def print_(file: File, options: JsonOptions) -> int:
    """Print it in its canonical form."""
    from kernellab.sketch.syntax.printer import format as format_sketch

    try:
        text = format_sketch(read_text(file, "sketch"))
    except SketchError as error:
        return _refused(file, error, options.as_json)
    if options.as_json:
        emit({"text": text})
    else:
        print(text, end="" if text.endswith("\n") else "\n")
    return 0


@command(sketch_app, "run")
def run(file: File, options: SketchRunOptions) -> int:
    """Run it on small edge shapes against the task's reference. Exit 1 when it does not match."""
    from kernellab.sketch.gate import gate

    text = read_text(file, "sketch")
    if options.task is None:
        raise KernellabError("A sketch is run against a task's reference.", "Give it with --task FILE.")
    result = gate(text, load_task(options.task), constexpr=options.constexprs)
    matches = result.state is GateState.RIGHT
    if options.as_json:
        emit({"matches": matches, **result.model_dump(mode="json")})
    else:
        _tell(file, result.diagnostics, False)
        print(f"{result.state.value}: {result.reason}")
    return 0 if matches else 1


@command(sketch_app, "cost")
def cost(file: File, options: SketchCostOptions) -> int:
    """Count operations and bytes, and estimate the time on this chip."""
    from dataclasses import asdict

    from kernellab.dsls.machine import detect_target
    from kernellab.sketch.cost import cost as cost_of

    values, sizes = options.constexprs, {name: int(value) for name, value in options.sizes.items()}
    target = detect_target(options.dsl)
    program = read_program(file, options.as_json)
    if isinstance(program, int):
        return program
    _known(program, values, sizes)
    if options.task is not None:
        loaded = load_task(options.task)
        binding = bind(program, loaded, values, target)
        values = dict(binding.constexpr)
        arguments = loaded.module().sample(loaded.module().default_sizes() | sizes)
        sizes = {
            **binding.fixed,
            **binding.sizes(lambda at, dim: arguments[at].shape[dim]),
            **{name: value for name, value in sizes.items() if name in program.symbols},
        }
    missing = [symbol for symbol in program.symbols if symbol not in sizes]
    if missing:
        raise KernellabError(f"The size of {', '.join(missing)} is not known.", "Give --size NAME=VALUE, or --task.")
    estimate = cost_of(program, sizes, values, target.chip)
    if options.as_json:
        facts = _plain(asdict(estimate))
        emit({**facts, "bytes": facts.get("bytes_unique"), "sizes": sizes, "chip": target.chip.name})
    else:
        print(_cost_text(estimate, sizes, target.chip.name))
    return 0


@command(sketch_app, "lower")
def lower(file: File, options: SketchLowerOptions) -> int:
    """Write it as code in a DSL."""
    from kernellab.dsls.machine import INTERPRETED_FOR, detect_target, named_chip
    from kernellab.lowering import lower as lower_program
    from kernellab.target import Backend, Target

    try:
        target = detect_target(options.dsl)
    except TargetError:
        if options.dsl != "cuda_c":
            raise
        # written here, run where there is a GPU: Triton's interpreter has its like, CUDA-C has not
        target = Target(options.dsl, Backend.CUDA, named_chip(INTERPRETED_FOR))
    program = read_program(file, options.as_json)
    if isinstance(program, int):
        return program
    _known(program, options.constexprs)
    loaded = load_task(options.task) if options.task is not None else None
    source = lower_program(program, bind(program, loaded, options.constexprs, target), target)
    if options.out is not None:
        write_kernel(options.out, loaded.name if loaded is not None else file.stem, program.text, source.files)
    if options.as_json:
        emit({"dsl": source.dsl, "entry_file": source.entry_file, "files": source.files})
    elif options.out is None:
        for name, text in source.files.items():
            say(f"== {name}")
            print(text)
    return 0


def _cost_text(cost: Cost, sizes: dict[str, int], chip: str) -> str:
    at = ", ".join(f"{name}={size}" for name, size in sizes.items())
    flops = ", ".join(f"{count:.4g} {kind}" for kind, count in cost.flops.items())
    lines = [
        f"at {at} on {chip}",
        f"  FLOPs       {flops or 'none'}",
        f"  bytes       {cost.bytes_unique:.4g} distinct, {cost.bytes_total:.4g} loaded and stored",
        f"  footprint   {cost.footprint} bytes of tiles in one parallel iteration, {cost.parallelism:g} of them",
        f"  intensity   {cost.intensity:.3g} FLOPs a byte",
    ]
    if cost.time_ms is not None:
        lines.append(f"  roofline    {cost.time_ms:.4g} ms, bound by {cost.bound}")
    lines += [
        f"  line {row.line:<4} {row.label:<28} {row.iterations:.4g} iterations, {row.flops:.4g} FLOPs, "
        f"{row.bytes_total:.4g} bytes"
        for row in cost.loops
    ]
    return "\n".join(lines)


def _known(program: Program, values: dict[str, int | float], sizes: dict[str, int] | None = None) -> None:
    """
    Raises:
        KernellabError: ``--set`` or ``--size`` names what the sketch has not.
    """
    if unlisted := check_constexprs(program, values):
        say(unlisted)
    there = list(program.symbols)
    unknown = next((name for name in sizes or {} if name not in there), None)
    if unknown is not None:
        raise KernellabError(
            f"--size {unknown}: the sketch has no symbol {unknown}.",
            f"It has {', '.join(there)}." if there else "It has none.",
        )


def read_program(file: Path, json: bool) -> Any:
    """The resolved sketch, or the exit code after its faults were told."""
    from kernellab.sketch.check import load_program

    try:
        return load_program(read_text(file, "sketch"))
    except SketchError as error:
        return _refused(file, error, json)


def _refused(file: Path, error: SketchError, json: bool) -> int:
    if not error.diagnostics:
        raise error
    _tell(file, error.diagnostics, json)
    return 1


def _tell(file: Path, diagnostics: tuple[Diagnostic, ...] | list[Diagnostic], json: bool) -> None:
    if json:
        emit({"diagnostics": [d.model_dump(mode="json") for d in diagnostics]})
        return
    for d in diagnostics:
        say(f"{file}:{d.line}:{d.col}: {d.severity} {d.code}: {d.message} {d.remedy}".rstrip())


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(getattr(key, "value", key)): _plain(item) for key, item in value.items()}
    return value
