"""Policies select from those that live, as their sources say, and the same for the same seed."""

from __future__ import annotations

from random import Random

import pytest

from kernellab.conditions import DisturbedCalls, StaticFinding, WeakTask
from kernellab.conditions.code import CodeRegion, CoverageUnknown, NeverRan
from kernellab.evolve.fold import apply_event
from kernellab.evolve.policies import POLICIES
from kernellab.evolve.policies.islands import stratified
from kernellab.evolve.policies.map_elites import cell, grid
from kernellab.evolve.records import Action, Migrated, Place, RoundEnded, Steered
from kernellab.options.search import Knobs
from tests.evolve.runs import state, verify

SPEEDUPS = [1.0, 2.0, 1.5, 0.0, 3.0, 1.2, 0.8, 2.5]


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_selects_what_lives_and_nothing_else(name: str) -> None:
    found = state(SPEEDUPS)
    requests = POLICIES[name].select(found, Random(1), [0, 1], 6)
    assert len(requests) == 6
    for request in requests:
        assert all(found.alive(n) for n in (*request.parents, *request.inspirations))
        assert not set(request.parents) & set(request.inspirations)
    assert requests == POLICIES[name].select(found, Random(1), [0, 1], 6)


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_has_nothing_to_select_where_nothing_lives(name: str) -> None:
    assert POLICIES[name].select(state([0.0, 0.0]), Random(1), [0, 1], 4) == []


@pytest.mark.parametrize("name", POLICIES)
def test_a_frozen_island_gets_no_proposals(name: str) -> None:
    found = state(SPEEDUPS)
    assert {request.island for request in POLICIES[name].select(found, Random(1), [1], 6)} == {1}


def test_strata_draw_the_good_and_the_odd() -> None:
    drawn = {tuple(n // 5 for n in stratified(range(20), Random(seed), 4)) for seed in range(20)}
    assert drawn == {(0, 1, 2, 3)}
    assert stratified([7], Random(1), 4) == [7]


def test_an_island_selects_from_its_own() -> None:
    found = state(SPEEDUPS)
    for request in POLICIES["islands"].select(found, Random(1), [0, 1], 8):
        assert all(found.proposals[n].island == request.island for n in (*request.parents, *request.inspirations))


def test_migration_copies_elites_around_the_ring_and_the_lineage_shows_it() -> None:
    found = state(SPEEDUPS, Knobs(islands=3, elites=1))
    apply_event(found, 99, RoundEnded(round=0))
    moves = POLICIES["islands"].migrate(found, Random(1))
    assert {(m.source, m.target) for m in moves} == {(0, 1), (1, 2), (2, 0)}
    for move in moves:
        assert move.number == found.elites(move.source)[0]
    apply_event(found, 100, Migrated(moves=tuple(moves)))
    for move in moves:
        assert move.number in found.islands[move.source]
        assert move.number in found.islands[move.target]
    requests = POLICIES["islands"].select(found, Random(3), [1], 30)
    assert any(found.proposals[r.parents[0]].island != 1 for r in requests), "a migrant is a parent on its new island"


def test_migration_waits_for_its_rounds_and_leaves_frozen_islands_alone() -> None:
    found = state(SPEEDUPS, Knobs(islands=3, migrate_every=2))
    apply_event(found, 99, RoundEnded(round=0))
    assert POLICIES["islands"].migrate(found, Random(1)) == []
    apply_event(found, 100, RoundEnded(round=1))
    apply_event(found, 101, Steered(action=Action.FREEZE, number=2))
    moves = POLICIES["islands"].migrate(found, Random(1))
    assert moves and all(2 not in (m.source, m.target) for m in moves)


def test_bounds_come_back_to_what_is_little_explored() -> None:
    found = state([1.0, 1.1, 1.2, 1.3])
    parents = [r.parents[0] for r in POLICIES["ucb"].select(found, Random(1), [0, 1], 40)]
    assert parents[0] == 3
    assert set(parents) == {0, 1, 2, 3}
    assert parents.count(3) >= parents.count(0)


def test_greedy_knows_the_best_alone_and_the_beam_shares_evenly() -> None:
    found = state(SPEEDUPS, Knobs(elites=2))
    assert {r.parents for r in POLICIES["greedy"].select(found, Random(1), [0, 1], 3)} == {(4,)}
    beam = [r.parents[0] for r in POLICIES["beam"].select(found, Random(1), [0, 1], 8)]
    assert sorted(set(beam)) == [1, 2, 4, 7]
    assert all(beam.count(n) == 2 for n in set(beam))


def test_a_cell_keeps_its_best_and_each_cell_is_drawn() -> None:
    places = [Place(technique=t, footprint=b, intensity=1.0) for t in ("product", "scan") for b in (64, 4096)]
    found = state([1.0, 1.1, 1.2, 1.3, 9.0], places=[*places, places[0]])
    assert grid(found, [0, 1]) == {cell(places[0]): 4, cell(places[1]): 1, cell(places[2]): 2, cell(places[3]): 3}
    drawn = {r.parents[0] for r in POLICIES["map-elites"].select(found, Random(1), [0, 1], 60)}
    assert drawn == {1, 2, 3, 4}


def test_a_classifier_tells_whose_children_are_good() -> None:
    # 1 has two stages and good children, 0 has one stage and bad ones
    places = [Place(stages=1 + at % 2, intensity=1.0) for at in range(8)]
    found = state([1.0, 1.0, 0.9, 3.0, 0.8, 3.1, 1.0, 1.0], places=places, parents=[0, 0, 0, 1, 0, 1, 0, 0])
    requests = POLICIES["lfbo"].select(found, Random(1), [0, 1], 2)
    assert all(found.evaluations[r.parents[0]].place.stages == 2 for r in requests)
    assert requests[0].parents != requests[1].parents, "a batch is spread"


def test_a_flagged_pass_is_no_elite_and_a_failed_verdict_ends_a_line() -> None:
    found = state([1.0, 5.0, 1.5, 4.0])
    verify(found, 1, 5.0, conditions=[StaticFinding(rule="thread", message="starts a thread")])
    verify(found, 3, 4.0, passed=False)
    verify(
        found,
        2,
        1.5,
        conditions=[
            WeakTask(rule="constant", reason="its output hardly varies"),
            DisturbedCalls(share=0.09),
            NeverRan(regions=(CodeRegion(file="kernel.cpp", first=7, last=8),)),
            CoverageUnknown(reason="no GCC"),
        ],
    )
    assert found.best() == 2, "a flag of the task or the machine is no fault of a candidate"
    assert found.elites(1) == []
    for name in POLICIES:
        requests = POLICIES[name].select(found, Random(1), [0, 1], 8)
        assert not {1, 3} & {n for r in requests for n in (*r.parents, *r.inspirations)}


def test_a_protected_candidate_stays_an_elite_and_a_dropped_one_is_none() -> None:
    found = state([1.0, 5.0, 1.5, 4.0, 3.0, 2.0], Knobs(islands=1, elites=1))
    apply_event(found, 90, Steered(action=Action.PROTECT, number=0))
    apply_event(found, 91, Steered(action=Action.DROP, number=1))
    assert found.elites(0) == [3, 0]
