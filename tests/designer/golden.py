"""Golden texts: what the rules Designer and the lowerings write today, as hashes, so that no change is by accident.

    python -m tests.designer.golden --record                  write golden.json anew and list the entries that changed
    python -m tests.designer.golden --check                   list the entries that differ from golden.json
    python -m tests.designer.golden --show TASK DSL STYLE     print an entry's sketch and source
    python -m tests.designer.golden --diff COMMIT TASK DSL STYLE    how both differ from those at COMMIT

An entry is ``TASK DSL STYLE``; its value is the design's rank (1 is tried first), the hash of the sketch and that of
the lowered files (without the sketch that they carry), or the class of the error that refuses one of them. Chips are
those of ``knowledge/hardware``, so that the texts are the same on every machine. Sketches written by hand are lowered
without a task; they have no rank.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import multiprocessing
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path

import torch

from kernellab.agents.briefs import CodeBrief, DesignBrief
from kernellab.agents.rules.coder import RulesCoder
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.bench.suites import load_suite
from kernellab.dsls.machine import named_chip
from kernellab.errors import KernellabError
from kernellab.lowering import lower
from kernellab.lowering.embedded_sketch import bare
from kernellab.sketch.check import load_program
from kernellab.sketch.program.bind import bind
from kernellab.target import Backend, Target
from kernellab.task import Task, load_task
from tests.designer.attention_cases import ATTENTION
from tests.designer.designer_cases import CASES
from tests.designer.gather_cases import PICKS
from tests.designer.window_cases import WINDOWS
from tests.lowering.triton_cases import CASES as LOWERED

FILE = Path(__file__).with_name("golden.json")
#: the tasks of the built-in suite that are recorded: all of them would make the file and its check three times as large
BUILTIN = Path(__file__).with_name("golden_builtin.txt")
ROOT = Path(__file__).resolve().parents[2]
COMMAND = "python -m tests.designer.golden"
PROCESSES = 2
#: extents of the small cases, and those at which schedules differ more: long rows, and tiles enough for every core
GROWN = {"M=24, N=40": "M=4096, N=4096", "M=17, N=19, K=23": "M=2048, N=2048, K=2048"}
#: the style of a sketch that a person wrote
BY_HAND = "by-hand"


@dataclass(frozen=True)
class Text:
    """One design: its sketch and its files, or the class of the error that refused it."""

    rank: int
    sketch: str = ""
    files: Mapping[str, str] | None = None
    refused: str = ""

    @property
    def entry(self) -> str:
        """What golden.json holds of it."""
        rank = [str(self.rank)] if self.rank else []
        sketch = [_hash(self.sketch)] if self.sketch and self.rank else []
        if self.files is None:
            return " ".join([*rank, *sketch, self.refused])
        return " ".join([*rank, *sketch, _hash(*(f"{name}\0{text}" for name, text in sorted(self.files.items())))])

    def __str__(self) -> str:
        parts = [f"==== sketch\n{self.sketch}"] if self.sketch else []
        parts += [f"==== {name}\n{text}" for name, text in sorted((self.files or {}).items())]
        parts += [f"==== refused: {self.refused}\n"] if self.refused else []
        return "".join(part if part.endswith("\n") else f"{part}\n" for part in parts)


@lru_cache(maxsize=1)
def targets() -> dict[str, Target]:
    """One chip a DSL, never this machine's own."""
    gpu = named_chip("h200")
    return {
        "cpp": Target("cpp", Backend.CPU, named_chip("x86-avx512")),
        "triton": Target("triton", Backend.CUDA, gpu),
        "cuda_c": Target("cuda_c", Backend.CUDA, gpu),
    }


@lru_cache(maxsize=1)
def tasks() -> dict[str, tuple[str, str]]:
    """Entry's task -> the task's name and text, or that of a sketch written by hand."""
    suite = {f"{t.category}/{t.title}": t for t in load_suite("builtin")}
    sampled = {f"builtin/{place}": suite[place] for place in BUILTIN.read_text(encoding="utf-8").split()}
    found = {name: (t.name, t.text) for name, t in sampled.items()}
    suites = {"families": CASES, "attention": ATTENTION, "picks": PICKS}
    found |= {f"{suite}/{name}": (name, text) for suite, cases in suites.items() for name, text in cases.items()}
    found |= {f"windows/{_slug(name)}": ("windows", text) for name, text in WINDOWS.items()}
    for name, text in CASES.items():
        for small, large in GROWN.items():
            if small in text:
                found[f"grown/{name}"] = name, text.replace(small, large)
    found |= {f"sketches/{_slug(case.name)}": ("", case.text) for case in LOWERED}
    samples = sorted((ROOT / "tests" / "sketch" / "samples").glob("*.sketch"))
    return found | {f"samples/{_slug(path.stem)}": ("", path.read_text(encoding="utf-8")) for path in samples}


def texts(task: str) -> dict[str, Text]:
    """``TASK DSL STYLE`` -> text of everything that is designed or lowered for one task."""
    name, text = tasks()[task]
    made: dict[str, Text] = {}
    for dsl, target in targets().items():
        if not name:
            made[f"{task} {dsl} {BY_HAND}"] = _lowered(text, target)
            continue
        given = load_task(text, name)
        for style, found in _designed(given, target):
            made[f"{task} {dsl} {style}"] = found
    return made


