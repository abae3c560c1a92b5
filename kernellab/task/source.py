"""A task's text as a running Python module; a fault in it becomes one sentence with its line."""

from __future__ import annotations

import builtins
import hashlib
import linecache
import re
import sys
import types
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from kernellab.errors import KernellabError, TaskError

_DEFINE_IT = "Define or import it in this cell: a task's text runs on its own, not in the notebook's namespace."
#: torch's message for a device that does not exist
_NO_DEVICE = re.compile(r"at start of device string: (\w+)|not compiled with (\w+)")


class TaskSource:
    """The text of a task and the names that it defines.

    Raises:
        TaskError: the text has a syntax error, or raises.
    """

    def __init__(self, name: str, text: str) -> None:
        self.text = text
        self.hash = hashlib.sha256(text.encode()).hexdigest()[:16]
        self.filename = f"<task {name} {self.hash}>"
        self.namespace = self._execute()

    def _execute(self) -> dict[str, Any]:
        linecache.cache[self.filename] = (len(self.text), None, self.text.splitlines(keepends=True), self.filename)
        try:
            code = compile(self.text, self.filename, "exec", dont_inherit=True)
        except SyntaxError as error:
            raise TaskError(
                f"The task has a syntax error on line {error.lineno}: {error.msg}.", "Fix that line and run it again."
            ) from None
        except ValueError as error:
            raise TaskError(f"The task's text cannot be compiled: {error}.", "Give plain Python text.") from None
        module = types.ModuleType(f"kernellab_task_{self.hash}")
        module.__file__ = self.filename
        # dataclasses and pickle look a class's module up by name
        sys.modules[module.__name__] = module
        self.guard("the task's text", exec, code, module.__dict__)
        return module.__dict__

    def guard(self, subject: str, function: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
        """Call the task's code; ``subject`` is the name of the function, or words for the text.

        Raises:
            TaskError: the code raises; one sentence with the line.
        """
        try:
            return function(*args, **keywords)
        except KernellabError:
            raise
        except (Exception, SystemExit) as error:
            raise self._explained(subject, error) from error

    def _explained(self, subject: str, error: BaseException) -> TaskError:
        frame = self._deepest_frame(error)
        at_line = f" at line {frame.tb_lineno}" if frame else ""
        if isinstance(error, NameError) and error.name and not hasattr(builtins, error.name):
            names = {**frame.tb_frame.f_globals, **frame.tb_frame.f_locals} if frame else {}
            similar = get_close_matches(error.name, names, 1)
            remedy = f"Did you mean {similar[0]!r}? Otherwise: {_DEFINE_IT}" if similar else _DEFINE_IT
            return TaskError(f"The name {error.name!r} is not defined{at_line} of the task.", remedy)
        if isinstance(error, ImportError):
            return TaskError(f"The task imports what is not here{at_line}: {error}.", "Install it, or do without it.")
        reason = next(iter(str(error).strip().splitlines()), "").rstrip(".")
        if device := _NO_DEVICE.search(reason):
            name = (device[1] or device[2]).lower()
            return TaskError(
                f"The task names the device {name!r}{at_line}, which this machine's PyTorch does not have.",
                "Take the device of an argument, as in torch.zeros(3, device=x.device).",
            )
        # a function's name keeps its case
        shown = subject[:1].upper() + subject[1:] if " " in subject else f"{subject}()"
        message = f"{shown} raises {type(error).__name__}{at_line}{': ' + reason if reason else ''}."
        return TaskError(message, _remedy(subject, reason))

    def _deepest_frame(self, error: BaseException) -> types.TracebackType | None:
        """Return the deepest frame of the task's text in the exception."""
        deepest, trace = None, error.__traceback__
        while trace:
            if trace.tb_frame.f_code.co_filename == self.filename:
                deepest = trace
            trace = trace.tb_next
        return deepest


def _remedy(subject: str, reason: str) -> str:
    if subject in ("reference", "Model.forward"):
        return "See that inputs() gives what the reference takes, and that it runs on its own."
    if reason.startswith("Dim.__init__()"):
        return 'Write Dim("N", 1, 64): a name, the least, the most. Multiples are written in inputs: randn(64 * N).'
    return "Fix it: it must run on its own."
