"""Reads files of format 1, in which a verdict's label and flags, and what a design or an exchange is, were texts.

Sessions' journals, runs' journals, replay files and files of benchmark rows come through here, once, when a line is
read. A text that has no record stays as it is (:class:`~kernellab.conditions.Stated`).
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any

from kernellab.conditions import (
    CLOCKS,
    AlignmentLimit,
    BaselineMissing,
    CachedResult,
    Condition,
    DisturbedCalls,
    Domain,
    IdleKernel,
    LaunchBound,
    LibraryShare,
    Mark,
    MarkKind,
    MoreCores,
    NotReproduced,
    NotSealed,
    OtherClock,
    OutputStrides,
    OwnShareUnseen,
    Ratio,
    ScalarLimit,
    SpecialValues,
    Stated,
    StridesLimit,
    WeakTask,
    joined,
)

Made = Callable[[re.Match[str]], Sequence[Condition]]

_BOUNDS: dict[str, tuple[float | None, float | None]] = {
    "in [0, 1]": (0.0, 1.0), ">= 0": (0.0, None), "<= 0": (None, 0.0)
}  # fmt: skip
_ONE_DOMAIN = r"\w+ (?:in \[0, 1\]|>= 0|<= 0)"
_DOMAINS = rf"({_ONE_DOMAIN}(?:, {_ONE_DOMAIN})*)"
_RATIO = r"([\d.]+)x \[([\d.]+), ([\d.]+)\]"

_LABEL_MARKS: dict[str, MarkKind] = {
    "expanded inputs not read": "expanded-inputs-unsupported",
    "parameters of its constructor only": "constructor-parameters",
    "non-deterministic": "non-deterministic",
    "denormals flushed": "denormals-flushed",
    "reference not in float64": "reference-not-in-float64",
    "unsandboxed": "unsandboxed",
    "algebra": "algebra",
    "ghost": "ghost",
    "task not discriminating": "task-not-discriminating",
    "busy machine": "busy-machine",
    "clocks disagree": "clocks-disagree",
    "shared clock": "shared-clock",
    "two clocks": "two-clocks",
    "outputs read late": "outputs-read-late",
    "outputs copied by the worker": "outputs-copied",
    "contents repeated": "contents-repeated",
    "slower on new contents, by which it is told": "slower-on-new-contents",
    "order of streams not seen": "stream-order-not-seen",
    "under the byte floor, ask for T4": "below-byte-floor",
    "interpreted": "interpreted",
    "sealed": "sealed",
    "native": "native",
}
_FLAG_MARKS: dict[str, MarkKind] = {
    "parameters: right with those that its constructor draws under a new seed; it ignores loaded ones": (
        "constructor-parameters"
    ),
    "denormals: a call leaves the calling thread flushing them to zero": "denormals-left-flushed",
    "buffers: what the reference writes into its own is not compared": "buffers-not-compared",
    "ghost: no launch of an own kernel could be seen": "launches-not-seen",
}


def _domains(refuted: bool) -> Made:
    def made(match: re.Match[str]) -> Sequence[Condition]:
        found = []
        for text in re.findall(_ONE_DOMAIN, match[1]):
            argument, _, words = text.partition(" ")
            low, high = _BOUNDS[words]
            found.append(Domain(argument=argument, low=low, high=high, refuted=refuted))
        return found

    return made


def _scalar(refuted: bool) -> Made:
    def made(match: re.Match[str]) -> Sequence[Condition]:
        try:
            value = float(match[2]) if match[2] in ("inf", "-inf", "nan") else ast.literal_eval(match[2])
            return [ScalarLimit(argument=match[1], value=value, refuted=refuted)]
        except (ValueError, SyntaxError):
            return []

    return made


def _differs(match: re.Match[str]) -> Sequence[Condition]:
    first, second = (Ratio(speedup=float(a), low=float(b), high=float(c)) for a, b, c in (match.group(1, 2, 3), match.group(5, 6, 7)))  # fmt: skip # noqa: E501
    return [NotReproduced(outcome="differs", baseline=match[4], first=first, second=second)]


def _reproduced(match: re.Match[str]) -> Sequence[Condition]:
    return [NotReproduced(outcome="no time")] if match[1] else [NotReproduced(outcome="failed")]


#: what a label's part was, at the place where it begins; the first that fits counts
_LABELS: tuple[tuple[str, Made], ...] = (
    *((re.escape(text), lambda m, kind=kind: [Mark(kind=kind)]) for text, kind in _LABEL_MARKS.items()),
    (rf"right for {_DOMAINS} only", _domains(refuted=True)),
    (r"(\w+) = ([^,]+) only", _scalar(refuted=True)),
    (r"contiguous-only", lambda m: [StridesLimit(contiguous="all")]),
    (r"rows contiguous only", lambda m: [StridesLimit(contiguous="rows")]),
    (r"aligned inputs only", lambda m: [AlignmentLimit()]),
    (r"(NaN|inf) not propagated", lambda m: [SpecialValues(value="NaN" if m[1] == "NaN" else "inf")]),
    (r"output (\d+) not contiguous", lambda m: [OutputStrides(output=int(m[1]))]),
    (r"library(?: (\d+)%)?", lambda m: [LibraryShare(share=int(m[1]) / 100 if m[1] else None)]),
    (r"dead: ([^,]+)", lambda m: [IdleKernel(kernel=m[1])]),
    ("|".join(f"({re.escape(t)})" for t in CLOCKS.values()), lambda m: [OtherClock(clock=_clock(m[0]))]),
    (r"launch-bound(?:, ([\d.]+)x eager on the device)?",
     lambda m: [LaunchBound(on_device=float(m[1]) if m[1] else None)]),
    (r"([\d.]+) cores against (\d+) of the baselines", lambda m: [MoreCores(cores=float(m[1]), baselines=int(m[2]))]),
    (r"not (native|sealed): ([^,]+)", lambda m: [NotSealed(native=m[1] == "native", reason=m[2])]),
    (r"not reproduced(: not timed)?", _reproduced),
)  # fmt: skip

#: what a whole flag was
_FLAGS: tuple[tuple[str, Made], ...] = (
    *((re.escape(text), lambda m, kind=kind: [Mark(kind=kind)]) for text, kind in _FLAG_MARKS.items()),
    (rf"domain: verified for {_DOMAINS}", _domains(refuted=False)),
    (r"scalar: only (\w+) = (.+) was tried", _scalar(refuted=False)),
    (r"cache: the result needs (.+) for new inputs and not for inputs seen before: it is cached",
     lambda m: [CachedResult(kernel=m[1])]),
    (r"own share: as reported by the kernel's own process; its program counters cannot be read \((.*)\)",
     lambda m: [OwnShareUnseen(reason=m[1])]),
    (r"task: (?:([\w-]+): )?(.*)", lambda m: [WeakTask(rule=m[1] or "", reason=m[2])]),
    (r"busy machine: other work disturbed (\d+)% of the timed calls",
     lambda m: [DisturbedCalls(share=int(m[1]) / 100)]),
    (r"baseline ([\w-]+): (.*)", lambda m: [BaselineMissing(baseline=m[1], reason=m[2])]),
    (rf"not reproduced: {_RATIO} (\S+), then {_RATIO}", _differs),
)  # fmt: skip


def conditions_of(label: str, flags: Sequence[str]) -> tuple[Condition, ...]:
    """The conditions that texts of format 1 stood for."""
    found = [*_labelled(label), *(condition for flag in flags for condition in _flagged(flag))]
    refuted = {c.argument for c in found if isinstance(c, Domain) and c.refuted}
    differs = any(isinstance(c, NotReproduced) and c.outcome == "differs" for c in found)
    missing = {c.baseline for c in found if isinstance(c, BaselineMissing)}
    kept = [
        c for c in found
        if not (isinstance(c, Domain) and not c.refuted and c.argument in refuted)
        and not (isinstance(c, NotReproduced) and c.outcome == "failed" and differs)
        and not (isinstance(c, Stated) and c.label in {f"no {name} baseline" for name in missing})
    ]  # fmt: skip
    return joined(kept)


def upgraded(verdict: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a verdict, or of an event with its texts, of any format as they are today."""
    if "conditions" in verdict or not {"label", "flags"} & verdict.keys():
        return dict(verdict)
    found = conditions_of(str(verdict.get("label") or ""), list(map(str, verdict.get("flags") or ())))
    rest = {name: value for name, value in verdict.items() if name not in ("label", "flags")}
    return {**rest, "conditions": [c.model_dump(mode="json") for c in found]}


