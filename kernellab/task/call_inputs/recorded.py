"""References with tests instead of inputs: the calls in the tests are the cases."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from kernellab.errors import TaskError
from kernellab.task.call_inputs.slots import is_array

#: most calls that are recorded: more calls of a test in a loop add nothing
_MOST = 64


class Recorded:
    """``reference`` is the function ``name`` of ``namespace`` (``Class.apply`` too), and ``cases()`` runs ``tests`` and
    returns the arguments of each call of it, in the signature's order with its defaults.

    Tests that use a GPU draw on the CPU; the caller moves the arguments. A test ends at an exception, and its calls
    until then count.

    Raises:
        TaskError: there is no such function, or the tests never call it.
    """

    def __init__(self, namespace: Mapping[str, Any], name: str, tests: str) -> None:
        self._namespace, self._name, self._tests = namespace, name, tests
        owner, _, method = name.partition(".")
        member = namespace.get(owner)
        function = getattr(member, method, None) if method else member
        if not callable(function):
            raise TaskError(f"The tests call {name}, which is not a function.", "Name a function of the file.")
        self._function = function
        self.reference = function if inspect.isfunction(function) else _positional(function)

    def cases(self) -> list[list[Any]]:
        """Run the tests and return the arguments of each call, of at most :data:`_MOST`.

        Raises:
            TaskError: the tests never call the function.
        """
        calls: list[list[Any]] = []
        owner, _, method = self._name.partition(".")
        recorder = self._recorder(calls)
        space = {
            **self._namespace,
            "__name__": "tests",
            owner: SimpleNamespace(**{method: recorder}) if method else recorder,
        }
        fault: Exception | None = None
        with _on_cpu():
            try:
                exec(compile(self._tests, f"<tests of {self._name}>", "exec"), space)
            except Exception as error:
                fault = error
        if not calls:
            why = f": {type(fault).__name__}: {fault}" if fault else ""
            raise TaskError(f"The tests of {self._name} make no call of it{why}.", "Give tests that call it.")
        return calls

    def _recorder(self, calls: list[list[Any]]) -> Callable[..., Any]:
        """Return the function that the tests call in place of the reference: it adds the call's arguments to ``calls``,
        in the signature's order, and calls the reference."""
        signature = inspect.signature(self.reference)
        kinds = {name: p.kind for name, p in signature.parameters.items()}

        def record(*args: Any, **keywords: Any) -> Any:
            bound = signature.bind(*args, **keywords)
            if inspect.Parameter.VAR_POSITIONAL not in kinds.values():
                bound.apply_defaults()
                bound.arguments = {
                    name: value
                    for name, value in bound.arguments.items()
                    if kinds[name] is not inspect.Parameter.VAR_KEYWORD
                }
            values = [*bound.args, *bound.kwargs.values()]
            if len(calls) < _MOST:
                calls.append([_copied(v) for v in values])
            # a kernel of another device cannot run here, but its arguments are known
            with suppress(Exception):
                return self._function(*args, **keywords)
            return None

        return record


def _positional(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a wrapper for a function without a Python signature, with positional arguments."""

    def reference(*args: Any) -> Any:
        return function(*args)

    return reference


def _copied(value: Any) -> Any:
    """Return a copy of a tensor, which the tests may change after the call."""
    if isinstance(value, (list, tuple)) and any(is_array(v) for v in value):
        return type(value)(_copied(v) for v in value)
    return value.detach().clone() if is_array(value) and hasattr(value, "detach") else value


def _on_cpu() -> Any:
    """While active, tensors for a GPU are made on the CPU."""

    def here(value: Any) -> Any:
        if isinstance(value, torch.device):
            return torch.device("cpu") if value.type == "cuda" else value
        return "cpu" if isinstance(value, str) and value.partition(":")[0] == "cuda" else value

    class OnCpu(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function is torch.Tensor.cuda:
                return args[0]
            keywords = {**(kwargs or {})}
            if "device" in keywords:
                keywords["device"] = here(keywords["device"])
            if function is torch.Tensor.to:
                args = tuple(here(a) for a in args)
            return function(*args, **keywords)

    return OnCpu()
