"""The search lab: recorded spaces are closed, replays are repeatable, and a knob moves the curves."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import pytest

from kernellab.errors import EvolveError
from kernellab.evolve.lab.curves import ALONE, USUAL, band, contender, standing, table
from kernellab.evolve.lab.pool import load, names
from kernellab.evolve.lab.replay import replay

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not names(), reason="no space is recorded")


@pytest.mark.parametrize("name", names())
def test_a_space_is_closed_and_says_where_it_comes_from(name: str) -> None:
    pool = load(name)
    assert len(pool.points) >= 400
    assert len({point.key for point in pool.points}) == len(pool.points)
    assert sum(point.speedup > 0 for point in pool.points) >= 0.9 * len(pool.points)
    assert all(0 <= to < len(pool.points) for edges in pool.edges for edge in edges for to in edge.to)
    assert pool.provenance.command.startswith("tools/record_pool.py") and pool.provenance.versions["torch"]
    reached = set(range(pool.seeds))
    waiting = list(reached)
    while waiting:
        waiting = [to for at in waiting for edge in pool.edges[at] for to in edge.to if to not in reached]
        reached.update(waiting)
    assert len(reached) == len(pool.points), "every point can be proposed"


def test_a_replay_stays_in_its_space_and_is_the_same_again() -> None:
    pool = load(names()[0])
    found = replay(pool, USUAL)
    assert replay(pool, USUAL) == found
    assert len(found) > pool.seeds
    exact = [pool.points[at].speedup for at in replay(pool, USUAL, noise=0)]
    assert exact == sorted(exact), "without noise what is held to be the best only gets better"


def test_a_knob_moves_the_curves() -> None:
    one = band("islands", USUAL.model_copy(update={"elites": 3}))
    assert one.middle != band("islands", USUAL).middle
    assert all(low <= middle <= high for low, middle, high in zip(one.low, one.middle, one.high, strict=True))
    assert 0 < standing(one).share <= 1
    assert contender(ALONE, USUAL).migrate_every == 0
    with pytest.raises(EvolveError, match="no policy 'isles'"):
        band("isles")


def test_the_lesson_on_search_shows_what_its_replays_give_now() -> None:
    cells = json.loads((ROOT / "notebooks/lessons/14_search.ipynb").read_text())["cells"]
    shown = "".join(line for cell in cells for out in cell.get("outputs", ()) for line in out.get("text", ()))
    spaces = ("matmul_bias_relu", "column_sum", "softmax")
    row = table([standing(band("islands", USUAL, range(5), spaces, noise=0.0), spaces)]).splitlines()[1]
    assert row in shown, "make notebooks/06_evolve.ipynb and it anew: tools/demo.py NOTEBOOK --in-place"


def test_the_tool_that_records_a_space_finds_what_it_imports() -> None:
    assert import_module("tools.record_pool").recorded
