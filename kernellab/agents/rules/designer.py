"""The Designer that needs no model: several schedules of a captured graph, and what the history leaves to try."""

from __future__ import annotations

import re
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kernellab.agents.briefs import DesignBrief, DesignReply
from kernellab.capture import Graph, capture
from kernellab.designer.graph.cuts import PRODUCTS
from kernellab.designer.graph.fallback import Fallback, fallen
from kernellab.designer.schedule import NONE, Scheduled, prepared, scheduled, styles
from kernellab.designer.tile.styles import Style
from kernellab.errors import DesignError, KernellabError, NodeError
from kernellab.records import Author, RouteKind
from kernellab.target import Target
from kernellab.task import Task

_FALLBACK = "No rule designs all of it, so calls of the framework stand between its own launches:"
#: parts of the usual tiles that are tried where these do not fit
_PARTS = (4, 16)
#: what a rule raises at a form that it was not written for
BROKEN = (AssertionError, AttributeError, LookupError, RecursionError, StopIteration, TypeError, ValueError)
_ALGEBRA = "Algebra: only sums are asked of a product, so sums of its factors are multiplied instead."


class RulesDesigner:
    """Designs from the graph alone: families of operations and extents, never names.

    ``algebra`` False keeps every product that the reference has, even where only sums of it are asked: an ablation.
    """

    author = Author.RULES

    def __init__(self, algebra: bool = True) -> None:
        self.algebra = algebra

    def designs(self, brief: DesignBrief) -> list[DesignReply]:
        """Every schedule that the rules know for the task on the target, best first.

        Raises:
            DesignError: a node outside the families (named, with its source line), or pins that no schedule keeps.
            CaptureError: the reference cannot be captured.
        """
        graph = capture(brief.task)
        replies, refused = self._schedules(brief, graph, NONE)
        ordered = _fitting_first(replies, brief.target)
        if len(ordered) > 1 and not _fits(ordered[0].sketch, brief.target):
            ordered = [*self._smaller(brief, graph), *ordered]
        if brief.allow_library:
            ordered = self._with_library(brief, graph, ordered)
        if refused is not None and not ordered:
            ordered = self._falling_back(brief, prepared(graph), refused)
        return _keeping_pins(ordered, brief.previous)

    def _smaller(self, brief: DesignBrief, graph: Graph) -> list[DesignReply]:
        """The blocked schedule in the largest tiles that fit, where none of the usual ones does: a long expression
        holds many values of a tile at once."""
        for part in _PARTS:
            replies, _ = self._schedules(brief, graph, NONE, [in_parts(brief.target, part, self.algebra)])
            if any(_fits(reply.sketch, brief.target) for reply in replies):
                return replies
        return []

    def _schedules(
        self, brief: DesignBrief, graph: Graph, fallback: Fallback, chosen: Sequence[Style] = ()
    ) -> tuple[list[DesignReply], DesignError | None]:
        """The schedules that can be designed, and why others cannot: the node that no rule knows, if it is that."""
        replies: dict[str, DesignReply] = {}
        refused: DesignError | None = None
        lost: list[str] = []
        for style in chosen or schedules(brief.task, graph, brief.target, self.algebra):
            try:
                found = scheduled(brief.task, graph, brief.target, style, fallback=fallback)
            except BROKEN as error:
                # a combination that no rule was written for; another schedule may do without it
                refused = refused or _unforeseen(brief, error)
                lost.append(f"The schedule {style.title!r} is left out: {_where(error)}.")
                continue
            except DesignError as error:
                refused = refused if isinstance(refused, NodeError) else error
                if isinstance(error, NodeError):
                    # every style reads the same nodes
                    break
                continue
            reply = _reply(style, found, brief.previous)
            replies.setdefault(reply.sketch, reply)
        said = (replace(reply, rationale=" ".join((reply.rationale, *lost))) for reply in replies.values())
        return list(said), refused

    def _falling_back(self, brief: DesignBrief, graph: Graph, refused: DesignError) -> list[DesignReply]:
        """Schedules in which the framework makes the nodes that no rule does, one after another; the rest is our own.

        Raises:
            DesignError: ``refused``, where nothing would be left for a launch of our own.
        """
        fallback, replies, error = NONE, list[DesignReply](), refused
        while not replies:
            fallback = fallback.after(graph, error)
            if not fallback.leaves_work(graph):
                raise refused
            replies, found = self._schedules(brief, graph, fallback)
            error = found or error
        names = tuple(fallen(graph, fallback.calls))
        why = f"{_FALLBACK} {', '.join(names)}." if names else ""
        ordered = _fitting_first(replies, brief.target)
        return [replace(r, rationale=f"{r.rationale} {why}".strip(), library_calls=names) for r in ordered]

    def _with_library(self, brief: DesignBrief, graph: Graph, own: list[DesignReply]) -> list[DesignReply]:
        """``own`` and the one design that composes with the library, before them where it looks faster."""
        for style, found in composed(brief.task, graph, brief.target, self.algebra):
            reply = _reply(style, found, brief.previous)
            if own and not _fits(reply.sketch, brief.target):
                continue
            times = [model_time(brief.task, r.sketch, brief.target) for r in (reply, *own[:1])]
            first = len(times) > 1 and None not in times and times[0] < times[1]  # type: ignore[operator]
            return [reply, *own] if first or not own else [own[0], reply, *own[1:]]
        return own

    def design(self, brief: DesignBrief) -> DesignReply:
        """The best schedule; when the work was sent back here, the best one not tried yet."""
        replies = self.designs(brief)
        if brief.route is None or brief.route.to is not RouteKind.DESIGNER:
            return replies[0]
        tried = {_plain(a.sketch) for a in brief.history if a.sketch} | {
            _plain(a.candidate.sketch) for a in brief.history if a.candidate and a.candidate.sketch
        }
        if brief.previous:
            tried.add(_plain(brief.previous))
        for reply in replies:
            if _plain(reply.sketch) not in tried:
                return reply
        raise DesignError(
            f"The rules Designer has tried its {len(replies)} schedules of {brief.task.name!r}.",
            "Edit the sketch, or give the role to a person or a model.",
        )


