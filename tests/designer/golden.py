"""Golden texts: what the rules Designer and the lowerings write today, so that a diff shows what a change does to it.

    python -m tests.designer.golden --record                  write the texts of golden/ again, and list what changed
    python -m tests.designer.golden --compare COMMIT          list the entries of all tasks that COMMIT writes otherwise
    python -m tests.designer.golden --show TASK DSL STYLE     print an entry's sketch and source
    python -m tests.designer.golden --diff COMMIT TASK DSL STYLE    how both differ from those at COMMIT

``golden/`` holds the design that is tried first for each task of :data:`KEPT` in each DSL, as text. ``--compare``
stores nothing: it runs COMMIT's own tree and this one over all tasks, as tinygrad's process replay does. An entry is
``TASK DSL STYLE``. Chips are those of ``knowledge/hardware``, so that the texts are the same on every machine. Sketches
written by hand are lowered without a task; they have no rank.
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
from kernellab.lowering.triton.launched import HELPERS
from kernellab.records import Source
from kernellab.sketch.check import load_program
from kernellab.sketch.program.bind import bind
from kernellab.target import Backend, Target
from kernellab.task import Task, load_task
from tests.designer.attention_cases import ATTENTION
from tests.designer.designer_cases import CASES
from tests.designer.gather_cases import PICKS
from tests.designer.window_cases import WINDOWS
from tests.lowering.triton_cases import CASES as LOWERED

FOLDER = Path(__file__).with_name("golden")
#: the tasks whose first design is kept as text: of each kind of schedule one
KEPT = (
    "families/chain",
    "families/broadcast_middle",
    "families/several_outputs",
    "families/half",
    "families/row_mean_kept",
    "families/column_max",
    "families/argmax_row",
    "families/softmax",
    "families/layer_norm",
    "families/group_norm",
    "families/cross_entropy",
    "families/cumsum",
    "families/matmul",
    "families/linear_gelu",
    "families/matvec",
    "attention/sdpa_causal",
    "attention/sdpa_bf16",
    "windows/plain",
    "picks/embedding",
    "picks/sort",
)
#: the tasks of the built-in suite that are compared: all of them would take three times as long
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
        """Its rank, and what tells it from another text."""
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
    designed: dict[str, Text] = {}
    for dsl, target in targets().items():
        if not name:
            designed[f"{task} {dsl} {BY_HAND}"] = _lowered(text, target)
            continue
        for style, written in _designed(load_task(text, name), target):
            designed[f"{task} {dsl} {style}"] = written
    return designed


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
            yield style, Text(rank, reply.sketch, _short(source))


def _short(source: Source) -> dict[str, str]:
    """Its files without the sketch, and without what stands alike in every file for a GPU."""
    return {file: text.replace(f"\n\n{HELPERS}\n", "") for file, text in bare(source).files.items()}


def _lowered(sketch: str, target: Target) -> Text:
    try:
        program = load_program(sketch)
        return Text(0, sketch, _short(lower(program, bind(program, None, {}, target), target)))
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


# -- the kept texts ----------------------------------------------------------------------------------------------------


def torch_version() -> str:
    """Major and minor: captured graphs may differ between two minor versions."""
    return ".".join(torch.__version__.split(".")[:2])


def path_of(task: str, dsl: str) -> Path:
    """The file of the first design of ``task`` in ``dsl``."""
    return FOLDER / f"{task.replace('/', '.')}.{dsl}.txt"


def kept(tasks: Iterable[str] = KEPT) -> dict[Path, str]:
    """The texts of ``golden/`` as they are now: of each task and DSL the first design, without the shared headers."""
    found = {}
    for task in tasks:
        first: dict[str, tuple[str, Text]] = {}
        for entry, text in texts(task).items():
            _, dsl, style = entry.split()
            if dsl not in first or text.rank < first[dsl][1].rank:
                first[dsl] = style, text
        for dsl, (style, text) in first.items():
            own = {n: t for n, t in (text.files or {}).items() if not n.startswith("kl_")}
            body = str(Text(text.rank, text.sketch, own, text.refused))
            found[path_of(task, dsl)] = f"{task} {dsl} {style}, torch {torch_version()}\n{body}"
    return found


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
        raise SystemExit(f"There is no task {task!r}. The tasks: {', '.join(tasks())}.")
    made = texts(task)
    entry = f"{task} {dsl} {style}"
    if entry not in made:
        raise SystemExit("\n".join([f"There is no entry {entry!r} now. Those of the task:", *sorted(made)]))
    return str(made[entry])


def _at(commit: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """This command with ``arguments`` in ``commit``'s own tree."""
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=BytesIO(archive)) as tar:
            tar.extractall(folder)  # our own commit
        command = [sys.executable, "-m", "tests.designer.golden", *arguments]
        environment = {**os.environ, "PYTHONPATH": folder}
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def diff(commit: str, task: str, dsl: str, style: str) -> str:
    """How an entry's texts differ from those at ``commit``."""
    run = _at(commit, "--show", task, dsl, style)
    # an entry that one of the two does not have is told as such
    before = run.stdout if run.returncode == 0 else run.stderr
    try:
        after = show(task, dsl, style)
    except SystemExit as missing:
        after = str(missing)
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), commit, "now", lineterm="")
    return "\n".join(lines) or "No difference."


def compare(commit: str) -> list[str]:
    """The entries that ``commit`` writes otherwise, a line each.

    Raises:
        SystemExit: ``commit``'s tree cannot list its entries; the sentence holds the end of its error.
    """
    run = _at(commit, "--entries")
    if run.returncode:
        raise SystemExit(f"The entries of {commit} cannot be listed: {run.stderr.strip()[-500:]}")
    return changes(json.loads(run.stdout), entries(tasks(), PROCESSES))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog=COMMAND, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    wanted = parser.add_mutually_exclusive_group(required=True)
    wanted.add_argument("--record", action="store_true")
    wanted.add_argument("--compare", metavar="COMMIT")
    wanted.add_argument("--entries", action="store_true", help="print all entries as JSON, for --compare")
    wanted.add_argument("--show", nargs=3, metavar=("TASK", "DSL", "STYLE"))
    wanted.add_argument("--diff", nargs=4, metavar=("COMMIT", "TASK", "DSL", "STYLE"))
    options = parser.parse_args(arguments)
    if options.show:
        print(show(*options.show), end="")
    elif options.diff:
        print(diff(*options.diff))
    elif options.entries:
        print(json.dumps(entries(tasks(), PROCESSES), indent=1))
    elif options.compare:
        print("\n".join(compare(options.compare)) or "No entry changed.")
    else:
        record()
    return 0


def record() -> None:
    """Writes ``golden/`` again and prints the names of the files that changed."""
    FOLDER.mkdir(exist_ok=True)
    now = kept()
    for path in FOLDER.glob("*.txt"):
        if path not in now:
            path.unlink()
            print(f"gone     {path.name}")
    for path, text in sorted(now.items()):
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            print(f"{'changed' if path.exists() else 'new    '}  {path.name}")
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
