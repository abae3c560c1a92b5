"""The Designer without a model: several schedules of a captured graph; after a failure, those not tried yet."""

from __future__ import annotations

import re
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from kernellab.sketch.syntax.pins import Kept

_FALLBACK = "No rule designs all of it, so calls of the framework stand between its own launches:"
#: Divisors of the usual tiles that are tried if these do not fit.
_PARTS = (4, 16)
#: Exceptions of a rule at a form that it does not handle.
BROKEN = (AssertionError, AttributeError, LookupError, RecursionError, StopIteration, TypeError, ValueError)
_ALGEBRA = "Algebra: only sums are asked of a product, so sums of its factors are multiplied instead."


class RulesDesigner:
    """Designs from the graph only: families of operations and extents, never names.

    ``algebra`` False keeps every product of the reference, even if only sums of it are needed: an ablation.
    """

    author = Author.RULES

    def __init__(self, algebra: bool = True) -> None:
        self.algebra = algebra

    def designs(self, brief: DesignBrief) -> list[DesignReply]:
        """Return every schedule of the rules for the task on the target, best first.

        Raises:
            DesignError: a node is outside the families (named, with its source line), or no schedule keeps the pins.
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
        return _keeping_pins(ordered, brief)

    def _smaller(self, brief: DesignBrief, graph: Graph) -> list[DesignReply]:
        """The blocked schedule with the largest tiles that fit, if none of the usual ones does: a long expression keeps
        many values of a tile at once."""
        for part in _PARTS:
            replies, _ = self._schedules(brief, graph, NONE, [in_parts(brief.target, part, self.algebra)])
            if any(_fits(reply.sketch, brief.target) for reply in replies):
                return replies
        return []

    def _schedules(
        self, brief: DesignBrief, graph: Graph, fallback: Fallback, chosen: Sequence[Style] = ()
    ) -> tuple[list[DesignReply], DesignError | None]:
        """The schedules that can be designed, and the error of others: a node without a rule, if there is one."""
        replies: dict[str, DesignReply] = {}
        refused: DesignError | None = None
        omitted: list[str] = []
        for style in chosen or schedules(brief.task, graph, brief.target, self.algebra):
            try:
                result = scheduled(brief.task, graph, brief.target, style, fallback=fallback)
            except BROKEN as error:
                # a combination without a rule; another schedule may not need it
                refused = refused or _unforeseen(brief, error)
                omitted.append(f"The schedule {style.title!r} is left out: {_where(error)}.")
                continue
            except DesignError as error:
                refused = refused if isinstance(refused, NodeError) else error
                if isinstance(error, NodeError):
                    # every style has the same nodes
                    break
                continue
            reply = _reply(style, result, brief.held)
            replies.setdefault(reply.sketch, reply)
        annotated = (replace(reply, rationale=" ".join((reply.rationale, *omitted))) for reply in replies.values())
        return list(annotated), refused

    def _falling_back(self, brief: DesignBrief, graph: Graph, refused: DesignError) -> list[DesignReply]:
        """Schedules in which the framework computes the nodes without a rule, added one by one; own launches do the
        rest.

        Raises:
            DesignError: ``refused``, if no work is left for an own launch.
        """
        fallback, replies, error = NONE, list[DesignReply](), refused
        while not replies:
            fallback = fallback.after(graph, error)
            if not fallback.leaves_work(graph):
                raise refused
            replies, new_error = self._schedules(brief, graph, fallback)
            error = new_error or error
        names = tuple(fallen(graph, fallback.calls))
        reason = f"{_FALLBACK} {', '.join(names)}." if names else ""
        ordered = _fitting_first(replies, brief.target)
        return [replace(r, rationale=f"{r.rationale} {reason}".strip(), library_calls=names) for r in ordered]

    def _with_library(self, brief: DesignBrief, graph: Graph, own: list[DesignReply]) -> list[DesignReply]:
        """Return ``own`` and the design with library calls, which comes first if its model time is lower."""
        for style, result in composed(brief.task, graph, brief.target, self.algebra):
            reply = _reply(style, result, brief.held)
            if own and not _fits(reply.sketch, brief.target):
                continue
            times = [model_time(brief.task, r.sketch, brief.target) for r in (reply, *own[:1])]
            is_faster = len(times) > 1 and None not in times and times[0] < times[1]  # type: ignore[operator]
            return [reply, *own] if is_faster or not own else [own[0], reply, *own[1:]]
        return own

    def design(self, brief: DesignBrief) -> DesignReply:
        """Return the best schedule; if the work was sent back, the best one not tried yet."""
        replies = self.designs(brief)
        if brief.route is None or brief.route.to is not RouteKind.DESIGNER:
            return replies[0]
        tried_sketches = {_plain(a.sketch) for a in brief.history if a.sketch} | {
            _plain(a.candidate.sketch) for a in brief.history if a.candidate and a.candidate.sketch
        }
        if brief.previous:
            tried_sketches.add(_plain(brief.previous))
        for reply in replies:
            if _plain(reply.sketch) not in tried_sketches:
                return reply
        raise DesignError(
            f"The rules Designer has tried its {len(replies)} schedules of {brief.task.name!r}.",
            "Edit the sketch, or give the role to a person or a model.",
        )


def _where(error: Exception) -> str:
    """The exception of a rule at a form that it does not handle, and its place: an internal fault to report."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"a rule of ours raised {type(error).__name__} ({Path(frame.filename).name}, line {frame.lineno})"


