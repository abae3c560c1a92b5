"""The magics: a person's words for what a session does.

They are synchronous; only asking for a result waits. Wrong arguments raise UsageError with the usage line; everything
else that can go wrong is a KernellabError, shown as a sentence and a remedy.
"""

from __future__ import annotations

import argparse
import difflib

from IPython.core.error import UsageError
from IPython.core.magic import magics_class
from IPython.core.magic_arguments import MagicArgumentParser, argument

from kernellab.notebook.magics.base import KernelMagic, help_of, line_command
from kernellab.notebook.magics.cells import WorkMagics
from kernellab.notebook.magics.evolve import EvolveMagics
from kernellab.notebook.magics.learn import LearnMagics
from kernellab.notebook.magics.lens import LensMagics
from kernellab.notebook.magics.memory import MemoryMagics
from kernellab.notebook.magics.model import WholeMagics
from kernellab.notebook.magics.show import ShowMagics
from kernellab.notebook.magics.turns import TurnMagics


@magics_class
class HelpMagics(KernelMagic):
    """The magics about the magics."""

    @line_command
    @argument(
        "magic",
        nargs="?",
        help="a magic, with or without kernel_; an operation of sketches; language: that language on one page",
    )
    def kernel_help(self, args: argparse.Namespace) -> None:
        """What each magic does, in a line; with a name its arguments, or the language's page on it."""
        all_parsers = parsers()
        if args.magic is None:
            print(described())
            return
        name = f"kernel_{args.magic.lstrip('%').removeprefix('kernel_')}"
        if name not in all_parsers:
            from kernellab.knowledge import Knowledge

            if page := Knowledge.load().of_language(args.magic):
                print(page)
                return
            matches = difflib.get_close_matches(name, all_parsers, 1)
            meant = f"; did you mean {matches[0]}?" if matches else ""
            reason = f"there is no magic and no operation {args.magic!r}{meant}"
            raise UsageError(f"{reason} (%kernel_help lists magics, %kernel_help language operations)")
        print(help_of(all_parsers[name], name in names("cell")))


ALL = (
    WorkMagics, TurnMagics, ShowMagics, LensMagics, EvolveMagics, MemoryMagics, WholeMagics, LearnMagics, HelpMagics,
)  # fmt: skip


def names(kind: str) -> list[str]:
    """The magics of ``kind``: line or cell."""
    return [name for magics in ALL for name in magics.names(kind)]


def parsers() -> dict[str, MagicArgumentParser]:
    """What each magic takes, by its name."""
    return {name: parser for magics in ALL for name, parser in magics.parsers().items()}


def described() -> str:
    """A line for each magic: how it is typed, and the first paragraph of its help."""
    lines = []
    all_parsers = parsers()
    for kind, mark in (("cell", "%%"), ("line", "%")):
        for name in names(kind):
            sentence = " ".join((all_parsers[name].description or "").split("\n\n")[0].split())
            lines.append(f"{mark + name:<18} {sentence}")
    return "\n".join([*lines, "", "%kernel_help NAME shows the arguments; most are methods of the session too."])
