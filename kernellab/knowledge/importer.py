"""Raw documentation to the DocSpec form: Markdown, HTML, or an installed module's docstrings.

By rule: a section goes to ``api.md`` when its heading or text shows signatures, to ``suggestions.md`` when it advises,
to ``basic.md`` when it introduces; a program that stands alone becomes an example. A caller may give a model that names
the part of a section that the rules cannot place. What neither could place is kept in the report, with the reason.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kernellab import python_tree
from kernellab.knowledge.cut import OPERATIONS
from kernellab.knowledge.draft import Like, spec_text
from kernellab.knowledge.modules import PREFIX, Module, Offer, modules_of, offer, operations_of
from kernellab.knowledge.pages import DocumentError, Section, parse_page
from kernellab.knowledge.prompts import prompt
from kernellab.knowledge.rank import words
from kernellab.knowledge.toolchain import dotted, missing_names
from kernellab.operations.sketch import OPS

PARTS = ("basic", "api", "suggestions")
#: endings of the files that a folder is searched for
_DOCUMENTS = (".md", ".markdown", ".html", ".htm")
#: a function from a question to its answer: a word of PARTS, "examples" or "drop", or lines of functions' operations
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
#: the name of the function that a section's heading spells
_CALL = re.compile(r"## [`\s]*([\w.]+)\s*\(")
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
        return "\n".join([*lines, "", "Look over spec.toml, and run kernellab docs lint: it says what is missing.", ""])


def import_raw(raw: str, dsl: str, *, like: Like | None = None, place: Place | None = None) -> Imported:
    """The DocSpec files for ``dsl`` from ``raw``: a ``.md`` or ``.html`` file, a folder of them, or installed modules.

    Modules are written as an import is: ``python:jax.experimental.pallas as pl, jax.numpy as jnp``. The first is the
    DSL, told in full; of the others, what carries out an operation of a sketch. ``like`` is what the spec takes over
    where nothing else is known.

    Raises:
        DocumentError: nothing is there, the file is code and no document, or the module is not installed.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", dsl):
        raise DocumentError(f"{dsl!r} cannot name a DSL.", "Use lower-case letters, digits and underscores.")
    like = like or Like()
    framework = like.frameworks[0]
    modules = modules_of(raw)
    offered = offer(modules) if modules else None
    texts = [offered.text] if offered else _texts(raw)
    sections = [section for text in texts for section in parse_page(text).sections]
    if not sections:
        raise DocumentError(f"{raw} holds no text.", "Give Markdown, HTML or python:MODULE.")
    imported = Imported()
    parts: dict[str, list[str]] = {part: [] for part in PARTS}
    used: set[str] = set()
    for section in sections:
        where, why = classify(section)
        if not where and place is not None:
            where, why = _asked(place, section)
        if where in PARTS:
            parts[where].append(_as_second_level(section))
        elif where == "examples":
            name = _free(_slug(section.title) or "example", used)
            imported.files[f"examples/{framework}/{name}.py"] = _example(section, name)
        elif where != "drop":
            imported.unplaced.append((" / ".join(section.path), section.line, why))
            continue
        imported.placed.append((" / ".join(section.path), where))
    if place is not None:
        parts["api"] = _mapped(parts["api"], place)
    if offered:
        parts["basic"].insert(0, _introduction(offered, modules))
    for part in PARTS:
        # a page that says nothing is a page that lint asks for; suggestions may be missing
        if parts[part] or part != "suggestions":
            text = "\n".join([f"# {dsl}: {part}\n", *parts[part]])
            imported.files[f"{part}.md"] = _without_unknown(text, modules)
    imported.files["spec.toml"] = spec_text(dsl, like, modules, offered)
    return imported


