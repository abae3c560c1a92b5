"""A real JupyterLab in the system's Chromium: enough to open a notebook, run its cells and click."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}


class Lab:
    """One page on one JupyterLab. ``outside`` holds requests to other hosts, ``faults`` the console's errors."""

    def __init__(self, page: Any, url: str, token: str, folder: str = "") -> None:
        self.page, self.url, self.token = page, url, token
        self._folder = f"{folder}/" if folder else ""
        self.outside: list[str] = []
        self.faults: list[str] = []
        page.on("request", lambda request: self._watch(request.url))
        page.on("console", lambda message: self.faults.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.faults.append(f"{error}\n{error.stack}"))

    def _watch(self, url: str) -> None:
        if not url.startswith((self.url, self.url.replace("http", "ws"), "data:", "blob:")):
            self.outside.append(url)

    def open(self, notebook: str) -> None:
        """Load the page on this notebook, and wait until its kernel is idle."""
        self.page.goto(f"{self.url}/lab/tree/{self._folder}{notebook}?reset&token={self.token}")
        self._ready(self._folder + notebook)

    def open_too(self, notebook: str) -> None:
        """Open another notebook beside those that are open; it is the one in front then."""
        path = self._folder + notebook
        # nothing is returned: the command's answer is a widget, with all that hangs on it
        opened = "async path => { await window.jupyterapp.commands.execute('docmanager:open', {path}); }"
        self.page.evaluate(opened, path)
        self._ready(path)

    def front(self, notebook: str) -> None:
        """Bring an open notebook to the front."""
        self.open_too(notebook)

    def other(self, notebook: str) -> Lab:
        """Another browser on the same server, with this notebook open."""
        page = self.page.context.browser.new_page(viewport=self.page.viewport_size)
        other = Lab(page, self.url, self.token, self._folder.rstrip("/"))
        page.goto(f"{self.url}/lab/workspaces/other/tree/{self._folder}{notebook}?reset&token={self.token}")
        other._ready(self._folder + notebook)
        return other

    def _ready(self, notebook: str) -> None:
        self.page.wait_for_function(f"{_PANEL}?.context?.path === {json.dumps(notebook)}", timeout=90_000)
        self.page.wait_for_function(f"{_PANEL}.sessionContext?.session?.kernel?.status === 'idle'", timeout=90_000)

    def run(self, index: int, timeout: float = 120) -> list[dict[str, Any]]:
        """Run one cell of the notebook in front, wait for its end, return its outputs."""
        cell = f"{_PANEL}.content.widgets[{index}]"
        self.page.evaluate(
            f"window.jupyterapp.shell.currentWidget.content.widgets[{index}].model.executionCount = null"
        )
        self.page.evaluate(f"window.jupyterapp.shell.currentWidget.content.activeCellIndex = {index}")
        self.page.evaluate("window.jupyterapp.commands.execute('notebook:run-cell')")
        done = f"{cell}.model.executionState === 'idle' && {cell}.model.executionCount"
        self.page.wait_for_function(done, timeout=timeout * 1000)
        found: list[dict[str, Any]] = self.page.evaluate(f"{cell}.model.outputs.toJSON()")
        return found

    def say(self, text: str, timeout: float = 120) -> list[dict[str, Any]]:
        """Run ``text`` in a new last cell of the notebook in front."""
        count = self.page.evaluate(f"{_PANEL}.content.widgets.length")
        self.page.evaluate(
            f"text => {_PANEL}.content.model.sharedModel.addCell({{cell_type: 'code', source: text}})", text
        )
        self.page.wait_for_function(f"{_PANEL}.content.widgets.length > {count}")
        return self.run(count, timeout)

    def save(self) -> None:
        self.page.evaluate("window.jupyterapp.commands.execute('docmanager:save')")
        self.page.wait_for_function(f"{_PANEL}.context.model.dirty === false")

    def reload(self) -> None:
        """Save, load the page again and wait for the notebook; the kernel goes on."""
        self.save()
        notebook = self.page.evaluate(f"{_PANEL}.context.path")
        self.page.reload()
        self._ready(notebook)

    def restart(self) -> None:
        """Restart the kernel of the notebook in front, without the dialog that asks."""
        self.page.evaluate(f"{_PANEL}.sessionContext.session.kernel.restart()")
        self.page.wait_for_function(f"{_PANEL}.sessionContext.session.kernel.status === 'idle'", timeout=90_000)

    def theme(self, name: str) -> None:
        self.page.evaluate(
            "theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})", THEMES[name]
        )
        light = "true" if name == "light" else "false"
        self.page.wait_for_selector(f"body[data-jp-theme-light='{light}']", state="attached")
        # the style sheet of the theme arrives after its mark
        ground = "parseInt(getComputedStyle(document.querySelector('.jp-Notebook')).backgroundColor.match(/\\d+/)[0])"
        self.page.wait_for_function(f"({ground} > 127) === {light}")
        # JupyterLab takes its splash away a little later, and stumbles when the next theme puts it up before
        self.page.wait_for_selector("#jupyterlab-splash", state="detached")


