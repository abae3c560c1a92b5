"""``kernellab memory``: search, add, import, export, judge, forget, rebuild and count what was remembered."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernellab.cli.output import emit, read_text, say
from kernellab.content import find_workspace
from kernellab.errors import KernellabError, MemoryStoreError, counted
from kernellab.records import Source

if TYPE_CHECKING:
    from kernellab.memory.memory import Memory
    from kernellab.memory.records import Kernel
    from kernellab.memory.retrieval import Hit

memory_app = typer.Typer(help="What was remembered of verified kernels.", no_args_is_help=True, rich_markup_mode=None)

Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
Store = Annotated[str, typer.Option("--store", help="A LanceDB URI; default: the workspace's .kernellab/memory.")]
Ids = Annotated[list[str], typer.Argument(help="Ids of entries, as search prints them.")]


@memory_app.command("search")
def search(
    task: Annotated[str, typer.Argument(help="A task's Python file, or words to look for.")],
    dsl: Annotated[str | None, typer.Option(help="The DSL that is wanted; default: any.")] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="How many hits.")] = 5,
    without: Annotated[bool, typer.Option("--leave-out", help="Leave out kernels of the same computation.")] = False,
    store: Store = "",
    json: Json = False,
) -> int:
    """Kernels for the task's computation, or whose words match. Exit 1 when nothing is found."""
    memory = _open(store)
    if not task.endswith(".py"):
        rows = [row.kernel for row in memory.store.words(task, k)]
        if json:
            emit({"hits": [_told(kernel) for kernel in rows]})
        else:
            _print([f"{kernel.id}  {kernel.name}: {_figures(kernel)}" for kernel in rows])
        return 0 if rows else 1
    hits = memory.search(_query(Path(task), dsl, without), k)
    if json:
        emit({"hits": [_hit(hit) for hit in hits]})
    else:
        _print([f"{hit.kernel.id}  {hit.score:.2f}  {hit.why}" for hit in hits])
    return 0 if hits else 1


@memory_app.command("add")
def add(
    sessions: Annotated[list[str], typer.Argument(help="Names of sessions; default: all of this workspace.")] = [],  # noqa: B006
    store: Store = "",
    json: Json = False,
) -> int:
    """Take in what sessions verified, and failures with what fixed them. Exit 1 when there was nothing to take."""
    from kernellab.session.offer import offer

    memory = _open(store)
    told = {name: offer(memory, found) for name, found in _sessions(sessions)}
    kept = sum(told.values())
    if json:
        emit({"kept": kept, "sessions": told})
    else:
        for name, taken in told.items():
            say(f"{name}: {counted(taken, 'kernel')}")
        print(f"{counted(kept, 'kernel')} remembered")
    return 0 if kept else 1


@memory_app.command("import")
def import_(
    path: Annotated[Path, typer.Argument(help="A JSON-lines file (task, dsl, files, licence), or a folder of them.")],
    licence: Annotated[str, typer.Option(help="The licence of what the file does not say it of.")] = "unspecified",
    store: Store = "",
    json: Json = False,
) -> int:
    """Verify others' kernels and remember those that pass; the same call goes on where it stopped. Exit 1 for none."""
    from kernellab.session.offer import imported
    from kernellab.verifier import Verifier

    memory = _open(store)
    rows = list(_rows(path))
    known = {row.kernel.source.hash for row in memory.store.kernels()}
    kept, refused = 0, []
    with Verifier() as verifier:
        for number, (task, source, said) in enumerate(rows, 1):
            if source.hash in known:
                continue
            why = imported(memory, verifier, task, source, said or licence, f"{path.name}:{number}")
            kept += not why
            if why:
                refused.append({"row": number, "why": why})
                say(f"row {number}: {why}")
    if json:
        emit({"rows": len(rows), "kept": kept, "refused": refused})
    else:
        print(f"{kept} of {counted(len(rows), 'kernel')} remembered, {len(refused)} refused")
    return 0 if kept else 1


@memory_app.command("export")
def export(
    out: Annotated[Path, typer.Option("--out", help="A .jsonl file.")],
    store: Store = "",
    json: Json = False,
) -> int:
    """Write every kernel as one JSON line, in the form that import reads."""
    memory = _open(store)
    texts = {event.kernel.id: event.text for event in memory.events() if event.kind == "remembered"}
    lines = [
        jsonlib.dumps({
            "task": texts.get(row.kernel.id, ""), "name": row.kernel.name, "dsl": row.kernel.dsl,
            "files": row.kernel.source.files, "licence": row.kernel.provenance.licence,
            "entry": row.kernel.model_dump(mode="json", exclude={"source"}),
        })
        for row in memory.store.kernels()
    ]  # fmt: skip
    try:
        out.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    except OSError as error:
        raise KernellabError(f"{out} cannot be written: {error.strerror}.", "Choose another --out.") from None
    if json:
        emit({"kernels": len(lines), "out": str(out)})
    else:
        print(f"{counted(len(lines), 'kernel')} written to {out}")
    return 0