def _where(error: Exception) -> str:
    """What a rule raised at a form that it was not written for, and where: a fault of ours, to be reported."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"a rule of ours raised {type(error).__name__} ({Path(frame.filename).name}, line {frame.lineno})"


def _unforeseen(brief: DesignBrief, error: Exception) -> DesignError:
    name, kind = brief.task.name, type(error).__name__
    return DesignError(
        f"The rules Designer has no schedule of {name!r} that joins its operations ({kind}).",
        "Let a person or a model write this sketch.",
    )


def _reply(style: Style, found: Scheduled, previous: str | None) -> DesignReply:
    """One schedule; a person's ``require:`` lines in the previous sketch are kept."""
    words = [f"{style.title.capitalize()}.", style.why, *([_ALGEBRA] if found.algebra else [])]
    return DesignReply(_with_requires(found.text, previous), rationale=" ".join(words), rewritten=found.algebra)


def _fitting_first(replies: list[DesignReply], target: Target) -> list[DesignReply]:
    """Best first among those that fit the chip: the others need a person's smaller tiles."""
    # a text of a whole network takes seconds to check
    return sorted(replies, key=lambda r: not _fits(r.sketch, target)) if len(replies) > 1 else replies


def _fits(text: str, target: Target) -> bool:
    from kernellab.sketch.check import check

    return not any(d.rule == "footprint" for d in check(text, chip=target.chip).diagnostics)


def _plain(text: str) -> str:
    """A sketch without comments and spacing, for comparison."""
    return re.sub(r"\s+", " ", re.sub(r"#.*", "", text)).strip()


def _with_requires(text: str, previous: str | None) -> str:
    """``text`` with the previous sketch's ``require:`` lines, which belong to a person."""
    wanted = [line.strip() for line in (previous or "").splitlines() if line.strip().startswith("require:")]
    missing = [w for w in wanted if w not in text]
    if not missing:
        return text
    lines = text.splitlines()
    at = max((i for i, line in enumerate(lines) if line.strip().startswith(("constexpr:", "tensors:"))), default=0)
    lines[at + 1 : at + 1] = [f"    {w}" for w in missing]
    return "\n".join(lines) + "\n"


