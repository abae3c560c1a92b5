"""Earlier attempts, one line per round: author, change, purpose, and outcome."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from difflib import SequenceMatcher

from kernellab.agents.briefs import Attempt, avoidable, best_of, reason_of, start_of, tied, times_as_fast
from kernellab.agents.designs import Design, design_of
from kernellab.agents.model.prompts.assembly import Part
from kernellab.agents.model.prompts.marks import unmarked
from kernellab.agents.model.prompts.templates import flat, render
from kernellab.errors import counted, duration
from kernellab.lowering.embedded_sketch import bare
from kernellab.records import Author, GateState, Route, Source, Verdict

_WHO = {Author.MODEL: "model", Author.RULES: "rules", Author.HUMAN: "a person"}
#: Characters of each side of a change, of the unchanged text before it, and of the rationale.
_CHANGE, _BEFORE, _MEANT = 80, 24, 160
#: Number of rounds in the history's shorter form.
_LAST_ROUNDS = 3
#: Prefixes of lines that are not significant for a change if others are.
_ASIDE = ("//", "#include", "# ", "import ", "from ")
#: Number of timed rounds from which the lists of gains and losses are shown.
_ENOUGH = 3
#: Ratio of times above which a change is a gain, and below whose inverse it is a loss.
_CLEAR = 1.05


def history_text(
    history: Sequence[Attempt], last: int | None = None, told: Route | None = None, judged: Verdict | None = None
) -> str:
    """The rounds, oldest first; ``last`` keeps only the latest few and the best.

    ``told`` and ``judged`` are a route and a verdict that the prompt contains elsewhere.
    """
    best = best_of(history)
    rows = [(n, a) for n, a in enumerate(history) if last is None or n >= len(history) - last or a is best]
    lines = [_line(n, history, attempt, attempt is best, told, judged) for n, attempt in rows]
    return "\n".join((*lines, *_lists(history)))


def history_part(
    file: str, history: Sequence[Attempt], told: Route | None = None, judged: Verdict | None = None
) -> Part:
    """The rounds as a part of the prompt of ``file``; shorter are the last three rounds, then the last one."""
    forms = (history_text(history, last, told, judged) for last in (None, _LAST_ROUNDS, 1))
    full, *shorter = (render(file, "history", history=form) for form in forms)
    return Part("history", "the journal", full, rank=5, shorter=tuple(shorter))


def _line(
    number: int, history: Sequence[Attempt], attempt: Attempt, is_best: bool, told: Route | None, judged: Verdict | None
) -> str:
    start = _start(history, number)
    origin = f" (from round {start + 1})" if start is not None and start < number - 1 else ""
    change = change_of(None if start is None else history[start], attempt)
    parts = [f"Round {number + 1} by {_who(attempt)}{origin}: {change}"]
    if attempt.rationale:
        purpose = textwrap.shorten(attempt.rationale, _MEANT, placeholder=" ...")
        parts.append(f'meant: "{purpose}"')
    if attempt.gate is not None and attempt.gate.state is not GateState.RIGHT:
        parts.append(f"the sketch is {attempt.gate.state.value}: {attempt.gate.reason}")
    if attempt.verdict is not None:
        parts.append(
            _result(attempt.verdict, attempt.verdict is judged)
            + _next_to_best(attempt)
            + (" (the best of these rounds)" if is_best else "")
        )
    route = attempt.route
    if route is not None and route != told:
        elsewhere = told is not None and route.suggestion in told.suggestion
        parts.append(f"sent to {route.to.value}" + ("" if elsewhere else f": {route.suggestion}"))
    return flat("; ".join(part.rstrip(".") for part in parts) + ".")


def _who(attempt: Attempt) -> str:
    coder = attempt.candidate.author if attempt.candidate is not None else None
    authors = [_WHO[attempt.author]] if attempt.author is not None else []
    if coder is not None and coder is not attempt.author and (coder is not Author.RULES or not authors):
        authors.append(f"coded by {_WHO[coder]}" if authors else _WHO[coder])
    return ", ".join(authors) or "rules"


def change_of(before: Attempt | None, attempt: Attempt) -> str:
    """A round's change, in a few words: values, lines of the sketch, or lines of the code."""
    if before is None or (before.sketch is None) != (attempt.sketch is None):
        return "the first design"
    values, parts = _design(attempt).values, []
    if attempt.sketch != before.sketch:
        parts.append(_lines("sketch", before.sketch or "", attempt.sketch or ""))
    old = _design(before).values
    parts += [f"{name} = {value} (was {old[name]})" for name, value in values.items() if old.get(name, value) != value]
    # if the design changed, its code differs everywhere without an edit
    if attempt.candidate is not None and before.candidate is not None and not parts:
        parts += _code(before.candidate.source, attempt.candidate.source)
    return " and ".join(filter(None, parts)) or "nothing changed"


