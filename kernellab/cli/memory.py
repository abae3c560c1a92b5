"""``kernellab memory``: search, add, import, verify, approve, judge, forget, rebuild and count what is remembered."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernellab.cli.output import emit, read_text, say, write_files
from kernellab.cli.parameters import command
from kernellab.content import find_workspace
from kernellab.errors import counted
from kernellab.options.commands.memory import (
    MemoryExportOptions,
    MemoryImportOptions,
    MemoryJudgeOptions,
    MemorySearchOptions,
    MemorySkillsOptions,
    MemoryVerifyOptions,
    StoreOptions,
)

if TYPE_CHECKING:
    from kernellab.memory.memory import Memory
    from kernellab.memory.records import Kernel

memory_app = typer.Typer(help="Verified kernels that were remembered.", no_args_is_help=True, rich_markup_mode=None)

Ids = Annotated[list[str], typer.Argument(help="Ids of entries, as search prints them.")]


@command(memory_app, "search")
def search(
    task: Annotated[str, typer.Argument(help="A task's Python file, or words to look for.")],
    options: MemorySearchOptions,
) -> int:
    """Find kernels of the task's computation, or whose words match. Exit 1 when nothing is found."""
    from kernellab.memory.search import by_file, by_words
    from kernellab.options.memory import memory_defaults

    with without_rest_client():
        memory = _open(options)
    if task.endswith(".py"):
        hits = by_file(memory, Path(task), options.dsl or "", options.count, options.leave_out, options.also)
    elif memory_defaults(find_workspace()).embed:
        from kernellab.session.memory_use import by_words as by_meaning

        hits = by_meaning(memory, task, options.count, find_workspace(), say)
    else:
        hits = by_words(memory, task, options.count)
    for fault in memory.faults:
        say(fault)
    if options.as_json:
        emit({"hits": [hit.as_dict() for hit in hits]})
    else:
        scored = [f"{hit.score:.2f}  " if hit.score is not None else "" for hit in hits]
        _print([f"{hit.kernel.id}  {score}{hit.why}" for hit, score in zip(hits, scored, strict=True)])
    return 0 if hits else 1


@command(memory_app, "add")
def add(
    options: StoreOptions,
    names: Annotated[
        list[str] | None, typer.Argument(help="Sessions and runs; default: all of this workspace.")
    ] = None,
) -> int:
    """Add what sessions and runs verified, and failures with their fixes. Exit 1 when there was nothing."""
    memory = _open(options)
    outcomes = dict(_taken(memory, names or []))
    kept = sum(outcomes.values())
    if options.as_json:
        emit({"kept": kept, "taken": outcomes})
    else:
        for name, outcome in outcomes.items():
            say(f"{name}: {counted(outcome, 'kernel')}")
        print(f"{counted(kept, 'kernel')} remembered")
    return 0 if kept else 1


@command(memory_app, "import")
def import_(
    path: Annotated[
        Path, typer.Argument(help="A JSON-lines file (kernels, or trajectories), a folder of them or of kernels.")
    ],
    options: MemoryImportOptions,
) -> int:
    """Verify others' kernels and store those that pass; called again, resumes a broken import. Exit 1 for none."""
    from kernellab.session.importing import begin, read

    memory = _open(options)
    done = begin(memory, read(path, options.licence), tell=say)
    if options.as_json:
        refused = [{"place": place, "why": why} for place, why in done.refused]
        emit({"rows": done.total, "kept": done.kept, "refused": refused})
    else:
        print(done.words)
    return 0 if done.kept else 1


@command(memory_app, "seed")
def seed(options: StoreOptions) -> int:
    """Put the installation's library into the store: verified kernels over all classes of operators, if it has one."""
    from kernellab.memory.library import seed as put

    count = put(_open(options))
    if options.as_json:
        emit({"kernels": count})
    else:
        print(f"{counted(count, 'kernel')} of the library added")
    return 0


@command(memory_app, "verify")
def verify(
    options: MemoryVerifyOptions,
    ids: Annotated[
        list[str] | None, typer.Argument(help="Ids of entries; default: all stale entries of your own.")
    ] = None,
) -> int:
    """Verify entries again on this machine; one that fails is forgotten. Exit 1 when one did not pass."""
    from kernellab.bench.library_tasks import tasks_of_library
    from kernellab.session.memory_use import refresh, to_verify, verify_again
    from kernellab.verifier import Verifier

    memory = _open(options)
    refresh(memory)
    chosen = ids or to_verify(memory, options.library)
    left = 0 if ids or options.library else len(to_verify(memory, library=True)) - len(chosen)
    with Verifier() as verifier:
        passed = verify_again(memory, verifier, chosen, say, tasks_of_library())
    if options.as_json:
        emit({"judged": len(chosen), "passed": passed, "library_left": left})
    else:
        more = f"; {counted(left, 'kernel')} of the library: --library" if left else ""
        print(f"{passed} of {counted(len(chosen), 'entry', 'entries')} passed{more}")
    return 0 if passed == len(chosen) else 1


@command(memory_app, "skills")
def skills(options: MemorySkillsOptions) -> int:
    """List notes with their measured effect, proposed and approved."""
    from kernellab.memory.notes import as_markdown

    stored = _open(options).store.skills()
    if options.out is not None:
        write_files(options.out, {f"{skill.id}.md": as_markdown(skill) for skill in stored})
    if options.as_json:
        emit({"skills": [{"id": s.id, **s.model_dump(mode="json")} for s in stored]})
    else:
        _print([f"{s.id}  {'approved' if s.approved else 'proposed'}  {s.ratio:.2f}x  {s.advice}" for s in stored])
    return 0