def _mapped(sections: list[str], ask: Place) -> list[str]:
    """Sections of the API, those whose operations no name tells with the ones that a model names."""
    operations = {*OPS, "load", "store", "atomic_add", "gather", "scatter"}
    open_ = {
        match[1]: at for at, text in enumerate(sections) if OPERATIONS not in text and (match := _CALL.match(text))
    }
    if not open_:
        return sections
    heads = "\n".join(sections[at].partition("\n")[0].removeprefix("## ") for at in open_.values())
    mapped = list(sections)
    for line in ask(prompt("operations", operations=", ".join(sorted(operations)), functions=heads)).splitlines():
        name, _, words_ = line.strip(" -*`").partition(":")
        named = [word for word in re.findall(r"\w+", words_) if word in operations]
        at = open_.pop(name.strip(" `"), None)
        if at is not None and named:
            head, _, rest = sections[at].partition("\n")
            mapped[at] = f"{head}\n\n{OPERATIONS} {', '.join(named)}\n{rest}"
    return mapped


def _introduction(offered: Offer, modules: Sequence[Module]) -> str:
    """What can be said of a module by rule: its own words, how it is imported, what marks and launches kernels."""
    alias = modules[0].alias
    imports = "\n".join(f"import {m.name}" + (f" as {m.alias}" if m.alias != m.name else "") for m in modules)
    lines = ["## What it is", "", offered.introduction.strip(), "", f"```python\n{imports}\n```", ""]
    if offered.decorators:
        lines.append(f"Kernels are marked by {' or '.join(f'`@{alias}.{name}`' for name in offered.decorators)}.")
    if offered.launchers:
        lines.append(f"Kernels are launched by {' or '.join(f'`{alias}.{name}`' for name in offered.launchers)}.")
    return "\n".join([*lines, ""])


def _without_unknown(text: str, modules: Sequence[Module]) -> str:
    """``text`` without the roots of names that the installed modules do not have: docstrings may speak of parts that
    are imported apart."""
    by_alias = {module.alias: module.name for module in modules}
    for name in sorted(missing_names(by_alias, set(dotted(text, by_alias))), key=len, reverse=True):
        text = re.sub(rf"(?<![\w.]){re.escape(name)}\b", name.rpartition(".")[2], text)
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
    for pattern, part in ((_ADVISES, "suggestions"), (_DEFINES, "api"), (_INTRODUCES, "basic")):
        if heading & pattern:
            return part, ""
    outer = set(words(" ".join(section.path[:-1])))
    for pattern, part in ((_ADVISES, "suggestions"), (_DEFINES, "api"), (_INTRODUCES, "basic")):
        if outer & pattern:
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
        body = python_tree.parse(text).body
    except SyntaxError:
        return False
    imports = any(isinstance(node, (ast.Import, ast.ImportFrom)) for node in body)
    return imports and any(isinstance(node, ast.FunctionDef) for node in body)


def _as_second_level(section: Section) -> str:
    body = _HEADING.sub("", section.text).strip()
    named = operations_of(section.title)
    line = f"{OPERATIONS} {', '.join(named)}\n\n" if named and OPERATIONS not in body else ""
    return f"## {section.title or 'Introduction'}\n\n{line}{body}\n"


def _example(section: Section, name: str) -> str:
    program = next(b.text for b in section.blocks if b.language in ("python", "py"))
    title = section.title or name
    return f'"""{title}.\n\nfamily: FILL IN\ntask: FILL IN\n"""\n\n{program}'


def _slug(title: str) -> str:
    return "_".join(re.findall(r"[a-z0-9]+", title.lower()))[:40].strip("_")


def _free(name: str, used: set[str]) -> str:
    number, free = 1, name
    while free in used:
        number += 1
        free = f"{name}_{number}"
    used.add(free)
    return free


# -- reading -----------------------------------------------------------------------------------------------------------


def _texts(raw: str) -> list[str]:
    path = Path(raw)
    if path.is_dir():
        return [_text(file) for file in sorted(path.rglob("*")) if file.suffix.lower() in _DOCUMENTS]
    if not path.is_file():
        raise DocumentError(
            f"{raw} is neither a file nor a folder.", "Give Markdown, HTML, a folder of them, or python:MODULE."
        )
    # Markdown is often served as llms.txt
    if path.suffix.lower() not in (*_DOCUMENTS, ".txt"):
        remedy = f"For a module's docstrings give {PREFIX}{path.stem}." if path.suffix == ".py" else "Convert it."
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
