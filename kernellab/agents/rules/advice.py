"""Suggestions for a failure: the line, the dimension, the size, and the concrete fix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from kernellab.agents.briefs import CodeBrief, RouteBrief, reason_of
from kernellab.agents.rules.classify import LATE, is_of_judge
from kernellab.agents.rules.coder import RulesCoder
from kernellab.agents.rules.fixes import fixes
from kernellab.errors import KernellabError, counted
from kernellab.lowering.embedded_sketch import bare, same_code
from kernellab.records import Author, Evidence, GateState, RouteFact, RouteKind, Stage, Verdict
from kernellab.records.tried import Tried
from kernellab.sketch.program.ints import IntExpr
from kernellab.sketch.program.program import Load, Program, Range, Region, Statement, Store
from kernellab.sketch.program.walk import statements
from kernellab.target import Backend
from kernellab.verifier.protocol.remedies import OWN_PART, lost_digits, right_with_own_inputs

#: Share of wrong elements above which the errors are not confined to one place.
_MOSTLY = 0.5
#: For errors placed like a tail's, at sizes where other values are right.
_OF_VALUES = (
    "At these sizes it is right with the task's own inputs, so values decide: look for equal ones, large ones, small "
    "ones whose digits a difference loses, rounding next to a limit, and a pad or a mask's value that is not neutral."
)
#: An error of nearly all elements this small relative to the output's norm is not caused by a tail.
_LITTLE = 1e-3
#: Minimum length of an array or a mask that :func:`limit` suggests.
_SHORTEST = 4


def _fixes(brief: RouteBrief, evidence: Evidence) -> str:
    """The applicable sentences of the evidence's signature; empty if none applies."""
    code_places = _places(brief, None)
    return fixes(evidence, brief.task, _program(brief), code_places[0].words if code_places else "each load")


def advise(brief: RouteBrief, to: RouteKind) -> str:
    """Return the suggestion for ``to``; never empty."""
    if brief.verdict is None:
        return _about_sketch(brief)
    evidence = brief.verdict.evidence or Evidence()
    text = _about_code(brief, brief.verdict, evidence)
    # the condition that separates right from wrong precedes a signature's suggestion
    text = " ".join(filter(None, (multiple(evidence) or limit(evidence), text)))
    changed_places = _changed_since_it_passed(brief)
    # a change of tiles also changes rounding
    if changed_places and not evidence.compiler and not lost_digits(evidence):
        more = f" and {counted(len(changed_places) - 1, 'more place')}" if len(changed_places) > 1 else ""
        text += f" Changed since it last passed: {changed_places[0]}{more}."
    if to is RouteKind.DESIGNER:
        if evidence.signature in LATE and not is_of_judge(evidence):
            return f"Revise the sketch for less work in a run: its code reached the judge's time limit. {text}"
        failed = sum(round.verdict is not None and not round.verdict.passed for round in brief.rounds)
        times = "failed" if failed < 2 else f"failed {failed} times"
        return f"Revise the sketch: the code made from it {times}. {text}"
    return text


def evidence_lines(brief: RouteBrief) -> list[str]:
    """The facts of the route, one per line."""
    return [fact.line for fact in route_facts(brief)]


def route_facts(brief: RouteBrief) -> list[RouteFact]:
    """The facts of the route."""
    facts = []
    if brief.gate is not None:
        place = "gate" if brief.gate.state is GateState.RIGHT else f"gate: {brief.gate.state.value}"
        facts.append(RouteFact(place=place, text=brief.gate.reason))
        facts += [
            RouteFact(place=f"sketch line {d.line}", code=d.code, text=d.message)
            for d in brief.gate.diagnostics[:5]
            if d.severity == "error" or follows_sketch(brief)
        ]
    if brief.error:
        facts.append(RouteFact(text=f"coder: {brief.error}"))
    verdict = brief.verdict
    if verdict is None:
        return facts
    facts += [RouteFact(text=f"changed since it last passed: {at}") for at in _changed_since_it_passed(brief)[:5]]
    place = f"passed at {verdict.trust.value}" if verdict.passed else f"stage {verdict.stage.value}"
    facts.append(RouteFact(text=f"{place}: {reason_of(verdict)}", of_stage=True))
    evidence = verdict.evidence or Evidence()
    lines_not_in_reason = [line for line in evidence.compiler[:5] if line.message.rstrip(".") not in verdict.reason]
    facts += [RouteFact(text=f"{line.place}: {line.message}") for line in lines_not_in_reason]
    if evidence.sizes:
        facts += [RouteFact(text=text) for text in failing_case(verdict)]
    return (
        facts + [RouteFact(text=line) for line in contrast_lines(evidence)] + wrong_elements(evidence, verdict.reason)
    )


