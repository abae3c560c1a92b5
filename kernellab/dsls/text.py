"""Analyses a source's text for adapters: C++ in files and in Python strings, its exports, and Python's calls."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePath
from typing import NamedTuple

from kernellab import python_tree
from kernellab.dsls.functions import defined
from kernellab.records import CompilerLine, Source

CPP_ENDINGS = (".cpp", ".cc", ".cxx", ".c", ".h", ".hpp", ".cu", ".cuh")
_HEADERS = (".h", ".hpp", ".cuh")


@dataclass(frozen=True)
class Code:
    """A piece of C++ or CUDA with blanked comments: a separate file, or a string of a Python file that begins at line
    ``first``."""

    file: str
    text: str
    first: int = 1
    header: bool = False

    def line(self, position: int) -> int:
        return self.first + self.text.count("\n", 0, position)


class Place(NamedTuple):
    """A line of a file."""

    file: str
    line: int


class NamedLine(NamedTuple):
    """A name, and the line where it stands."""

    name: str
    line: int


class QuotedError(NamedTuple):
    """A compiler's error, and the source line that it quotes below it ("" without one)."""

    error: CompilerLine
    quoted: str


@dataclass(frozen=True)
class Texts:
    """The parts of a source: its C++, its Python trees by file, and the first file that does not parse."""

    code: tuple[Code, ...]
    trees: tuple[tuple[str, ast.Module], ...]
    broken: tuple[str, SyntaxError] | None = None

    @property
    def used(self) -> set[str]:
        """Names that Python reaches as an attribute, as a subscript, or by ``get_function("name")``."""
        return {name for _, tree in self.trees for name in names_used(tree)}

    @property
    def named(self) -> dict[str, Place]:
        """The names in ``functions=`` of tvm_ffi's load_inline and torch's, with their places."""
        return {name: Place(file, line) for file, tree in self.trees for name, line in named_functions(tree)}

    @property
    def exported(self) -> dict[str, Place]:
        """The functions that the C++ exports to Python, with their places."""
        return {name: Place(piece.file, line) for piece in self.code for name, line in exports(piece)} | self.named


def texts(source: Source) -> Texts:
    """Return the parts of ``source``; this ends at a Python file that does not parse."""
    code: list[Code] = []
    trees: list[tuple[str, ast.Module]] = []
    for file, text in source.files.items():
        if file.endswith(CPP_ENDINGS):
            code.append(Code(file, without_comments(text), header=file.endswith(_HEADERS)))
        elif file.endswith(".py"):
            try:
                tree = parsed(text)
            except SyntaxError as error:
                return Texts(tuple(code), tuple(trees), (file, error))
            except ValueError as error:
                return Texts(tuple(code), tuple(trees), (file, SyntaxError(str(error))))
            trees.append((file, tree))
            code += [Code(file, without_comments(string), line) for string, line in inline_code(tree)]
    return Texts(tuple(code), tuple(trees))


@lru_cache(maxsize=16)
def parsed(text: str) -> ast.Module:
    """Return the tree of the bytes that Python would import, without long tables; results are cached, and callers must
    not change the tree.

    Raises:
        SyntaxError: it is not valid Python. ValueError: it contains a character that a source must not contain.
    """
    return without_tables(python_tree.parse(text.encode()))


#: numbers that stay of a table, and rows of a table of rows; a name that is composed of character codes is not longer
_MOST_NUMBERS, _MOST_ROWS = 4096, 64


def without_tables(tree: ast.Module) -> ast.Module:
    """Return ``tree`` with long tables of numbers truncated: a lookup table of a hundred thousand numbers means no more
    than its beginning, and would slow down each pass over the tree."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)) and len(node.elts) > _MOST_ROWS:
            if all(map(_is_number, node.elts)):
                del node.elts[_MOST_NUMBERS:]
                continue
            if all(isinstance(row, (ast.List, ast.Tuple)) and all(map(_is_number, row.elts)) for row in node.elts):
                del node.elts[_MOST_ROWS:]
        pending.extend(ast.iter_child_nodes(node))
    return tree


def _is_number(node: ast.AST) -> bool:
    value = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(value, ast.Constant) and isinstance(value.value, (int, float, complex))


def imported(tree: ast.AST) -> set[str]:
    """Return the root names of imported modules: ``import a.b`` and ``from a.b import c`` both import a."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return names


