"""A piece of text that can say where it is from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Passage:
    """``source`` is a path under ``knowledge/``, or the module and version that a signature was read from."""

    title: str
    source: str
    text: str
    #: of a workspace's own document, that it is (:func:`kernellab.dsls.spec.whose`)
    whose: str = ""

    @property
    def heading(self) -> str:
        """The title as a role reads it."""
        return f"{self.title} ({self.whose})" if self.whose else self.title

    @property
    def place(self) -> str:
        """The source as a person reads it."""
        return f"{self.source} ({self.whose})" if self.whose else self.source

    @property
    def tokens(self) -> int:
        """An estimate, for budgets."""
        return tokens(self.text)


def tokens(text: str) -> int:
    """Tokens that ``text`` takes, estimated: code and English come to about three and a half characters each."""
    return -(-len(text) * 2 // 7)
