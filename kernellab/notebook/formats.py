"""How a Session looks as a cell's last expression: its lines as text, and the snapshot where there is HTML."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from kernellab.session import Session

_HTML = "text/html"
_PLACE = ("kernellab.session.session", "Session")


def show_sessions(shell: InteractiveShell) -> None:
    """By name, so that loading the extension does not import the session."""
    formatter = shell.display_formatter.formatters[_HTML]  # type: ignore[union-attr]
    formatter.for_type_by_name(*_PLACE, func=_html)


def forget_sessions(shell: InteractiveShell) -> None:
    formatter = shell.display_formatter.formatters[_HTML]  # type: ignore[union-attr]
    formatter.deferred_printers.pop(_PLACE, None)
    for kind in [kind for kind in formatter.type_printers if (kind.__module__, kind.__name__) == _PLACE]:
        formatter.pop(kind)


def _html(session: Session) -> str:
    from kernellab.notebook.snapshot import snapshot

    return snapshot(session.state)
