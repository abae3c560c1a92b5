"""The protocols: TypeScript is what Python defines, and real traits, answers and tables keep to it."""

from __future__ import annotations

import importlib.util
import json
import sys
import types
import typing
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import pytest

from kernellab.notebook import protocol
from kernellab.notebook.answers import Answers
from kernellab.notebook.board import requests
from kernellab.notebook.board.commands import _ACTS
from kernellab.notebook.board.queries import _ASKS
from kernellab.notebook.board.workbench import Workbench
from kernellab.notebook.monitor import protocol as monitor
from kernellab.notebook.monitor.commands import ACTS
from kernellab.notebook.monitor.monitor import Monitor
from kernellab.notebook.monitor.queries import ASKS

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "widgets/fixtures"


def _generator() -> Any:
    spec = importlib.util.spec_from_file_location("typescript", ROOT / "tools/typescript.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["typescript"] = module
    spec.loader.exec_module(module)
    return module


typescript = _generator()


class Weather(Enum):
    RAIN = "rain"
    SUN = "sun"


class _Base(TypedDict):
    #: of the base
    name: str


class Sample(_Base, total=False):
    left_out: str | None
    word: Annotated[str, Weather]
    pairs: list[tuple[int, str | None]]
    by_word: dict[Literal["a", "b"], bool]
    unknown: set[str]


def kind(field: str) -> str:
    return str(typescript.typescript(typing.get_type_hints(Sample, include_extras=True)[field]))


def misfits(value: object, hint: Any, where: str = "") -> list[str]:
    """Where a value is not what its type says: fields that are missing or unknown, kinds, words."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    wrong = [f"{where}: {str(value)[:80]} is no {hint}"]
    if typing.is_typeddict(hint):
        if not isinstance(value, dict):
            return wrong
        hints = typing.get_type_hints(hint, include_extras=True)
        strange = [f"{where}.{key} is unknown" for key in set(value) - set(hints)]
        missing = [f"{where}.{key} is missing" for key in hint.__required_keys__ - set(value)]
        parts = [(value[key], hints[key], f"{where}.{key}") for key in set(value) & set(hints)]
        return [*strange, *missing, *(fault for part in parts for fault in misfits(*part))]
    if origin is Annotated:
        return [] if value in [item.value for item in arguments[1]] else wrong
    if origin is Literal:
        return [] if value in arguments else wrong
    if origin is types.UnionType:
        each = [misfits(value, one, where) for one in arguments]
        return [] if [] in each else max(each, key=len)
    if origin in (list, tuple) and isinstance(value, (list, tuple)):
        kinds = arguments if origin is tuple else arguments * len(value)
        several = zip(value, kinds, strict=True)
        return [fault for at, (one, of) in enumerate(several) for fault in misfits(one, of, f"{where}[{at}]")]
    if origin is dict and isinstance(value, dict):
        return [fault for key, one in value.items() for fault in misfits(one, arguments[1], f"{where}.{key}")]
    plain = (int, float) if hint is float else origin or hint
    return [] if isinstance(value, plain) and (hint is bool or not isinstance(value, bool) or hint is object) else wrong


def words(union: Any, key: str) -> list[str]:
    """The literals of ``key`` in the records of a union."""
    records = typing.get_args(union)
    return sorted(word for record in records for word in typing.get_args(typing.get_type_hints(record)[key]))


def test_the_front_ends_types_are_those_that_python_defines() -> None:
    assert not typescript.stale(), "run `python tools/typescript.py`"


def test_a_changed_record_makes_the_check_fail_and_a_run_writes_it(tmp_path: Path) -> None:
    (tmp_path / "monitor").mkdir()
    (tmp_path / "editor").mkdir()
    for path, text in typescript.stale(tmp_path).items():
        path.write_text(text.replace("doing: string;", "doing: number;"))
    (path,) = typescript.stale(tmp_path)
    assert path == tmp_path / "protocol.ts"


def test_types_are_translated_with_null_words_and_fields_that_may_be_left_out() -> None:
    assert kind("left_out") == "string | null"
    assert kind("word") == '"rain" | "sun"'
    assert kind("pairs") == "[number, string | null][]"
    assert kind("by_word") == 'Record<"a" | "b", boolean>'
    with pytest.raises(typescript.NoTypeScript, match="set"):
        kind("unknown")
    optional = typing.cast(Any, requests.Approve).__optional_keys__
    assert optional == {"to", "suggestion"}
    text = typescript.protocol(*typescript.WORKBENCH)
    assert "  to?: string;" in text
    assert "  card: string;" in text


def test_a_comment_reaches_the_front_end_from_the_base_that_declares_the_field() -> None:
    told = typescript.comments_of(sys.modules[__name__])
    assert told.of_field("Sample", "name") == "of the base"
    assert told.of_field("Sample", "word") == ""


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.json")), ids=lambda path: path.stem)
def test_what_real_sessions_sent_keeps_to_the_protocol(path: Path) -> None:
    dumped = json.loads(path.read_text(encoding="utf-8"))
    answers = typing.get_type_hints(Answers)
    if path.stem == "answers":
        for name, reply in dumped.items():
            assert not misfits(reply, requests.Answer, name)
            value = answers.get(name.split("_")[0])
            assert not (value and misfits(reply["value"], value, name))
    elif path.stem == "exchange":
        assert not misfits(dumped["value"], answers["exchange"], path.stem)
    else:
        assert not misfits(dumped, protocol.Traits, path.stem)


def test_every_decision_and_question_of_the_front_end_is_known_to_the_kernel() -> None:
    assert words(requests.Act, "action") == sorted(_ACTS)
    assert words(requests.Ask, "ask") == sorted(_ASKS) == sorted(typing.get_type_hints(Answers))
    assert words(monitor.Act, "action") == sorted(ACTS)
    assert words(monitor.Ask, "ask") == sorted(ASKS) == sorted(typing.get_type_hints(monitor.Answers))


@pytest.mark.parametrize(("widget", "traits"), [(Workbench, protocol.Traits), (Monitor, monitor.Traits)])
def test_each_trait_of_the_protocol_is_synchronised(widget: Any, traits: Any) -> None:
    synchronised = {name for name in widget.class_traits(sync=True) if not name.startswith("_")}
    assert set(typing.get_type_hints(traits)) <= synchronised
