"""What may be written at a place of a sketch: ``Completion`` of the protocol."""

from __future__ import annotations

import re

from kernellab.notebook.answers import Completion, CompletionKind
from kernellab.notebook.language.place import before, in_comment, names_in_sight, open_string
from kernellab.sketch.resolve.hints import AXES, LOOP_HINTS, MEMORY_HINTS
from kernellab.sketch.syntax.docs import DTYPES, HINTS, KEYWORDS, PRECISIONS, operations, sentence, signature
from kernellab.sketch.syntax.words import BLOCKS, DECLARATION, DECLARATIONS, ROLES

_WORD = re.compile(r"[\w.]*$")
_MOST = 200


def complete(text: str, line: int, col: int) -> list[Completion]:
    """Completions of the word before the cursor, the nearest names first; works on text that cannot be read."""
    head = before(text, line, col)
    match = _WORD.search(head)
    word = match[0] if match else ""
    outside = open_string(head)
    if outside is not None:
        entries = _in_string(outside)
    elif in_comment(head):
        entries = [_entry("pin", "keyword", "#: pin", "An agent's revision may not change this line.")]
        entries = entries if re.search(r"#:\s*\w*$", head) else []
    else:
        entries = _in_code(text, line, head[: len(head) - len(word)])
    low = word.lower()
    starts = [c for c in entries if c["label"].lower().startswith(low)]
    inside = [c for c in entries if low in c["label"].lower() and c not in starts] if len(low) > 1 else []
    return [*starts, *inside][:_MOST]


def _in_string(outside: str) -> list[Completion]:
    if re.search(r"precision\s*=\s*$", outside):
        return [_entry(name, "keyword", info, "How the products may be computed.") for name, info in PRECISIONS.items()]
    if re.search(r"@llm_hint\s*\([^)]*$", outside):
        return [_entry(name, "hint", "loop", HINTS[name]) for name in (*LOOP_HINTS, *AXES)]
    if re.search(r"llm_hint\s*=\s*\[?[^\]]*$", outside):
        return [_entry(name, "hint", "memory", HINTS[name]) for name in MEMORY_HINTS]
    return []


def _in_code(text: str, line: int, head: str) -> list[Completion]:
    if head.rstrip().endswith("@"):
        return [_entry("llm_hint", "keyword", "@llm_hint(...)", KEYWORDS["llm_hint"])]
    declaration = DECLARATION.match(head)
    if declaration and declaration[1] in ("tensors", "opaque"):
        if re.search(r"\]\s*:\s*$", head):
            return _dtypes()
        if re.search(r"\]\s*:\s*\w+\s+$", head):
            return [_entry(role, "keyword", "role of a tensor", KEYWORDS[role]) for role in ROLES]
    dtypes = _dtypes() if re.search(r"(?:dtype\s*=|alloc\([^()]*\]\s*,|cast\([^()]*,)\s*$", head) else []
    names = [_entry(n.text, "name", f"{n.kind}, line {n.line}", "") for n in names_in_sight(text, line)]
    functions = [_entry(name, "operation", signature(name), sentence(name)) for name in operations()]
    words = (*DECLARATIONS, *BLOCKS) if not head.strip() else ("in", "range", "ceil")
    keywords = [_entry(name, "keyword", "", KEYWORDS[name]) for name in words]
    return [*dtypes, *names, *keywords, *functions]


def _dtypes() -> list[Completion]:
    return [_entry(name, "type", info, "") for name, info in DTYPES.items()]


def _entry(label: str, kind: CompletionKind, detail: str, info: str) -> Completion:
    return {"label": label, "kind": kind, "detail": detail, "info": info, "insert": label}
