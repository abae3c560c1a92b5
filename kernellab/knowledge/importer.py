"""Raw documentation to the DocSpec form: Markdown, HTML, or an installed module's docstrings.

By rule: a section goes to ``api.md`` when its heading or text shows signatures, to ``suggestions.md`` when it advises,
to ``basic.md`` when it introduces; a program that stands alone becomes an example. A caller may give a model that names
the part of a section that the rules cannot place. What nobody could place is kept in the report, with the reason.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kernellab.errors import KernellabError
from kernellab.knowledge.draft import Like, Module, spec_text
from kernellab.knowledge.names import dotted
from kernellab.knowledge.pages import DocumentError, Section, parse_page
from kernellab.knowledge.prompts import prompt
from kernellab.knowledge.rank import words
from kernellab.knowledge.toolchain import missing_names, toolchain
from kernellab.sketch.program.ops import OPS

PARTS = ("basic", "api", "suggestions")
#: endings of the files that a folder is searched for
_DOCUMENTS = (".md", ".markdown", ".html", ".htm")
#: a function from a question to a word of PARTS, "examples" or "drop"
Place = Callable[[str], str]


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_INTRODUCES = _set(
    "introduction intro overview basic basics concept concepts model guide tutorial getting started quick quickstart "
    "install installation language syntax execution memory hello first what why architecture background"
)
_ADVISES = _set(
    "tip tips best practice practices performance optimisation optimization optimise optimize tuning tune pitfall "
    "pitfalls caveat caveats limitation limitations debug debugging troubleshooting mistake mistakes "
    "common faq error errors"
)
_DEFINES = _set("api reference function functions method methods class classes signature parameters operations ops")
_DROPS = _set("license licence changelog contributing contributors acknowledgements citation toc contents footer")
_SIGNATURE = re.compile(r"^\s*(?:(?:async )?def |class |[\w.]+\()[^\n]*\)?", re.MULTILINE)
_HEADING = re.compile(r"^#+[^\n]*\n?")


@dataclass
class Imported:
    """Files of the DocSpec folder by relative path, and what could not be placed: (heading, line, reason)."""

    files: dict[str, str] = field(default_factory=dict)
    unplaced: list[tuple[str, int, str]] = field(default_factory=list)
    #: heading -> where it went
    placed: list[tuple[str, str]] = field(default_factory=list)

    def report(self) -> str:
        """Markdown: what went where, and what is left to a person."""
        lines = ["# Report of the import", "", "## Placed", ""]
        lines += [f"- {heading or 'the beginning'}: {where}" for heading, where in self.placed] or ["Nothing."]
        lines += ["", "## Not placed", ""]
        lines += [f"- {heading or 'the beginning'} (line {line}): {reason}" for heading, line, reason in self.unplaced]
        lines += [] if self.unplaced else ["Nothing."]
        return "\n".join([*lines, "", "Fill in spec.toml and run kernellab docs lint.", ""])


def import_raw(raw: str, dsl: str, *, framework: str = "torch", place: Place | None = None) -> Imported:
    """The DocSpec files for ``dsl`` from ``raw``: a ``.md`` or ``.html`` file, a folder of them, or ``python:MODULE``.

    Raises:
        DocumentError: nothing is there, the file is code and no document, or the module is not installed.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", dsl):
        raise DocumentError(f"{dsl!r} cannot name a DSL.", "Use lower-case letters, digits and underscores.")
    sections = [section for text in _texts(raw) for section in parse_page(text).sections]
    if not sections:
        raise DocumentError(f"{raw} holds no text.", "Give Markdown, HTML or python:MODULE.")
    found = Imported()
    parts: dict[str, list[str]] = {part: [] for part in PARTS}
    taken: set[str] = set()
    for section in sections:
        where, why = classify(section)
        if not where and place is not None:
            where, why = _asked(place, section)
        if where in PARTS:
            parts[where].append(_as_second_level(section))
        elif where == "examples":
            name = _free(_slug(section.title) or "example", taken)
            found.files[f"examples/{framework}/{name}.py"] = _example(section, name)
        elif where != "drop":
            found.unplaced.append((" / ".join(section.path), section.line, why))
            continue
        found.placed.append((" / ".join(section.path), where))
    module = _module(raw)
    for part in PARTS:
        body = "\n".join(parts[part]) or "Nothing of the raw documentation belongs here.\n"
        found.files[f"{part}.md"] = _without_unknown(f"# {dsl}: {part}\n\n{body}", module)
    found.files["spec.toml"] = spec_text(dsl, Like(frameworks=(framework,)), module)
    return found


