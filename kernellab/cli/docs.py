"""``kernellab docs new | lint | run | show | import``: the documents that teach the roles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernellab.cli.output import emit, say, write_files
from kernellab.cli.parameters import command
from kernellab.content import find_workspace
from kernellab.dsls.spec import PLACEHOLDER, SPEC, knowledge_roots, read_spec, spec_files, whose
from kernellab.errors import KernellabError, counted
from kernellab.options.commands.language import (
    DocsImportOptions,
    DocsLintOptions,
    DocsNewOptions,
    DocsRunOptions,
    DocsShowOptions,
)

if TYPE_CHECKING:
    from kernellab.knowledge import Knowledge, Passage
    from kernellab.knowledge.draft import Like
    from kernellab.knowledge.execute import Outcome

docs_app = typer.Typer(
    help="The documents that the roles are taught from: draft, check, run, show, import.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@command(docs_app, "new")
def new(
    name: Annotated[str, typer.Argument(help="The DSL's name: lower-case letters, digits, underscores.")],
    options: DocsNewOptions,
) -> int:
    """Draft a DSL's folder: an annotated spec and the four parts, with FILL IN where something belongs."""
    from kernellab.knowledge.draft import draft

    folder = options.out or find_workspace() / "knowledge" / "dsl" / name
    if folder.exists() and any(folder.iterdir()):
        raise KernellabError(f"{folder} is not empty.", "Choose another --out; nothing is overwritten.")
    written = write_files(folder, draft(name, _like(options.like)))
    if options.as_json:
        emit({"files": written})
    else:
        print("\n".join(written))
        print("Fill in what is marked (kernellab docs import does, as far as a module or a document tells), then:")
        print("kernellab docs lint, kernellab docs run, kernellab verify.")
    return 0


def _like(name: str) -> Like:
    """What a draft takes over from the DSL ``name``."""
    from kernellab.knowledge.draft import like

    specs = spec_files()
    if name not in specs:
        raise KernellabError(f"There is no DSL {name!r} to start from.", f"Choose one of {', '.join(sorted(specs))}.")
    return like(read_spec(specs[name]))


@command(docs_app, "lint")
def lint(options: DocsLintOptions) -> int:
    """Check schema, links, and names that the installed toolchain does not have. Exit 1 on errors, 0 on warnings."""
    from kernellab.knowledge.lint import lint as lint_root

    faults = [(folder, fault) for folder in _roots(options.root) for fault in lint_root(folder)]
    errors = sum(fault.severity == "error" for _, fault in faults)
    if options.as_json:
        emit({"errors": errors, "faults": [{"root": str(folder), **asdict(fault)} for folder, fault in faults]})
    else:
        for _, fault in faults:
            say(f"{fault.where}: {fault.severity}: {fault.message} {fault.remedy}".rstrip())
        print(f"{counted(errors, 'error')}, {counted(len(faults) - errors, 'warning')}")
    return 1 if errors else 0


@command(docs_app, "run")
def run(
    options: DocsRunOptions,
    only: Annotated[
        str, typer.Argument(help="Only documents below this path, such as language/, or of this DSL; default: all.")
    ] = "",
) -> int:
    """Execute every code block that can run here, each in its own process. Exit 1 when one fails."""
    from kernellab.knowledge.execute import State, execute
    from kernellab.knowledge.jobs import jobs
    from kernellab.knowledge.record import record as put_on_record
    from kernellab.knowledge.record import versions

    outcomes: list[Outcome] = []
    installed: dict[str, str] = {}
    for folder in _roots(options.root):
        pending = jobs(folder, only) or jobs(folder, f"dsl/{only}/")
        done = execute(pending, lambda outcome: None if options.as_json else _tell(outcome))
        outcomes += done
        installed |= versions(sorted({job.group for job in pending}), folder)
        if options.record and pending:
            put_on_record(folder, pending, done)
    if not outcomes:
        raise KernellabError(
            f"No document's path begins with {only!r}, and no DSL is called so.", "See kernellab docs show."
        )
    counts = Counter((outcome.kind, outcome.state.value) for outcome in outcomes)
    failed = sum(outcome.state is State.FAILED for outcome in outcomes)
    if options.as_json:
        rows = [{**asdict(outcome), "state": outcome.state.value} for outcome in outcomes]
        emit({"passed": not failed, "versions": installed, "outcomes": rows})
    else:
        for (kind, state), count in sorted(counts.items()):
            print(f"{count:>4} {kind} {state}")
        print("on " + ", ".join(f"{name} {number}" for name, number in installed.items()))
    return 1 if failed else 0


