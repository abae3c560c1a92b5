"""``kernellab lens``: a source next to what the compiler made of it."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kernellab.cli.output import emit, say, write_files
from kernellab.content import written
from kernellab.errors import SessionError, counted
from kernellab.options.commands.designs import LensOptions
from kernellab.task import Task, load_task

if TYPE_CHECKING:
    from kernellab.lens import Difference, Lens
    from kernellab.lens.records import Level
    from kernellab.records import Source

_Kernel = Annotated[Path, typer.Argument(help="The kernel: a file, or a folder with its files.")]
_Other = Annotated[Path | None, typer.Argument(help="Another, to see how the two differ.")]


class _Seen(NamedTuple):
    """A kernel as the lens shows it, and what its reader called it."""

    name: str
    source: Source
    lens: Lens


def lens(source: _Kernel, options: LensOptions, other: _Other = None) -> int:
    """Show what the compiler made of a kernel: its texts, line by line, and what they tell; no GPU is needed."""
    level, line, back = options.level, options.line, options.back
    if back is not None and (level is None or line is not None):
        raise SessionError("--back is a line of a level.", "Name that with --level, and leave --line out.")
    kernels = _seen([path for path in (source, other) if path is not None], options)
    first = kernels[0]
    change = _difference(first, kernels[1], level) if len(kernels) > 1 else None
    if options.html is not None:
        _write_page(options.html, kernels)
    if options.out is not None:
        write_files(options.out, {f"{one.name}.txt": one.text for one in first.lens.levels})
    if options.as_json:
        emit(_facts(kernels, change, line) | _back_facts(first.lens, level, back))
    elif change is not None:
        _tell_difference(change, first.name, kernels[1].name)
    elif line is not None:
        _tell_line(first.lens, line, level)
    elif level is not None and back is not None:
        _tell_back(first.lens, level, back)
    elif level is not None:
        print(_level(first.lens, level).text)
    else:
        _tell(first.lens)
    return 0


def _seen(paths: list[Path], options: LensOptions) -> list[_Seen]:
    """Each kernel with its lens. All are read before one is compiled."""
    from kernellab.dsls.machine import named_chip
    from kernellab.dsls.sources import read_source
    from kernellab.lens import look

    task = load_task(options.task) if options.task is not None else None
    chip = named_chip(options.chip) if options.chip is not None else None
    sources = [read_source(path, options.dsl) for path in paths]
    kernels = [
        _Seen(str(path), source, look(source, task, chip, options.unsandboxed))
        for path, source in zip(paths, sources, strict=True)
    ]
    if options.counters:
        kernels = [one._replace(lens=_counted(one, task, options.unsandboxed)) for one in kernels]
    return kernels


def _counted(kernel: _Seen, task: Task | None, unsandboxed: bool) -> Lens:
    """With counters where they can be read, else with a note that says why not, and how they could be."""
    from kernellab.lens.counters.read import counters

    shown = kernel.lens
    if task is None:
        return replace(shown, notes=(*shown.notes, "Counters need a task, whose inputs the kernel runs on: --task."))
    try:
        return replace(shown, facts=(*shown.facts, *counters(kernel.source, task, unsandboxed)))
    except SessionError as error:
        return replace(shown, notes=(*shown.notes, f"{error.message} {error.remedy}"))


def _difference(first: _Seen, second: _Seen, level: str | None) -> Difference:
    """At the named level, else at the last: the one nearest to the machine."""
    from kernellab.lens import difference

    return difference(first.lens, second.lens, level or first.lens.names[-1], (first.name, second.name))


def _write_page(path: Path, kernels: list[_Seen]) -> None:
    from kernellab.lens.page import page

    names = [kernel.name for kernel in kernels]
    say(f"wrote {written(path, page(' and '.join(names), [kernel.lens for kernel in kernels], names))}")


def _facts(kernels: list[_Seen], change: Difference | None, line: int | None) -> dict[str, object]:
    """The command's JSON; ``linked`` is what ``line`` became, by level, ``other`` the second kernel."""
    from kernellab.lens.page import as_data

    first = kernels[0]
    facts: dict[str, object] = {"source": first.name, **as_data(first.lens)}
    if line is not None:
        facts |= {"line": line, "linked": {one.name: list(one.down.get(line, ())) for one in first.lens.levels}}
    if change is not None:
        facts |= {"other": as_data(kernels[1].lens), "difference": asdict(change)}
    return facts


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


def _back_facts(shown: Lens, name: str | None, number: int | None) -> dict[str, object]:
    if name is None or number is None:
        return {}
    return {"back": {"level": name, "line": number, "source": list(_level(shown, name).up.get(number, ()))}}


def _tell_difference(change: Difference, first: str, second: str) -> None:
    if change.text:
        print(change.text)
    for fact in change.facts:
        print(f"{fact.name}: {fact.a or 'none'} -> {fact.b or 'none'}")
    if not change.text:
        say(f"{first} and {second} are the same at the level {change.level}.")
    elif change.same:
        say("Only the compiler's numbers of registers, values and labels differ.")
    else:
        say(f"{counted(change.added, 'line')} more, {change.removed} less.")
