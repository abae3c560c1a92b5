"""What may be written at a place of a sketch: ``Completion`` of the protocol."""

from __future__ import annotations

import re

from kernellab.notebook.answers import Completion, CompletionKind
from kernellab.notebook.language.place import before, in_comment, names_in_sight, open_string
from kernellab.sketch.resolve.hints import AXES, LOOP_HINTS, MEMORY_HINTS
from kernellab.sketch.syntax.docs import DTYPES, HINTS, KEYWORDS, PRECISIONS, operations, sentence, signature
from kernellab.sketch.syntax.words import BLOCKS, DECLARATION, DECLARATIONS, ROLES

#: the word before the cursor
_WORD = re.compile(r"[\w.]*$")
#: what ends before the cursor: each pattern is of the text up to the word, or up to the string, that the cursor is in
_IN_PIN_MARK = re.compile(r"#:\s*\w*$")
_AFTER_SHAPE = re.compile(r"\]\s*:\s*$")  # "X[M, N]:"
_AFTER_DTYPE = re.compile(r"\]\s*:\s*\w+\s+$")  # "X[M, N]: f32 "
_BEFORE_DTYPE = re.compile(r"(?:dtype\s*=|alloc\([^()]*\]\s*,|cast\([^()]*,)\s*$")  # "dtype=", "cast(x, "
_IN_PRECISION = re.compile(r"precision\s*=\s*$")  # precision="
_IN_LOOP_HINT = re.compile(r"@llm_hint\s*\([^)]*$")  # @llm_hint("
_IN_MEMORY_HINT = re.compile(r"llm_hint\s*=\s*\[?[^\]]*$")  # llm_hint=["
_MOST = 200


def complete(text: str, line: int, col: int) -> list[Completion]:
    """Completions of the word before the cursor, the nearest names first; works on text that cannot be read."""
    head = before(text, line, col)
    match = _WORD.search(head)
    word = match[0] if match else ""
    before_string = open_string(head)
    if before_string is not None:
        entries = _in_string(before_string)
    elif in_comment(head):
        entries = _in_comment(head)
    else:
        entries = _in_code(text, line, head.removesuffix(word))
    return _matching(entries, word.lower())[:_MOST]


def _matching(entries: list[Completion], word: str) -> list[Completion]:
    """Those that begin with ``word``, then those that contain it, where it is longer than a letter."""
    starting = [entry for entry in entries if entry["label"].lower().startswith(word)]
    if len(word) < 2:
        return starting
    return [*starting, *(e for e in entries if word in e["label"].lower() and e not in starting)]


def _in_string(head: str) -> list[Completion]:
    if _IN_PRECISION.search(head):
        return [_entry(name, "keyword", info, "How the products may be computed.") for name, info in PRECISIONS.items()]
    if _IN_LOOP_HINT.search(head):
        return [_entry(name, "hint", "loop", HINTS[name]) for name in (*LOOP_HINTS, *AXES)]
    if _IN_MEMORY_HINT.search(head):
        return [_entry(name, "hint", "memory", HINTS[name]) for name in MEMORY_HINTS]
    return []


def _in_comment(head: str) -> list[Completion]:
    if not _IN_PIN_MARK.search(head):
        return []
    return [_entry("pin", "keyword", "#: pin", "An agent's revision may not change this line.")]


def _in_code(text: str, line: int, head: str) -> list[Completion]:
    if head.rstrip().endswith("@"):
        return [_entry("llm_hint", "keyword", "@llm_hint(...)", KEYWORDS["llm_hint"])]
    declaration = DECLARATION.match(head)
    if declaration and declaration[1] in ("tensors", "opaque"):
        if _AFTER_SHAPE.search(head):
            return _dtypes()
        if _AFTER_DTYPE.search(head):
            return [_entry(role, "keyword", "role of a tensor", KEYWORDS[role]) for role in ROLES]
    is_line_start = not head.strip()
    keywords = (*DECLARATIONS, *BLOCKS) if is_line_start else ("in", "range", "ceil")
    return [
        *(_dtypes() if _BEFORE_DTYPE.search(head) else []),
        *(_entry(n.text, "name", f"{n.kind}, line {n.line}", "") for n in names_in_sight(text, line)),
        *(_entry(name, "keyword", "", KEYWORDS[name]) for name in keywords),
        *(_entry(name, "operation", signature(name), sentence(name)) for name in operations()),
    ]


def _dtypes() -> list[Completion]:
    return [_entry(name, "type", info, "") for name, info in DTYPES.items()]


def _entry(label: str, kind: CompletionKind, detail: str, info: str) -> Completion:
    return {"label": label, "kind": kind, "detail": detail, "info": info, "insert": label}