@command(docs_app, "show")
def show(
    options: DocsShowOptions,
    what: Annotated[
        str,
        typer.Argument(
            help="language, a DSL, a family, a chip or a path as language/overview.md; default: the list of all."
        ),
    ] = "",
) -> int:
    """Print a document, cut to what names and an error need, as a role would be given it."""
    from kernellab.knowledge import Knowledge

    knowledge = Knowledge.load()
    if not what:
        listed = {
            "language": [],
            "dsls": list(knowledge.dsls()),
            "families": list(knowledge.families),
            "chips": _chips(),
        }
        if options.as_json:
            emit(listed)
        else:
            print("\n".join(f"{kind}: {', '.join(items)}" if items else kind for kind, items in listed.items()))
        return 0
    passages = _passages(knowledge, what, list(options.names), options.error)
    if options.as_json:
        emit({"passages": [{**asdict(passage), "tokens": passage.tokens} for passage in passages]})
        return 0
    for passage in passages:
        say(f"== {passage.title} ({passage.place}, about {passage.tokens} tokens)")
        print(passage.text)
    return 0


@command(docs_app, "import")
def import_(
    raw: Annotated[
        str,
        typer.Argument(help="A Markdown or HTML file, a folder of them, or 'python:MODULE as NAME, MODULE as NAME'."),
    ],
    options: DocsImportOptions,
) -> int:
    """Turn raw documentation into the DocSpec form, with a report; of a draft, what it leaves to fill in.

    Exit 1 when something could not be placed.
    """
    from kernellab.knowledge.importer import import_raw

    folder = options.out or find_workspace() / "knowledge" / "dsl" / options.dsl
    drafted, own = _drafted(folder)
    if drafted is None and folder.exists() and any(folder.iterdir()):
        raise KernellabError(
            f"{folder} is not empty, and its api.md is written already.",
            "Choose another --out; what somebody wrote is not overwritten.",
        )
    start = _like(options.like) if options.like else drafted
    imported = import_raw(raw, options.dsl, like=start, place=_placer(options.model) if options.model else None)
    written = write_files(folder, {name: text for name, text in imported.files.items() if name not in own})
    report = write_files(folder.parent, {f"{folder.name}-import.md": imported.report()})[0]
    unplaced = [{"heading": heading, "line": line, "reason": reason} for heading, line, reason in imported.unplaced]
    if options.as_json:
        emit({"files": written, "placed": len(imported.placed), "unplaced": unplaced, "report": report})
    else:
        placed = f"{counted(len(imported.placed), 'section')} placed, {len(unplaced)} not"
        print(f"{placed}; {counted(len(written), 'file')} in {folder}")
        print(f"report in {report}")
    return 1 if unplaced else 0


def _drafted(folder: Path) -> tuple[Like | None, set[str]]:
    """The start of a draft whose API is left to fill in, and the files that are somebody's own."""
    from kernellab.knowledge.draft import like

    texts = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    own = {name for name, path in texts.items() if not PLACEHOLDER.search(path.read_text(encoding="utf-8"))}
    drafted = SPEC in texts and "api.md" in texts and "api.md" not in own
    return (like(read_spec(folder / SPEC)) if drafted else None), own


def _placer(spec: str) -> Callable[[str], str]:
    """A model that answers one question at a time; what it cannot answer ends the import with a clear error."""
    from kernellab.models import Talk, open_model
    from kernellab.models.exchanges import ChatMessage
    from kernellab.records import Role

    talk = Talk(open_model(spec, Role.ANALYST), Role.ANALYST, lambda exchange: None)
    return lambda question: talk.ask("place", [ChatMessage(role="user", content=question)]).text


def _roots(root: Path | None) -> list[Path]:
    if root is not None and not root.is_dir():
        raise KernellabError(f"{root} is not a folder.", "Give a knowledge folder with --root.")
    return [root.resolve()] if root is not None else list(knowledge_roots())


def _tell(outcome: Outcome) -> None:
    say(f"{outcome.state.value:<8} {outcome.where} ({outcome.kind}, {outcome.seconds:.1f} s) {outcome.reason}".rstrip())


def _chips() -> list[str]:
    from kernellab.target.chips import known_chips

    return [entry.path.stem for entry in known_chips()]


def _passages(knowledge: Knowledge, what: str, names: list[str], error: str) -> list[Passage]:
    from kernellab.knowledge import Passage
    from kernellab.tools.documents import documents as all_documents

    cut: dict[str, Any] = {"names": names, "error": error}
    if what == "language":
        return [knowledge.language(**cut)]
    if what in knowledge.dsls():
        if names or error:
            return [knowledge.api_for(what, **cut)]
        documents = knowledge.dsl(what)
        return [documents.basic, documents.api, documents.suggestions, *(e.passage for e in documents.examples)]
    if what in knowledge.families:
        return [knowledge.patterns(what)]
    if what in _chips():
        from kernellab.dsls.machine import named_chip
        from kernellab.target import Backend, Target

        return [knowledge.chip(Target("cpp", Backend.CPU, named_chip(what)))]
    # by its path, as agents and the documents themselves name it
    known = all_documents(find_workspace())
    if what in known:
        own = whose(known[what], find_workspace())
        return [Passage(what, what, known[what].read_text(encoding="utf-8"), own)]
    choices = ", ".join(["language", *knowledge.dsls(), *knowledge.families, *_chips()])
    raise KernellabError(f"There is no document {what!r}.", f"Choose one of {choices}.")
