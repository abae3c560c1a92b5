"""The sketch that a lowered source carries: a block of comments at the end of its entry file.

    # Lowered from this sketch, which `kernellab sketch lift` reads; code 1f0c92ab77e3d840.
    #| sketch rms_norm {
    #|     ...
    #| }

The block is a proposal without proof: a reader lowers the sketch again and compares. The hash is that of the code,
which distinguishes an edit of the code from one of the sketch."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from kernellab import python_tree
from kernellab.records import Source
from kernellab.sketch.program.bind import Binding
from kernellab.sketch.program.program import Program
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.parse import parse
from kernellab.sketch.syntax.printer import format

_HEAD = "# Lowered from this sketch, which `kernellab sketch lift` reads; code {}."
_MARK = "#|"
_BLOCK = re.compile(
    r"(?:\n\n)?^# Lowered from this sketch, [^\n]*; code (?P<code>[0-9a-f]{16})\.\n(?P<lines>(?:#\|[^\n]*\n?)+)\s*\Z",
    re.MULTILINE,
)


#: a comment of C, or a string or character literal that may look like one
_C_COMMENT = re.compile(r"""//[^\n]*|/\*.*?\*/|(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')""", re.DOTALL)


@dataclass(frozen=True)
class Carried:
    """A sketch in a source; ``is_edited``: the code has changed since the sketch was added."""

    text: str
    is_edited: bool


def with_sketch(source: Source, program: Program, binding: Binding) -> Source:
    """Return ``source`` with the text of ``program`` in its entry file; constexprs have the values of ``binding``."""
    file = source.entry_file
    if not program.text or not file.endswith(".py"):
        return source
    lines = [f"{_MARK} {line}".rstrip() for line in _as_bound(program, binding).rstrip("\n").split("\n")]
    head = _HEAD.format(_code_hash(source.files))
    text = source.files[file] + "\n".join(["", "", head, *lines, ""])
    return source.model_copy(update={"files": {**source.files, file: text}})


def carried(source: Source) -> Carried | None:
    """Return the sketch that ``source`` carries, else None."""
    block = _BLOCK.search(source.files.get(source.entry_file, ""))
    if block is None:
        return None
    lines = block["lines"].rstrip("\n").split("\n")
    text = "\n".join(line.removeprefix(_MARK).removeprefix(" ") for line in lines) + "\n"
    return Carried(text, block["code"] != _code_hash(bare(source).files))


def bare(source: Source) -> Source:
    """Return ``source`` without the sketch that it carries, as prompts show it and comparisons read it."""
    text = source.files.get(source.entry_file, "")
    stripped = _BLOCK.sub("", text)
    if stripped == text:
        return source
    return source.model_copy(update={"files": {**source.files, source.entry_file: stripped}})


def same_code(a: Source, b: Source) -> bool:
    """Are both the same code, apart from the sketches that they carry?"""
    return bare(a).hash == bare(b).hash


def code_digest(source: Source) -> str:
    """Return a digest of the code's meaning: without the carried sketch, comments, blank space, and arbitrary numbers
    and names. Python that cannot be parsed is taken as it is."""
    digest = hashlib.sha256(f"{source.dsl}:{source.entry}".encode())
    for name, text in sorted(bare(source).files.items()):
        digest.update(f"\0{name}\0{_plain(name, text)}".encode())
    return digest.hexdigest()[:16]


def _plain(name: str, text: str) -> str:
    if not name.endswith(".py"):
        return " ".join(_C_COMMENT.sub(lambda found: found["text"] or " ", text).split())
    try:
        module = python_tree.parse(text)
    except SyntaxError:
        return text
    for node in ast.walk(module):
        for at, line in enumerate(getattr(node, "body", ()) if isinstance(getattr(node, "body", ()), list) else ()):
            if (
                isinstance(line, ast.Expr)
                and isinstance(line.value, ast.Constant)
                and isinstance(line.value.value, str)
            ):
                node.body[at] = ast.Pass()  # type: ignore[attr-defined]
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" in node.value:
            # a string of source that is passed to a compiler
            node.value = _plain("", node.value)
    return ast.dump(module)


def _code_hash(files: Mapping[str, str]) -> str:
    """Return a hash of the texts without trailing blanks; it does not depend on the files' names."""
    digest = hashlib.sha256()
    for text in sorted(text.rstrip() for text in files.values()):
        digest.update(f"{text}\0".encode())
    return digest.hexdigest()[:16]


def _as_bound(program: Program, binding: Binding) -> str:
    """Return the program's text, with the values at which its constexprs were lowered."""
    values = {n: v for n, v in binding.constexpr.items() if n not in binding.scalars}
    other = {c.name for c in program.constexprs if c.name in values and c.value != values[c.name]}
    return with_values(program.text, {n: values[n] for n in other}) if other else program.text


def with_values(text: str, values: Mapping[str, int | float]) -> str:
    """Return the sketch ``text`` with ``values`` of its constexprs; a value that is not among the choices is added to
    them."""
    file = parse(text)
    sketches = tuple(
        replace(s, declarations=tuple(_revalued(d, values) for d in s.declarations)) for s in file.sketches
    )
    return format(replace(file, sketches=sketches))


def _revalued(declaration: tree.Declaration, values: Mapping[str, int | float]) -> tree.Declaration:
    return replace(declaration, items=tuple(_with_value(item, values) for item in declaration.items))


def _with_value(item: object, values: Mapping[str, int | float]) -> tree.ConstDecl:
    if not isinstance(item, tree.ConstDecl) or item.name not in values:
        return item  # type: ignore[return-value]
    value = tree.Num(values[item.name])
    choices = item.choices
    if choices and value not in choices:
        choices = (*choices, value)
    return replace(item, value=value, choices=choices)


__all__ = ["Carried", "bare", "carried", "code_digest", "same_code", "with_sketch", "with_values"]