#: what designs of the rules said where they called the framework, and where they multiplied fewer numbers
_FALLBACK = re.compile(
    r"No rule designs all of it, so calls of the framework stand between its own launches: (.*?)\.(?: |$)"
)
_ALGEBRA = "Algebra: only sums are asked of a product, so sums of its factors are multiplied instead."
#: the checker's proposals: a name that is nearly right, and a slice in elements
_NEAR = re.compile(r"Did you mean '([\w.]+)'\?")
_WRONG = re.compile(r"['\"]([\w.]+)['\"]\.?$")
_SLICE = re.compile(r"Write ((\w+)\[[^\]]*\]), or step")
#: of a route's lines: a finding, and the first wrong element
_FINDING = re.compile(r"^(gate: [^:]+|sketch line \d+): (?:(SK\d+) )?(.*)$", re.DOTALL)
_FIRST_WRONG = re.compile(r"^(first wrong: .*): got (\S+), want (\S+)$")
#: what a turn's rationale said of players that gave no answer
_SILENT = re.compile(r"(\S+) gave no answer:")
_RECORDED = re.compile(r"(.*) \(recorded on ([^)]*)\)")


def event_line(line: str) -> str:
    """A line of a session's journal as it is written today."""
    if not any(f'"kind":"{kind}"' in line and f'"{key}":' not in line for kind, key in _NEW_KEYS.items()):
        return line
    event = json.loads(line)
    match event.get("kind"):
        case "compared":
            event = upgraded(event)
        case "exchanged":
            event["exchange"] = upgraded_exchange(event["exchange"])
        case "turn_started" | "turn_ended":
            event["turn"] = _turn(event["turn"])
    return json.dumps(event)


