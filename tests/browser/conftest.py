"""One JupyterLab and one Chromium for all tests of this folder; each test has a page and a workspace of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from lab import Lab, Server, chromium, page_on, served


class _Shared:
    """Begun by the first test that asks, ended with this folder's last: Playwright keeps an event loop in this thread,
    which other tests' own would run into."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self._browser: Any = None
        self._server: Server | None = None

    @property
    def browser(self) -> Any:
        if self._browser is None:
            self._browser = self._open.enter_context(chromium())
        return self._browser

    @property
    def server(self) -> Server:
        if self._server is None:
            folder = Path(self._open.enter_context(tempfile.TemporaryDirectory(prefix="kernellab-lab-")))
            for name in ("root", "home"):
                (folder / name).mkdir()
            self._server = self._open.enter_context(served(folder / "root", folder / "home"))
        return self._server

    def close(self) -> None:
        self._open.close()
        self.__init__()  # type: ignore[misc]


_shared = _Shared()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    if nextitem is None or nextitem.path.parent != item.path.parent:
        _shared.close()


@pytest.fixture(scope="module")
def browser() -> Any:
    """The Chromium."""
    return _shared.browser


@pytest.fixture
def workspace(request: pytest.FixtureRequest) -> Path:
    """The test's own folder on the JupyterLab: a workspace."""
    place = _shared.server.root / request.node.name
    place.mkdir()
    (place / "kernellab.toml").touch()
    return place


@pytest.fixture
def page(workspace: Path) -> Iterator[Lab]:
    """A page on the JupyterLab; notebooks are those of the test's workspace, and their kernels end with it."""
    with page_on(_shared.server, _shared.browser, workspace.name) as opened:
        yield opened
    _shared.server.end_kernels()
