"""How a Session and what it gives out look as a cell's last expression: as %kernel_show shows them."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.lib.pretty import RepresentationPrinter

    from kernellab.notebook.saved.receipt import Shown

_HTML, _TEXT = "text/html", "text/plain"


class Place(NamedTuple):
    """Where a class is defined."""

    module: str
    name: str


#: the function of ``receipt.py`` that shows an object, by the object's class. Both by name, so that loading the
#: extension imports none of them
_SHOWN_BY = {
    Place("kernellab.session.session", "Session"): "session_shown",
    Place("kernellab.session.record.render", "SketchText"): "sketch_shown",
    Place("kernellab.session.record.render", "Turns"): "turns_shown",
    Place("kernellab.session.record.render", "Candidates"): "candidates_shown",
    Place("kernellab.session.kernel", "BestKernel"): "best_shown",
    Place("kernellab.records.source", "Source"): "source_shown",
    Place("kernellab.records.verdict", "Verdict"): "verdict_shown",
}


def _show(function: str, value: Any) -> Shown:
    shown: Shown = getattr(import_module("kernellab.notebook.saved.receipt"), function)(value)
    return shown


def show_sessions(shell: InteractiveShell) -> None:
    formatters = shell.display_formatter.formatters  # type: ignore[union-attr]
    for place, function in _SHOWN_BY.items():
        formatters[_HTML].for_type_by_name(*place, func=lambda value, function=function: _show(function, value).html)
        formatters[_TEXT].for_type_by_name(*place, func=_as_text(function))


def forget_sessions(shell: InteractiveShell) -> None:
    for kind in (_HTML, _TEXT):
        formatter = shell.display_formatter.formatters[kind]  # type: ignore[union-attr]
        for place in _SHOWN_BY:
            formatter.deferred_printers.pop(place, None)
        for known in [known for known in formatter.type_printers if (known.__module__, known.__name__) in _SHOWN_BY]:
            formatter.pop(known)


def _as_text(function: str) -> Callable[[Any, RepresentationPrinter, bool], None]:
    def write(value: Any, printer: RepresentationPrinter, cycle: bool) -> None:
        for number, line in enumerate(_show(function, value).text.split("\n")):
            if number:
                printer.break_()
            printer.text(line)

    return write
