"""The tools as plain functions, for JupyterLab's server: ``jupyter-server-mcp`` finds them by its entry points."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any, get_type_hints

from kernellab.content import find_workspace
from kernellab.tools.context import Context
from kernellab.tools.tool import call, tools


def names() -> list[str]:
    """Each tool as ``module:function``, the form of the group ``jupyter_server_mcp.tools``."""
    return [f"{__name__}:{name}" for name in tools()]


@cache
def _context() -> Context:
    """Of the folder that the server was started in: one judge, and one count of its verdicts."""
    return Context(find_workspace())


def __getattr__(name: str) -> Callable[..., dict[str, Any]]:
    if name.startswith("_") or name not in tools():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    tool = tools()[name]

    def function(**arguments: Any) -> dict[str, Any]:
        return call(name, arguments, _context()).model_dump(mode="json")

    hints = get_type_hints(tool.request)
    kind, missing = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.empty
    fields = {n: (hints[n], missing if f.is_required() else f.get_default(call_default_factory=True))
              for n, f in tool.request.model_fields.items()}  # fmt: skip
    parameters = [inspect.Parameter(n, kind, default=d, annotation=hint) for n, (hint, d) in fields.items()]
    function.__signature__ = inspect.Signature(parameters, return_annotation=dict[str, Any])  # type: ignore[attr-defined]
    function.__annotations__ = {**{n: hint for n, (hint, _) in fields.items()}, "return": dict[str, Any]}
    function.__name__, function.__doc__ = name, tool.description
    return function
