"""Every candidate of a session in a list, and any two of them side by side."""

from __future__ import annotations

import csv
import difflib
import io
from collections.abc import Mapping, Sequence

from kernellab.notebook.answers import CandidateComparison, CandidatePage, CandidateRow, ComparedRow
from kernellab.notebook.views.at_turn import verdict_at
from kernellab.notebook.views.headers import own_files
from kernellab.notebook.views.verdict import facts, figure, speedup_title
from kernellab.records import Verdict
from kernellab.session.compare import PairedRun, paired_ratios, paired_runs, ratio_of
from kernellab.session.record.records import Turn
from kernellab.session.record.render import CandidateShown, candidates_of
from kernellab.session.record.standings import SELF, Ratio
from kernellab.session.record.state import State
from kernellab.session.record.view import verdict_line
from kernellab.session.turn.sweeping import said

PAGE_LIMIT = 500


def rows_of(state: State) -> list[CandidateRow]:
    """A ``CandidateRow`` of the protocol for each turn that gave a source, by number."""
    path = {turn.id for turn in state.path()}
    turns = {turn.number: turn for turn in state.turns.values()}
    standings = state.standings()
    tied = {other.number for other in standings[1:] if standings[0].tied(other)}
    return [
        _row(state, shown, turns[shown.number], on_path=turns[shown.number].id in path, tied=shown.number in tied)
        for shown in candidates_of(state)
    ]


def _paired(state: State, turn: Turn) -> str:
    """How a kernel came out of runs that timed it with others, at each sizes: its time there, and whether the fastest
    of the run differs from it."""
    if turn.candidate is None or not state.paired:
        return ""
    return "; ".join(_in_run(run, turn.candidate.source.hash) for run in paired_runs(state, turn.id))


def _in_run(run: PairedRun, own_hash: str) -> str:
    """How the kernel with the source hash ``own_hash`` came out of ``run``."""
    where = f" at {said(run.sizes)}" if run.sizes else ""
    time = f"timed in one run{where}: {run.ms[own_hash]:.3g} ms"
    # the ratios are of the run's first kernel over each, so that the fastest has the least
    fastest = min(run.ratios, key=lambda source: run.ratios[source].speedup)
    if own_hash == fastest:
        others = [ratio for source, ratio in run.ratios.items() if source != own_hash]
        if all(run.ratios[own_hash].high < other.low for other in others):
            return f"{time}, the fastest"
        return f"{time}, no difference from the next" if len(others) > 1 else f"{time}, no difference"
    ratio = run.ratios[fastest].over(run.ratios[own_hash])
    if not ratio.is_significant:
        return f"{time}, no difference from turn {run.turns[fastest]}"
    return f"{time}, {ratio.speedup:.2f}x as fast as turn {run.turns[fastest]} [{ratio.low:.2f}, {ratio.high:.2f}]"


def _row(state: State, shown: CandidateShown, turn: Turn, *, on_path: bool, tied: bool) -> CandidateRow:
    verdict = shown.verdict
    eager = verdict.against("eager") if verdict else None
    time = verdict.time if verdict else None
    spread = f"median of {time.samples} calls, quartiles {time.q1_ms:.3g} to {time.q3_ms:.3g} ms" if time else ""
    notes = [_paired(state, turn), _outcome(verdict), _sketch_author(state, turn)]
    return {
        "turn": turn.id,
        "number": turn.number,
        "author": turn.author.value,
        "passed": verdict.passed if verdict else None,
        "on_path": on_path,
        "trust": verdict.trust.value if verdict else "",
        "time": figure(f"{time.median_ms:.3g} ms", spread) if time else None,
        "speedup": figure(eager.text, speedup_title(eager, verdict)) if eager and verdict else None,
        "value": eager.speedup if eager else None,
        "low": eager.low if eager else None,
        "note": "; ".join(filter(None, notes)),
        "best": shown.best,
        "tied": tied,
    }


