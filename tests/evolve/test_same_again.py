"""What a search does follows from its seed: neither how long candidates took nor which came first decides."""

from __future__ import annotations

from kernellab.dsls.machine import detect_target
from kernellab.evolve.fold import apply_event, fold
from kernellab.evolve.policies import POLICIES
from kernellab.evolve.records import Begun, Evaluated, Evaluation, Event, Proposal, Proposed, Spent, Step
from kernellab.evolve.scheduler import Scheduler
from kernellab.evolve.state import RunState
from kernellab.evolve.vary import bandit
from kernellab.evolve.vary.novelty import Novelty
from kernellab.models import Budget
from kernellab.options.search import Knobs
from tests.evolve.runs import TASK
from tests.evolve.test_parts import ROWS

KNOBS = Knobs(score="model")


def together(sketches: list[str], parents: tuple[int, ...] = (), operators: tuple[str, ...] = ()) -> list[Event]:
    """A run, and candidates that are proposed at once."""
    named = operators or ("seed",) * len(sketches)
    made = tuple(
        Proposal(number=n, round=0, island=0, operator=named[n], sketch=text, parents=parents if n else ())
        for n, text in enumerate(sketches)
    )
    return [Begun(name="made", text=TASK, dsl="cpp", knobs=KNOBS), Proposed(proposals=made)]


def came(number: int, modelled_ms: float = 1.0, seconds: float = 1.0, code: str = "") -> Evaluated:
    spent = (Spent(step=Step.COST, seconds=seconds, passed=True),)
    return Evaluated(
        evaluation=Evaluation(
            number=number, key=f"k{number}", passed=True, step=Step.BUILD, modelled_ms=modelled_ms, spent=spent,
            source=code or f"code {number}",
        )
    )  # fmt: skip


def folded(events: list[Event]) -> RunState:
    return fold(list(enumerate(events, 1)))


def test_seconds_of_candidates_that_nothing_measures_do_not_choose_the_operator() -> None:
    names = ("seed", "rules:tile", "rules:fuse")
    orders = []
    for slow in (1, 2):
        began = together([f"sketch s{n} {{}}" for n in range(3)], (0,), names)
        done = [came(0), *(came(n, 0.8 if n == 1 else 0.7, 30.0 if n == slow else 1.0) for n in (1, 2))]
        orders.append(bandit.order(folded([*began, *done]), names[1:]))
    assert orders == [["rules:fuse", "rules:tile"]] * 2


def test_of_two_with_one_code_the_first_by_number_stays_whichever_came_first() -> None:
    found = []
    for arrived in ((0, 1, 2), (0, 2, 1)):
        state = folded(together([f"sketch s{n} {{}}" for n in range(3)]))
        scheduler = Scheduler(_Kept(), state, None, None, Budget(), lambda *_: None)  # type: ignore[arg-type]
        assert POLICIES[state.knobs.select].waits
        scheduler.workers = _Alone()  # type: ignore[assignment]
        for number in arrived:
            event = came(number, code="one" if number else "other").evaluation
            apply_event(state, state.seq + 1, Evaluated(evaluation=scheduler._only(event)))
        found.append((state.population(), state.evaluations[2].same_as, state.evaluations[2].reason, state.codes))
    assert found[0] == found[1]
    assert found[0][:2] == ([0, 1], 1)


def test_a_candidate_is_compared_with_what_was_there_when_it_was_proposed() -> None:
    twins = [ROWS.format(block=256, name=name) for name in ("m", "row")]
    undisturbed = folded(together(twins))
    after_a_kill = folded([*together(twins), came(0)])
    looks = [Novelty(detect_target("cpp")).look(state, state.proposals[1]) for state in (undisturbed, after_a_kill)]
    assert [look.refused for look in looks] == ["", ""]
    later = folded([*together(twins[:1]), came(0)])
    second = Proposal(number=1, round=1, island=0, operator="rules:tile", sketch=twins[1])
    apply_event(later, later.seq + 1, Proposed(proposals=(second,)))
    assert Novelty(detect_target("cpp")).look(later, second).refused.startswith("It is candidate 0 but for names")


def test_what_is_hopeless_is_so_by_the_best_of_when_it_was_proposed() -> None:
    found = folded([*together(["sketch a {}", "sketch b {}"]), came(0, 0.001)])
    assert found.best() == 0 and found.best_before(1) is None


class _Kept:
    """A stream that keeps nothing."""

    def append(self, events: list[Event]) -> list[tuple[int, Event]]:
        return list(enumerate(events))


class _Alone:
    judges = 1