@command(memory_app, "approve")
def approve(
    what: Annotated[str, typer.Argument(help="A skill's id, or its edited note (.md).")],
    options: StoreOptions,
) -> int:
    """Approve a skill with the advice of its note; prompts quote it from then on."""
    note = read_text(Path(what), "note") if what.endswith(".md") else ""
    skill = _open(options).approve(Path(what).stem if note else what, note)
    if options.as_json:
        emit({"id": skill.id, **skill.model_dump(mode="json")})
    else:
        print(f"{skill.id} approved: {skill.advice}")
    return 0


@command(memory_app, "export")
def export(options: MemoryExportOptions) -> int:
    """Write every kernel of this workspace as one JSON line, in the form that import reads."""
    from kernellab.session.memory_use import export as write

    count = write(_open(options), options.out)
    if options.as_json:
        emit({"kernels": count, "out": str(options.out)})
    else:
        print(f"{counted(count, 'kernel')} written to {options.out}")
    return 0


@command(memory_app, "push")
def push(
    uri: Annotated[str, typer.Argument(help="The team's store: a folder, or any URI that LanceDB takes.")],
    options: StoreOptions,
    ids: Annotated[
        list[str] | None, typer.Argument(help="Ids of entries; default: all that was verified here.")
    ] = None,
) -> int:
    """Put kernels verified here into a store that others name in [memory] layers. Exit 1 when there are none."""
    count = _open(options).push(uri, ids or [])
    if options.as_json:
        emit({"kernels": count, "to": uri})
    else:
        print(f"{counted(count, 'kernel')} in {uri}")
    return 0 if count else 1


@command(memory_app, "forget")
def forget(ids: Ids, options: StoreOptions) -> int:
    """Remove entries from the store and from every later prompt. Exit 1 when there were none."""
    gone = _open(options).forget(*ids)
    if options.as_json:
        emit({"forgotten": gone})
    else:
        print(f"{counted(gone, 'entry', 'entries')} forgotten")
    return 0 if gone else 1


@command(memory_app, "judge")
def judge(
    id: Annotated[str, typer.Argument(help="The entry's id.")],
    options: MemoryJudgeOptions,
) -> int:
    """Record your opinion of an entry: a thumb, a pin, a note."""
    kernel = _open(options).judge(id, options.thumb, options.pin, options.note)
    if options.as_json:
        emit(_told(kernel))
    else:
        print(f"{kernel.name}: thumb {kernel.thumb}, {'pinned' if kernel.pinned else 'not pinned'}")
    return 0


@command(memory_app, "stats")
def stats(options: StoreOptions) -> int:
    """Count the entries by table, DSL and family."""
    from kernellab.session.memory_use import stats as counts

    totals = counts(_open(options))
    if options.as_json:
        emit(totals)
    else:
        _print([f"{name}: {rows}" for name, rows in totals.items()])
    return 0


@command(memory_app, "compact")
def compact(options: StoreOptions) -> int:
    """Merge the store's files, drop older versions, and make the indexes that a large store needs."""
    memory = _open(options)
    memory.compact()
    if options.as_json:
        emit(memory.store.count())
    else:
        print(f"{counted(memory.store.count()['kernels'], 'kernel')} in the store")
    return 0


@command(memory_app, "rebuild")
def rebuild(options: StoreOptions) -> int:
    """Rebuild the store from the journal, without forgotten entries."""
    held = _open(options).rebuild(say)
    if options.as_json:
        emit({"kernels": held})
    else:
        print(f"{counted(held, 'kernel')} in the store")
    return 0


def _open(options: StoreOptions) -> Memory:
    from kernellab.memory.search import open_memory

    return open_memory(find_workspace(), options.store)


def _taken(memory: Memory, names: list[str]) -> Iterator[tuple[str, int]]:
    """Each name with how many of its kernels were new; a task's name is its session's before it is its search's."""
    from kernellab.evolve.begin import is_run, open_run, runs
    from kernellab.session import open_session, sessions
    from kernellab.session.memory_export import offer

    recorded = sessions()
    designed = {*recorded, *(id.rpartition("-")[0] for id in recorded)}
    for name in names or [*recorded, *runs()]:
        if name not in designed and is_run(name):
            yield name, open_run(name).remember(memory)
        else:
            yield name, offer(memory, open_session(name, resume=False).state, asked=True)


def _print(lines: list[str]) -> None:
    print("\n".join(lines) if lines else "nothing found")


def _told(kernel: Kernel) -> dict[str, Any]:
    return {"id": kernel.id, "task": kernel.name, **kernel.model_dump(mode="json", exclude={"source", "sketch"})}


_PREFIX = "lance_namespace_urllib3_client.api."


class _Absent(ModuleType):
    """A module of which every name is a class without objects."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        setattr(self, name, type(name, (), {}))
        loaded: type = getattr(self, name)
        return loaded


class _Finder(MetaPathFinder, Loader):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name.startswith(_PREFIX) else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Absent(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing in it."""


@contextmanager
def without_rest_client() -> Iterator[None]:
    """LanceDB is imported in half the time within it, for a process that reads tables by their place alone: a command
    of the shell."""
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