def _sketch_author(state: State, turn: Turn) -> str:
    """Who wrote the sketch, where it was not who wrote the code."""
    design = state.sketch_turn(turn.id)
    return f"sketch by {design.author.value}" if design and design.author is not turn.author else ""


def _outcome(verdict: Verdict | None) -> str:
    if verdict is None:
        return "not verified"
    return verdict.label if verdict.passed else verdict_line(verdict)


def page(rows: list[CandidateRow], offset: int, limit: int, sort: str = "number") -> CandidatePage:
    """A ``CandidatePage``: ``limit`` rows (500 at most) from ``offset``, by number or the fastest first.

    The fastest first is the order in which the session has its best: verified before not, by the lower end of the
    interval.
    """
    ordered = sorted(rows, key=_fastest) if sort == "speedup" else rows
    offset = max(0, min(offset, len(ordered)))
    return {"total": len(rows), "offset": offset, "rows": ordered[offset : offset + max(0, min(limit, PAGE_LIMIT))]}


def _fastest(row: CandidateRow) -> tuple[bool, bool, float]:
    return not row["best"], not (row["passed"] and row["trust"] not in ("T0", "T1")), -(row["low"] or 0.0)


def comparison(state: State, a: str, b: str) -> CandidateComparison:
    """A ``CandidateComparison`` of the kernels that two turns wrote, or that their lines end with. Raises SessionError
    for a turn that is not there."""
    first, second = state.turn(a), state.turn(b)
    verdicts = _verdict_of(state, first), _verdict_of(state, second)
    rows = [dict(facts(verdict)) | {"verdict": verdict.outcome} if verdict else {} for verdict in verdicts]
    for sizes, ms in reversed(_together(state, first, second)):
        name = f"time in one run{f' at {said(sizes)}' if sizes else ''}"
        rows = [{name: f"{one:.3g} ms"} | row for one, row in zip(ms, rows, strict=True)]
    names = list(dict.fromkeys([*rows[0], *rows[1]]))
    return {
        "a": first.id,
        "b": second.id,
        "verdict": _sentence(state, first, second, *verdicts),
        "rows": [{"name": name, "a": rows[0].get(name, ""), "b": rows[1].get(name, ""), "title": ""} for name in names],
        "diff": difference(state, first, second),
    }


def _together(state: State, first: Turn, second: Turn) -> list[tuple[Mapping[str, int], tuple[float, float]]]:
    """What the kernels of two turns took, in ms, in each run that timed both."""
    a, b = state.candidate(first.id), state.candidate(second.id)
    if a is None or b is None or a.source.hash == b.source.hash:
        return []
    one, other = a.source.hash, b.source.hash
    return [(run.sizes, (run.ms[one], run.ms[other])) for run in paired_runs(state, first.id) if other in run.ms]


def _verdict_of(state: State, turn: Turn) -> Verdict | None:
    if turn.candidate is None:
        return verdict_at(state, turn.id)
    verified = state.verdict_of(turn.candidate.source.hash)
    return verified.verdict if verified else None


def named(state: State, turn: Turn) -> str:
    """The turn that wrote the kernel which ``turn`` is about."""
    wrote = state.source_turn(turn.id)
    return f"turn {wrote.number if wrote else turn.number}"


def _sentence(state: State, first: Turn, second: Turn, a: Verdict | None, b: Verdict | None) -> str:
    one, other = named(state, first), named(state, second)
    if one == other:
        return f"Both are the kernel of {one}: there is nothing to compare."
    if a is None or b is None:
        missing = one if a is None else other
        return f"{missing.capitalize()} has no verdict, so there is nothing to compare but the texts."
    if not (a.passed and b.passed):
        failed = " and ".join(name for name, v in ((one, a), (other, b)) if not v.passed)
        return f"{failed.capitalize()} did not pass: only the texts can be compared."
    elsewhere = [
        _faster(one, other, ratio, f", timed in one run at {said(sizes)}")
        for sizes, ratio in paired_ratios(state, first.id, second.id)
        if sizes
    ]
    speedup = ratio_of(state, first.id, second.id)
    if speedup is None:
        return " ".join(["They were not both timed against one baseline.", *elsewhere])
    timed = a.against(speedup.baseline)
    method = f", by their speedups over {timed.against}" if timed else ", timed in one run"
    return " ".join([_faster(one, other, speedup.ratio, method), *elsewhere])


