"""Tab completion for the magics: options, their values, and names of sessions.

argparse has no public interface to a parser's options, so that its private tables (``_actions``,
``_option_string_actions``) are read; tests/notebook/test_magics.py completes options by them.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from kernellab.notebook.magics.base import session_names
from kernellab.notebook.magics.evolve import WORDS
from kernellab.notebook.magics.table import parsers
from kernellab.options import entries
from kernellab.options.design import DesignCall

if TYPE_CHECKING:
    from IPython.core.completer import CompletionContext
    from IPython.core.interactiveshell import InteractiveShell

_NAME = "kernellab.notebook.magics.complete"
#: magics whose name is of a session that is not there yet
_NEW = ("kernel_design", "kernel_task")
#: what may stand in the name's place
_FIRST = {"kernel_evolve": WORDS}


def install(shell: InteractiveShell) -> None:
    from IPython.core.completer import SimpleCompletion, context_matcher

    remove(shell)

    @context_matcher(identifier=_NAME)
    def matcher(context: CompletionContext) -> dict[str, Any]:
        fragment = context.token
        words = candidates(shell, context.text_until_cursor)
        return {
            "completions": [SimpleCompletion(text=word, type="magic") for word in words if word.startswith(fragment)],
            "matched_fragment": fragment,
            "suppress": bool(words),
        }

    if shell.Completer is not None:
        shell.Completer.custom_matchers.append(matcher)


def remove(shell: InteractiveShell) -> None:
    if shell.Completer is not None:
        kept = [m for m in shell.Completer.custom_matchers if getattr(m, "matcher_identifier", "") != _NAME]
        shell.Completer.custom_matchers[:] = kept


def candidates(shell: InteractiveShell, line: str) -> list[str]:
    """Words that may follow ``line``, the text before the cursor on its line; none when it is not one of our magics."""
    head, *words = line.split(" ")
    name = head.lstrip("%")
    parser = parsers().get(name) if head.startswith("%") else None
    if parser is None or not words:
        return []
    before = words[-2] if len(words) > 1 else ""
    option = parser._option_string_actions.get(before)
    if option is not None and option.nargs != 0:
        return list(_values(option))
    positional = [action for action in parser._actions if not action.option_strings]
    given_count = len([word for word in words[:-1] if word and not word.startswith("-")])
    candidates_here = [text for text in parser._option_string_actions if text not in words[:-1]]
    if given_count == 0 and positional and positional[0].dest == "name" and name not in _NEW:
        candidates_here += [*session_names(shell), *_FIRST.get(name, ())]
    elif 0 < given_count < len(positional):
        candidates_here += _values(positional[given_count])
    return candidates_here


def _values(action: argparse.Action) -> list[str]:
    """The values that an option or argument may have, or examples of them."""
    if action.dest == "dsl":
        from kernellab.dsls import ADAPTERS

        return list(ADAPTERS)
    examples = next((e.option.examples for e in entries(DesignCall) if e.name == action.dest), ())
    return [str(choice) for choice in action.choices or examples]