def wrong_elements(evidence: Evidence, reason: str) -> list[RouteFact]:
    """The first wrong element, or the largest error if no single element exceeds its limit; and the share of wrong
    elements, if the verdict's reason does not state it."""
    has_wrong_element = evidence.wrong_fraction != 0.0
    facts = []
    if evidence.first_wrong is not None:
        text = f"{'first wrong element' if has_wrong_element else 'largest error, at'} {evidence.first_wrong}"
        facts.append(RouteFact(text=text, got=evidence.got, want=evidence.want))
    if evidence.wrong_fraction is not None and not (has_wrong_element and " elements " in reason):
        share = f"wrong elements: {100 * evidence.wrong_fraction:.3g} %"
        facts.append(
            RouteFact(
                text=share if has_wrong_element else "no element alone is over its limit, the error as a whole is"
            )
        )
    return facts


def failing_case(verdict: Verdict) -> list[str]:
    """The sizes and the kind of inputs of the failing case, in a line; empty if the reason states them."""
    evidence = verdict.evidence
    if evidence is None or not evidence.sizes or _sizes(evidence.sizes) in verdict.reason:
        return []
    kind = f"{_kind(evidence.family)} inputs" if evidence.family else ""
    # for a task without Dims, every case has the task's sizes
    is_fixed = any("." in name for name in evidence.sizes)
    description = ", ".join(filter(None, ["" if is_fixed else _sizes(evidence.sizes), kind]))
    return [f"failing case: {description}"] if description else []


def _kind(family: str) -> str:
    return "the task's own" if family == "inputs" else family


def follows_sketch(brief: RouteBrief) -> bool:
    """Whether facts about the sketch apply to the code. Handwritten code may take other steps."""
    return brief.candidate is None or brief.candidate.author is Author.RULES


def _about_sketch(brief: RouteBrief) -> str:
    gate = brief.gate
    if brief.error:
        goal = "the sketch so that code can be made of it" if brief.sketch else "code that can be used"
        return f"Write {goal}: {brief.error}"
    if gate is None:
        return "Write a sketch for this task."
    for finding in gate.diagnostics:
        if finding.severity == "error":
            return f"Fix line {finding.line}: {finding.message} {finding.remedy}".strip()
    return (
        f"The sketch does not compute the reference: {gate.reason}" if gate.cases else f"Fix the sketch: {gate.reason}"
    )


def _about_code(brief: RouteBrief, verdict: Verdict, evidence: Evidence) -> str:
    if verdict.stage in (Stage.STATIC, Stage.BUILD) and evidence.compiler:
        compiler_line = evidence.compiler[0]
        sketch_line = _sketch_line(brief, compiler_line.file, compiler_line.line)
        origin = f" (made from sketch line {sketch_line})" if sketch_line else ""
        return f"Fix {compiler_line.place}{origin}."
    if is_of_judge(evidence):
        return (
            "The reference and the judge's other work, or other work on the machine, took the time: the code need not "
            "change, and the same code is verified once more."
        )
    if evidence.signature in LATE:
        return _about_time(brief)
    if evidence.signature in ("edge-tile", "mask-missing"):
        return _OF_VALUES if right_with_own_inputs(evidence) else _about_edge(brief, evidence)
    if fix := _fixes(brief, evidence):
        return fix
    if right_with_own_inputs(evidence):
        return _OF_VALUES
    if evidence.signature in ("library", "library-call", "no-kernel"):
        return f"{OWN_PART}."
    if evidence.compiler:
        compiler_line = evidence.compiler[0]
        return f"Fix {compiler_line.place}."
    # the sizes say more, and the evidence contains the reason
    by_size = multiple(evidence) or limit(evidence)
    if by_size:
        return ""
    if evidence.first_wrong is not None:
        smallest = min((case for case in evidence.tried if not case.right), default=None, key=_elements)
        sizes = smallest.sizes if smallest is not None else None
        where = f" at {_sizes(sizes)}" if sizes else f" {evidence.first_wrong}"
        return f"Follow one wrong element{where} through the code, and compare each step with the reference's."
    return f"Fix what the {verdict.stage.value} stage found."


def _elements(case: Tried) -> int:
    return sum(case.sizes.values())


