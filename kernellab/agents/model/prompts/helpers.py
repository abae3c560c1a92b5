"""The helpers that come with lowered code, as one page of signatures that is read from their own text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from kernellab.models.tokens import estimate

#: a function or macro at the outermost level of a header, with the line of its template where it has one
_C = re.compile(
    r"^(?:template <(?P<parameters>[^\n]*)>[ \n])?(?:(?:KL_INLINE|inline|static inline|__device__[\w ]*)\s+"
    r"(?P<signature>[^\n{;]*?\b(?P<name>\w+)\([^{;]*?\))\s*(?:\{|;)|#define (?P<macro>(?P<word>KL_\w+)\([^)]*\)))",
    re.MULTILINE,
)
_PYTHON = re.compile(r"^def (?P<signature>(?P<name>\w+)\([^\n]*\)):", re.MULTILINE)
_BUDGET = 320
#: characters of a comment that is quoted whole
_SAID = 90
#: files of functions of single numbers
_NUMBERS = re.compile(r"_(math|special|half)\.")


def is_helper(name: str) -> bool:
    """Is the file one that comes with every lowered source of its language?"""
    return PurePosixPath(name).name.startswith("kl_")


def helpers_page(files: Mapping[str, str], main: str) -> str:
    """Signatures of the helpers that ``main`` calls, in about 450 tokens.

    ``files`` are a lowered source's, its helpers among them; empty where it has none. Helpers of tiles stand before
    those of numbers, and a comment gives way before a signature does.
    """
    used = set(re.findall(r"\b(?:kl::)?(\w+)\s*[(<]", main))
    called: dict[str, tuple[str, str]] = {}
    for file, text in sorted(files.items(), key=lambda item: (bool(_NUMBERS.search(item[0])), item[0])):
        if not is_helper(file):
            continue
        functions = _functions(file, text)
        for name, signature, said in functions:
            if name in used:
                called.setdefault(name, (f"{signature};", said))
    lines = _within([signature for signature, _ in called.values()], _BUDGET)
    left = _BUDGET - sum(estimate(line) + 1 for line in lines)
    for number, (_, said) in enumerate(list(called.values())[: len(lines)]):
        if said and (left := left - estimate(said) - 2) >= 0:
            lines[number] += f"  // {said}"
    return "\n".join(lines)


def _functions(file: str, text: str) -> list[tuple[str, str, str]]:
    """(name, signature, first sentence of the comment above it) of each function."""
    pattern = _PYTHON if file.endswith(".py") else _C
    found = []
    for match in pattern.finditer(text):
        parts = match.groupdict()
        name = parts["name"] or parts.get("word") or ""
        signature = " ".join((parts.get("signature") or parts.get("macro") or "").split())
        if parameters := _chosen(parts.get("parameters") or "", signature):
            signature = f"template <{parameters}> {signature}"
        found.append((name, signature, _comment(text[: match.start()])))
    return found


def _chosen(parameters: str, signature: str) -> str:
    """A template's parameters where a caller has to give one, for the arguments do not say it."""
    arguments = signature[signature.find("(") :]
    names = [part.split("=")[0].split()[-1].lstrip(".") for part in parameters.split(",") if part.strip()]
    return parameters if any(not re.search(rf"\b{name}\b", arguments) for name in names) else ""


def _comment(before: str) -> str:
    """The first sentence of the comment that ends where the function begins, or as much of a long one as can stand."""
    lines: list[str] = []
    for line in reversed(before.rstrip("\n").splitlines()):
        if not line.startswith(("// ", "# ")) or "--" in line:
            break
        lines.insert(0, line.lstrip("/# ").strip())
    if not lines:
        return ""
    said = re.split(r"(?<=[a-z\])])[.;] ", " ".join(lines).replace("``", "`"))[0].rstrip(".")
    if len(said) <= _SAID:
        return said
    # what follows a colon explains; else whole clauses
    found = re.search(r": ", said[:_SAID]) or re.search(r"[;,] (?!.*[;,] )", said[:_SAID])
    return said[: found.start()] if found else said


def _within(lines: list[str], budget: int) -> list[str]:
    kept: list[str] = []
    for line in lines:
        budget -= estimate(line) + 1
        if budget < 0:
            break
        kept.append(line)
    return kept
