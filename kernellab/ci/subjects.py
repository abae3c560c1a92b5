"""What of a repository can be verified: kernels next to their tasks, capsules, exported modules and packages."""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kernellab import python_tree
from kernellab.dsls.sources import defines_kernel, read_source
from kernellab.errors import MOST_BYTES, KernellabError
from kernellab.export.capsule import is_capsule, read_capsule
from kernellab.export.module import COMPILED
from kernellab.records import Author, Source
from kernellab.task.load import identifier

#: folders that hold no kernels of the repository's
_SKIPPED = frozenset(("node_modules", "__pycache__", "build", "dist", "venv", "site-packages"))
_FACTS = "operator.json"
_REMEDY = "Put its task next to it: NAME_task.py for NAME.py, or task.py for a folder with a kernel.py."


@dataclass(frozen=True)
class Subject:
    """One kernel and what it must compute. ``name`` is its path below the folder that was searched, with forward
    slashes, and which kernel of an exported module it is."""

    name: str
    path: Path
    kind: str
    task: str
    task_name: str
    source: Source


@dataclass(frozen=True)
class Unread:
    """A file that should hold a kernel and cannot be verified. ``broken``: it is damaged, and not only incomplete."""

    name: str
    path: Path
    reason: str
    broken: bool


def subjects(paths: Iterable[Path], plain_dsl: str = "cpp", task: Path | None = None) -> list[Subject | Unread]:
    """Everything below ``paths``, in the order of their names; a path that is a file is read as what it is.

    Args:
        plain_dsl: what a source that shows no DSL is judged as.
        task: the task of every kernel that is found; by default the one next to it.

    Raises:
        KernellabError: a path does not exist.
    """
    found: dict[str, Subject | Unread] = {}
    named: dict[str, Path] = {}
    for path in paths:
        if not path.exists():
            raise KernellabError(f"{path} does not exist.", "Give files or folders of the repository.")
        base = path if path.is_dir() else path.parent
        for file in _files(path):
            whole, name = file.resolve(), _name(file, base)
            if named.setdefault(name, whole) != whole:
                # another of the paths holds one of this name
                name = f"{base.resolve().name}/{name}"
                name = name if named.setdefault(name, whole) == whole else whole.as_posix()
            for each in _read(file, name, plain_dsl, task):
                found.setdefault(each.name, each)
    return [found[name] for name in sorted(found)]


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    for folder, below, names in os.walk(path):
        inner = Path(folder)
        if _FACTS in names:
            # its other files are the package's own
            below.clear()
            names = [_FACTS]
        below[:] = sorted(d for d in below if d not in _SKIPPED and not d.startswith("."))
        yield from (inner / name for name in sorted(names) if name.endswith((".py", ".json", ".capsule")))


def _name(file: Path, base: Path) -> str:
    inside = file.relative_to(base)
    return (inside.parent if file.name == _FACTS else inside).as_posix()


def _read(file: Path, name: str, plain_dsl: str, task: Path | None) -> Iterator[Subject | Unread]:
    try:
        if file.name == _FACTS:
            yield from _exported(name, file, json.loads(_text(file)), lambda inner: _text(file.parent / inner))
            from kernellab.export.runtime.prebuilt import CHIP, LIBRARY

            compiled = (f"**/kernels/*/{CHIP}", f"**/kernels/*/{LIBRARY}", "runtime/*.so")
            if any(list(file.parent.glob(pattern)) for pattern in compiled):
                yield _compiled(name, file)
        elif file.suffix != ".py":
            if is_capsule(file):
                capsule = read_capsule(file)
                source = capsule.source.model_copy(update={"origin": Author.MODEL})
                yield Subject(name, file, "capsule", capsule.task, capsule.name, source)
        else:
            yield from _python(name, file, plain_dsl, task)
    except KernellabError as error:
        yield Unread(name, file, error.message, True)
    except (AttributeError, KeyError, RecursionError, SyntaxError, TypeError, ValueError) as error:
        yield Unread(name, file, f"it cannot be read as what it claims to be ({type(error).__name__}: {error})", True)


