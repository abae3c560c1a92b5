"""The magic of the memory: what was remembered of verified kernels, and a person's word on it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import magics_class
from IPython.core.magic_arguments import argument

from kernellab.errors import counted
from kernellab.notebook.magics.base import KernelMagic, line_command, positive, session_names

if TYPE_CHECKING:
    from kernellab.memory.memory import Memory


@magics_class
class MemoryMagics(KernelMagic):
    """memory."""

    @line_command
    @argument("word", help="search, add, forget, judge, verify, stats, skills, approve, seed, import, export, ...")
    @argument("what", nargs="*", help="a session or words (search), a session or a run (add), ids, a file")
    @argument("-k", type=positive, default=5, help="how many hits; default 5")
    @argument("--thumb", type=int, choices=(-1, 0, 1), help="judge: -1 never shows it, 1 prefers it")
    @argument("--pin", action="store_true", help="judge: never drop it")
    @argument("--note", help="judge: a note on why the kernel is written this way")
    @argument("--licence", default="unspecified", help="import: licence of entries that state none")
    def kernel_memory(self, args: argparse.Namespace) -> Any:
        """Search and manage the memory of verified kernels.

            %kernel_memory search rms_norm        kernels of computations like the session's
            %kernel_memory search layer norm      kernels whose words match
            %kernel_memory add rms_norm           remember what the session, or a run, has verified
            %kernel_memory forget ID              out of the store and of every later prompt
            %kernel_memory import kernels.jsonl   verify others' kernels in the background

        The others: judge ID --thumb 1, verify (what is stale, or IDs), stats, skills, approve ID, seed, export FILE,
        compact, rebuild.
        """
        act = _WORDS.get(args.word)
        if act is None:
            raise UsageError(f"{args.word!r} is not a command of %kernel_memory; choose one of {', '.join(_WORDS)}")
        return act(self, args)

    def memory(self) -> Memory:
        """The workspace's memory. Raises MemoryStoreError."""
        from kernellab.content import find_workspace
        from kernellab.session.memory_use import open_memory

        return open_memory(find_workspace())


def _needs(args: argparse.Namespace, what: str) -> list[str]:
    if not args.what:
        raise UsageError(f"%kernel_memory {args.word} needs {what}")
    words: list[str] = args.what
    return words


def _search(magic: MemoryMagics, args: argparse.Namespace) -> None:
    from kernellab.content import find_workspace
    from kernellab.session.memory_use import by_task, by_words

    words = _needs(args, "a session or words")
    memory = magic.memory()
    if len(words) == 1 and magic.shell is not None and words[0] in session_names(magic.shell):
        from kernellab.task import load_task

        created = magic.session(words[0]).state.created
        entries = by_task(memory, load_task(created.text, created.name), created.dsl or "", args.k)
    else:
        entries = by_words(memory, " ".join(words), args.k, find_workspace(), lambda said: print(said, file=sys.stderr))
    scored = [f"{hit.score:.2f}  " if hit.score is not None else "" for hit in entries]
    lines = [f"{hit.kernel.id}  {score}{hit.why}" for hit, score in zip(entries, scored, strict=True)]
    print("\n".join(lines) or "Nothing found.")


def _add(magic: MemoryMagics, args: argparse.Namespace) -> None:
    from kernellab.evolve import Run
    from kernellab.evolve.begin import is_run, open_run

    name = args.what[0] if args.what else None
    held = magic.namespace.get(name) if name else None
    if isinstance(held, Run) or (held is None and name and is_run(name)):
        run = held if isinstance(held, Run) else open_run(str(name))
        print(f"{counted(run.remember(), 'kernel')} remembered.")
    else:
        print(f"{counted(magic.session(name).memory.remember(), 'kernel')} remembered.")


def _forget(magic: MemoryMagics, args: argparse.Namespace) -> None:
    gone = magic.memory().forget(*_needs(args, "ids"))
    print(f"{counted(gone, 'entry', 'entries')} forgotten.")


def _judge(magic: MemoryMagics, args: argparse.Namespace) -> None:
    for id in _needs(args, "an id"):
        kernel = magic.memory().judge(id, args.thumb, args.pin or None, args.note)
        print(f"{kernel.name}: thumb {kernel.thumb}, {'pinned' if kernel.pinned else 'not pinned'}.")


def _stats(magic: MemoryMagics, args: argparse.Namespace) -> None:
    from kernellab.session.memory_use import stats

    print("\n".join(f"{name}: {count}" for name, count in stats(magic.memory()).items()))


def _skills(magic: MemoryMagics, args: argparse.Namespace) -> None:
    from kernellab.memory.notes import as_markdown

    print("\n".join(map(as_markdown, magic.memory().store.skills())) or "No note was proposed yet.")


def _approve(magic: MemoryMagics, args: argparse.Namespace) -> None:
    for id in _needs(args, "a skill's id"):
        print(f"Approved: {magic.memory().approve(id).advice}")


def _seed(magic: MemoryMagics, args: argparse.Namespace) -> None:
    from kernellab.memory.library import seed

    print(f"{counted(seed(magic.memory()), 'kernel')} of the library added.")


def _import(magic: MemoryMagics, args: argparse.Namespace) -> Any:
    from kernellab.session.importing import begin, read

    path = Path(_needs(args, "a file or a folder")[0])
    # a cell is free again at once; the object says how far it is
    return begin(magic.memory(), read(path, args.licence), wait=False)


def _export(magic: MemoryMagics, args: argparse.Namespace) -> None:
    from kernellab.session.memory_use import export

    print(f"{counted(export(magic.memory(), Path(_needs(args, 'a file')[0])), 'kernel')} written.")


def _rebuild(magic: MemoryMagics, args: argparse.Namespace) -> None:
    held = magic.memory().rebuild(lambda said: print(said, file=sys.stderr))
    print(f"{counted(held, 'kernel')} in the store.")


def _compact(magic: MemoryMagics, args: argparse.Namespace) -> None:
    memory = magic.memory()
    memory.compact()
    print(f"{counted(memory.store.count()['kernels'], 'kernel')} in the store.")


def _verify(magic: MemoryMagics, args: argparse.Namespace) -> None:
    from kernellab.bench.library_tasks import tasks_of_library
    from kernellab.session.memory_use import to_verify, verify_again
    from kernellab.verifier import Verifier

    memory = magic.memory()
    wanted = args.what or to_verify(memory)
    with Verifier() as verifier:
        passed = verify_again(memory, verifier, wanted, print, tasks_of_library())
    print(f"{passed} of {len(wanted)} passed.")


_WORDS: Mapping[str, Callable[[MemoryMagics, argparse.Namespace], Any]] = {
    "search": _search, "add": _add, "forget": _forget, "judge": _judge, "stats": _stats, "skills": _skills,
    "approve": _approve, "seed": _seed, "import": _import, "export": _export, "rebuild": _rebuild,
    "verify": _verify, "compact": _compact,
}  # fmt: skip
