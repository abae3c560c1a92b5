"""The reference pages that the package itself defines: commands, magics, conditions, and the records kept as JSON."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import click


def write(folder: Path) -> None:
    """Write commands.md, magics.md, conditions.md and records.md into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "commands.md").write_text("\n".join(_commands()), encoding="utf-8")
    (folder / "magics.md").write_text("\n".join(_magics()), encoding="utf-8")
    (folder / "conditions.md").write_text("\n".join(_conditions()), encoding="utf-8")
    (folder / "records.md").write_text("\n".join(_records()), encoding="utf-8")


def _commands() -> Iterator[str]:
    import typer

    from kernellab.cli.main import app

    yield "# Commands\n\nEach command answers `--help`; with `--json` it prints one JSON object on stdout.\n"
    yield from _group(typer.main.get_command(app), "kernellab")


def _group(command: click.Command, name: str) -> Iterator[str]:
    commands = getattr(command, "commands", None)
    if commands:
        for one in (word for word, found in commands.items() if not found.hidden):
            yield from _group(commands[one], f"{name} {one}")
        return
    yield f"## {name}\n\n{_paragraphs(command.help)}\n"
    rows = [row for parameter in command.params for row in _row(parameter)]
    if rows:
        yield "| option | meaning |\n|---|---|"
        yield from rows
        yield ""


def _row(parameter: click.Parameter) -> Iterator[str]:
    if getattr(parameter, "hidden", False) or parameter.name == "help":
        return
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    help_ = " ".join((getattr(parameter, "help", None) or "").split())
    default = "" if parameter.default in (None, False, (), "") or callable(parameter.default) else parameter.default
    yield f"| {names} | {_cell(help_)}{f' Default: `{_cell(str(default))}`.' if default != '' else ''} |"


def _magics() -> Iterator[str]:
    from kernellab.notebook.magics.table import ALL

    yield "# Magics\n\n`%load_ext kernellab` loads them. Each answers `--help`.\n"
    for magics in ALL:
        for kind, mark in (("line", "%"), ("cell", "%%")):
            for name in magics.names(kind):
                parser = magics.parsers()[name]
                yield f"## {mark}{name}\n\n{_paragraphs(parser.description)}\n"
                yield "| argument | meaning |\n|---|---|"
                for action in parser._actions:
                    words = ", ".join(f"`{word}`" for word in action.option_strings) or f"`{action.dest.upper()}`"
                    yield f"| {words} | {_cell(' '.join((action.help or '').split()))} |"
                yield ""


def _conditions() -> Iterator[str]:
    from kernellab.conditions import KINDS, Mark, MarkKind

    yield "# Labels and flags of a verdict\n"
    yield "A verdict's *conditions* say what it holds for and what the Verifier noticed. A condition shows as a *label*"
    yield "next to the trust level, or as a *flag*, a sentence below the figures. Those of the *kernel* count"
    yield "against it; those of the *task* name what its author can change (a `Dim`, `DOMAIN`, other inputs); those of"
    yield "the *measurement* go away on a quiet machine, with a longer time or on a GPU. An exported operator"
    yield "calls the reference where a condition excludes the call by layout, alignment, a scalar's one value, or an"
    yield "interval, least magnitude or NaN of a tensor. `--json` has each with its `kind` and fields.\n"
    yield "## Conditions with values\n"
    yield "| kind | concerns | label or flag, where it is always the same | what it says |\n|---|---|---|---|"
    for condition in KINDS:
        if condition is not Mark:
            kind, about = condition.model_fields["kind"].default, inspect.cleandoc(condition.__doc__ or "")
            about = " ".join(about.partition("\n\n")[0].replace("``", "`").split())
            text = condition._label or condition._flag
            yield f"| `{kind}` | {condition._concern} | {_cell(text)} | {_cell(about)} |"
    yield "\n## Conditions without values\n"
    yield "| kind | concerns | label | flag |\n|---|---|---|---|"
    for mark in (Mark(kind=kind) for kind in get_args(MarkKind)):
        yield f"| `{mark.kind}` | {mark.concern} | {_cell(mark.label)} | {_cell(mark.flag)} |"
    yield ""


def _records() -> Iterator[str]:
    from kernellab import records
    from kernellab.session.record.records import Turn

    yield "# Records\n"
    yield "What a session keeps, and what `--json` prints: pydantic models, frozen, written by `model_dump_json`."
    yield "A field with a default may be missing in an older file. A field that a reader does not know is refused:"
    yield "a file is read by the version that wrote it and by newer ones ([the journal](../reference/journal.md)).\n"
    kept: tuple[Any, ...] = (records.Verdict, records.Source, records.Comparison, records.Timing, records.Environment)
    for model in (*kept, Turn):
        yield f"## {model.__name__}\n\n{_paragraphs(model.__doc__)}\n"
        yield f"```json\n{json.dumps(model.model_json_schema().get('properties', {}), indent=1)}\n```\n"


def _paragraphs(text: str | None) -> str:
    """A docstring as Markdown: an indented block stays one of code."""
    lines = inspect.cleandoc((text or "").replace("\b", "").strip().removeprefix("::")).splitlines()
    return "\n".join(line if line.startswith("    ") else _escaped(line) for line in lines)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _cell(text: str) -> str:
    return _escaped(text).replace("*", "\\*")