def _design(attempt: Attempt) -> Design:
    return design_of(attempt.sketch or "", attempt.candidate.constexpr if attempt.candidate else {})


def _code(before: Source, after: Source) -> list[str]:
    old, new = ({n: unmarked(n, t) for n, t in bare(source).files.items()} for source in (before, after))
    return [_lines(name, old.get(name, ""), text) for name, text in new.items() if old.get(name, "") != text]


def _lines(name: str, before: str, after: str) -> str:
    """The number of changed lines and both sides of the largest change; for a rewritten text no line is shown."""
    old, new = ([line.strip() for line in text.splitlines() if line.strip()] for text in (before, after))
    codes = [c for c in SequenceMatcher(None, old, new, autojunk=False).get_opcodes() if c[0] != "equal"]
    if not codes:
        return f"{name}: layout only"
    count = sum(max(stop - start, n - m) for _, start, stop, m, n in codes)
    if 2 * count > max(len(old), len(new)) > 2:
        # as the file is shown, empty lines too, so that the count is the one of other sections
        return f"{name}: rewritten, {len(before.splitlines())} -> {len(after.splitlines())} lines"
    hunks = [(old[start:stop], new[m:n]) for _, start, stop, m, n in codes]
    significant = [h for h in hunks if not all(line.startswith(_ASIDE) for side in h for line in side)] or hunks
    return (
        f"{name}: {counted(count, 'line')}, {_pair(*map(' '.join, max(significant, key=lambda h: max(map(len, h)))))}"
    )


def _pair(old: str, new: str) -> str:
    """Both sides of a change, from shortly before the first difference."""
    if not old or not new:
        return f"{'added' if new else 'removed'} `{_cut(old or new, 0)}`"
    differences = (n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b)
    start = max(next(differences, min(len(old), len(new))) - _BEFORE, 0)
    return f"`{_cut(old, start)}` -> `{_cut(new, start)}`"


def _cut(text: str, start: int) -> str:
    part = text[start : start + _CHANGE]
    return f"{'... ' if start else ''}{part}{' ...' if start + _CHANGE < len(text) else ''}"


def _result(verdict: Verdict, elsewhere: bool) -> str:
    if elsewhere or not verdict.passed:
        return verdict.outcome + ("" if elsewhere else f": {reason_of(verdict)}")
    time = f"{duration(verdict.time.median_ms)}, " if verdict.time is not None else ""
    eager = verdict.against("eager")
    limits = "; ".join(condition.label for condition in avoidable(verdict.conditions))
    conditions = f", with conditions: {limits}" if limits else ""
    return f"passed, {time}{eager.text if eager is not None else 'not timed against eager'}{conditions}"


def _next_to_best(attempt: Attempt) -> str:
    comparison = attempt.next_to_best
    if comparison is None:
        return ""
    times = f"{comparison.speedup:.2f} times as fast [{comparison.low:.2f}, {comparison.high:.2f}]"
    return f", in one run with the best until then {times}"


