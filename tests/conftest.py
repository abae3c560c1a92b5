"""Shared by all rooms: tests never touch a person's workspace, GPU tests say why they are skipped, and of several
processes that run tests one has the machine to itself where a test times something or works all cores."""

from __future__ import annotations

import fcntl
import gc
import os
import shlex
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.breadth import BRIEFLY, NOTEBOOKS, PROVE_ONLY, ROWS, SHARES, everything, rows, seed, share_of_rows
from tests.rerun import SECONDS, SLOWEST, last_seconds

if TYPE_CHECKING:
    from kernellab.verifier import Verifier

# before torch is imported anywhere: two test machines' cores are enough for small shapes
os.environ.setdefault("OMP_NUM_THREADS", "2")
# NumPy's library of products waits for work in a loop
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

#: what needs all cores: its verdicts hang on its times or deadlines, it has several judges, or JupyterLab's patience
ALONE = (
    "bench/test_throughput.py",
    "browser/test_places.py",
    "browser/test_search.py",
    "browser/test_shared.py",
    "browser/test_story.py",
    "browser/test_two_tabs.py",
    "notebook/test_verify_cell.py",
    "teach/test_attack.py",
    "verifier/test_clock.py",
    "verifier/test_placement.py",
    "verifier/test_timing.py",
    "verifier/test_turns.py",
    "zoo/test_zoo.py",
)

#: where tests are about times: verdicts are timed as long as a person's
TIMED = ("verifier/", "zoo/", "gpu/", *ALONE)


def _has_gpu() -> bool:
    """Is there a GPU that this process may use? ``CUDA_VISIBLE_DEVICES=""`` hides all of them."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return False
    return any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/kfd").exists()


# without a GPU Triton can only interpret, and it reads this once, when it is imported
if not _has_gpu():
    os.environ.setdefault("TRITON_INTERPRET", "1")
    if find_spec("triton") is not None:
        from kernellab.dsls.interpreter import correct_interpreter

        correct_interpreter()


def pytest_configure(config: pytest.Config) -> None:
    run = getattr(config, "workerinput", {}).get("testrunuid")
    config.pluginmanager.register(_Turns(str(run), config) if run else _Seconds(config))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """All processes put the files in one order, by the seconds that each took in the last run of the log."""
    node.workerinput["seconds"] = last_seconds()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _take_shares(config, items)
    _put_in_order(items, getattr(config, "workerinput", {}).get("seconds"))
    if _has_gpu():
        return
    for item in items:
        if item.get_closest_marker("gpu") is not None:  # a parameter of that name needs none
            item.add_marker(pytest.mark.skip(reason="there is no GPU here"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is imported and collected stays: each search for garbage among it takes a second."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    gc.unfreeze()


def _take_shares(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves a share of the broad tests, unless all are asked for or one is named (``FILE::TEST``)."""
    if everything() or any("::" in argument for argument in config.args):
        return
    named: dict[int, list[str]] = {}
    for item in items:
        if hasattr(item, "callspec") and _path(item) in ROWS:
            most = ROWS.get(f"{_path(item)}::{item.name.partition('[')[0]}", ROWS[_path(item)])
            named.setdefault(most, []).append(item.nodeid)
    drawn = {name for most, names in named.items() for name in rows(names, seed(), most)}
    broad: dict[int, list[str]] = {}
    for item in items:
        if hasattr(item, "callspec") and _path(item) not in ROWS:
            broad.setdefault(SHARES.get(_path(item), 1), []).append(item.nodeid)
    drawn |= {name for parts, names in broad.items() for name in share_of_rows(names, seed(), parts)}
    spared = [_is_spared(item, drawn) for item in items]
    if any(spared):
        config.hook.pytest_deselected(items=[item for item, is_spared in zip(items, spared, strict=True) if is_spared])
        items[:] = [item for item, is_spared in zip(items, spared, strict=True) if not is_spared]


def _put_in_order(items: list[pytest.Item], seconds: dict[str, float] | None) -> None:
    """In several processes the longest files come first, so that none is left with one at the end; those that run alone
    come last, when no other file is left to wait for them. A file without a record counts by its tests."""
    if seconds is None:
        return
    counts = Counter(_file(item) for item in items)
    items.sort(key=lambda item: (_is_alone(item), -seconds.get(_file(item), counts[_file(item)] / 2), _file(item)))


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _is_notebook(item: pytest.Item) -> bool:
    return item.path.suffix == ".ipynb"