def _about_time(brief: RouteBrief) -> str:
    """Advice for a run that reached the judge's time limit: make it shorter, or make it end."""
    if brief.target.backend is Backend.INTERPRETER:
        return (
            "Triton's interpreter runs each program as Python, one after the other, so time there is the programs "
            "times the steps of each: wider tiles and fewer programs take less."
        )
    loops = "bound each loop by what it needs (a loaded position where that is the end), and see that it ends"
    return f"Where a loop runs over an extent and masks most of it, {loops}."


def _about_edge(brief: RouteBrief, evidence: Evidence) -> str:
    """Name the dimension whose last tile is wrong, its size, and the loads that need the mask."""
    dim, size = _edge_dimension(brief, evidence)
    share = evidence.wrong_fraction or 0.0
    if share > _MOSTLY and (evidence.rel_frobenius or 1.0) < _LITTLE:
        return (
            "Nearly all of it is wrong, and by little: look for digits that are lost, as in a difference of near "
            "numbers or a sum in another order."
        )
    multiples = _multiples(evidence)
    if dim and multiples and not any(dim in dims for dims in multiples.values()):
        return ""  # the sizes that were tried identify another dimension
    no_tail = _no_tail(brief, dim, size) if dim and size else ""
    if not dim or no_tail:
        if share <= _MOSTLY:
            where = f"{dim}{_extent(dim, size)}, {no_tail}" if dim else "the output"
            return _about_the_end(where, is_verbatim(brief), lies_at_end(evidence))
        if evidence.error_map and all(set(row) == {"n"} for row in evidence.error_map) and share == 1.0:
            return (
                "No element has a number. Look for stores of whole tiles alone, which store nothing where a size is "
                "less than a tile, and for memory that is read before anything is stored to it."
            )
        return (
            ""
            if multiple(evidence)
            else (
                f"{_percent(share)} of the elements are wrong. Look for a loop that takes a step too many or too few, "
                "as over a reduced dimension, whose missing end spoils every result of it; and for an index that is "
                "wrong."
            )
        )
    places = _places(brief, dim)
    lines = _code_lines(brief, places)
    # a sum over the masked dimension shows its error at other places than the load's, so the loads come first
    names = list(dict.fromkeys(place.words for place in places)) or [f"each load and store at {dim}"]
    targets = _joined(names)
    positions = f" ({', '.join(lines)})" if lines else ""
    tile = f"the last tile of {dim}" if dim else "the last tile"
    extent = _extent(dim, size)
    if share > _MOSTLY:
        # values read beyond the end of a reduced dimension make every result wrong
        share_text = f"{_percent(share)} of the elements are wrong"
        return (
            f"Mask {targets}{positions}: {share_text} where {tile} is not a full one{extent}, and none at whole tiles."
        )
    if not lies_at_end(evidence):
        return f"Mask {targets}{positions}: it is wrong where {tile} is not a full one{extent}."
    return f"Mask {targets}{positions}: errors lie only in {tile}{extent}."


def _extent(dim: str, size: int | None) -> str:
    """The size as ``(N=1000)``; empty for a dimension that is named by its size."""
    return f" ({dim}={size})" if dim.isidentifier() and size else ""


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def lies_at_end(evidence: Evidence) -> bool:
    """Whether the map shows wrong elements only in the last half of its rows or columns. True without any."""
    rows = [row for row, line in enumerate(evidence.error_map) if line.strip(".")]
    columns = [n for line in evidence.error_map for n, mark in enumerate(line) if mark != "."]
    if not rows:
        return True
    high, wide = len(evidence.error_map), len(evidence.error_map[0])
    return (high > 1 and 2 * rows[0] >= high) or (wide > 1 and 2 * min(columns) >= wide)


def _about_the_end(where: str, verbatim: bool, at_end: bool) -> str:
    """Advice for errors at the end of a dimension without a partial tile in the sketch: code that follows the sketch
    verbatim needs no mask there; other code may take other steps. For errors elsewhere, a reduced dimension may have
    lost its end."""
    if not at_end:
        step = "" if verbatim else "a step of the code's own that does not divide a dimension, "
        return f"Look for {step}a loop that ends early, as over a reduced dimension, or an index that is wrong."
    step = "no mask is missing. Look" if verbatim else "look for a step of the code's own that does not divide it, or"
    return (
        f"The wrong elements lie at the end of {where}: {step} for a loop that ends early, an array shorter than the "
        "loop over it, or an index that is wrong from some place on."
    )