def inline_code(tree: ast.AST) -> list[tuple[str, int]]:
    """Return string literals with C++ and their first lines: they have an #include, or a function's body. For a
    composed one (an f-string, such as a kernel for each shape) the constant parts."""
    literals: list[tuple[str, int]] = []
    parts: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            constants = [v for v in node.values if isinstance(v, ast.Constant)]
            parts |= {id(v) for v in constants}
            text = "".join(str(v.value) for v in constants)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            text = node.value
        else:
            continue
        if "#include" in text or ("{" in text and ";" in text and "(" in text):
            literals.append((text, node.lineno))
    return literals


#: names exported to Python by a macro, by pybind11 or by TORCH_LIBRARY (whose name may be a whole schema)
_EXPORT = re.compile(
    r"(?P<line>^[ \t]*#[^\n]*)|\bKL_EXPORT\((\w+)\)|\bTVM_FFI_DLL_EXPORT_TYPED_FUNC\((\w+)|\.(?:def|impl)\(\s*\"(\w+)",
    re.MULTILINE,
)


@lru_cache(maxsize=64)
def exports(code: Code) -> tuple[NamedLine, ...]:
    """Return exported function names with their lines; definitions of macros are not uses. Results for common headers
    are cached."""
    return tuple(_exports(code))


def _exports(code: Code) -> Iterator[NamedLine]:
    exports: list[tuple[str, int]] = []
    for match in _EXPORT.finditer(code.text):
        if match["line"] is None:
            exports.append((next(g for g in match.groups() if g), match.start()))
    functions = list(defined(code.text, code.file.endswith(".c")))
    exports += [(f.name, f.position) for f in functions if f.c_linkage and not f.internal]
    if not exports and not code.header:
        # C for a C compiler, as a string or a file of any name
        exports = [(f.name, f.position) for f in functions if not f.internal]
    lines = LineNumbers(code.text, code.first)
    for name, position in sorted(exports, key=lambda f: f[1]):
        yield NamedLine(name.removeprefix("__tvm_ffi_"), lines.at(position))


