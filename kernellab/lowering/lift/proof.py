"""Proves that a source is the lowering of a sketch: a comment may be wrong, so the code is written again and
compared."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from kernellab import python_tree
from kernellab.errors import KernellabError, LoweringError, SketchError
from kernellab.lowering import lower
from kernellab.records import Source
from kernellab.sketch.check import load_program
from kernellab.sketch.program.bind import bind
from kernellab.target import Backend, Chip, Target
from kernellab.task import Task


@dataclass(frozen=True)
class Difference:
    """The first place where a source differs from its lowered sketch.

    ``line`` is a line of ``file`` in the source, 0 for the whole file; ``sketch_line`` that of the statement from which
    the place is lowered, 0 if there is none. ``actual`` and ``expected`` are the tokens of the source and of the
    lowered sketch, and ``equal_tokens`` the number of those before them."""

    file: str
    line: int
    actual: str
    expected: str
    sketch_line: int
    equal_tokens: int


def difference(text: str, source: Source, task: Task) -> Difference | None:
    """Return None if ``text`` is lowered to ``source``, token by token except for comments, layout and docstrings.

    Raises:
        KernellabError: ``text`` is no sketch, does not fit the task, or cannot be lowered to the source's DSL.
    """
    program = load_program(text)
    differences: list[Difference] = []
    for target in _targets(source.dsl):
        lowered = lower(program, bind(program, task, {}, target), target)
        place = _first(source, lowered)
        if place is None:
            return None
        differences.append(place)
    return max(differences, key=lambda d: d.equal_tokens)


def _targets(dsl: str) -> Iterator[Target]:
    """Yield the targets to lower for: of a target's facts, a lowering reads only whether it is Triton's interpreter."""
    if dsl == "cpp":
        yield Target(dsl, Backend.CPU, Chip("any", "cpu", 1))
        return
    yield Target(dsl, Backend.CUDA, Chip("any", "gpu", 1))
    if dsl == "triton":
        yield Target(dsl, Backend.INTERPRETER, Chip("any", "cpu", 1))


def _first(source: Source, lowered: Source) -> Difference | None:
    # a file that is imported by its name may have any name
    names = {lowered.entry_file: source.entry_file}
    expected_files = {names.get(name, name): text for name, text in lowered.files.items()}
    equal = 0
    # the kernels first: differences in the host function follow from them
    for file in sorted(expected_files, key=lambda name: (name == source.entry_file, name)):
        if file not in source.files:
            return Difference(file, 0, "", "", 0, equal)
        actual, expected = _tokens(file, source.files[file]), _tokens(file, expected_files[file])
        for n in range(max(len(actual), len(expected))):
            mine, other = _token_at(actual, n), _token_at(expected, n)
            if mine.text != other.text:
                lines = lowered.line_map.get(next((k for k, v in names.items() if v == file), file), {})
                before = [k for k in lines if k <= other.line]
                sketch_line = lines[max(before)] if before else 0
                return Difference(file, mine.line, mine.text, other.text, sketch_line, equal + n)
        equal += len(expected)
    more = sorted(name for name in source.files if name not in expected_files and name.endswith(CODE))
    return Difference(more[0], 0, more[0], "", 0, equal) if more else None


def _token_at(tokens: Sequence[Token], n: int) -> Token:
    """Return a token; after the last one an empty one in its line."""
    return tokens[n] if n < len(tokens) else Token("", tokens[-1].line if tokens else 1)


@lru_cache(maxsize=64)
def _tokens(file: str, text: str) -> tuple[Token, ...]:
    return tuple(tokens(file, text))


def refusal(place: Difference, source: Source, text: str) -> LoweringError:
    """Return the error that names the line."""
    remedy = "Undo the edit there, or lift it by a model: kernellab design TASK --from SOURCE --lift."
    if place.line == 0:
        what = "is not one that this lowering writes" if place.actual else "is missing"
        return LoweringError(f"The file {place.file} {what}, so the source has no sketch.", remedy)
    line = source.files[place.file].split("\n")[place.line - 1].strip()
    code = line.partition("  # " if place.file.endswith(".py") else "  // ")[0].strip()
    lines = text.split("\n")
    meant = lines[place.sketch_line - 1].strip() if 0 < place.sketch_line <= len(lines) else ""
    says = f"is not what {meant!r} is lowered to" if meant else "is not what its sketch is lowered to"
    return LoweringError(f"Line {place.line} of {place.file}, {_short(code)!r}, {says}.", remedy)


class _SourceLine(NamedTuple):
    file: str
    number: int
    code: str


def unreadable(source: Source, error: KernellabError, text: str) -> LoweringError:
    """Return the error of a carried sketch that is invalid. It names the line of the source with the statement or the
    declaration at fault, else that of the host function."""
    lines = text.split("\n")
    at = _line_of(error)
    statement = lines[at - 1].strip() if 0 < at <= len(lines) else ""
    tensor = re.match(r"'?(\w+)'? is declared", error.message)
    declares = rf"\b{tensor[1]} = torch\.|_fits\({tensor[1]},|\b{tensor[1]} must hold" if tensor else "(?!)"
    every = [
        _SourceLine(file, number, code)
        for file, text_of_file in sorted(source.files.items())
        for number, code in enumerate(text_of_file.split("\n"), 1)
    ]
    places = [p for p in every if (statement and p.code.endswith(statement)) or re.search(declares, p.code)]
    places += [p for p in every if p.file == source.entry_file and p.code.startswith(f"def {source.entry}(")]
    place = places[0]
    return LoweringError(
        f"Line {place.number} of {place.file}, {_short(place.code.strip())!r}, does not give a sketch of this task: "
        f"{error.message}",
        "Check that it is its kernel, or undo the edit there.",
    )


def _line_of(error: KernellabError) -> int:
    """Return the sketch line at fault; 0 if unknown."""
    if isinstance(error, LoweringError):
        return error.line
    return error.diagnostics[0].line if isinstance(error, SketchError) and error.diagnostics else 0


def _short(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:117]}..."


# -- tokens ------------------------------------------------------------------------------------------------------------


#: files that a compiler or Python reads
CODE = (".py", ".cpp", ".cu", ".h", ".cuh", ".hpp", ".c")

_STRING = r"\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'"
_SPLICE = r"\\[ \t\r]*\n"
_TOKEN = re.compile(
    rf"(?P<skip>[ \t\r\n\f\v]+|//(?:{_SPLICE}|[^\n])*|/\*.*?\*/)"
    rf"|(?P<token>{_SPLICE}|{_STRING}"
    r"|\.?\d(?:[eEpP][+-]|'?\w|\.)*|[A-Za-z_]\w*"
    r"|<<=|>>=|\.\.\.|->\*|<=>|//=|\*\*=?|::|->|\+\+|--|<<|>>|[-+*/%&|^=!<>]=|&&|\|\||##|.)",
    re.DOTALL,
)


class Token(NamedTuple):
    text: str
    #: its line in the file, from 1
    line: int


def tokens(file: str, text: str) -> list[Token]:
    """Return the tokens of ``text``: Python from its syntax tree, anything else as C++.

    Raises:
        LoweringError: it is not valid Python.
    """
    return list(_python(file, text) if file.endswith(".py") else _cpp(text))


def _cpp(text: str) -> Iterator[Token]:
    """Yield the tokens of C++. A directive ends with its line; the line end is a separate token."""
    line, directive, fresh = 1, False, True
    for match in _TOKEN.finditer(text):
        word = match["token"]
        if word is None:
            breaks = match[0].count("\n")
            if breaks and directive and not match[0].startswith(("//", "/*")):
                yield Token("end of line", line)
                directive = False
            fresh = fresh or (breaks > 0 and not match[0].startswith("/*"))
        else:
            directive = directive or (word == "#" and fresh)
            fresh = False
            yield Token(word, line)
        line += match[0].count("\n")


def _python(file: str, text: str) -> Iterator[Token]:
    try:
        tree = python_tree.parse(text)
    except SyntaxError as error:
        raise LoweringError(f"Line {error.lineno} of {file} is not valid Python.", "Fix it first.") from None
    yield from _statements(tree.body, 0)


def _statements(nodes: Sequence[ast.stmt], depth: int) -> Iterator[Token]:
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            continue  # a docstring
        yield Token(f"statement at depth {depth}", node.lineno)
        blocks = {f: getattr(node, f) for f in ("body", "orelse", "finalbody", "handlers") if getattr(node, f, None)}
        head = copy.copy(node)
        for name in blocks:
            setattr(head, name, [ast.Pass()] if name == "body" else [])
        for word in _TOKEN.finditer(ast.unparse(head)):
            if word["token"] is not None or word[0].startswith("/"):
                yield Token(word[0], node.lineno)
        for name, block in blocks.items():
            yield Token(name, node.lineno)
            if name == "handlers":
                for handler in block:
                    yield Token(ast.unparse(handler), handler.lineno)
            else:
                yield from _statements(block, depth + 1)
