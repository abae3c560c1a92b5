"""Lines that were written before designs, exchanges and quick fixes had fields of their own."""

from __future__ import annotations

import json
from typing import Any

from kernellab.exchanges import Exchange
from kernellab.older_records import event_line, exchange_line
from kernellab.records import (
    Author,
    Diagnostic,
    Fix,
    GateResult,
    GateState,
    Role,
    Route,
    RouteFact,
    RouteKind,
)
from kernellab.session.record.records import EVENT, Exchanged, Turn, TurnEnded

SAID = (
    "Blocked. No rule designs all of it, so calls of the framework stand between its own launches: aten.sort, cummax. "
    "Algebra: only sums are asked of a product, so sums of its factors are multiplied instead."
)


def _without(line: str, *keys: str) -> dict[str, Any]:
    def stripped(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: stripped(v) for name, v in value.items() if name not in keys}
        return [stripped(v) for v in value] if isinstance(value, list) else value

    found: dict[str, Any] = stripped(json.loads(line))
    return found


def _line(fields: dict[str, Any]) -> str:
    return json.dumps(fields, separators=(",", ":"))


def _turn(**fields: Any) -> Turn:
    return Turn(id="t1", number=1, parent=None, role=Role.DESIGNER, author=Author.RULES, started=1.0, **fields)


def test_a_design_of_format_1_keeps_what_it_called_and_rewrote() -> None:
    old = _without(TurnEnded(turn=_turn(rationale=SAID)).model_dump_json(), "library_calls", "rewritten")
    read = EVENT.validate_json(event_line(_line(old)))
    assert isinstance(read, TurnEnded)
    assert read.turn.library_calls == ("aten.sort", "cummax") and read.turn.rewritten


def test_a_line_of_today_is_not_read_by_its_words() -> None:
    line = TurnEnded(turn=_turn(rationale=SAID)).model_dump_json()
    read = EVENT.validate_json(event_line(line))
    assert isinstance(read, TurnEnded) and event_line(line) == line
    assert read.turn.library_calls == () and not read.turn.rewritten


def test_a_quick_fix_of_format_1_is_still_one() -> None:
    near = Diagnostic(line=1, col=1, code="SK101", message="Unknown name 'tille'.", remedy="Did you mean 'tile'?")
    sliced = Diagnostic(
        line=2, col=1, code="SK301", message="'y' is sliced in elements.", rule="tile-index-as-offset",
        remedy="Write y[n*B:(n+1)*B], or step the loop by elements: for n in range(0, N, B).",
    )  # fmt: skip
    gate = GateResult(state=GateState.NOT_RUNNABLE, reason="", diagnostics=[near, sliced])
    old = _without(TurnEnded(turn=_turn(gate=gate)).model_dump_json(), "library_calls", "rewritten", "fix")
    read = EVENT.validate_json(event_line(_line(old)))
    assert isinstance(read, TurnEnded) and read.turn.gate is not None
    assert [d.fix for d in read.turn.gate.diagnostics] == [
        Fix(replaces="tille", text="tile"), Fix(replaces="y", text="y[n*B:(n+1)*B]", subscript=True)
    ]  # fmt: skip


def test_a_replayed_exchange_of_format_1_names_its_recording() -> None:
    exchange = Exchange(
        id="e", role=Role.CODER, purpose="code", model="big-1 (recorded on 2026-11-21)", messages=(), started=1.0
    )
    line = _line(_without(exchange.model_dump_json(), "recorded_at"))
    read = Exchange.model_validate_json(exchange_line(line))
    assert (read.model, read.recorded_at) == ("big-1", "2026-11-21") and read.answered_by == exchange.model
    event = _line(_without(Exchanged(turn="t1", exchange=exchange).model_dump_json(), "recorded_at"))
    held = EVENT.validate_json(event_line(event))
    assert isinstance(held, Exchanged) and held.exchange == read
    assert exchange_line("{broken (recorded on ") == "{broken (recorded on "


def test_a_route_of_format_1_keeps_its_facts() -> None:
    lines = [
        "gate: not runnable, 3 cases: It fails.", "sketch line 7: SK101 Unknown name 'x'.",
        "stage correct: Output is wrong.", "first wrong: [0, 992]: got nan, want 1.25", "wrong elements: 3 %",
    ]  # fmt: skip
    route = Route(to=RouteKind.CODER, error_class="api", reason="r", facts=tuple(RouteFact(text=t) for t in lines))
    old = _without(TurnEnded(turn=_turn(route=route)).model_dump_json(), "library_calls", "rewritten", "facts")
    old["turn"]["route"]["evidence"] = lines
    read = EVENT.validate_json(event_line(_line(old)))
    assert isinstance(read, TurnEnded) and read.turn.route is not None
    facts = read.turn.route.facts
    assert read.turn.route.evidence == lines
    assert facts[0].place == "gate: not runnable, 3 cases" and (facts[1].code, facts[1].text[:7]) == (
        "SK101",
        "Unknown",
    )
    assert [f.of_stage for f in facts] == [False, False, True, False, False] and facts[3].want == 1.25