def named_functions(tree: ast.AST) -> Iterator[NamedLine]:
    """The names in ``functions=`` of tvm_ffi's load_inline and torch's."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "functions":
            for constant in ast.walk(node.value):
                if isinstance(constant, ast.Constant) and isinstance(constant.value, str):
                    yield NamedLine(constant.value, constant.lineno)


def names_used(tree: ast.AST) -> set[str]:
    """Return attributes, and names as text: ``module["name"]``, ``getattr(module, "name")``,
    ``get_function("name")``."""
    names: set[str] = set()
    exported = {id(n) for k in ast.walk(tree) if isinstance(k, ast.keyword) and k.arg == "functions" for n in
                ast.walk(k.value)}  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in exported:
            names.add(node.value)
    return names


class LineNumbers:
    """Line numbers of ascending positions, in one pass."""

    def __init__(self, text: str, first: int) -> None:
        self._text, self._line, self._position = text, first, 0

    def at(self, position: int) -> int:
        self._line += self._text.count("\n", self._position, position)
        self._position = position
        return self._line


#: an unclosed comment or string extends to the end: each character is read once
_COMMENT = re.compile(
    r"//[^\n]*|/\*.*?(?:\*/|\Z)|(?P<raw>\b(?:u8|[uUL])?R\"(?P<mark>[^()\\\s\"]{0,16})\(.*?(?:\)(?P=mark)\"|\Z))"
    r"|\"(?:\\.|[^\"\\\n])*\"?|'(?:\\[^\n]|[^'\\\n])'",
    re.DOTALL,
)
_CONDITION = re.compile(r"^[ \t]*#[ \t]*(if(?:n?def)?|elif|else|endif)\b(.*)$", re.MULTILINE)
_SPLICED = re.compile(r"(?:[^\n]*\\\n)+[^\n]*")


@lru_cache(maxsize=32)
def without_comments(text: str) -> str:
    """Return C++ as its compiler reads it: comments and code under ``#if 0`` blanked, continued lines joined, all other
    lines in place."""
    raw: list[range] = []  # raw strings, by their characters

    def blank(match: re.Match[str]) -> str:
        if match["raw"] is not None:
            raw.append(range(*match.span()))
        return _blanked(match[0]) if match[0].startswith("/") else match[0]

    if "\\\n" in text:
        text = _SPLICED.sub(lambda m: m[0].replace("\\\n", "") + "\n" * m[0].count("\\\n"), text)
    return _without_zero(_COMMENT.sub(blank, text), raw)


def _without_zero(text: str, raw: Sequence[range]) -> str:
    """Return ``text`` with blanks for code under ``#if 0``; a condition inside one of the ``raw`` strings does not
    count."""
    parts: list[str] = []
    end = depth = 0  # of the text that is copied; of conditions inside the one that is false
    first: int | None = None  # the first character under a condition that is false
    inside = iter(raw)
    string = next(inside, None)
    for match in _CONDITION.finditer(text):
        while string is not None and string.stop <= match.start():
            string = next(inside, None)
        if string is not None and string.start < match.start():
            continue
        word = match[1]
        if first is None:
            if word == "if" and match[2].strip() in ("0", "false"):
                first, depth = match.end(), 0
        elif word.startswith("if"):
            depth += 1
        elif depth:
            depth -= word == "endif"
        else:
            parts += [text[end:first], _blanked(text[first : match.start()])]
            end, first = match.start(), None
    return "".join([*parts, text[end:]])


def _blanked(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


#: what nvcc and gcc print at a place: the source line, which gcc numbers and nvcc has preprocessed
_GUTTER = re.compile(r"^\s*\d*\s*\|\s?")
_ATTRIBUTE = re.compile(r"__attribute__\(\((?:device_)?(global|device|host|shared|constant)\)\)")


def quoted_after(log: str, position: int) -> str:
    """Return the source line that a compiler prints below the message that ends at ``position``, stripped."""
    _, _, rest = log[position:].partition("\n")
    line = _GUTTER.sub("", rest.partition("\n")[0])
    return _ATTRIBUTE.sub(r"__\1__", line).strip()


def placed(errors: Sequence[QuotedError], source: Source) -> list[CompilerLine]:
    """Return ``errors`` at lines of the source's files.

    Code in a Python string is compiled from a file that the loader writes, with its own lines before it. The quoted
    line is searched in the source's files; if a line occurs once, the others follow by their distance."""
    lines = [(file, number, text.strip()) for file, whole in source.files.items() for number, text in _lines(whole)]
    #: by the loader's file: the source's file, and how many lines later its lines are there
    shifts: dict[str, Place] = {}
    for error, quoted in errors:
        same = [Place(file, number) for file, number, text in lines if quoted and text == quoted]
        if error.file not in source.files and error.line is not None and len(same) == 1:
            shifts.setdefault(error.file, Place(same[0].file, same[0].line - error.line))
    result = []
    for error, quoted in errors:
        if error.file not in source.files and error.line is not None and error.file in shifts:
            file, number = shifts[error.file].file, error.line + shifts[error.file].line
            if not quoted or (file, number, quoted) in lines:
                error = error.model_copy(update={"file": file, "line": number})
        if error not in result:
            result.append(error)
    result.sort(key=lambda error: error.file not in source.files)
    return result


def _lines(text: str) -> list[tuple[int, str]]:
    return list(enumerate(text.splitlines(), 1))


def own_name(path: str, files: Sequence[str]) -> str:
    """Return the source's file for a path in a log, else the path itself."""
    name = PurePath(path).name
    return next((file for file in files if PurePath(file).name == name), path)