#: a key that each kind of event has since format 2; in a text of the line it would have escaped quotes
_NEW_KEYS = {
    "turn_started": "library_calls", "turn_ended": "library_calls", "compared": "conditions",
    "exchanged": "recorded_at",
}  # fmt: skip


def exchange_line(line: str) -> str:
    """A line of a replay file as it is written today; one that is no JSON stays as it is."""
    if "(recorded on " not in line or '"recorded_at":' in line:
        return line
    try:
        return json.dumps(upgraded_exchange(json.loads(line)))
    except ValueError:
        return line


def upgraded_exchange(exchange: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an exchange of any format as they are today."""
    match = _RECORDED.fullmatch(str(exchange.get("model")))
    return {**exchange, "model": match[1], "recorded_at": match[2]} if match else dict(exchange)


def _turn(turn: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(turn)
    if turn.get("verdict"):
        found["verdict"] = upgraded(turn["verdict"])
    if turn.get("gate"):
        found["gate"] = {**turn["gate"], "diagnostics": [_diagnostic(d) for d in turn["gate"].get("diagnostics", ())]}
    if turn.get("route"):
        found["route"] = _route(turn["route"])
    rationale = str(turn.get("rationale", ""))
    called = _FALLBACK.search(rationale)
    return {
        **found,
        "library_calls": called[1].split(", ") if called else [],
        "rewritten": _ALGEBRA in rationale,
        "passed_over": [] if turn.get("verdict") else _SILENT.findall(rationale),
    }


def _route(route: Mapping[str, Any]) -> dict[str, Any]:
    facts = []
    for line in route.get("evidence", ()):
        finding, wrong = _FINDING.match(line), _FIRST_WRONG.match(line)
        if finding:
            facts.append({"place": finding[1], "code": finding[2] or "", "text": finding[3]})
        elif wrong:
            facts.append({"text": wrong[1], "got": _number(wrong[2]), "want": _number(wrong[3])})
        else:
            facts.append({"text": line, "of_stage": line.startswith("stage ")})
    return {**{name: value for name, value in route.items() if name != "evidence"}, "facts": facts}


def _number(text: str) -> float | str:
    try:
        value = float(text)
    except ValueError:
        return text
    return value if isfinite(value) else text


def _diagnostic(diagnostic: Mapping[str, Any]) -> dict[str, Any]:
    near, wrong = _NEAR.fullmatch(diagnostic.get("remedy", "")), _WRONG.search(diagnostic["message"])
    sliced = _SLICE.match(diagnostic.get("remedy", ""))
    fix: dict[str, Any] | None = None
    if near and wrong:
        fix = {"replaces": wrong[1], "text": near[1]}
    elif sliced and diagnostic.get("rule") == "tile-index-as-offset":
        fix = {"replaces": sliced[2], "text": sliced[1], "subscript": True}
    return {**diagnostic, "fix": fix}


def clock_of(text: str) -> str:
    """The clock that a score of format 1 named by its label."""
    return next((clock for clock, label in CLOCKS.items() if label == text), text)


def _clock(text: str) -> Any:
    return clock_of(text)


def _labelled(label: str) -> list[Condition]:
    found: list[Condition] = []
    rest = label
    while rest:
        for pattern, made in _LABELS:
            match = re.match(rf"(?:{pattern})(?=, |$)", rest)
            conditions = made(match) if match else ()
            if match and conditions:
                found += conditions
                rest = rest[match.end() :].removeprefix(", ")
                break
        else:
            text, _, rest = rest.partition(", ")
            found.append(Stated(stated_label=text))
    return found


def _flagged(flag: str) -> Sequence[Condition]:
    for pattern, made in _FLAGS:
        match = re.fullmatch(pattern, flag, re.DOTALL)
        conditions = made(match) if match else ()
        if conditions:
            return conditions
    return [Stated(stated_flag=flag)]
