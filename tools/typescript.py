"""Write the TypeScript that Python defines: the protocols of the widgets and the words of the sketch language.

    python tools/typescript.py            write the files that are out of date
    python tools/typescript.py --check    name them, and fail

Types come from the records (TypedDict) of the modules named in ``FILES``; comments from their docstrings and from the
``#:`` lines above a field. Each protocol ends with ``EMPTY``: what a trait holds before the kernel has said anything.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import json
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "widgets/src"
WIDTH = 120
_SCALARS = {str: "string", int: "number", float: "number", bool: "boolean", object: "unknown", type(None): "null"}
_ZEROS: Mapping[object, object] = {str: "", int: 0, float: 0, bool: False}


class NoTypeScript(Exception):
    """A record uses a type that the front end cannot have."""


# -- what a module says of itself --------------------------------------------------------------------------------------


@dataclass
class Comments:
    """The docstrings of a module's records and unions, and the ``#:`` lines above fields, by (record, field)."""

    records: dict[str, str] = field(default_factory=dict)
    fields: dict[tuple[str, str], str] = field(default_factory=dict)
    bases: dict[str, list[str]] = field(default_factory=dict)
    #: names in the order of the text
    order: list[str] = field(default_factory=list)

    def of_field(self, record: str, name: str) -> str:
        """The comment of a field, the record's own or that of the base which declares it."""
        own = self.fields.get((record, name), "")
        return own or next(filter(None, (self.of_field(base, name) for base in self.bases.get(record, ()))), "")


def comments_of(module: ModuleType) -> Comments:
    text = inspect.getsource(module)
    lines, tree = text.split("\n"), ast.parse(text)
    out = Comments()
    for node, following in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(node, ast.ClassDef):
            name = node.name
            out.records[name] = ast.get_docstring(node) or ""
            out.bases[name] = [base.id for base in node.bases if isinstance(base, ast.Name)]
            for part in node.body:
                if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                    out.fields[name, part.target.id] = _above(lines, part.lineno)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            behind = following.value if isinstance(following, ast.Expr) else None
            if isinstance(behind, ast.Constant) and isinstance(behind.value, str):
                out.records[name] = inspect.cleandoc(behind.value)
        else:
            continue
        out.order.append(name)
    return out


def _above(lines: Sequence[str], number: int) -> str:
    """The ``#:`` lines above line ``number``, as one text."""
    found: list[str] = []
    at = number - 2
    while at >= 0 and lines[at].strip().startswith("#:"):
        found.insert(0, lines[at].strip().removeprefix("#:").strip())
        at -= 1
    return " ".join(found)


# -- types -------------------------------------------------------------------------------------------------------------


def typescript(hint: Any) -> str:
    """The TypeScript type of a record's field. Raises NoTypeScript."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return " | ".join(map(json.dumps, _words(arguments))) or typescript(arguments[0])
    if origin is Literal:
        return " | ".join(map(json.dumps, arguments))
    if origin in (Union, types.UnionType):
        return " | ".join(map(typescript, arguments))
    if origin is list:
        inner = typescript(arguments[0])
        return f"({inner})[]" if " | " in inner and inner[0] != "[" else f"{inner}[]"
    if origin is dict:
        return f"Record<{typescript(arguments[0])}, {typescript(arguments[1])}>"
    if origin is tuple and Ellipsis not in arguments:
        return f"[{', '.join(map(typescript, arguments))}]"
    if typing.is_typeddict(hint):
        return str(hint.__name__)
    if hint in _SCALARS:
        return _SCALARS[hint]
    raise NoTypeScript(f"{hint!r} has no TypeScript type: use str, int, float, bool, None, object, list, dict, tuple, "
                       "Literal, an annotated enumeration, or a record.")  # fmt: skip


def _words(annotated: Sequence[Any]) -> list[str]:
    """The values of the enumerations that a type is annotated with."""
    kinds = [kind for kind in annotated[1:] if isinstance(kind, type) and issubclass(kind, Enum)]
    return [str(item.value) for kind in kinds for item in kind]


def empty(hint: Any) -> object:
    """What a field of that type holds before anything is known: null where it may be, else nothing, no or zero."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return next(iter(_words(arguments)), None) or empty(arguments[0])
    if origin is Literal:
        return arguments[0]
    if origin in (Union, types.UnionType):
        return None if type(None) in arguments else empty(arguments[0])
    if origin is list:
        return []
    if origin is dict:
        keys = get_args(arguments[0]) if get_origin(arguments[0]) is Literal else ()
        return {key: empty(arguments[1]) for key in keys}
    if typing.is_typeddict(hint):
        return {name: empty(kind) for name, kind in get_type_hints(hint, include_extras=True).items()}
    return _ZEROS[hint]


# -- a protocol's file -------------------------------------------------------------------------------------------------


def protocol(*modules: str) -> str:
    """One TypeScript module from Python modules, the first of which has ``PROTOCOL`` and ``Traits``."""
    first = importlib.import_module(modules[0])
    declared: list[str] = []
    foreign: dict[str, set[str]] = {}
    for name in modules:
        module = importlib.import_module(name)
        told = comments_of(module)
        for item in told.order:
            value = getattr(module, item, None)
            text = "" if item.startswith("_") else _declared(item, value, told)
            if text:
                declared.append(text)
                for record in _used(value):
                    if record.__module__ not in modules:
                        foreign.setdefault(IMPORTS[record.__module__], set()).add(record.__name__)
    imports = [
        f"import type {{ {', '.join(sorted(records))} }} from {json.dumps(file)};" for file, records in foreign.items()
    ]
    told_of = f"Generated by tools/typescript.py from {', '.join(modules)}: do not edit."
    head = "\n".join([_comment(f"{inspect.cleandoc(first.__doc__ or '')}\n\n{told_of}"), *imports])
    nothing = "\n".join(
        [
            _comment("What each trait holds before the kernel has said anything."),
            f"export const EMPTY: Traits = {_literal(empty(first.Traits))};",
        ]
    )
    return "\n\n".join([head, f"export const PROTOCOL = {first.PROTOCOL};", *declared, nothing]) + "\n"


