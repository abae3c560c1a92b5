"""``kernellab lens``: a source next to what the compiler made of it."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernellab.cli.output import emit, say, write_files
from kernellab.content import written
from kernellab.errors import SessionError, counted
from kernellab.task import Task, load_task

if TYPE_CHECKING:
    from kernellab.lens import Difference, Lens
    from kernellab.lens.records import Level
    from kernellab.records import Source

_Kernel = Annotated[Path, typer.Argument(help="The kernel: a file, or a folder with its files.")]
_Other = Annotated[Path | None, typer.Argument(help="Another, to see how the two differ.")]


def lens(
    source: _Kernel,
    other: _Other = None,
    task: Annotated[Path | None, typer.Option("--task", help="The task's file; a GPU's kernel needs it.")] = None,
    dsl: Annotated[str | None, typer.Option(help="triton, cuda_c or cpp; default: detected.")] = None,
    chip: Annotated[
        str | None, typer.Option(help="The GPU to compile for: h200, a100, ...; default: this one's.")
    ] = None,
    level: Annotated[
        str | None, typer.Option(help="Print this text: ttir, ttgir, llir, ptx, sass, gimple, asm.")
    ] = None,
    line: Annotated[int | None, typer.Option(min=1, help="Print what this line of the source became.")] = None,
    back: Annotated[
        int | None, typer.Option(min=1, help="Print the source lines that this line of --level came from.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write one page: both sides, linked line by line.")] = None,
    out: Annotated[Path | None, typer.Option(help="A folder for the texts.")] = None,
    counters: Annotated[bool, typer.Option("--counters", help="Run it under ncu and read the GPU's counters.")] = False,
    unsandboxed: Annotated[
        bool, typer.Option("--unsandboxed", help="I trust this kernel: it may run with my own rights.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> int:
    """Show what the compiler made of a kernel: its texts, line by line, and what they tell; no GPU is needed."""
    from kernellab.dsls.machine import named_chip
    from kernellab.dsls.sources import read_source
    from kernellab.lens import look

    if back is not None and (level is None or line is not None):
        raise SessionError("--back is a line of a level.", "Name that with --level, and leave --line out.")
    loaded = load_task(task) if task is not None else None
    target_chip = named_chip(chip) if chip is not None else None
    sources = [read_source(path, dsl) for path in (source, other) if path is not None]
    lenses = [look(one, loaded, target_chip, unsandboxed) for one in sources]
    if counters:
        lenses = [_counted(one, kernel, loaded, unsandboxed) for one, kernel in zip(lenses, sources, strict=True)]
    names = [str(path) for path in (source, other) if path is not None]
    change = _difference(lenses, names, level)
    if html is not None:
        _write_page(html, lenses, names)
    if out is not None:
        write_files(out, {f"{one.name}.txt": one.text for one in lenses[0].levels})
    if json:
        emit(_as_json(lenses, names, change, line) | _back_json(lenses[0], level, back))
    elif change is not None:
        _tell_difference(change, names)
    elif line is not None:
        _tell_line(lenses[0], line, level)
    elif level is not None and back is not None:
        _tell_back(lenses[0], level, back)
    elif level is not None:
        print(_level(lenses[0], level).text)
    else:
        _tell(lenses[0])
    return 0


def _counted(shown: Lens, kernel: Source, task: Task | None, unsandboxed: bool) -> Lens:
    """With counters where they can be read, else with a note that says why not, and how they could be."""
    from kernellab.lens.counters.read import counters

    if task is None:
        return replace(shown, notes=(*shown.notes, "Counters need a task, whose inputs the kernel runs on: --task."))
    try:
        return replace(shown, facts=(*shown.facts, *counters(kernel, task, unsandboxed)))
    except SessionError as error:
        return replace(shown, notes=(*shown.notes, f"{error.message} {error.remedy}"))


def _difference(lenses: list[Lens], names: list[str], level: str | None) -> Difference | None:
    from kernellab.lens import difference

    if len(lenses) < 2:
        return None
    return difference(lenses[0], lenses[1], level or lenses[0].names[-1], (names[0], names[1]))


def _write_page(path: Path, lenses: list[Lens], names: list[str]) -> None:
    from kernellab.lens.page import page

    say(f"wrote {written(path, page(' and '.join(names), lenses, names))}")


def _as_json(lenses: list[Lens], names: list[str], change: Difference | None, line: int | None) -> dict[str, object]:
    from kernellab.lens.page import as_data

    first = lenses[0]
    linked = {one.name: list(one.down.get(line, ())) for one in first.levels} if line is not None else None
    return {
        "source": names[0], **as_data(first), **({"line": line, "linked": linked} if linked is not None else {}),
        **({"other": as_data(lenses[1]), "difference": asdict(change)} if change is not None else {}),
    }  # fmt: skip


def _level(shown: Lens, name: str) -> Level:
    level = shown.level(name)
    if level is None:
        raise SessionError(
            f"The lens shows no level {name!r} of this source.", f"Choose one of {', '.join(shown.names)}."
        )
    return level


def _tell(shown: Lens) -> None:
    from kernellab.lens.page import as_text

    print(as_text(shown))
    for note in shown.notes:
        say(note)


def _tell_line(shown: Lens, line: int, level: str | None) -> None:
    """What a line became, level by level."""
    text = shown.text.splitlines()
    if line > len(text):
        raise SessionError(f"{shown.file} has {len(text)} lines.", "Name one of them with --line.")
    print(f"{shown.file}:{line}: {text[line - 1].strip()}")
    for one in [_level(shown, level)] if level else shown.levels:
        lines, numbers = one.text.split("\n"), one.down.get(line, ())
        print(f"{one.name}: {len(numbers)} lines")
        for number in numbers:
            print(f"{number:6} {lines[number - 1]}")


def _tell_back(shown: Lens, name: str, number: int) -> None:
    """Where a line of a level came from, all places of an inlined chain."""
    level, text = _level(shown, name), shown.text.splitlines()
    lines = level.text.split("\n")
    if number > len(lines):
        raise SessionError(f"The level {name} has {len(lines)} lines.", "Name one of them with --back.")
    print(f"{name}:{number}: {lines[number - 1].strip()}")
    for line in level.up.get(number, ()):
        print(f"{shown.file}:{line}: {text[line - 1].strip() if line <= len(text) else ''}")
    if number not in level.up:
        say(f"No line of {shown.file} is known for it.")


def _back_json(shown: Lens, name: str | None, number: int | None) -> dict[str, object]:
    if name is None or number is None:
        return {}
    return {"back": {"level": name, "line": number, "source": list(_level(shown, name).up.get(number, ()))}}


def _tell_difference(change: Difference, names: list[str]) -> None:
    if change.text:
        print(change.text)
    for fact in change.facts:
        print(f"{fact.name}: {fact.a or 'none'} -> {fact.b or 'none'}")
    if not change.text:
        say(f"{names[0]} and {names[1]} are the same at the level {change.level}.")
    elif change.same:
        say("Only the compiler's numbers of registers, values and labels differ.")
    else:
        say(f"{counted(change.added, 'line')} more, {change.removed} less.")
