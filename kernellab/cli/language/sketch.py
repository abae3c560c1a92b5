"""``kernellab sketch check | print | run | cost | lower``: the language's services."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernellab.cli.output import emit, read_text, say, write_kernel
from kernellab.errors import KernellabError, SketchError, TargetError
from kernellab.options.entry import numbers
from kernellab.records import Diagnostic, GateState
from kernellab.sketch.program.bind import bind, check_constexprs
from kernellab.task import load_task

if TYPE_CHECKING:
    from kernellab.sketch.cost import Cost
    from kernellab.sketch.program.program import Program

sketch_app = typer.Typer(help="The sketch language's services.", no_args_is_help=True, rich_markup_mode=None)

File = Annotated[Path, typer.Argument(help="The sketch.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="NAME=VALUE of a constexpr; repeatable.")]
Size = Annotated[list[str] | None, typer.Option("--size", help="NAME=VALUE of a symbol; repeatable.")]
TaskFile = Annotated[Path | None, typer.Option("--task", help="The task's Python file.")]
Dsl = Annotated[str | None, typer.Option(help="triton, cpp, cuda_c; default: triton with a GPU, else cpp.")]


@sketch_app.command("check")
def check(file: File, set_: Set = None, dsl: Dsl = None, json: Json = False) -> int:
    """List its errors and warnings. Exit 1 on errors, 0 on warnings."""
    from kernellab.sketch.check import check as check_sketch

    text = read_text(file, "sketch")
    chip = None
    if dsl is not None:
        from kernellab.dsls.machine import detect_target

        chip = detect_target(dsl).chip
    checked = check_sketch(text, chip=chip, constexpr=numbers(set_ or []))
    if checked.program is not None:
        _known(checked.program, numbers(set_ or []))
    _tell(file, checked.diagnostics, json)
    if not json and not checked.diagnostics:
        say(f"{file}: no findings")
    return 0 if checked.ok else 1


@sketch_app.command("print")
def print_(file: File, json: Json = False) -> int:
    """Print it in its canonical form."""
    from kernellab.sketch.syntax.printer import format as format_sketch

    try:
        text = format_sketch(read_text(file, "sketch"))
    except SketchError as error:
        return _refused(file, error, json)
    if json:
        emit({"text": text})
    else:
        print(text, end="" if text.endswith("\n") else "\n")
    return 0


@sketch_app.command("run")
def run(file: File, task: TaskFile = None, set_: Set = None, json: Json = False) -> int:
    """Run it on small edge shapes against the task's reference. Exit 1 when it does not match."""
    from kernellab.sketch.gate import gate

    text = read_text(file, "sketch")
    if task is None:
        raise KernellabError("A sketch is run against a task's reference.", "Give it with --task FILE.")
    result = gate(text, load_task(task), constexpr=numbers(set_ or []))
    matches = result.state is GateState.RIGHT
    if json:
        emit({"matches": matches, **result.model_dump(mode="json")})
    else:
        _tell(file, result.diagnostics, False)
        print(f"{result.state.value}: {result.reason}")
    return 0 if matches else 1


@sketch_app.command("cost")
def cost(
    file: File, task: TaskFile = None, dsl: Dsl = None, set_: Set = None, size: Size = None, json: Json = False
) -> int:
    """Count operations and bytes, and estimate the time on this chip."""
    from dataclasses import asdict

    from kernellab.dsls.machine import detect_target
    from kernellab.sketch.cost import cost as cost_of

    values, sizes = numbers(set_ or []), {name: int(value) for name, value in numbers(size or [], "--size").items()}
    target = detect_target(dsl)
    program = read_program(file, json)
    if isinstance(program, int):
        return program
    _known(program, values, sizes)
    if task is not None:
        loaded = load_task(task)
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
    if json:
        facts = _plain(asdict(estimate))
        emit({**facts, "bytes": facts.get("bytes_unique"), "sizes": sizes, "chip": target.chip.name})
    else:
        print(_cost_text(estimate, sizes, target.chip.name))
    return 0


@sketch_app.command("lower")
def lower(
    file: File,
    task: TaskFile = None,
    dsl: Dsl = None,
    set_: Set = None,
    out: Annotated[Path | None, typer.Option(help="A folder for the sketch and the source.")] = None,
    json: Json = False,
) -> int:
    """Write it as code in a DSL."""
    from kernellab.dsls.machine import INTERPRETED_FOR, detect_target, named_chip
    from kernellab.lowering import lower as lower_program
    from kernellab.target import Backend, Target

    try:
        target = detect_target(dsl)
    except TargetError:
        if dsl != "cuda_c":
            raise
        # written here, run where there is a GPU: Triton's interpreter has its like, CUDA-C has not
        target = Target(dsl, Backend.CUDA, named_chip(INTERPRETED_FOR))
    program = read_program(file, json)
    if isinstance(program, int):
        return program
    _known(program, numbers(set_ or []))
    loaded = load_task(task) if task is not None else None
    source = lower_program(program, bind(program, loaded, numbers(set_ or []), target), target)
    if out is not None:
        write_kernel(out, loaded.name if loaded is not None else file.stem, program.text, source.files)
    if json:
        emit({"dsl": source.dsl, "entry_file": source.entry_file, "files": source.files})
    elif out is None:
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