def _module(raw: str) -> Module | None:
    """The installed module that the documentation is of, as code calls it."""
    if not raw.startswith("python:"):
        return None
    name = raw.removeprefix("python:")
    return Module(name, name.rpartition(".")[2])


def _without_unknown(text: str, module: Module | None) -> str:
    """``text`` without the roots of names that the installed module does not have: its docstrings may speak of parts
    that are imported apart."""
    if module is None:
        return text
    modules = {module.alias: module.name}
    for name in sorted(missing_names(modules, set(dotted(text, modules))), key=len, reverse=True):
        text = text.replace(name, name.rpartition(".")[2])
    return text


def classify(section: Section) -> tuple[str, str]:
    """The part that a section belongs to, or an empty word and the reason why the rules do not know."""
    body = _HEADING.sub("", section.text)
    if not body.strip():
        return "drop", "only a heading"
    heading = set(words(section.title))
    if heading & _DROPS:
        return "drop", "not of the language"
    if "(" in section.title or re.search(r"^[\w]+(?:\.\w+)+$", section.title.strip("` ")):
        return "api", ""
    if any(_is_program(block.text) for block in section.blocks if block.language in ("python", "py")):
        return ("examples", "") if not heading & (_INTRODUCES | _DEFINES) else ("basic", "")
    for wanted, part in ((_ADVISES, "suggestions"), (_DEFINES, "api"), (_INTRODUCES, "basic")):
        if heading & wanted:
            return part, ""
    outer = set(words(" ".join(section.path[:-1])))
    for wanted, part in ((_ADVISES, "suggestions"), (_DEFINES, "api"), (_INTRODUCES, "basic")):
        if outer & wanted:
            return part, ""
    signatures = sum(len(_SIGNATURE.findall(block.text)) for block in section.blocks)
    if signatures and re.search(r"\b(?:parameters?|arguments?|returns?|raises)\b", body, re.IGNORECASE):
        return "api", ""
    if section.level <= 1 and len(section.path) <= 1:
        return "basic", ""
    return "", "neither its heading nor the one above says what it is"


def _asked(place: Place, section: Section) -> tuple[str, str]:
    answer = place(prompt("place", text=section.text)).strip().lower().strip(".'\"`")
    if answer in (*PARTS, "drop") or (answer == "examples" and section.blocks):
        return answer, ""
    return "", f"the model answered {answer[:40]!r}"


def _is_program(text: str) -> bool:
    """A module that imports something and defines a function."""
    try:
        body = ast.parse(text).body
    except SyntaxError:
        return False
    imports = any(isinstance(node, (ast.Import, ast.ImportFrom)) for node in body)
    return imports and any(isinstance(node, ast.FunctionDef) for node in body)


def _as_second_level(section: Section) -> str:
    body = _HEADING.sub("", section.text).strip()
    named = operations_of(section.title)
    line = f"Sketch operations: {', '.join(named)}\n\n" if named and "Sketch operations:" not in body else ""
    return f"## {section.title or 'Introduction'}\n\n{line}{body}\n"


#: what DSLs call operations of the sketch language, where they call them otherwise
_CALLED = {
    "load": "load", "store": "store", "gemm": "gemm", "matmul": "dot", "mma": "gemm", "maximum": "max",
    "minimum": "min", "fmax": "max", "fmin": "min", "sum": "reduce_sum", "prod": "reduce_prod", "amax": "reduce_max",
    "amin": "reduce_min", "power": "pow", "fabs": "abs", "absolute": "abs", "negative": "neg", "logistic": "sigmoid",
    "select": "where", "swapaxes": "transpose", "broadcast_to": "broadcast", "concatenate": "concat",
    "astype": "cast", "take": "gather", "atomic_add": "atomic_add", "zeros": "alloc", "empty": "alloc",
}  # fmt: skip


