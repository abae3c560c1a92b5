"""The two halves of the monitor's protocol, Python's and TypeScript's, say the same."""

from __future__ import annotations

import re
import typing
from pathlib import Path

import pytest
from test_protocol import Field, interfaces, nullable

from kernellab.notebook.monitor import protocol
from kernellab.notebook.monitor.commands import ACTS
from kernellab.notebook.monitor.monitor import Monitor
from kernellab.notebook.monitor.queries import ASKS

SCRIPT = Path(__file__).parents[2] / "widgets/src/monitor/protocol.ts"
#: the traits and the answers, which no view makes
ENVELOPES = {"Traits", "Answers"}


def text() -> str:
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", SCRIPT.read_text(encoding="utf-8"), flags=re.DOTALL)


def records() -> dict[str, dict[str, Field]]:
    return {
        name: {
            field: (field in record.__optional_keys__, nullable(hint))
            for field, hint in typing.get_type_hints(record).items()
        }
        for name, record in vars(protocol).items()
        if typing.is_typeddict(record) and record.__module__ == protocol.__name__
    }


def test_each_interface_has_its_record_with_the_same_fields_and_optionality() -> None:
    script, python = interfaces(text()), records()
    assert len(python) > 12
    assert set(script) - ENVELOPES == set(python)
    for name in python:
        assert python[name] == script[name], name


def test_every_decision_and_question_of_the_front_end_is_known_to_the_kernel() -> None:
    script = text()
    acts = [name for names in re.findall(r"\{ action: ([^;}]+)", script) for name in re.findall(r'"(\w+)"', names)]
    assert sorted(acts) == sorted(ACTS)
    asks = re.findall(r'\{ ask: "(\w+)"', script)
    assert sorted(asks) == sorted(ASKS)
    assert set(interfaces(script)["Answers"]) == set(ASKS)


@pytest.mark.parametrize("own", ["head", "figures", "version", "beat"])
def test_each_trait_of_the_protocol_is_synchronised(own: str) -> None:
    assert own in interfaces(text())["Traits"]
    assert Monitor.class_traits(sync=True)[own]


def test_protocol_numbers_agree() -> None:
    assert f"export const PROTOCOL = {protocol.PROTOCOL};" in SCRIPT.read_text(encoding="utf-8")