def _faster(one: str, other: str, ratio: Ratio, method: str) -> str:
    """Which is faster; ``ratio`` is the speedup of ``other`` over ``one``."""
    if not ratio.is_significant:
        words = f"{other} is {_times(ratio)} {one} {_interval(ratio)}{method}"
        return f"The difference between {one} and {other} is not significant: {words}."
    fast, slow = (other, one) if ratio.speedup >= 1.0 else (one, other)
    gain = ratio if ratio.speedup >= 1.0 else SELF.over(ratio)
    return f"{fast.capitalize()} is {_times(gain)} {slow} {_interval(gain)}{method}."


def _times(ratio: Ratio) -> str:
    return f"{ratio.speedup:.2f} times as fast as"


def _interval(ratio: Ratio) -> str:
    return f"(95 %: {ratio.low:.2f} to {ratio.high:.2f})"


def difference(state: State, first: Turn, second: Turn) -> str:
    """A unified diff of the sketches and of the files that differ, from the older kernel to the newer one."""
    first, second = sorted((first, second), key=lambda turn: turn.number)
    one, other = _texts(state, first), _texts(state, second)
    parts = []
    for name in dict.fromkeys([*one, *other]):
        before, after = one.get(name, ""), other.get(name, "")
        if before != after:
            lines = difflib.unified_diff(
                before.splitlines(), after.splitlines(),
                f"{named(state, first)}/{name}", f"{named(state, second)}/{name}", lineterm="",
            )  # fmt: skip
            parts.append("\n".join(lines))
    return "\n".join(parts)


def _texts(state: State, turn: Turn) -> dict[str, str]:
    designed, candidate = state.sketch_turn(turn.id), state.candidate(turn.id)
    sketch = {"sketch": designed.sketch} if designed and designed.sketch else {}
    return sketch | (own_files(candidate.source) if candidate else {})


def as_text(compared: CandidateComparison, a: str, b: str) -> str:
    """A comparison in columns under the two kernels' names, then the difference of their texts."""
    head: ComparedRow = {"name": "", "a": a, "b": b, "title": ""}
    rows = [head, *compared["rows"]] if compared["rows"] else []
    names, wide = max((len(row["name"]) for row in rows), default=0), max((len(row["a"]) for row in rows), default=0)
    lines = [f"{row['name']:<{names}}  {row['a']:<{wide}}  {row['b']}".rstrip() for row in rows]
    return "\n".join([compared["verdict"], "", *lines, "", compared["diff"]]).rstrip()


def compared_csv(compared: CandidateComparison, one: str, other: str) -> str:
    """A comparison's figures as comma-separated values, and its sentence on the last line."""
    file = io.StringIO()
    table = csv.writer(file, lineterminator="\n")
    table.writerow(["", one, other])
    table.writerows([row["name"], row["a"], row["b"]] for row in compared["rows"])
    table.writerow(["difference", compared["verdict"], ""])
    return file.getvalue()


def as_csv(rows: Sequence[CandidateRow]) -> str:
    """The candidates as comma-separated values with a line of names."""
    file = io.StringIO()
    table = csv.writer(file, lineterminator="\n")
    table.writerow(["candidate", "author", "passed", "best", "trust", "speedup", "figure", "time"])
    for row in rows:
        figure, time = row["speedup"], row["time"]
        table.writerow(
            [
                row["number"], row["author"], row["passed"], row["best"], row["trust"], row["value"],
                figure["text"] if figure else "", time["text"] if time else "",
            ]
        )  # fmt: skip
    return file.getvalue()