def _lists(history: Sequence[Attempt]) -> list[str]:
    """Changes that paid, changes that did not, and values of tunables never measured; empty for few rounds."""
    timed_rounds = [n for n, attempt in enumerate(history) if _ms(attempt) is not None]
    if len(timed_rounds) < _ENOUGH:
        return []
    keep: list[str] = []
    avoid: list[str] = []
    for n in timed_rounds:
        m = _compared_round(history, n)
        if m is None:
            continue
        earlier, later = history[m], history[n]
        ratio = (times_as_fast(later.verdict, earlier.verdict) if earlier.verdict and later.verdict else None) or 1.0
        rounds = f"round {n + 1}" if n == m + 1 else f"round {n + 1} against round {m + 1}"
        change = change_of(earlier, later)
        is_rewritten = "rewritten" in change
        if is_rewritten and later.rationale:
            change += f', meant: "{textwrap.shorten(later.rationale, _CHANGE, placeholder=" ...")}"'
        if earlier.verdict is not None and later.verdict is not None and tied(earlier.verdict, later.verdict):
            continue
        entry = f"{change} ({rounds}, {ratio:.2f} times as fast)"
        if ratio > _CLEAR:
            keep.append(entry)
        elif ratio < 1 / _CLEAR and not is_rewritten:  # the cause of a rewritten text's time is unknown
            avoid.append(entry)
    rows = (("Paid, keep", keep), ("Did not pay, avoid", avoid), ("Not measured, try", _unmeasured(history)))
    return [f"{title}: {'; '.join(entries)}." for title, entries in rows if entries]


def _is_lowered(attempt: Attempt) -> bool:
    return attempt.candidate is None or attempt.candidate.author is Author.RULES


def _start(history: Sequence[Attempt], number: int) -> int | None:
    """The round from which a round was made: for handwritten code, the one that its Coder saw."""
    earlier, attempt = history[:number], history[number]
    start = None if _is_lowered(attempt) else start_of(earlier, attempt.sketch)
    return (
        next((n for n, earlier_round in enumerate(earlier) if earlier_round is start), number - 1) if number else None
    )


def _compared_round(history: Sequence[Attempt], number: int) -> int | None:
    """The timed round with which a round's change is compared: for a lowering the lowering before, for handwritten code
    its origin."""
    if _is_lowered(history[number]):
        lowered_rounds = (
            n for n in range(number - 1, -1, -1) if _ms(history[n]) is not None and _is_lowered(history[n])
        )
        return next(lowered_rounds, None)
    start = _start(history, number)
    while start is not None and _ms(history[start]) is None:
        start = _start(history, start)
    return start


def _unmeasured(history: Sequence[Attempt]) -> list[str]:
    """Values of tunables that the best sketch allows and that no round of it had, in its sketch or in its code."""
    from kernellab.sketch.check import check

    best = best_of(history)
    program = check(best.sketch).program if best is not None and best.sketch else None
    if best is None or program is None:
        return []
    design = _design(best).structure
    rounds = [(_design(attempt), _own_code(attempt)) for attempt in history]
    same_design = [(values, code) for (text, values), code in rounds if text == design]
    missing = []
    own_code = _own_code(best)
    for tunable in program.tunables:
        if own_code and len(re.findall(rf"\b{tunable.name}\b", own_code)) < 2:
            continue  # the code at most declares it
        assignment = re.compile(rf"\b{tunable.name}_?\s*=\s*(-?\d+)\b")  # in handwritten code
        tried = {str(values.get(tunable.name)) for values, _ in same_design}
        tried |= {value for _, code in same_design for value in assignment.findall(code)}
        untried = [str(value) for value in tunable.choices if str(value) not in tried]
        missing += [f"{tunable.name} = {' or '.join(untried)}"] if untried else []
    return missing


def _own_code(attempt: Attempt) -> str:
    """The files of a handwritten round; empty for a lowering."""
    is_plain = _is_lowered(attempt) or attempt.candidate is None
    return "" if is_plain else "\n".join(bare(attempt.candidate.source).files.values())  # type: ignore[union-attr]


def _ms(attempt: Attempt) -> float | None:
    verdict = attempt.verdict
    return verdict.time.median_ms if verdict is not None and verdict.passed and verdict.time is not None else None