def operations_of(heading: str) -> tuple[str, ...]:
    """The sketch's operations that a function is for, by its name: ``pl.load(ref, idx)`` loads."""
    name = re.match(r"[`\s]*(?:[\w]+\.)*(\w+)\s*\(", heading)
    word = name[1].lower() if name else ""
    known = _CALLED.get(word) or (word if word in OPS else "")
    return (known,) if known else ()


def _example(section: Section, name: str) -> str:
    program = next(b.text for b in section.blocks if b.language in ("python", "py"))
    title = section.title or name
    return f'"""{title}.\n\nfamily: FILL IN\ntask: FILL IN\n"""\n\n{program}'


def _slug(title: str) -> str:
    return "_".join(re.findall(r"[a-z0-9]+", title.lower()))[:40].strip("_")


def _free(name: str, taken: set[str]) -> str:
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    taken.add(free)
    return free


# -- reading -----------------------------------------------------------------------------------------------------------


def _texts(raw: str) -> list[str]:
    if raw.startswith("python:"):
        return [_docstrings(raw.removeprefix("python:"))]
    path = Path(raw)
    if path.is_dir():
        return [_text(file) for file in sorted(path.rglob("*")) if file.suffix.lower() in _DOCUMENTS]
    if not path.is_file():
        raise DocumentError(
            f"{raw} is neither a file nor a folder.", "Give Markdown, HTML, a folder of them, or python:MODULE."
        )
    # Markdown is often served as llms.txt
    if path.suffix.lower() not in (*_DOCUMENTS, ".txt"):
        remedy = f"For a module's docstrings give python:{path.stem}." if path.suffix == ".py" else "Convert it."
        raise DocumentError(f"{raw} is not a document: Markdown and HTML are read.", remedy)
    return [_text(path)]


def _text(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise DocumentError(f"{path} cannot be read as UTF-8 text.", "Convert it, or check the path.") from None
    return html_to_markdown(text) if path.suffix.lower() in (".html", ".htm") else text


def html_to_markdown(text: str) -> str:
    """The headings, paragraphs, lists, tables and code of an HTML page as Markdown."""
    from bs4 import BeautifulSoup

    soup = BeautifulSoup(text, "html.parser")
    for tag in soup(["script", "style", "nav", "header", "footer", "aside"]):
        tag.decompose()
    root = soup.find("main") or soup.find("article") or soup.body or soup
    lines: list[str] = []
    for tag in root.find_all(["h1", "h2", "h3", "h4", "p", "pre", "li", "dt", "dd", "tr"]):
        if tag.find_parent(["pre", "p", "li", "dt"]) is not None:
            continue
        if tag.name[0] == "h":
            lines += ["", f"{'#' * int(tag.name[1])} {tag.get_text(' ', strip=True).rstrip('#¶ ')}", ""]
        elif tag.name == "pre":
            language = " ".join(tag.get("class") or []) + str(tag.parent.get("class") if tag.parent else "")
            name = "python" if "python" in language or _is_program(tag.get_text()) else ""
            lines += ["", f"```{name}", tag.get_text().rstrip(), "```", ""]
        elif tag.name == "tr":
            lines.append(
                "| " + " | ".join(cell.get_text(" ", strip=True) for cell in tag.find_all(["td", "th"])) + " |"
            )
        elif tag.name == "dt":
            lines += ["", f"#### {tag.get_text(' ', strip=True).rstrip('¶ ')}", ""]
        else:
            lead = "- " if tag.name == "li" else ""
            lines.append(lead + " ".join(tag.get_text().split()))
    return "\n".join(lines) + "\n"


def _docstrings(module: str) -> str:
    """The functions and classes of an installed module as an API document."""
    try:
        offered = toolchain({module: module})
    except KernellabError as error:
        raise DocumentError(error.message, error.remedy) from None
    if offered.missing:
        raise DocumentError(f"The module {module} is not installed.", "Install it, or give Markdown or HTML.")
    lines, called = [f"# {module} API", ""], module.rpartition(".")[2]
    for name in offered.names.values():
        if name.signature and name.doc and name.name.count(".") <= module.count(".") + 1:
            spelled = name.name.replace(module, called, 1)
            lines += [f"## `{spelled}{name.signature}`", "", "```text", name.doc.replace("```", "'''"), "```", ""]
    return "\n".join(lines)