_PANEL = "window.jupyterapp?.shell?.currentWidget"


def notebook(root: Path, name: str, *cells: str) -> None:
    """Write a notebook of these code cells."""
    import nbformat

    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(book, root / name)


def clean(page: Lab) -> None:
    """Nothing was fetched from elsewhere, and the console has no error."""
    assert not page.outside, page.outside
    assert not page.faults, page.faults


def no_errors(outputs: list[dict[str, Any]]) -> None:
    """A cell ran through."""
    found = [output for output in outputs if output["output_type"] == "error"]
    assert not found, f"{found[0]['ename']}: {found[0]['evalue']}"


@dataclass
class Server:
    """A running JupyterLab over the folder ``root``; its log and a failed page's picture lie in ``home``."""

    url: str
    token: str
    root: Path
    home: Path

    def end_kernels(self) -> None:
        """Shut down what notebooks have started."""
        for session in self._ask("GET", "/api/sessions"):
            self._ask("DELETE", f"/api/sessions/{session['id']}")

    def _ask(self, method: str, path: str) -> Any:
        asked = urllib.request.Request(f"{self.url}{path}?token={self.token}", method=method)
        with urllib.request.urlopen(asked, timeout=30) as answer:
            body = answer.read()
        return json.loads(body) if body else None


@contextmanager
def page_on(server: Server, browser: Any, folder: str = "") -> Iterator[Lab]:
    """A fresh page; notebooks are named from ``folder`` on."""
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    try:
        yield Lab(page, server.url, server.token, folder)
    except BaseException:
        page.screenshot(path=server.home / "failed.png")
        raise
    finally:
        page.close()


@contextmanager
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def lab(root: Path, home: Path, **environment: str) -> Iterator[Lab]:
    """A page of a browser of its own on a JupyterLab of its own."""
    with served(root, home, **environment) as server, chromium() as browser, page_on(server, browser) as page:
        yield page


@contextmanager
def served(root: Path, home: Path, **environment: str) -> Iterator[Server]:
    """JupyterLab on 127.0.0.1 over the folder ``root``, its settings under ``home``; ended on leaving.

    ``root`` is a workspace of its own: the journals of the notebooks in it lie there.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = "browser-test"
    (root / "kernellab.toml").touch()
    settings = home / "config/lab/user-settings/@jupyterlab/apputils-extension"
    settings.mkdir(parents=True, exist_ok=True)
    (settings / "notification.jupyterlab-settings").write_text(json.dumps({"fetchNews": "false"}))
    # jupyter-collaboration keeps its table of documents there, and makes no folder for it
    (home / "data").mkdir(exist_ok=True)
    # the palette's commands, also where the package was installed before it had them
    extensions = home / "share/labextensions"
    extensions.mkdir(parents=True, exist_ok=True)
    (extensions / "kernellab").symlink_to(Path(__file__).parents[2] / "widgets/labextension")
    where = {
        "JUPYTER_PATH": str(home / "share"), "HOME": str(home),
        "JUPYTER_CONFIG_DIR": str(home / "config"), "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"), "IPYTHONDIR": str(home / "ipython"),
    }  # fmt: skip
    command = [
        sys.executable, "-m", "jupyter", "lab", "--no-browser", "--ip=127.0.0.1", f"--port={port}", "--port-retries=0",
        "--allow-root", f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={root}",
        "--LabApp.expose_app_in_browser=True", "--LabApp.extension_manager=readonly",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ]  # fmt: skip
    with open(home / "server.log", "w") as log:
        server = subprocess.Popen(command, env={**os.environ, **where, **environment}, stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_for(f"{url}/api/status?token={token}", server, home / "server.log")
        yield Server(url, token, root, home)
    finally:
        server.terminate()  # the server ends its kernels first
        server.wait(30)


def _wait_for(url: str, server: subprocess.Popen[bytes], log: Path, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            if server.poll() is not None:
                raise RuntimeError(f"JupyterLab ended: {log.read_text()[-2000:]}") from None
            time.sleep(0.2)
    raise TimeoutError(f"JupyterLab did not answer in {seconds:.0f} s: {log.read_text()[-2000:]}")