def _is_spared(item: pytest.Item, drawn: set[str]) -> bool:
    if _is_notebook(item):
        return item.path.stem not in NOTEBOOKS
    if f"{_path(item)}::{item.name.partition('[')[0]}" in PROVE_ONLY:
        return True
    if not hasattr(item, "callspec"):
        return False
    return (_path(item) in ROWS or SHARES.get(_path(item), 1) > 1) and item.nodeid not in drawn


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Before all fixtures: those of a module or session make verdicts too."""
    from kernellab.verifier.protocol.options import VerifyOptions
    from kernellab.verifier.protocol.rules import TIMING

    budget = VerifyOptions.model_fields["budget"]
    seconds = TIMING.budget if _path(item).startswith(TIMED) else BRIEFLY
    if budget.default != seconds:
        budget.default = seconds
        VerifyOptions.model_rebuild(force=True)
    return (yield)


@pytest.fixture(scope="session")
def verifier() -> Iterator[Verifier]:
    """One warm judge for all tests of a process that only ask for verdicts."""
    from kernellab.verifier import Verifier

    with Verifier() as made:
        yield made


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A failing test names what to run alone."""
    failed = [report.nodeid for kind in ("failed", "error") for report in terminalreporter.stats.get(kind, [])]
    for name in dict.fromkeys(failed):
        terminalreporter.write_line(f"run it alone: .venv/bin/python -m pytest {shlex.quote(name)}")


class _Seconds:
    """Keeps the seconds of each file, of the slowest tests, and those that processes waited for their turns."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.files: Counter[str] = Counter()
        self.tests: Counter[str] = Counter()
        self.waited = 0.0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.files[report.nodeid.partition("::")[0]] += report.duration
        self.tests[report.nodeid] += report.duration

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.waited += getattr(node, "workeroutput", {}).get("waited", 0.0)

    def pytest_sessionfinish(self) -> None:
        cache = getattr(self.config, "cache", None)
        if cache is not None:
            files = {name: round(seconds, 1) for name, seconds in self.files.most_common() if seconds >= 0.1}
            tests = {name: round(seconds, 1) for name, seconds in self.tests.most_common(SLOWEST)}
            cache.set(SECONDS, {"files": files, "tests": tests, "waited": round(self.waited)})


class _Turns:
    """Lets the tests of several processes run side by side, but for those that are to run alone.

    Two locked files: all share the room but who is alone in it, and who comes next waits at the gate, so that one who
    wants to be alone is not passed by for ever. A process that ends gives both back.
    """

    def __init__(self, run: str, config: pytest.Config) -> None:
        self.config, self.waited = config, 0.0
        folder = Path(tempfile.gettempdir())
        self.gate, self.room = ((folder / f"kernellab-tests-{run}.{name}").open("w") for name in ("gate", "room"))
        self.inside = False

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
        alone = _is_alone(item)
        if not self.inside:
            began = time.monotonic()
            fcntl.flock(self.gate, fcntl.LOCK_EX)
            fcntl.flock(self.room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
            fcntl.flock(self.gate, fcntl.LOCK_UN)
            self.waited += time.monotonic() - began
        try:
            return (yield)
        finally:
            # a file's fixtures may go on working between its tests
            self.inside = alone and nextitem is not None and nextitem.path == item.path
            if not self.inside:
                fcntl.flock(self.room, fcntl.LOCK_UN)

    def pytest_sessionfinish(self) -> None:
        self.config.workeroutput["waited"] = self.waited  # type: ignore[attr-defined]
        for file in (self.gate, self.room):
            Path(file.name).unlink(missing_ok=True)


def _is_alone(item: pytest.Item) -> bool:
    return _path(item).startswith(ALONE)


def _path(item: pytest.Item) -> str:
    """The test's file below this folder; "" for a notebook elsewhere."""
    here = Path(__file__).parent
    return item.path.relative_to(here).as_posix() if item.path.is_relative_to(here) else ""
