"""Are the documents right? Schema, links, names, and whether each block is as it was when it last passed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernellab.dsls import ADAPTER, BUILT_IN, adapter_files, get_adapter
from kernellab.dsls.spec import PLACEHOLDER, SPEC, DslSpec, read_spec
from kernellab.errors import KernellabError
from kernellab.knowledge.cut import OPERATIONS
from kernellab.knowledge.examples import read_example
from kernellab.knowledge.jobs import Job, jobs
from kernellab.knowledge.pages import Page, read_page
from kernellab.knowledge.record import read_record
from kernellab.knowledge.toolchain import dotted, missing_names, toolchain
from kernellab.lowering import LOWERING
from kernellab.operations.sketch import OPS
from kernellab.sketch.resolve.hints import AXES, LOOP_HINTS, MEMORY_HINTS
from kernellab.sketch.syntax.docs import operations
from kernellab.sketch.syntax.messages import MESSAGES
from kernellab.target.chips import read_chip

_PARTS = ("basic.md", "api.md", "suggestions.md")
#: optional where nothing can be run here
_NEEDED = ("basic.md", "api.md")
_SAYS = {
    "basic.md": "Write what a kernel is, how it is launched, and how memory is named.",
    "api.md": "Write a section for each function that a kernel may call.",
}
#: what api.md may name in addition to operations and hints: statements' words and launch constants
_WORDS = {
    "alloc", "load", "store", "atomic_add", "gather", "scatter", "pad", "gemm", "dot", "precision", "kernel", "launch",
    "tunable", "num_warps", "num_stages", "f16", "bf16", "f8e4m3", "f8e5m2",
}  # fmt: skip
_OPERATIONS_PAGE = "language/operations.md"
_CODE = re.compile(r"\bSK\d{3}\b")


@dataclass(frozen=True)
class Fault:
    """One finding: ``error`` or ``warning``, at a document and line."""

    where: str
    message: str
    remedy: str = ""
    severity: str = "error"


def lint(root: Path) -> list[Fault]:
    """Every fault of the documents under ``root``, in order of place. Runs no block."""
    faults = [*_folders(root)]
    faults += [fault for path in sorted(root.rglob("*.md")) for fault in _document(path, root)]
    faults += list(_chips(root))
    faults += list(_unnamed(root / _OPERATIONS_PAGE))
    try:
        faults += list(_record(jobs(root), root))
    except KernellabError as error:
        faults.append(Fault("blocks", error.message, error.remedy))
    return sorted(faults, key=lambda fault: _place(fault.where))


def _place(where: str) -> tuple[str, int]:
    path, _, line = where.rpartition(":")
    return (path, int(line)) if line.isdigit() else (where, 0)


# -- the DocSpec's folders


def _folders(root: Path) -> Iterator[Fault]:
    for folder in sorted(path for path in (root / "dsl").glob("*") if path.is_dir()):
        place = f"dsl/{folder.name}"
        if not (folder / SPEC).is_file():
            if not (folder / ADAPTER).is_file():  # an adapter needs no documents
                yield Fault(place, f"It has no {SPEC}.", f"Write one: kernellab docs new {folder.name} --like triton.")
            continue
        try:
            spec = read_spec(folder / SPEC)
        except KernellabError as error:
            yield Fault(f"{place}/{SPEC}", error.message, error.remedy)
            continue
        yield from _unfilled(folder / SPEC, f"{place}/{SPEC}")
        yield from _spec(spec, place)
        for name in _NEEDED:
            if not (folder / name).is_file():
                yield Fault(
                    place, f"It has no {name}.", "Write it, or import raw documents with kernellab docs import."
                )
            elif not any(section.text.partition("\n")[2].strip() for section in read_page(folder / name).sections):
                yield Fault(f"{place}/{name}", "It says nothing yet.", _SAYS[name], "warning")
        for path in sorted(folder.rglob("*")):
            is_known = path.name in (*_PARTS, SPEC, ADAPTER, LOWERING) or (
                path.suffix == ".py" and path.parents[1].name == "examples"
            )
            if path.is_file() and not is_known and "__pycache__" not in path.parts:
                relative = path.relative_to(root).as_posix()
                yield Fault(relative, "The DocSpec does not provide for it.", "Move it to one of the four parts.")
        yield from _examples(folder, spec, root)


def _unfilled(path: Path, place: str) -> Iterator[Fault]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if PLACEHOLDER.search(line):
            yield Fault(f"{place}:{number}", "A draft's FILL IN is still there.", "Write what belongs there.")


def _spec(spec: DslSpec, place: str) -> Iterator[Fault]:
    code = spec.name in BUILT_IN or spec.name in adapter_files()
    if (spec.adapter == "python") != code:
        there = "has" if code else "has no"
        remedy = f'Write adapter = "{"python" if code else "documents"}".'
        yield Fault(
            f"{place}/{SPEC}", f"adapter is {spec.adapter!r}, and kernellab {there} code for {spec.name}.", remedy
        )
    elif spec.adapter == "python":
        adapter = get_adapter(spec.name)
        if spec.backends != adapter.backends or spec.worker.preload != adapter.preload:
            yield Fault(
                f"{place}/{SPEC}", "backends or preload differ from the adapter's.", "Write what the code says."
            )
    elif not (spec.static.decorators or spec.static.pattern or spec.ready.refuse):
        yield Fault(f"{place}/{SPEC}", "No static check is stated.", "Give decorators or a pattern.", "warning")


def _examples(folder: Path, spec: DslSpec, root: Path) -> Iterator[Fault]:
    examples = sorted(folder.glob("examples/*/*.py"))
    if not examples:
        remedy = "Add examples/<framework>/<name>.py: a model learns most from one."
        yield Fault(f"dsl/{spec.name}", "It has no example.", remedy, "warning")
    families = {path.stem for path in (root / "patterns").glob("*.md")}
    for path in examples:
        place = path.relative_to(root).as_posix()
        if path.parent.name not in spec.frameworks:
            yield Fault(place, f"The spec has no framework {path.parent.name!r}.", f"One of {spec.frameworks}.")
        try:
            example = read_example(path, spec.name)
        except KernellabError as error:
            yield Fault(place, error.message, error.remedy)
            continue
        if families and example.family not in families:
            yield Fault(place, f"There is no family {example.family!r}.", f"One of {', '.join(sorted(families))}.")
        yield from _unfilled(path, place)
        yield from _names(example.text, place, 1, spec)


def _unnamed(path: Path) -> Iterator[Fault]:
    """Operations of the sketch language that the document of operations leaves out; operators are named there once."""
    words = set(re.findall(r"\w+", path.read_text(encoding="utf-8"))) if path.is_file() else set(OPS)
    for op in OPS.values():
        if op.name not in words and not op.symbol and op.name != "newaxis":
            yield Fault(
                _OPERATIONS_PAGE, f"It does not name the operation {op.name!r}.", "Add it to those of its kind."
            )


# -- one document


def _document(path: Path, root: Path) -> Iterator[Fault]:
    place = path.relative_to(root).as_posix()
    try:
        page = read_page(path)
        spec = read_spec(path.parent / SPEC) if (path.parent / SPEC).is_file() else None
    except KernellabError as error:
        yield Fault(place, error.message, error.remedy)
        return
    if not page.title:
        yield Fault(f"{place}:1", "It has no title.", "Begin it with '# Title'.")
    yield from _links(page, path, place)
    for code in sorted(set(_CODE.findall(page.text)) - {message.code for message in MESSAGES.values()}):
        yield Fault(place, f"There is no diagnostic {code}.", "See kernellab/sketch/syntax/messages.py.")
    for section in page.sections:
        for at, line in enumerate(section.text.splitlines()):
            if line.startswith(OPERATIONS):
                yield from _operations(line, f"{place}:{section.line + at}")
    if spec is not None:
        yield from _unfilled(path, place)
        for block in page.blocks:
            yield from _names(block.text, place, block.line + 1, spec)
        for span, number in page.spans:
            yield from _names(span, place, number, spec)


def _links(page: Page, path: Path, place: str) -> Iterator[Fault]:
    anchors = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in page.headings}
    for target, line in page.links:
        if re.match(r"[a-z]+:", target):
            continue  # the network is not asked
        file, _, anchor = target.partition("#")
        if file and not (path.parent / file).exists():
            yield Fault(f"{place}:{line}", f"The link to {target!r} is dead.", "Fix the path, or drop the link.")
        elif not file and anchor not in anchors:
            yield Fault(f"{place}:{line}", f"There is no heading for {target!r}.", "Fix the anchor.")


def _operations(line: str, where: str) -> Iterator[Fault]:
    names = {*operations(), *OPS, *LOOP_HINTS, *AXES, *MEMORY_HINTS, *_WORDS}
    for name in (word.strip() for word in line.partition(":")[2].split(",")):
        if name not in names:
            yield Fault(where, f"The sketch language has no {name!r}.", "See language/operations.md.")


def _names(text: str, place: str, first: int, spec: DslSpec) -> Iterator[Fault]:
    modules = spec.documents.toolchain
    for name in missing_names(modules, set(dotted(text, modules)) - set(spec.documents.inside)):
        line = first + text.count("\n", 0, text.find(name))
        offered = toolchain(modules).versions
        having = ", ".join(f"{package} {version}" for package, version in offered.items())
        yield Fault(
            f"{place}:{line}",
            f"{having} has no {name}.",
            "Fix the name; one that only a compiler knows goes into documents.inside.",
        )


# -- chips, and the record


def _chips(root: Path) -> Iterator[Fault]:
    for path in sorted((root / "hardware").glob("*.md")):
        place = f"hardware/{path.name}"
        try:
            entry = read_chip(path)
        except (KernellabError, TypeError) as error:
            yield Fault(place, str(error))
            continue
        for name in entry.unsourced:
            yield Fault(place, f"{name} names no source.", f"Add a line 'source.{name}: URL'.")


def _record(executed: list[Job], root: Path) -> Iterator[Fault]:
    held = read_record(root)
    for job in executed:
        if not job.reason and job.hash not in held:
            remedy = "Run kernellab docs run --record."
            yield Fault(job.where, "It has not passed since it was changed.", remedy, "warning")