def _declared(name: str, value: object, told: Comments) -> str:
    """A record as an interface, a union of records as a type; "" for anything else."""
    note = told.records.get(name, "")
    lines = [_comment(note)] if note else []
    if typing.is_typeddict(value):
        record = typing.cast(Any, value)
        lines.append(f"export interface {name} {{")
        for key, hint in get_type_hints(record, include_extras=True).items():
            above = told.of_field(name, key)
            lines += [textwrap.indent(_comment(above), "  ")] if above else []
            lines.append(_wrapped(f"  {key}{'?' if key in record.__optional_keys__ else ''}: ", typescript(hint)))
        return "\n".join([*lines, "}"])
    if isinstance(value, types.UnionType) and all(map(typing.is_typeddict, get_args(value))):
        return "\n".join([*lines, _wrapped(f"export type {name} = ", typescript(value))])
    return ""


def _used(value: object) -> Iterator[Any]:
    """The records that a record or union names."""
    hints = get_type_hints(value, include_extras=True).values() if typing.is_typeddict(value) else get_args(value)
    waiting = list(hints)
    while waiting:
        hint = waiting.pop()
        if typing.is_typeddict(hint):
            yield hint
        else:
            waiting += [part for part in get_args(hint) if part is not Ellipsis and not isinstance(part, str)]


def _wrapped(start: str, kind: str) -> str:
    line = f"{start}{kind};"
    if len(line) <= WIDTH or " | " not in kind:
        return line
    indent = " " * (len(start) - len(start.lstrip()) + 2)
    return "\n".join([start.rstrip(), *(f"{indent}| {part}" for part in kind.split(" | "))]) + ";"


def _comment(text: str) -> str:
    plain = text.replace("``", "`").replace("None", "null")
    one = f"/** {' '.join(plain.split())} */"
    if "\n\n" not in plain and len(one) <= WIDTH - 2:
        return one
    rows: list[str] = []
    for paragraph in plain.split("\n\n"):
        rows += ["", *textwrap.wrap(" ".join(paragraph.split()), WIDTH - 5)]
    return "\n".join(["/**", *(f" * {row}".rstrip() for row in rows[1:]), " */"])


def _literal(value: object, depth: int = 0) -> str:
    """A value as biome formats it: an object on separate lines where it has anything in it."""
    if not isinstance(value, dict):
        return json.dumps(value)
    if not value:
        return "{}"
    pad = "  " * (depth + 1)
    rows = [f"{pad}{key}: {_literal(part, depth + 1)}," for key, part in value.items()]
    return "\n".join(["{", *rows, "  " * depth + "}"])


def language() -> str:
    """The word lists of the sketch language, for the editor's tokenizer."""
    words = importlib.import_module("kernellab.sketch.syntax.words")
    lists = {
        "DECLARATIONS": (words.DECLARATIONS, "What a declaration begins with, before a colon."),
        "BLOCKS": (words.BLOCKS, "What opens a block."),
        "KEYWORDS": (("sketch", "in", "range", *words.BLOCKS, *words.OPERATORS), ""),
        "ATOMS": (words.ATOMS, ""),
        "TYPES": (words.DTYPES, ""),
        "ROLES": (words.ROLES, "Roles of a tensor."),
    }
    head = _comment("The words of the Unified Sketch language.\n\nGenerated by tools/typescript.py from "
                    f"{words.__name__}: do not edit.")  # fmt: skip
    parts = []
    for name, (values, note) in lists.items():
        line = f"export const {name} = [{', '.join(map(json.dumps, values))}] as const;"
        if len(line) > WIDTH:
            rows = "".join(f"  {json.dumps(value)},\n" for value in values)
            line = f"export const {name} = [\n{rows}] as const;"
        parts.append("\n".join([*([_comment(note)] if note else []), line]))
    return "\n\n".join([head, *parts]) + "\n"


#: where TypeScript imports the records of another protocol from
WORKBENCH = ("kernellab.notebook.protocol", "kernellab.notebook.answers", "kernellab.notebook.board.requests")
IMPORTS = dict.fromkeys(WORKBENCH, "../protocol")

FILES: Mapping[str, Callable[[], str]] = {
    "protocol.ts": lambda: protocol(*WORKBENCH),
    "editor/words.ts": language,
    "monitor/protocol.ts": lambda: protocol("kernellab.notebook.monitor.protocol"),
}


def stale(folder: Path = SOURCES) -> dict[Path, str]:
    """The files that are not as Python has it, with the text that they should have."""
    wanted = {folder / name: make() for name, make in FILES.items()}
    return {
        path: text for path, text in wanted.items() if not path.is_file() or path.read_text(encoding="utf-8") != text
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a file is out of date")
    check: bool = parser.parse_args(arguments).check
    found = stale()
    for path, text in found.items():
        name = path.relative_to(ROOT)
        if check:
            print(f"{name} is not as Python has it. Run `python tools/typescript.py`.", file=sys.stderr)
        else:
            path.write_text(text, encoding="utf-8")
            print(f"written: {name}")
    return int(check and bool(found))


if __name__ == "__main__":
    sys.exit(main())