def _unforeseen(brief: DesignBrief, error: Exception) -> DesignError:
    name, kind = brief.task.name, type(error).__name__
    return DesignError(
        f"The rules Designer has no schedule of {name!r} that joins its operations ({kind}).",
        "Let a person or a model write this sketch.",
    )


def _reply(style: Style, result: Scheduled, kept: Kept) -> DesignReply:
    """Return one schedule as a reply, with the constraints that a person wrote."""
    from kernellab.sketch.syntax.pins import with_constraints

    sentences = [f"{style.title.capitalize()}.", style.why, *([_ALGEBRA] if result.algebra else [])]
    text = with_constraints(result.text, kept.constraints)
    return DesignReply(text, rationale=" ".join(sentences), rewritten=result.algebra)


def _fitting_first(replies: list[DesignReply], target: Target) -> list[DesignReply]:
    """Put designs that fit the chip first: the others need smaller tiles from a person."""
    # checking the text of a whole network takes seconds
    return sorted(replies, key=lambda r: not _fits(r.sketch, target)) if len(replies) > 1 else replies


def _fits(text: str, target: Target) -> bool:
    from kernellab.sketch.check import check

    return not any(d.rule == "footprint" for d in check(text, chip=target.chip).diagnostics)


def _plain(text: str) -> str:
    """A sketch without comments and whitespace, for comparison."""
    return re.sub(r"\s+", " ", re.sub(r"#.*", "", text)).strip()


def _keeping_pins(replies: list[DesignReply], brief: DesignBrief) -> list[DesignReply]:
    previous = brief.previous
    if previous is None or not (brief.held.pins or brief.held.constraints):
        return replies
    from kernellab.sketch.syntax.pins import check_pins

    keeping = [reply for reply in replies if not check_pins(previous, reply.sketch, Author.RULES, brief.held)]
    if not keeping:
        pinned = [f"{number} ({text})" for number, text in brief.held.lines(previous)]
        if not pinned:
            written = ", ".join(f"`require: {one.text};` of sketch {one.sketch}" for one in brief.held.constraints)
            raise DesignError(
                f"The Designer by rules has no schedule with a place for {written}.",
                "Drop it from the sketch, or edit the sketch by hand.",
            )
        lines = f"line{'s' if len(pinned) > 1 else ''} {', '.join(pinned)}"
        raise DesignError(
            f"The Designer by rules has no schedule that keeps the pinned {lines} of the sketch.",
            "Unpin it in the Sketch panel (or session.unpin(LINE)), or edit the sketch by hand.",
        )
    return keeping


# -- choice ------------------------------------------------------------------------------------------------------------


