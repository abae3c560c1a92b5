"""A kernel as a test of a person's own suite::

    import kernellab.pytest

    @kernellab.pytest.kernel(task="softmax_task.py", min_speedup=1.0, lock="kernels.lock")
    def test_softmax():
        return "softmax.py"

The function returns the path of the kernel, a capsule or an exported module (``task`` is for a kernel alone). Paths are
relative to the test's file. It fails with one line where the kernel is wrong or too slow, and is skipped with the
reason where this machine cannot check it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def kernel(
    task: str | Path | None = None, *, min_speedup: float | None = None, lock: str | Path | None = None, **options: Any
) -> Callable[[Callable[..., str | Path]], Callable[..., None]]:
    """A test that verifies the kernel whose path the function returns.

    Args:
        task: the task's file; by default the one that ``kernellab check`` would find next to the kernel.
        min_speedup: the speedup over eager below which it fails, where the whole interval lies below.
        lock: accepted figures, as ``kernellab check --lock`` records them.
        options: as of ``kernellab verify``: level, allow_library, precision, repeat, unsandboxed.
    """

    def decorate(function: Callable[..., str | Path]) -> Callable[..., None]:
        folder = Path(function.__code__.co_filename).parent

        @functools.wraps(function)
        def test(*args: Any, **kwargs: Any) -> None:
            files = [None if one is None else folder / one for one in (task, lock)]
            lines, skipped = _answers(folder / function(*args, **kwargs), files[0], min_speedup, files[1], options)
            if lines:
                pytest.fail("\n".join(lines), pytrace=False)
            if skipped:
                pytest.skip("; ".join(skipped))

        marked: Callable[..., None] = pytest.mark.kernel(test)
        return marked

    return decorate


def _answers(
    path: Path, task: Path | None, least: float | None, lock: Path | None, options: dict[str, Any]
) -> tuple[list[str], list[str]]:
    """Why the kernels of a file fail, and why they could not be checked."""
    from kernellab import ci
    from kernellab.options import build
    from kernellab.options.design import CheckCall
    from kernellab.verifier.protocol.option_words import plain_dsl, verify_options

    call = build(CheckCall, options)
    asked = verify_options(call).model_copy(update={"unsandboxed": call.unsandboxed})
    found = ci.subjects([path], plain_dsl(), task)
    figures = ci.read_lock(lock) if lock is not None else None
    results = [*ci.check(found, asked, least=least, lock=figures)]
    if not results:
        return [f"{path.name} holds no kernel, capsule or exported module"], []
    return ci.failed_lines(results), [r.line for r in results if r.state is ci.State.UNCHECKED]


def pytest_configure(config: Any) -> None:
    """The marker by which ``pytest -m kernel`` chooses these tests."""
    config.addinivalue_line("markers", "kernel: verifies a kernel with kernellab")


__all__ = ["kernel"]