@memory_app.command("forget")
def forget(ids: Ids, store: Store = "", json: Json = False) -> int:
    """Remove entries from the store and from every later prompt. Exit 1 when there were none."""
    gone = _open(store).forget(*ids)
    if json:
        emit({"forgotten": gone})
    else:
        print(f"{counted(gone, 'entry').replace('entrys', 'entries')} forgotten")
    return 0 if gone else 1


@memory_app.command("judge")
def judge(
    id: Annotated[str, typer.Argument(help="The entry's id.")],
    thumb: Annotated[int | None, typer.Option(min=-1, max=1, help="-1 never shows it, 1 prefers it.")] = None,
    pin: Annotated[bool | None, typer.Option(help="Never drop it.")] = None,
    note: Annotated[str | None, typer.Option(help="Why the kernel is as it is.")] = None,
    store: Store = "",
    json: Json = False,
) -> int:
    """A person's word on an entry."""
    kernel = _open(store).judge(id, thumb, pin, note)
    if json:
        emit(_told(kernel))
    else:
        print(f"{kernel.name}: thumb {kernel.thumb}, {'pinned' if kernel.pinned else 'not pinned'}")
    return 0


@memory_app.command("stats")
def stats(store: Store = "", json: Json = False) -> int:
    """How many entries there are, by table, DSL and family."""
    memory = _open(store)
    found: dict[str, Any] = {**memory.store.count()}
    for row in memory.store.kernels():
        for column in (row.kernel.dsl, row.kernel.operator_class):
            found[column] = found.get(column, 0) + 1
    if json:
        emit(found)
    else:
        _print([f"{name}: {rows}" for name, rows in found.items()])
    return 0


@memory_app.command("rebuild")
def rebuild(store: Store = "", json: Json = False) -> int:
    """Make the store again from the journal; what was forgotten stays forgotten."""
    held = _open(store).rebuild(say)
    if json:
        emit({"kernels": held})
    else:
        print(f"{counted(held, 'kernel')} in the store")
    return 0


def _open(uri: str) -> Memory:
    from kernellab.memory.memory import Memory

    return Memory.open(find_workspace(), uri)


def _query(path: Path, dsl: str | None, without: bool) -> Any:
    from kernellab.capture import capture
    from kernellab.capture.family import family_of
    from kernellab.dsls.machine import detect_target
    from kernellab.memory.features import features
    from kernellab.memory.retrieval import Query
    from kernellab.task import load_task

    task = load_task(path)
    graph = capture(task)
    found, target = features(task, graph), detect_target(dsl) if dsl else None
    backend, chip = (target.backend.value, target.chip.name) if target else ("", "")
    left_out = (found.hash,) if without else ()
    return Query(found, dsl or "", backend, family_of(graph).value, chip, without=left_out)


def _sessions(names: list[str]) -> Iterator[tuple[str, Any]]:
    from kernellab.session import open_session, sessions

    for name in names or sessions():
        yield name, open_session(name, resume=False)


def _rows(path: Path) -> Iterator[tuple[tuple[str, str], Source, str]]:
    """(task's text and name), source, licence of each line."""
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    if not files:
        raise MemoryStoreError(f"{path} holds no .jsonl file.", "Name a file with a JSON object on each line.")
    for file in files:
        for number, line in enumerate(read_text(file, "file of kernels").splitlines(), 1):
            if not line.strip():
                continue
            try:
                row = jsonlib.loads(line)
                source = Source(dsl=row["dsl"], files=row["files"])
                yield (row["task"], row.get("name") or "task"), source, row.get("licence", "")
            except (ValueError, KeyError, TypeError) as error:
                raise MemoryStoreError(
                    f"{file}, line {number}, is not a kernel: {type(error).__name__}: {error}.",
                    'Write {"task": TEXT, "dsl": "cpp", "files": {"kernel.py": TEXT}} on each line.',
                ) from None


def _print(lines: list[str]) -> None:
    print("\n".join(lines) if lines else "nothing found")


def _figures(kernel: Kernel) -> str:
    speedup = kernel.measured.speedup
    fast = f"{speedup:.2f}x {kernel.measured.baseline}" if speedup is not None else "not compared"
    return f"{kernel.dsl} on {kernel.chip}, {fast}, {kernel.measured.trust.value}"


def _told(kernel: Kernel) -> dict[str, Any]:
    return {"id": kernel.id, "task": kernel.name, **kernel.model_dump(mode="json", exclude={"source", "sketch"})}


def _hit(hit: Hit) -> dict[str, Any]:
    scores = {"logic": hit.logic, "shape": hit.shape, "value": hit.value, "score": hit.score}
    return {
        "id": hit.kernel.id, "task": hit.kernel.name, "scores": scores, "relaxed": list(hit.relaxed), "why": hit.why,
        "speedup": hit.kernel.measured.speedup, "sketch": hit.kernel.sketch,
    }  # fmt: skip