def contrast_lines(evidence: Evidence) -> list[str]:
    """Where a failing kernel is right and where it is wrong, among the cases that were tried afterwards."""
    right, wrong = _told_apart(evidence)
    if not right and not wrong:
        return []
    if wrong and not right and all(case.sizes == evidence.sizes for case in wrong):
        return ["With the task's own inputs it is wrong at these sizes, too."]
    if not right:
        small = [case for case in wrong if case.sizes != evidence.sizes]
        least = _sizes(min(small, key=_elements).sizes)
        return [
            f"It is wrong at each of {counted(len(small), 'small size')} that were tried, {least} too."
            if len(small) > 1
            else f"It is wrong at the small size that was tried, {least}, too."
        ]
    lines = []
    if wrong:
        smallest = min(wrong, key=_elements)
        if smallest.sizes != evidence.sizes:
            lines.append(f"The smallest failing size is {_sizes(smallest.sizes)}.")
        lines.append(f"Right at {_several(right)}; wrong at {_several(wrong)}.")
        lines += [step] if (step := multiple(evidence) or limit(evidence)) else []
    else:
        lines.append(f"With the task's own inputs it is right at all that were tried: {_several(right)}.")
    return lines


def _several(cases: Sequence[Tried]) -> str:
    """The sizes as ``S=32, 64``, or each case with all of its sizes if several Dims differ."""
    cases = sorted(cases, key=_elements)
    uniform = [case for case in cases if len(set(case.sizes.values())) == 1]
    if len(uniform) == len(cases):
        names = "=".join(cases[0].sizes)
        return f"{names}={', '.join(str(next(iter(case.sizes.values()))) for case in cases)}"
    return "; ".join(f"({_sizes(case.sizes)})" for case in cases)


def multiple(evidence: Evidence) -> str:
    """State the multiple of Dims that separates right from wrong sizes, in a sentence; empty if there is none. Of
    several, the largest comes first: tiles are seldom small."""
    right, _ = _told_apart(evidence)
    dims_by_step = _multiples(evidence)
    if not dims_by_step:
        return ""
    except_one = ", or where every size is 1" if len(_larger(right)) < len(right) else ""
    step, *less = dims_by_step
    dims = dims_by_step[step]
    are = f"{_joined(dims)} {'is a multiple' if len(dims) == 1 else 'are multiples'} of {step}"
    other_steps = [str(n) for n in less if dims_by_step[n] == dims]
    also_fits = f" ({_joined(other_steps)} {'fits' if len(other_steps) == 1 else 'fit'} as well)" if other_steps else ""
    return f"Of the sizes tried it is right exactly where {are}{also_fits}{except_one}: look for a missing tail."


def _larger(cases: Sequence[Tried]) -> list[Tried]:
    """Omit cases whose every size is 1, where few loops take a step at all."""
    return [case for case in cases if set(case.sizes.values()) != {1}]


def _multiples(evidence: Evidence) -> dict[int, list[str]]:
    """The Dims that are a multiple of 64, 32, ... 2 in every right case that was tried, and in no wrong one."""
    right, wrong = _told_apart(evidence)
    larger = _larger(right)
    dims_by_step: dict[int, list[str]] = {}
    for step in (64, 32, 16, 8, 4, 2):
        for dim in larger[0].sizes if larger and wrong else ():
            good, bad = ({case.sizes[dim] for case in cases} for cases in (larger, wrong))
            if len(good) > 1 and all(n % step == 0 for n in good) and all(n % step for n in bad):
                dims_by_step.setdefault(step, []).append(dim)
    return dims_by_step


def limit(evidence: Evidence) -> str:
    """State the size up to which a kernel is right and above which it is wrong, in a sentence; else empty."""
    right, wrong = _told_apart(evidence)
    ends: dict[int, list[str]] = {}
    for dim in right[0].sizes if len(right) > 1 and wrong else ():
        last, first = max(case.sizes[dim] for case in right), min(case.sizes[dim] for case in wrong)
        if first == last + 1 and last >= _SHORTEST:
            ends.setdefault(last, []).append(dim)
    if len(ends) != 1:
        return ""
    ((last, dims),) = ends.items()
    return (
        f"It is right where {_joined(dims)} {'is' if len(dims) == 1 else 'are'} at most {last}, and wrong from "
        f"{last + 1} on: look for an array, a mask or a loop of that length."
    )


