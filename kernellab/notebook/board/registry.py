"""Which workbench shows which session in this kernel, and what a notebook keeps of it."""

from __future__ import annotations

import contextvars
import threading
import weakref
from typing import TYPE_CHECKING, Any

from kernellab.notebook.pages import on_page
from kernellab.notebook.saved.snapshot import receipt
from kernellab.session.record.records import SessionStatus

if TYPE_CHECKING:
    from kernellab.notebook.board.workbench import Workbench
    from kernellab.session import Session
    from kernellab.session.record.state import State

#: a session's workbenches, each by the thread whose page it belongs to
_BENCHES: weakref.WeakKeyDictionary[Session, dict[threading.Thread, Workbench]] = weakref.WeakKeyDictionary()


def workbench_of(session: Session, teaching: bool = False) -> Workbench:
    """The session's one workbench on this page; displayed twice it is two views of the same."""
    from kernellab.notebook.board.workbench import Workbench

    return on_page(_BENCHES.setdefault(session, {}), lambda: Workbench(session, teaching))


def teach_all(on: bool) -> None:
    for benches in list(_BENCHES.values()):
        for bench in list(benches.values()):
            bench.teach(on)


class Receipt:
    """An output of the cell that began a session, empty until it ends: then what a reader without a kernel sees.

    It is updated by its display id, which works after the cell has ended and from any thread.
    """

    def __init__(self, session: Session) -> None:
        from IPython.display import DisplayHandle

        self._session = session
        self._drawn = ""
        self._handle = DisplayHandle(f"kernellab-receipt-{session.id}")
        self._end = session.subscribe(self._changed)

    def show(self) -> None:
        """Below the cell that runs now; shown twice it is updated in both places."""
        self._handle.display(self._bundle(self._session.state), raw=True)

    def _changed(self, session: Session) -> None:
        """On the engine thread, after every change: quick unless the session has just ended."""
        state = session.state
        if state.status is not SessionStatus.RUNNING:
            bundle = self._bundle(state)
            if bundle["text/html"] != self._drawn:
                self._drawn = bundle["text/html"]
                # in a separate context it is in answer to the cell that runs now: whoever executes the notebook
                # looks at no other's messages
                contextvars.Context().run(self._handle.update, bundle, raw=True)

    def _bundle(self, state: State) -> dict[str, Any]:
        # the same on every machine until there is something to keep
        html = "" if state.status is SessionStatus.RUNNING else receipt(state)
        return {"text/plain": "", "text/html": html}


_RECEIPTS: dict[str, Receipt] = {}


def keep_receipt(session: Session) -> None:
    """Show the receipt below the cell that runs now; only in a kernel, a terminal has no display ids."""
    from IPython import get_ipython

    if hasattr(get_ipython(), "kernel"):
        if session.id not in _RECEIPTS:
            _RECEIPTS[session.id] = Receipt(session)
        _RECEIPTS[session.id].show()
