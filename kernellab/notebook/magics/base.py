"""What every magic shares: parsed arguments, help, errors as a sentence, and which session is meant."""

from __future__ import annotations

import argparse
import builtins
import difflib
import functools
import keyword
import sys
from collections.abc import Callable
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, line_cell_magic, line_magic, no_var_expand
from IPython.core.magic_arguments import MagicArgumentParser, magic_arguments, parse_argstring

from kernellab.errors import KernellabError, SessionError
from kernellab.models.budget import Limits
from kernellab.notebook.magics.config import KernelLab
from kernellab.notebook.warm import wait_for_imports

if TYPE_CHECKING:
    from collections.abc import Iterator

    from IPython.core.interactiveshell import InteractiveShell

    from kernellab.session import Session

ONE = "the session; may be left out when there is only one"


def _command(kind: Callable[..., Any], body: Callable[..., Any]) -> Any:
    """``body(self, args[, cell])`` gets parsed arguments; ``--help`` prints them; errors come without a traceback."""

    @functools.wraps(body)
    def run(self: KernelMagic, line: str, cell: str | None = None) -> Any:
        if "--help" in line.split():
            print(help_of(run.parser, cell is not None))  # type: ignore[attr-defined]
            return None
        try:
            args = parse_argstring(run, line)
        except UsageError as error:
            raise UsageError(_usage_of(str(error), run.parser, cell is not None)) from None  # type: ignore[attr-defined]
        wait_for_imports()
        with self.errors():
            return body(self, args) if cell is None else body(self, args, cell)

    return no_var_expand(kind(magic_arguments()(run)))


line_command = functools.partial(_command, line_magic)
cell_command = functools.partial(_command, cell_magic)
line_cell_command = functools.partial(_command, line_cell_magic)


def _usage_of(fault: str, parser: MagicArgumentParser, in_cell: bool) -> str:
    """What is wrong with the arguments, what may be meant, and where no value is at fault the usage line."""
    options = [option for action in parser._actions for option in action.option_strings]
    suggestions = [
        match[0]
        for word in fault.split()
        if word.startswith("--") and word.rstrip(":") not in options
        for match in [_near(word, options)]
        if match
    ]
    hint = f" Did you mean {suggestions[0]}?" if suggestions else ""
    usage = _typed(parser.format_usage(), in_cell)
    if fault.startswith("argument "):  # argparse names the one whose value is wrong
        usage = f"{usage.split()[0]} --help says what each option takes."
    return f"{fault}{hint}\n{usage}"


def _near(word: str, options: list[str]) -> list[str]:
    """What an unknown option may mean: a limit of the budget, or an option of nearly that name."""
    if "--budget" in options and word.removeprefix("--") in Limits.__dataclass_fields__:
        return [f"--budget {word.removeprefix('--')}=N"]
    return difflib.get_close_matches(word, options, 1, 0.7)


def help_of(parser: MagicArgumentParser, in_cell: bool) -> str:
    """What the magic does and takes, as it is typed."""
    return _typed(parser.format_help(), in_cell)


def _typed(help_text: str, in_cell: bool) -> str:
    """IPython begins the help of a magic with the mark of a literal block, and writes one % before a cell's magic."""
    text = help_text.removeprefix("::").strip()
    return text.replace("%", "%%", 1) if in_cell and not text.startswith("%%") else text


class KernelMagic(Magics):
    """``lab`` holds the options that a cell does not say."""

    def __init__(self, shell: InteractiveShell, lab: KernelLab) -> None:
        super().__init__(shell)
        self.lab = lab

    @property
    def namespace(self) -> dict[str, Any]:
        return cast("dict[str, Any]", cast("InteractiveShell", self.shell).user_ns)

    def session(self, name: str | None) -> Session:
        """The session bound to ``name``; without a name the only one.

        Raises:
            SessionError: there is none, or there are several; the sentence names those there are.
        """
        from kernellab.session import Session, sessions

        names = session_names(cast("InteractiveShell", self.shell))
        if name is None and len(names) == 1:
            name = names[0]
        value = self.namespace.get(name) if name else None
        if isinstance(value, Session):
            return value
        there = f"Choose one of {', '.join(names)}." if names else "Design one with %%kernel_design NAME."
        wanted = f"There is no session {name!r} here." if name else "Say which session."
        with suppress(KernellabError):
            if name in {known.rpartition("-")[0] for known in sessions()}:
                there = f"This folder's journal has it: import kernellab; {name} = kernellab.open_session({name!r})"
        raise SessionError(wanted, there)

    def check_name(self, name: str) -> None:
        """May a magic bind ``name``? What a person or Python has under it is never replaced; what a magic bound is.

        Raises:
            UsageError: it is no identifier, a word or function of Python's, or a variable that holds something else.
        """
        if not name.isidentifier() or keyword.iskeyword(name):
            raise UsageError(f"{name!r} cannot name a variable: use letters, digits and _, and begin with a letter")
        if hasattr(builtins, name):
            raise UsageError(f"{name!r} is a name of Python's: choose another, such as {name}_kernel")
        if name in self.namespace and not type(self.namespace[name]).__module__.startswith("kernellab."):
            kind = type(self.namespace[name]).__name__
            raise UsageError(f"the variable {name!r} holds a {kind} of yours: choose another name, or del {name}")

    def show_live(self, session: Session) -> None:
        from IPython.display import display

        from kernellab.notebook.board.registry import workbench_of

        display(workbench_of(session, self.lab.teaching))

    def next_cell(self, text: str) -> None:
        """Put a cell with ``text`` below the one that runs now."""
        cast("InteractiveShell", self.shell).set_next_input(text)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Within it a KernellabError renders as a sentence, or as a traceback when ``verbose`` is set."""
        try:
            yield
        except KernellabError as error:
            if self.lab.verbose and self.shell is not None:
                trace = self.shell.InteractiveTB.structured_traceback(type(error), error, error.__traceback__)
                error._render_traceback_ = lambda: trace  # type: ignore[method-assign]
            raise

    @classmethod
    def names(cls, kind: str) -> list[str]:
        """The magics of ``kind``: line or cell."""
        return list(cls.magics[kind])

    @classmethod
    def parsers(cls) -> dict[str, MagicArgumentParser]:
        return {name: getattr(cls, name).parser for kind in ("line", "cell") for name in cls.names(kind)}


def positive(text: str) -> int:
    """An argument's type: a whole number from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def session_names(shell: InteractiveShell) -> list[str]:
    if "kernellab.session" not in sys.modules:  # nothing can be one yet, and a Tab must not import it
        return []
    from kernellab.session import Session

    return [name for name, value in shell.user_ns.items() if isinstance(value, Session) and name[0] != "_"]


def counted_as_shown(cell: str) -> str:
    """The cell's text with an empty line for the magic's own, so that line numbers are those shown at the cell."""
    return f"\n{cell}"
