"""The Unified Sketch language: parse, print, check, run, cost. Names are loaded when they are first used."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernellab.sketch.bind import bind as bind
    from kernellab.sketch.check import CheckResult as CheckResult
    from kernellab.sketch.check import check as check
    from kernellab.sketch.check import load_program as load_program
    from kernellab.sketch.cost import cost as cost
    from kernellab.sketch.gate import gate as gate
    from kernellab.sketch.parse import parse as parse
    from kernellab.sketch.pins import check_pins as check_pins
    from kernellab.sketch.printer import format as format
    from kernellab.sketch.run import run as run
    from kernellab.sketch.trace import trace as trace

_HOMES = {
    "parse": "parse",
    "format": "printer",
    "check": "check",
    "CheckResult": "check",
    "load_program": "check",
    "check_pins": "pins",
    "run": "run",
    "trace": "trace",
    "cost": "cost",
    "gate": "gate",
    "bind": "bind",
}


class _Package(ModuleType):
    """``sketch.run`` is the function also after the module ``sketch.run``, in which it lives, was imported."""

    def __getattr__(self, name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{self.__name__}.{_HOMES[name]}"), name)
        self.__dict__[name] = value
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, ModuleType) and name in _HOMES:
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
