"""Which move next, learnt from the recorded spaces: a forest against what is known without one. A script.

    python -m tests.evolve.learnt [--seeds 20]

Each space of ``kernellab/evolve/lab/pools`` is held out in turn. Elsewhere a forest (pip install scikit-learn) learns
the logarithm of a child's speed over its parent's from the parent's place and the rewrite. In the held-out space a
parent is drawn, a rewrite chosen, and one of its children drawn; a figure is the geometric mean of the child's speed
over its parent's. Intervals are of a bootstrap over the held-out operators (95 %).
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from random import Random

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor  # type: ignore[import-untyped, import-not-found, unused-ignore]

from kernellab.evolve.lab.pool import load, names

#: parents drawn in each held-out space
DRAWS = 400


def rows(pool: object) -> list[tuple[int, str, dict[str, float], list[float]]]:
    """(parent, rewrite, features of the parent, log gains of the rewrite's children)"""
    found = []
    for at, edges in enumerate(pool.edges):  # type: ignore[attr-defined]
        parent = pool.points[at]  # type: ignore[attr-defined]
        if parent.ms is None:
            continue
        own = {"stages": parent.place.stages, "programs": math.log2(parent.place.programs + 1),
               "footprint": math.log2(parent.place.footprint + 1), "intensity": parent.place.intensity,
               "speed": math.log(parent.speedup)}  # fmt: skip
        for edge in edges:
            children = [pool.points[to] for to in edge.to]  # type: ignore[attr-defined]
            gains = [math.log(c.speedup / parent.speedup) for c in children if c.ms is not None and c.speedup > 0]
            if gains:
                found.append((at, edge.rewrite, {**own, **parent.place.features}, gains))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    seeds = parser.parse_args().seeds
    spaces = {name: rows(load(name)) for name in names()}
    means: dict[str, dict[str, float]] = defaultdict(dict)
    for held, inside in spaces.items():
        outside = [row for name, space in spaces.items() if name != held for row in space]
        known = sorted({name for row in outside for name in row[2]})
        moves = sorted({row[1] for space in spaces.values() for row in space})

        def matrix(given: list, columns: list = known, moves: list = moves) -> np.ndarray:  # type: ignore[type-arg]
            return np.array([[*(r[2].get(n, 0.0) for n in columns), *(r[1] == m for m in moves)] for r in given])

        target = np.array([np.mean(row[3]) for row in outside])
        forest = ExtraTreesRegressor(200, min_samples_leaf=5, random_state=1).fit(matrix(outside), target)
        of_move: dict[str, list[float]] = defaultdict(list)
        for row in outside:
            of_move[row[1]].append(float(np.mean(row[3])))
        told = dict(zip([(r[0], r[1]) for r in inside], forest.predict(matrix(inside)), strict=True))
        by_parent: dict[int, list[tuple[int, str, dict[str, float], list[float]]]] = defaultdict(list)
        for row in inside:
            by_parent[row[0]].append(row)
        several = [at for at, found in by_parent.items() if len(found) > 1]
        gains: dict[str, list[float]] = defaultdict(list)
        for seed in range(seeds):
            random = Random(f"{held}:{seed}")
            for _ in range(DRAWS):
                choices = by_parent[random.choice(several)]
                picked = {
                    "drawn evenly": random.choice(choices),
                    "best move elsewhere": max(choices, key=lambda r: np.mean(of_move[r[1]] or [-1.0])),
                    "forest": max(choices, key=lambda r: told[(r[0], r[1])]),
                    "best there is (mean child)": max(choices, key=lambda r: np.mean(r[3])),
                }
                for name, row in picked.items():
                    gains[name].append(random.choice(row[3]))
        for name, found in gains.items():
            means[name][held] = float(np.mean(found))
    print(f"| which move next | child / parent, over {len(spaces)} held-out operators | " + " | ".join(spaces) + " |")
    print("|---" * (len(spaces) + 2) + "|")
    for name, each in means.items():
        random = Random(1)
        again = sorted(np.mean(random.choices(list(each.values()), k=len(each))) for _ in range(2000))
        whole = (
            f"{math.exp(np.mean(list(each.values()))):.3f}x [{math.exp(again[50]):.3f}, {math.exp(again[1949]):.3f}]"
        )
        print(f"| {name} | {whole} | " + " | ".join(f"{math.exp(v):.3f}" for v in each.values()) + " |")


if __name__ == "__main__":
    main()