def _keeping_pins(replies: list[DesignReply], previous: str | None) -> list[DesignReply]:
    if previous is None or "#: pin" not in previous:
        return replies
    from kernellab.sketch.syntax.pins import check_pins, pinned_lines

    breaches = [check_pins(previous, reply.sketch, Author.RULES) for reply in replies]
    kept = [reply for reply, breach in zip(replies, breaches, strict=True) if not breach]
    if not kept:
        unkept = [f"{number} ({text})" for number, text in pinned_lines(previous)]
        lines = f"line{'s' if len(unkept) > 1 else ''} {', '.join(unkept)}"
        raise DesignError(
            f"The Designer by rules has no schedule that keeps the pinned {lines} of the sketch.",
            "Unpin it in the Sketch panel (or session.unpin(LINE)), or edit the sketch by hand.",
        )
    return kept


# -- choice ------------------------------------------------------------------------------------------------------------


def schedules(task: Task, graph: Graph, target: Target, algebra: bool = True) -> list[Style]:
    """Every style for ``target``; where the graph has an attention, in one launch and with its scores stored.

    ``algebra``: sums of a product may be made of its factors' sums.
    """
    apart = [replace(style, algebra=algebra) for style in styles(target)]
    operations = [n.op.split(".")[1] for n in graph.nodes]
    if "scatter" in operations:
        first = apart[0]
        apart.insert(1, replace(first, repeats=True, title=f"{first.title}, repeated indices", why=_REPEATS))
    if "scaled_dot_product_attention" not in operations and sum(o in PRODUCTS for o in operations) < 2:
        return apart
    fused = [replace(s, fused=True, title=f"{s.title}, one launch", why=_WHY) for s in apart]
    (joint, mine), (_, other) = (_timed(task, graph, target, style) for style in (fused[0], apart[0]))
    if joint is None or mine is None:
        return apart
    stored = not joint.chains and other is not None and _MARGIN * other < mine
    return [*apart, *fused] if stored else [*fused, *apart]


def in_parts(target: Target, part: int, algebra: bool = True) -> Style:
    """The blocked schedule with tiles of 1/``part`` of their elements."""
    blocked = styles(target)[1]
    return replace(
        blocked, title=f"{blocked.title}, in {part} parts", why=_IN_PARTS, flat=blocked.flat // part,
        row_block=blocked.row_block // part, columns=max(blocked.columns // part, 1), algebra=algebra,
    )  # fmt: skip


def composed(task: Task, graph: Graph, target: Target, algebra: bool = True) -> list[tuple[Style, Scheduled]]:
    """The schedules in which the library makes the products, and their sketches: those that can be designed."""
    found = []
    for style in styles(target):
        style = replace(style, library=True, algebra=algebra, title="products by the library", why=_COMPOSED)
        try:
            found.append((style, scheduled(task, graph, target, style)))
        except DesignError:
            continue
    return found


_COMPOSED = "It composes with the framework's library, which makes each product; what is around them is our own."

#: how much faster stored scores must look: the model knows no wait between launches. At a width of 128 in f32 they look
#: 1.16 times as fast on an H200 and take 1.23 times as long; at 1024 they look 5.6 times as fast, and are 8 times.
#: Chains of products are not compared: attention's backward, 4096 keys, took 1.34 ms so and 13.4 with stored scores
_MARGIN = 1.5
_IN_PARTS = "An iteration holds many values at once: smaller tiles leave room for them."
_REPEATS = "Each place looks for the last index that names it, which holds where an index comes twice."
_WHY = "The softmax runs online together with both products; the scores are never stored."


def _timed(task: Task, graph: Graph, target: Target, style: Style) -> tuple[Scheduled | None, float | None]:
    """A schedule, None where it cannot be designed, and its roofline time in ms, inf where rates are unknown."""
    try:
        found = scheduled(task, graph, target, style)
        return found, model_time(task, found.text, target)
    except KernellabError:
        return None, None


def model_time(task: Task, text: str, target: Target) -> float | None:
    """The roofline time of a sketch in ms; None where it cannot be costed, inf where rates are unknown."""
    from kernellab.sketch.check import load_program
    from kernellab.sketch.cost import cost

    sizes = dict(task.module().default_sizes()) if task.dims else {}
    try:
        found = cost(load_program(text), sizes, chip=target.chip).time_ms
    except KernellabError:
        return None
    return float("inf") if found is None else found