def _told_apart(evidence: Evidence) -> tuple[list[Tried], list[Tried]]:
    """Split the cases of the task's own inputs into those in which the kernel is right, and the others."""
    own_cases = [case for case in evidence.tried if case.family in ("", "inputs")]
    return [case for case in own_cases if case.right], [case for case in own_cases if not case.right]


def _joined(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _no_tail(brief: RouteBrief, dim: str, size: int) -> str:
    """Why no tile along ``dim`` is partial: each divides its size, or there are none; else empty."""
    program = _program(brief)
    if program is None or not dim.isidentifier():
        return ""
    values = {c.name: c.value for c in program.constexprs if isinstance(c.value, int)}
    values |= {n: v for n, v in (brief.candidate.constexpr if brief.candidate else {}).items() if isinstance(v, int)}
    values[dim] = size
    tiles = [extent for kernel in program.kernels for extent in _tile_extents(kernel.body, dim)]
    sizes = [tile.evaluate(values) for tile in tiles if tile.names() <= values.keys()]
    if not tiles:
        return "along which the sketch has no tiles"
    all_divide = len(sizes) == len(tiles) and all(tile > 0 and size % tile == 0 for tile in sizes)
    return "which the sketch's tiles divide" if all_divide else ""


def _tile_extents(body: tuple[Statement, ...], dim: str) -> Iterator[IntExpr]:
    for statement in statements(body):
        if isinstance(statement, (Load, Store)):
            region = statement.region
            for index, extent in zip(region.index, region.tensor.shape, strict=True):
                if isinstance(index, Range) and str(extent) == dim:
                    yield index.extent


@dataclass(frozen=True)
class _Place:
    words: str
    line: int
    #: The extents of the dimensions of which it takes a range.
    over: tuple[str, ...] = ()


def _edge_dimension(brief: RouteBrief, evidence: Evidence) -> tuple[str, int | None]:
    """The dimension whose last tile is wrong, by its Dim's name, and its size.

    This is the dimension in which the first error is furthest towards the end, if the sketch takes tiles of it. An
    error in a sum over the masked dimension appears in every column of the row; then it is the ragged tiled dimension.
    """
    tiled = {extent for place in _places(brief, None) for extent in place.over}
    name, size = _last_in(brief, evidence)
    if name and (not tiled or (name if name.isidentifier() else str(size)) in tiled):
        return name, size
    return _ragged(brief, evidence, tiled)


def _last_in(brief: RouteBrief, evidence: Evidence) -> tuple[str, int | None]:
    """The output's dimension in which the first wrong element is furthest towards the end."""
    outputs = brief.task.outputs
    spec = outputs[evidence.output or 0] if outputs and (evidence.output or 0) < len(outputs) else None
    if spec is None or not evidence.first_wrong or len(evidence.first_wrong) != len(spec.shape):
        return "", None
    best: tuple[float, str, int | None] = (0.0, "", None)
    for position, entry in zip(evidence.first_wrong, spec.shape, strict=True):
        name = str(entry)
        size = evidence.sizes.get(name, entry if isinstance(entry, int) else None)
        if size and size > 1 and position / size > best[0]:
            best = (position / size, name if not isinstance(entry, int) else f"the dimension of {size}", size)
    return best[1], best[2]


def _ragged(brief: RouteBrief, evidence: Evidence, tiled: set[str]) -> tuple[str, int | None]:
    """The Dim that no tile divides, among those of which the sketch takes tiles (among all, if it takes none)."""
    tiles = [v for v in (brief.candidate.constexpr if brief.candidate else {}).values() if isinstance(v, int) and v > 1]
    for name, size in evidence.sizes.items():
        if (not tiled or name in tiled) and any(size % tile for tile in tiles):
            return name, size
    return "", None


def _places(brief: RouteBrief, dim: str | None) -> list[_Place]:
    """Loads and stores of the sketch that range over ``dim`` (over any, for None), in order."""
    program = _program(brief)
    if program is None:
        return []
    return [place for kernel in program.kernels for place in _in_body(kernel.body, dim)]


def _in_body(body: tuple[object, ...], dim: str | None) -> Iterator[_Place]:
    for statement in statements(body):  # type: ignore[arg-type]
        if not isinstance(statement, (Load, Store)):
            continue
        region = statement.region
        extents = _ranged(region)
        if extents and (not dim or dim in extents):
            kind = "store to" if isinstance(statement, Store) else "load of"
            dimension = dim or extents[-1]
            words = f"the {kind} {region.tensor.name} at {dimension}"
            yield _Place(words, statement.span.line, tuple(extents))


def _ranged(region: Region) -> list[str]:
    """The extents of the dimensions of which a region takes a range."""
    pairs = zip(region.index, region.tensor.shape, strict=True)
    return [str(extent) for index, extent in pairs if isinstance(index, Range)]


def _program(brief: RouteBrief) -> Program | None:
    if brief.sketch is None:
        return None
    from kernellab.sketch.check import load_program

    try:
        return load_program(brief.sketch)
    except KernellabError:
        return None


def _code_lines(brief: RouteBrief, places: list[_Place]) -> list[str]:
    """Positions of those sketch lines in the code, if it still has its line map."""
    if brief.candidate is None:
        return []
    sketch_lines = {place.line for place in places}
    positions = []
    for file, lines in brief.candidate.source.line_map.items():
        numbers = sorted(code for code, sketch in lines.items() if sketch in sketch_lines)
        if numbers:
            positions.append(f"{file}:{numbers[0]}")
    return positions


def _changed_since_it_passed(brief: RouteBrief) -> list[str]:
    """Differences between the code and the last one that passed for the same design: ``file:line: text`` for each
    changed stretch of lines, or the number of different lines of a file if most differ."""
    candidate = brief.candidate
    if candidate is None or brief.verdict is None or brief.verdict.passed:
        return []
    for attempt in reversed(brief.history):
        earlier = attempt.candidate
        if earlier is None or attempt.verdict is None or not attempt.verdict.passed:
            continue
        if (earlier.sketch, earlier.constexpr) != (candidate.sketch, candidate.constexpr):
            continue  # another design's code differs everywhere
        old, new = bare(earlier.source).files, bare(candidate.source).files
        shared = (brief.verdict.evidence or Evidence()).signature == "race"
        return [place for name, text in new.items() for place in _differs(name, old.get(name, ""), text, shared)]
    return []


def _differs(name: str, before: str, text: str, shared: bool) -> Iterator[str]:
    """Yield the changed places. With ``shared``, lines with a variable that all threads share come first."""
    old, new = before.splitlines(), text.splitlines()
    stretches = [
        (start, stop)
        for tag, _, _, start, stop in SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        if tag != "equal"
    ]
    count = sum(stop - start for start, stop in stretches)
    if len(stretches) > 1 and count > len(new) / 2:
        yield f"{count} of {name}'s {len(new)} lines"
        return
    old_lines = set(map(str.strip, old))

    def one_for_all(at: int) -> bool:
        is_kept = new[at].startswith((" ", "\t")) and new[at].split()[:1] == ["static"] and "const" not in new[at]
        return shared and is_kept and new[at].strip() not in old_lines

    def order(lines: tuple[int, int]) -> tuple[bool, bool]:
        return not any(map(one_for_all, range(*lines))), not any(map(_acts, new[lines[0] : lines[1]]))

    for start, stop in sorted(stretches, key=order):
        if start == stop:
            yield f"{name}:{start + 1} (lines removed before it)"
            continue
        significant = (n for keep in (one_for_all, lambda n: _acts(new[n])) for n in range(start, stop) if keep(n))
        index = next(significant, start)
        yield f"{name}:{index + 1}: {new[index].strip()[:120]}"


def _acts(line: str) -> bool:
    """Whether a line has an effect: it is not an include, an import, a comment or a brace."""
    text = line.strip()
    return any(c.isalnum() for c in text) and not text.startswith(("#", "//", "/*", "*", "import ", "from "))


def _sketch_line(brief: RouteBrief, file: str, line: int | None) -> int | None:
    if brief.candidate is None or line is None:
        return None
    return brief.candidate.source.line_map.get(file, {}).get(line)


def _sizes(sizes: dict[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in sizes.items())


# -- whether a candidate's code is byte for byte the lowering of its sketch --------------------------------------------
# If so, the code has no fault: it computes what the sketch says. If the gate found the sketch right on its small sizes
# and the Verifier finds wrong numbers, the fault appears at sizes or values that the gate did not try (a carry
# between tiles, cancellation, overflow), and it is in the sketch.


def is_verbatim(brief: RouteBrief) -> bool:
    """Lower the sketch again and compare; False without a candidate, a sketch or a lowering."""
    if brief.candidate is None or not brief.sketch:
        return False
    code_brief = CodeBrief(brief.task, brief.target, brief.sketch, constexpr=brief.candidate.constexpr)
    try:
        return same_code(RulesCoder().code(code_brief).source, brief.candidate.source)
    except KernellabError:
        return False