def _designed(task: Task, target: Target) -> Iterator[tuple[str, Text]]:
    try:
        replies = RulesDesigner().designs(DesignBrief(task, target, allow_library=True))
    except KernellabError as error:
        yield "none", Text(0, refused=type(error).__name__)
        return
    for rank, reply in enumerate(replies, start=1):
        style = _slug(reply.rationale.partition(".")[0])
        try:
            source = RulesCoder().code(CodeBrief(task, target, reply.sketch)).source
        except KernellabError as error:
            yield style, Text(rank, reply.sketch, refused=type(error).__name__)
        else:
            yield style, Text(rank, reply.sketch, bare(source).files)


def _lowered(sketch: str, target: Target) -> Text:
    try:
        program = load_program(sketch)
        return Text(0, sketch, bare(lower(program, bind(program, None, {}, target), target)).files)
    except KernellabError as error:
        return Text(0, sketch, refused=type(error).__name__)


def entries(wanted: Iterable[str], processes: int = 1) -> dict[str, str]:
    """The entries of ``wanted`` tasks as they are now."""
    names = sorted(wanted)
    if processes == 1:
        return {entry: value for name in names for entry, value in _entries(name).items()}
    # spawned: a forked process inherits torch's threads in whatever state they are
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        return {entry: value for found in pool.map(_entries, names, chunksize=4) for entry, value in found.items()}


def _entries(task: str) -> dict[str, str]:
    return {entry: text.entry for entry, text in texts(task).items()}


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9_]+", "-", title.lower()).strip("-")


# -- the file ----------------------------------------------------------------------------------------------------------


def torch_version() -> str:
    """Major and minor: captured graphs may differ between two minor versions."""
    return ".".join(torch.__version__.split(".")[:2])


def read() -> tuple[str, dict[str, str]]:
    """The version of torch that golden.json was recorded with, and its entries."""
    kept = json.loads(FILE.read_text(encoding="utf-8"))
    return kept["torch"], kept["entries"]


def write(found: Mapping[str, str], path: Path = FILE) -> None:
    """One line an entry, sorted."""
    lines = ",\n".join(f"    {json.dumps(entry)}: {json.dumps(found[entry])}" for entry in sorted(found))
    path.write_text(f'{{\n  "torch": "{torch_version()}",\n  "entries": {{\n{lines}\n  }}\n}}\n', encoding="utf-8")


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """A line for each entry that is new, gone or different, with what differs."""
    found = []
    for entry in sorted({*before, *after}):
        if entry not in after:
            found.append(f"gone     {entry}")
        elif entry not in before:
            found.append(f"new      {entry}")
        elif before[entry] != after[entry]:
            found.append(f"changed  {entry}: {_what(before[entry].split(), after[entry].split())}")
    return found


def _what(old: list[str], new: list[str]) -> str:
    if len(old) != len(new):
        return f"{' '.join(old)} -> {' '.join(new)}"
    parts = ("rank", "sketch", "source")[-len(new) :]
    return ", ".join(
        f"{part} {a} -> {b}" if not _is_hash(b) or not _is_hash(a) else part
        for part, a, b in zip(parts, old, new, strict=True)
        if a != b
    )


def _is_hash(word: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{12}", word) is not None


# -- the command -------------------------------------------------------------------------------------------------------


def show(task: str, dsl: str, style: str) -> str:
    """The sketch and the files of one entry.

    Raises:
        SystemExit: there is no such entry; the sentence names those of the task.
    """
    if task not in tasks():
        raise SystemExit(f"There is no task {task!r}; golden.json names them all.")
    made = texts(task)
    entry = f"{task} {dsl} {style}"
    if entry not in made:
        raise SystemExit("\n".join([f"There is no entry {entry!r} now. Those of the task:", *sorted(made)]))
    return str(made[entry])


def diff(commit: str, task: str, dsl: str, style: str) -> str:
    """How an entry's texts differ from those at ``commit``, which is unpacked and run beside this tree."""
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=BytesIO(archive)) as tar:
            tar.extractall(folder)  # our own commit
        command = [sys.executable, "-m", "tests.designer.golden", "--show", task, dsl, style]
        environment = {**os.environ, "PYTHONPATH": folder}
        told = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    # an entry that one of the two does not have is told as such
    before = told.stdout if told.returncode == 0 else told.stderr
    try:
        after = show(task, dsl, style)
    except SystemExit as missing:
        after = str(missing)
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), commit, "now", lineterm="")
    return "\n".join(lines) or "No difference."


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog=COMMAND, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    wanted = parser.add_mutually_exclusive_group(required=True)
    wanted.add_argument("--record", action="store_true")
    wanted.add_argument("--check", action="store_true")
    wanted.add_argument("--show", nargs=3, metavar=("TASK", "DSL", "STYLE"))
    wanted.add_argument("--diff", nargs=4, metavar=("COMMIT", "TASK", "DSL", "STYLE"))
    options = parser.parse_args(arguments)
    if options.show:
        print(show(*options.show), end="")
        return 0
    if options.diff:
        print(diff(*options.diff))
        return 0
    _, before = read() if FILE.exists() else ("", {})
    after = entries(tasks(), PROCESSES)
    changed = changes(before, after)
    print("\n".join(changed) or "No entry changed.")
    print(f"{len(after)} entries, {len(changed)} changed.")
    if options.record:
        write(after)
        return 0
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
