"""Numbers in a source's text: sizes and thresholds that the kernel may treat as special.

A kernel can be wrong at one size or number alone. Where it compares with a number, names a tile or has a table, that
number stands in its text, so that sizes and contents are also drawn at these numbers and next to them.
"""

from __future__ import annotations

import re
from itertools import pairwise
from math import isfinite

from kernellab.records import Source

#: Characters of a file that are read.
_MOST = 1 << 18
#: An integer literal of Python or C++, not part of a name or a float, with an optional left shift.
_NUMBER = re.compile(
    r"(?<![\w.])(0[xX][0-9a-fA-F][0-9a-fA-F'_]{0,8}|\d[\d'_]{0,11})(?:[uU]?[lL]{0,2}|[lL]{1,2}[uU])(?![\w.])"
    r"(?: ?<< ?(\d{1,2})\b)?"
)


def numbers_of(source: Source) -> tuple[int, ...]:
    """Return the distinct integers in a source's text; those that are rarely tile sizes come first."""
    numbers = {
        int(n.replace("'", "").replace("_", "") or "0", 16 if n[:2] in ("0x", "0X") else 10) << int(by or 0)
        for text in source.files.values() for n, by in _NUMBER.findall(text[:_MOST])
    }  # fmt: skip
    usual = (10, 100, 1000, 32768)
    return tuple(sorted(numbers - {0, 1}, key=lambda n: (n < 10, n & (n - 1) == 0 or n in usual, n)))


#: A literal on either side of a comparison, or after ``case``.
_COMPARED = re.compile(
    r"(?:[=!]=|[<>]=?|\bcase\b)\s*(-?(?:\d[\d_']*(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)|"
    r"(?<![\w.])(-?(?:\d[\d_']*(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)(?=[fFlLuU]*\s*(?:[=!]=|[<>]=?))"
)


def compared_by(source: Source) -> tuple[float, ...]:
    """Return the distinct numbers with which a source's text compares something, where a branch may begin; 0 and 1 come
    last."""
    numbers = {
        float((behind or before).replace("'", "").replace("_", ""))
        for text in source.files.values() for behind, before in _COMPARED.findall(text[:_MOST])
    }  # fmt: skip
    return tuple(sorted((n for n in numbers if isfinite(n)), key=lambda n: (n in (0.0, 1.0), abs(n), n)))


#: Integers that stand together in brackets, as in the keys of a table or the values of an array.
_TOGETHER = re.compile(r"[(\[{]\s*(\d{1,9}(?:\s*,\s*\d{1,9}){1,7})\s*(?:,\s*)?[)\]}]")


def together_in(source: Source) -> tuple[tuple[int, int], ...]:
    """Return the pairs of integers that stand next to each other in brackets of a source, or that one line compares
    something with: a table, a select or a product may decide by two sizes at once, in code without a branch."""
    pairs: list[tuple[int, int]] = []
    for text in source.files.values():
        text = text[:_MOST]
        groups = [[int(n) for n in found.split(",")] for found in _TOGETHER.findall(text)]
        for line in text.splitlines():
            numbers = [n.replace("'", "").replace("_", "") for found in _COMPARED.findall(line) for n in found if n]
            groups.append([int(n) for n in numbers if n.isdecimal() and len(n) < 10])
        pairs += [pair for group in groups for pair in pairwise(group)]
    return tuple(dict.fromkeys(pairs))