def _python(name: str, file: Path, plain_dsl: str, task: Path | None) -> Iterator[Subject | Unread]:
    text = _text(file)
    if "\n_FILES = {" in text and f"'{_FACTS}'" in text:
        files, brings_code = _embedded(text)
        yield from _exported(name, file, json.loads(files[_FACTS]), files.__getitem__)
        if brings_code:
            yield _compiled(name, file)
        return
    if file.stem == "task" or file.stem.endswith("_task") or not defines_kernel(text):
        return
    task = task or _task_of(file)
    if task is None:
        yield Unread(name, file, f"it defines a kernel, and no task is next to it. {_REMEDY}", False)
        return
    source = read_source(
        file.parent if task.parent == file.parent and task.name == "task.py" else file, None, plain_dsl
    )
    others = {inner: text for inner, text in source.files.items() if inner != task.name}
    source = source.model_copy(update={"files": others})
    yield Subject(name, file, "kernel", _text(task), _task_name(task), source)


def _task_name(task: Path) -> str:
    return identifier(task.parent.name if task.stem == "task" else task.stem.removesuffix("_task"))


def _task_of(file: Path) -> Path | None:
    stems = dict.fromkeys((f"{file.stem}_task", f"{file.stem.removesuffix('_kernel')}_task"))
    usual = ["task"] if file.stem == "kernel" else []
    candidates = (file.with_name(f"{stem}.py") for stem in (*stems, *usual))
    return next((path for path in candidates if path.is_file()), None)


def _embedded(text: str) -> tuple[Mapping[str, str], bool]:
    """The files of an exported module, read without running it, and whether compiled code goes along."""
    assigned = {
        getattr(n.targets[0], "id", ""): n.value for n in python_tree.parse(text).body if isinstance(n, ast.Assign)
    }
    if "_FILES" not in assigned:
        raise ValueError("it has no files")
    compiled = assigned.get("_COMPILED")
    # an end that was cut off stands for code
    brings_code = compiled is not None and not (isinstance(compiled, ast.Dict) and not compiled.keys)
    return ast.literal_eval(assigned["_FILES"]), brings_code


def _exported(name: str, path: Path, facts: Mapping[str, Any], read: Any) -> Iterator[Subject | Unread]:
    sources = facts.get("sources")
    if not sources:
        yield Unread(name, path, "it was exported without its tasks. Export it again.", False)
        return
    kinds = list(zip(facts["classes"], sources, strict=True))
    texts = [{inner: read(f"{kind['folder']}/{inner}") for inner in made["files"]} for kind, made in kinds]
    if facts.get("one"):
        files = {
            f"{kind['folder'].rpartition('/')[2]}/{inner}": text
            for (kind, _), own in zip(kinds, texts, strict=True) for inner, text in own.items()
        }  # fmt: skip
        source = Source(
            dsl=facts["classes"][0]["dsl"], files={"kernel.py": facts["one"]["file"], **files}, origin=Author.MODEL
        )
        yield Subject(name, path, "module", facts["one"]["task"], facts["name"], source)
    for k, ((kind, made), own) in enumerate(zip(kinds, texts, strict=True)):
        source = Source(
            dsl=kind["dsl"], files=own, entry_file=kind["entry_file"], entry=kind["entry"], origin=Author.MODEL
        )
        one = Subject(name, path, "module", made["task"], facts["name"], source)
        yield replace(one, name=f"{name}#{k + 1}") if len(sources) > 1 else one
    # the kernels of its gradients are operators of folders inside
    for folder in (facts.get("training") or {}).get("folders", ()):
        inside = {**json.loads(read(f"{folder}/{_FACTS}")), "training": None}
        of = f"{name}#{folder.rpartition('/')[2]}"
        yield from _exported(of, path, inside, lambda inner, folder=folder: read(f"{folder}/{inner}"))


def _compiled(name: str, file: Path) -> Unread:
    why = (
        "its source is judged, and the compiled code that it brings is not. Export it with --no-prebuilt to have none."
    )
    return Unread(f"{name}#compiled", file, why, False)


def _text(path: Path) -> str:
    """What a file says; of an exported module beyond the limit what stands above its compiled code."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            text, found, _ = text.partition(COMPILED)
            return f"{text}{found}None\n" if found else ""
        return text
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise KernellabError(f"{path} cannot be read: {reason}.", "Give readable files.") from None
