"""The two halves of the widget protocol, Python's and TypeScript's, say the same."""

from __future__ import annotations

import re
import types
import typing
from pathlib import Path
from typing import Any

import pytest

from kernellab.notebook import protocol
from kernellab.notebook.board.commands import _ACTS
from kernellab.notebook.board.queries import _ASKS
from kernellab.notebook.board.workbench import Workbench

SCRIPT = Path(__file__).parents[2] / "widgets/src/protocol.ts"
#: interfaces of the messages' envelopes and of the traits, which no view makes
ENVELOPES = {"Traits", "Answers", "ToKernel"}
#: is a field left out at times, and may it be null
Field = tuple[bool, bool]


def text() -> str:
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", SCRIPT.read_text(encoding="utf-8"), flags=re.DOTALL)


def interfaces(script: str) -> dict[str, dict[str, Field]]:
    """Each interface's fields by name."""
    found = {}
    for name, body in re.findall(r"export interface (\w+) \{(.*?)\n\}", script, re.DOTALL):
        fields = re.findall(r"(\w+)(\??): ([^;]+);", body)
        found[name] = {field: (bool(mark), bool(re.search(r"\| null\b", kind))) for field, mark, kind in fields}
    return found


def records() -> dict[str, dict[str, Field]]:
    """Each TypedDict's fields by name."""
    found = {}
    for name, record in vars(protocol).items():
        if typing.is_typeddict(record):
            hints = typing.get_type_hints(record)
            found[name] = {field: (field in record.__optional_keys__, nullable(hint)) for field, hint in hints.items()}
    return found


def nullable(hint: Any) -> bool:
    return isinstance(hint, types.UnionType) and type(None) in typing.get_args(hint)


def test_each_interface_has_its_record_with_the_same_fields_and_optionality() -> None:
    script, python = interfaces(text()), records()
    assert set(script) - ENVELOPES == set(python)
    for name in python:
        assert python[name] == script[name], name


def test_the_comparison_sees_a_field_that_is_missing_optional_or_null() -> None:
    one = "export interface A {\n  x: number;\n  y?: string | null;\n}\n"
    assert interfaces(one) == {"A": {"x": (False, False), "y": (True, True)}}
    assert interfaces(one.replace("y?", "y")) != interfaces(one)
    assert interfaces(one.replace(" | null", "")) != interfaces(one)


def test_every_decision_and_question_of_the_front_end_is_known_to_the_kernel() -> None:
    script = text()
    acts = [name for names in re.findall(r"\{ action: ([^;}]+)", script) for name in re.findall(r'"(\w+)"', names)]
    assert sorted(acts) == sorted(_ACTS)
    asks = re.findall(r'\{ ask: "(\w+)"', script)
    assert sorted(asks) == sorted(_ASKS)
    assert set(interfaces(script)["Answers"]) == set(_ASKS)


@pytest.mark.parametrize("own", ["head", "turns", "changed", "detail", "roofline", "texts", "partial", "shown", "beat"])
def test_each_trait_of_the_protocol_is_synchronised(own: str) -> None:
    assert own in interfaces(text())["Traits"]
    assert Workbench.class_traits(sync=True)[own]


def test_protocol_numbers_agree() -> None:
    assert f"export const PROTOCOL = {protocol.PROTOCOL};" in SCRIPT.read_text(encoding="utf-8")
