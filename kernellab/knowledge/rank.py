"""BM25 over short documents (Robertson and Zaragoza 2009, eq. 3.15, with k1 = 1.2 and b = 0.75).

Thirty lines of our own: the packages for it are unmaintained or bring compiled dependencies, and a few hundred
sections need no index.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence

#: a number says nothing of what a text is about: -1 is an axis, 2 a power
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_K1, _B = 1.2, 0.75


def words(text: str) -> list[str]:
    """Lower-case words; an identifier also counts as its parts (``tl.atomic_add``: tl, atomic_add, atomic, add)."""
    result: list[str] = []
    for word in _WORD.findall(text):
        result.append(word.lower())
        parts = [part.lower() for part in _PART.findall(word)]
        if len(parts) > 1:
            result += parts
    return result


def scores(query: Iterable[str] | str, texts: Sequence[str]) -> list[float]:
    """The BM25 score of each text for ``query``; 0 where no word of it occurs."""
    query_words = set(words(query if isinstance(query, str) else " ".join(query)))
    counts = [Counter(words(text)) for text in texts]
    lengths = [sum(count.values()) for count in counts]
    mean = sum(lengths) / len(lengths) if lengths else 1.0
    weights = {}
    for word in query_words:
        seen = sum(word in count for count in counts)
        weights[word] = math.log(1 + (len(texts) - seen + 0.5) / (seen + 0.5))
    return [
        sum(
            weights[word] * count[word] * (_K1 + 1) / (count[word] + _K1 * (1 - _B + _B * length / (mean or 1.0)))
            for word in query_words
            if count[word]
        )
        for count, length in zip(counts, lengths, strict=True)
    ]
