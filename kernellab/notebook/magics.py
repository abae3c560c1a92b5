"""The magics: a person's words for what a session does.

They are synchronous; only asking for a result waits. Wrong arguments raise UsageError with the usage line; everything
else that can go wrong is a KernellabError, shown as a sentence and a remedy.
"""

from __future__ import annotations

from IPython.core.magic_arguments import MagicArgumentParser

from kernellab.notebook.magics_show import ShowMagics
from kernellab.notebook.magics_turns import TurnMagics
from kernellab.notebook.magics_work import WorkMagics

ALL = (WorkMagics, TurnMagics, ShowMagics)


def names(kind: str) -> list[str]:
    """The magics of ``kind``: line or cell."""
    return [name for magics in ALL for name in magics.names(kind)]


def parsers() -> dict[str, MagicArgumentParser]:
    """What each magic takes, by its name."""
    return {name: parser for magics in ALL for name, parser in magics.parsers().items()}