def schedules(task: Task, graph: Graph, target: Target, algebra: bool = True) -> list[Style]:
    """Return every style for ``target``; if the graph has an attention, in one launch and with stored scores.

    ``algebra``: sums of a product may be computed from its factors' sums.
    """
    separate = [replace(style, algebra=algebra) for style in styles(target)]
    operations = [n.op.split(".")[1] for n in graph.nodes]
    if "scatter" in operations:
        first = separate[0]
        separate.insert(1, replace(first, repeats=True, title=f"{first.title}, repeated indices", why=_REPEATS))
    if "scaled_dot_product_attention" not in operations and sum(o in PRODUCTS for o in operations) < 2:
        return separate
    fused = [replace(s, fused=True, title=f"{s.title}, one launch", why=_WHY) for s in separate]
    (fused_result, fused_ms), (_, stored_ms) = (_timed(task, graph, target, style) for style in (fused[0], separate[0]))
    if fused_result is None or fused_ms is None:
        return separate
    margin = 1.0 if fused_result.again else _MARGIN
    is_stored_faster = not fused_result.chains and stored_ms is not None and margin * stored_ms < fused_ms
    return [*separate, *fused] if is_stored_faster else [*fused, *separate]


def in_parts(target: Target, part: int, algebra: bool = True) -> Style:
    """The blocked schedule with tiles of 1/``part`` of their elements."""
    blocked = styles(target)[1]
    return replace(
        blocked, title=f"{blocked.title}, in {part} parts", why=_IN_PARTS, flat=blocked.flat // part,
        row_block=blocked.row_block // part, columns=max(blocked.columns // part, 1), algebra=algebra,
    )  # fmt: skip


def composed(task: Task, graph: Graph, target: Target, algebra: bool = True) -> list[tuple[Style, Scheduled]]:
    """The schedules in which the library computes the products, with their sketches: those that can be designed."""
    designs = []
    for style in styles(target):
        style = replace(style, library=True, algebra=algebra, title="products by the library", why=_COMPOSED)
        try:
            designs.append((style, scheduled(task, graph, target, style)))
        except (DesignError, *BROKEN):
            continue
    return designs


_COMPOSED = "It composes with the framework's library, which makes each product; what is around them is our own."

#: Ratio by which stored scores must look faster: the model has no waits between launches. At a width of 128 in f32 they
#: look 1.16 times as fast on an H200 and take 1.23 times as long; at 1024 they look 5.6 times as fast, and are 8 times.
#: Chains of products are not compared: attention's backward, 4096 keys, took 1.34 ms fused and 13.4 with stored scores.
#: Where programs of other columns compute the scores again, none is asked for: decode of latent heads, 576 wide, 32 x
#: 4096 keys in bf16, looks 1.5 times as fast stored and is 2.3 times (0.167 ms on an H100, fused 0.389 on an H200).
_MARGIN = 1.5
_IN_PARTS = "An iteration holds many values at once: smaller tiles leave room for them."
_REPEATS = "Each place looks for the last index that names it, which holds where an index comes twice."
_WHY = "The softmax runs online together with both products; the scores are never stored."


def _timed(task: Task, graph: Graph, target: Target, style: Style) -> tuple[Scheduled | None, float | None]:
    """A schedule, None if it cannot be designed, and its roofline time in ms, inf if rates are unknown."""
    try:
        result = scheduled(task, graph, target, style)
        return result, model_time(task, result.text, target)
    except (KernellabError, *BROKEN):
        # a combination without a rule is not compared
        return None, None


def model_time(task: Task, text: str, target: Target) -> float | None:
    """The roofline time of a sketch in ms; None if its cost cannot be computed, inf if rates are unknown."""
    from kernellab.sketch.check import load_program
    from kernellab.sketch.cost import cost

    sizes = dict(task.module().default_sizes()) if task.dims else {}
    try:
        time_ms = cost(load_program(text), sizes, chip=target.chip).time_ms
    except KernellabError:
        return None
    return float("inf") if time_ms is None else time_ms
