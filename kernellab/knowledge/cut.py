"""Cuts a document to the sections that names and an error need, within a budget of tokens.

A section states the sketch's operations that it is for in a line ``Sketch operations: load, store``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kernellab.knowledge.pages import Section
from kernellab.knowledge.passage import tokens
from kernellab.knowledge.rank import scores, words

OPERATIONS = "Sketch operations:"
#: Share of the best score from which a section that no name asks for is taken: chosen, not measured.
_LEAST_SHARE = 0.4
#: Minimum length of an error's word that counts as a name.
_SHORTEST_WORD = 4


@dataclass(frozen=True)
class _Ranked:
    """A section's rank: ``match`` by names (:func:`_match`), ``score`` by BM25."""

    index: int
    match: int
    score: float


def cut(
    sections: Sequence[Section], names: Iterable[str], error: str = "", budget: int = 2000, keep_first: bool = False
) -> list[Section]:
    """The sections that ``names`` and ``error`` need, in the document's order, within ``budget`` tokens.

    A section that has a wanted name in its line of operations goes before one that has it in its heading, and that
    before one that only mentions it; BM25 orders the rest. ``keep_first`` keeps the introduction whatever it says.
    Nothing asked for, or nothing found, means the document from its beginning.
    """
    order = list(range(len(sections)))
    wanted = list(names)
    if wanted or error.strip():
        order = _ranked(sections, wanted, error) or order
        if keep_first and sections:
            order = [0, *(index for index in order if index != 0)]
    chosen: list[int] = []
    tokens_left = budget
    for index in order:
        size = tokens(sections[index].text)
        if size <= tokens_left:
            chosen.append(index)
            tokens_left -= size
    return [sections[index] for index in sorted(chosen)]


def _ranked(sections: Sequence[Section], names: Sequence[str], error: str) -> list[int]:
    """The indices of the sections that names and an error need, the most needed first."""
    texts = [section.text for section in sections]
    wanted = {word for name in names for word in (name.lower(), name.lower().rpartition(".")[2])}
    wanted |= {word for word in words(error) if len(word) >= _SHORTEST_WORD}
    matches = [_match(section, wanted) for section in sections]
    by_all = scores([*names, error], texts)
    # where a section has a name, what others say matters for the error alone
    by_error = scores(error, texts) if any(matches) else by_all
    ranked = [_Ranked(index, match, by_all[index] if match else by_error[index]) for index, match in enumerate(matches)]
    least_score = _LEAST_SHARE * max((row.score for row in ranked if not row.match), default=0.0)
    ranked.sort(key=lambda row: (-row.match, -row.score))
    return [row.index for row in ranked if row.match or row.score > least_score]


def _match(section: Section, wanted: set[str]) -> int:
    """2 where the section is for one of the names, 1 where its heading has one (``load_module`` has load), else 0."""
    if wanted & operation_words(section):
        return 2
    return int(bool(wanted & set(words(section.title))))


def operation_words(section: Section) -> set[str]:
    """The words of the sketch's operations that a section says it is for, parts of names among them."""
    return set(words(" ".join(operations_of_section(section))))


def operations_of_section(section: Section) -> list[str]:
    """The sketch's operations that a section says it is for, as they are written."""
    lines = [line for line in section.text.splitlines() if line.startswith(OPERATIONS)]
    return [name.strip() for line in lines for name in line.partition(":")[2].split(",")]
