"""Which monitor shows which run in this kernel, and where a candidate that is opened appears."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from kernellab.notebook.pages import on_page

if TYPE_CHECKING:
    from kernellab.evolve import Run
    from kernellab.notebook.monitor.monitor import Monitor

#: by run, and then by the thread whose page it belongs to
_MONITORS: dict[str, dict[threading.Thread, Monitor]] = {}
_PLACES: dict[str, Any] = {}


def monitor_of(run: Run) -> Monitor:
    """The run's one monitor on this page; displayed twice it is two views of the same."""
    from kernellab.notebook.monitor.monitor import Monitor

    return on_page(_MONITORS.setdefault(run.id, {}), lambda: Monitor(run, opened))


def known(run: str) -> Run | None:
    """The run with this id that this kernel shows already: the one that may work on it."""
    return next((found.run for found in _MONITORS.get(run, {}).values() if not found.closed), None)


def show(run: Run) -> None:
    """The monitor below the cell that runs now, and below it room for a candidate that is opened."""
    from IPython import get_ipython
    from IPython.display import display
    from ipywidgets import VBox  # type: ignore[import-untyped]

    display(monitor_of(run))
    if hasattr(get_ipython(), "kernel"):  # a terminal shows no widgets
        # a separate widget, whose children a page that is loaded again sees too; a display id would be forgotten
        place = _PLACES.setdefault(run.id, VBox())
        bundle = {**place._repr_mimebundle_(), "text/plain": ""}
        # JupyterLab's extension knows it for ours once its kernel has ended
        display(bundle, metadata={"kernellab": True}, raw=True)


def opened(run: Run, number: int) -> str:
    """Begin a session with a candidate, bind it to a variable, show it below the monitor; says where it is.

    Raises:
        EvolveError, SessionError.
    """
    from IPython import get_ipython

    from kernellab.notebook.board.registry import workbench_of

    name = f"{run.state.begun.name}_{number}"
    session = run.open(number, name)
    shell = get_ipython()
    if shell is not None:
        shell.user_ns[name] = session
    place = _PLACES.get(run.id)
    if place is not None:
        place.children = (workbench_of(session),)
        return f"Candidate {number} is the session {name}, below."
    return f"Candidate {number} is the session {name}: show it with %kernel_show {name}."
