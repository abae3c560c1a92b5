"""Which page a widget belongs to: it is known to that one alone."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Protocol, TypeVar


class View(Protocol):
    @property
    def closed(self) -> bool: ...
    def close(self) -> None: ...


V = TypeVar("V", bound=View)


def on_page(views: dict[threading.Thread, V], make: Callable[[], V]) -> V:
    """The view among ``views`` that belongs to the page which asks, made where there is none; those of pages that are
    gone are closed. A kernel has one page, and displayed twice it is two views of the same widget."""
    for gone in [thread for thread in views if not thread.is_alive()]:
        views.pop(gone).close()
    page = _page()
    view = views.get(page)
    if view is None or view.closed:
        view = views[page] = make()
    return view


def _page() -> threading.Thread:
    """``marimo run`` serves all pages from one process, each by a separate thread."""
    marimo = sys.modules.get("marimo")
    if marimo is not None and marimo.running_in_notebook():
        return threading.current_thread()
    return threading.main_thread()
