"""How a Session and what it gives out look as a cell's last expression: as %kernel_show shows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.lib.pretty import RepresentationPrinter

    from kernellab.notebook.saved.receipt import Shown
    from kernellab.records import Source, Verdict
    from kernellab.session import BestKernel, Session
    from kernellab.session.record.render import Candidates, SketchText, Turns

_HTML, _TEXT = "text/html", "text/plain"


def _session(session: Session) -> Shown:
    from kernellab.notebook.saved.receipt import Shown
    from kernellab.notebook.saved.snapshot import snapshot

    return Shown(repr(session), snapshot(session.state))


def _sketch(text: SketchText) -> Shown:
    from kernellab.notebook.saved.receipt import sketch_shown

    return sketch_shown(text)


def _source(source: Source) -> Shown:
    from kernellab.notebook.saved.receipt import source_shown

    return source_shown(source)


def _verdict(verdict: Verdict) -> Shown:
    from kernellab.notebook.saved.receipt import verdict_shown

    return verdict_shown(verdict)


def _turns(turns: Turns) -> Shown:
    from kernellab.notebook.saved.receipt import turns as shown

    return shown(turns.state)


def _candidates(candidates: Candidates) -> Shown:
    from kernellab.notebook.saved.receipt import candidates_shown

    return candidates_shown(candidates)


def _best(best: BestKernel) -> Shown:
    from kernellab.notebook.saved.receipt import best_shown

    return best_shown(best)


#: by module and name, so that loading the extension imports none of them
_SHOWN: dict[tuple[str, str], Callable[[Any], Shown]] = {
    ("kernellab.session.session", "Session"): _session,
    ("kernellab.session.record.render", "SketchText"): _sketch,
    ("kernellab.session.record.render", "Turns"): _turns,
    ("kernellab.session.record.render", "Candidates"): _candidates,
    ("kernellab.session.kernel", "BestKernel"): _best,
    ("kernellab.records", "Source"): _source,
    ("kernellab.records", "Verdict"): _verdict,
}


def show_sessions(shell: InteractiveShell) -> None:
    formatters = shell.display_formatter.formatters  # type: ignore[union-attr]
    for place, shown in _SHOWN.items():
        formatters[_HTML].for_type_by_name(*place, func=lambda value, shown=shown: shown(value).html)
        formatters[_TEXT].for_type_by_name(*place, func=_as_text(shown))


def forget_sessions(shell: InteractiveShell) -> None:
    for kind in (_HTML, _TEXT):
        formatter = shell.display_formatter.formatters[kind]  # type: ignore[union-attr]
        for place in _SHOWN:
            formatter.deferred_printers.pop(place, None)
        for known in [known for known in formatter.type_printers if (known.__module__, known.__name__) in _SHOWN]:
            formatter.pop(known)


def _as_text(shown: Callable[[Any], Shown]) -> Callable[[Any, RepresentationPrinter, bool], None]:
    def write(value: Any, printer: RepresentationPrinter, cycle: bool) -> None:
        for number, line in enumerate(shown(value).text.split("\n")):
            if number:
                printer.break_()
            printer.text(line)

    return write
