"""Cutting long documents to what a sketch and an error need: by rule, and by a model where a caller gives one."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from kernellab.knowledge.pages import Section
from kernellab.knowledge.passage import tokens
from kernellab.knowledge.prompts import prompt
from kernellab.knowledge.rank import scores, words

#: a function from an instruction to a shorter text; what a model Coder's talk can be wrapped into
Shorten = Callable[[str], str]

#: a section that no one named is taken from this share of the best score on
_SHARE = 0.4


def cut(
    sections: Sequence[Section], names: Iterable[str], error: str = "", budget: int = 2000, keep_first: bool = False
) -> list[Section]:
    """The sections that ``names`` and ``error`` need, in the document's order, within ``budget`` tokens.

    A section that has a wanted name in its line ``Sketch operations: ...`` goes before one that has it in its heading,
    and that before one that only mentions it; BM25 orders the rest. ``keep_first`` keeps the introduction whatever it
    says. Nothing asked for, or nothing found, means the document from its beginning.
    """
    names = list(names)
    if not names and not error.strip():
        chosen = range(len(sections))
        order = list(chosen)
    else:
        found = scores([*names, error], [section.text for section in sections])
        wanted = {word for name in names for word in (name.lower(), name.lower().rpartition(".")[2])}
        wanted |= {word for word in words(error) if len(word) > 3}
        named = [_named(section, wanted) for section in sections]
        if any(named):  # then what others say matters for the error alone
            asked = scores(error, [section.text for section in sections])
            found = [own if name else other for own, other, name in zip(found, asked, named, strict=True)]
        least = _SHARE * max((f for f, name in zip(found, named, strict=True) if not name), default=0.0)
        order = sorted(range(len(sections)), key=lambda i: (-named[i], -found[i]))
        order = [i for i in order if named[i] or found[i] > least] or list(range(len(sections)))
        if keep_first and sections:
            order = [0, *(i for i in order if i != 0)]
    taken: list[int] = []
    left = budget
    for index in order:
        size = tokens(sections[index].text)
        if size <= left:
            taken.append(index)
            left -= size
    return [sections[index] for index in sorted(taken)]


def _named(section: Section, wanted: set[str]) -> int:
    """2 where the section is for one of the names, 1 where its heading has one (``load_module`` has load), else 0."""
    if wanted & listed(section):
        return 2
    return int(bool(wanted & set(words(section.title))))


def listed(section: Section) -> set[str]:
    """The sketch's operations that a section says it is for."""
    lines = [line for line in section.text.splitlines() if line.startswith("Sketch operations:")]
    return set(words(" ".join(line.partition(":")[2] for line in lines)))


def shorten(text: str, names: Iterable[str], error: str, model: Shorten, folder: Path, who: str = "") -> str:
    """``text`` cut by a model; the answer is kept by the hash of everything that it depends on.

    An answer that is empty or longer than the text is not used: the text itself is.
    """
    names = sorted(set(names))
    asked = prompt("shorten", names=", ".join(names) or "nothing named", error=error or "none", text=text)
    key = hashlib.sha256(json.dumps([asked, who]).encode()).hexdigest()[:24]
    path = folder / f"{key}.md"
    with suppress(OSError, UnicodeDecodeError):
        return path.read_text(encoding="utf-8")
    answer = model(asked)
    if not answer.strip() or tokens(answer) >= tokens(text):
        return text
    with suppress(OSError):  # a read-only home: asked again next time
        folder.mkdir(parents=True, exist_ok=True)
        scratch = path.with_suffix(f".{os.getpid()}")
        scratch.write_text(answer, encoding="utf-8")
        scratch.replace(path)
    return answer
