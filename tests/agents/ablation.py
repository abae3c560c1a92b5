"""Does each part of the method pay? A weak scripted player, many operators, one part left out at a time.

    python -m tests.agents.ablation worth --out FILE      # 57 operators x 5 arms
    python -m tests.agents.ablation profile --out FILE    # where the time goes, told or not: 14 operators x 2 arms
    python -m tests.agents.ablation worth --out FILE --table

``FILE`` gets a line for each session, and a second call continues where the first was cut off. ``--claims FOLDER``
divides the operators among processes with a ``FILE`` each: a process plays the next one that none has claimed there.
Their files joined are one. The player, its slips
and their rates are in :mod:`tests.agents.weak_player`, the operators and arms here; both stand before the first run.

``worth``: both roles are the player, each session continues to faster kernels, at most ``TURNS`` turns. ``profile``:
the player writes the code itself, from right code with half of what makes it fast left out, and nothing else slips; all
that differs between the arms is whether prompts say where the time goes.

A source that two arms of an operator come to is judged once, at T2 (``worth``: with the shortest timing): arms then
differ by what was written, not by two measurements of one kernel. Intervals are 95 %, by bootstrap over operators. A
script is no model: this measures what the parts' *words* name, for a player who follows them, and nothing of a model's
skill.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kernellab.models.tokens import estimate
from kernellab.records import Verdict
from kernellab.session import design
from kernellab.session.engine.engine import engine
from kernellab.verifier import Verifier
from tests.agents.players import Scripted
from tests.agents.trial import SETTINGS
from tests.agents.weak_player import WeakPlayer
from tests.models.fake_server import Connection, FakeServer, answer
from tests.practice.operators import OPERATORS

BUILTIN = Path(__file__).parents[2] / "kernellab/bench/builtin"
#: of the built-in suite: what has several steps and at most 1.4 MB; the held ones are tests/practice/operators.py
HARDER = [
    "attention/values_of_another_width", "backward/conv_weight", "backward/embedding",
    "convolution/conv_transpose1d", "convolution/dilated_conv", "experts/balance", "experts/dense_mixture",
    "experts/own_weight", "experts/router", "experts/shared_and_routed", "fused/conv_group_norm_silu",
    "fused/embed_project_scale", "indexing/bilinear_lookup", "indexing/nucleus_mask", "indexing/segment_sums",
    "loss/contrastive", "matmul/bilinear", "order/rank_of_rows", "quantisation/int8_product",
    "quantisation/weight_only", "scan/selective_state",
]  # fmt: skip
#: of ``profile``: large enough that a kernel is more than its call
LARGE = [
    "attention/by_hand", "attention/causal", "attention/linear", "attention/windowed", "backward/attention_scores",
    "convolution/grouped_conv", "fused/modulated_norm", "fused/norm_rotary", "fused/squeeze_excite", "loss/focal",
    "matmul/scale_softmax_product", "order/median_of_rows", "scan/gated_cell", "scan/linear_recurrence",
]  # fmt: skip
ARMS = {
    "full": (), "no sketch": ("sketch",), "no gate": ("gate",), "no intermediates": ("intermediates",),
    "no profile evidence": ("profile",),
}  # fmt: skip
PROFILE_ARMS = {"hot lines": ("sketch",), "no hot lines": ("sketch", "profile")}
#: share of slow slips in the first code of ``profile``
SLOW = 0.5
TURNS, SEED = 14, 33
#: operators of ``profile`` whose first right kernel is above this times its bound count
ABOVE = 1.5
OPTIONS = {"budget": 0.05}  # in ``profile`` the usual one: the shortest has six samples of where the time goes


@dataclass(frozen=True)
class Row:
    """One session. ``first_share`` and ``share`` are of the bound, of the first right kernel and of the fastest."""

    operator: str
    arm: str
    solved: bool
    requests: int
    wrong: int
    #: kernels that the Verifier refused, and sketches that the gate did
    failed: int
    gated: int
    speedup: float | None
    first_share: float | None
    share: float | None
    #: requests after the first right kernel
    later: int
    reason: str


class Remembering:
    """The Verifier, which judges one source of a task once."""

    def __init__(self, verifier: Verifier) -> None:
        self._verifier, self._verdicts = verifier, dict[tuple[str, str], Verdict]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._verifier, name)

    def verify(self, task: Any, source: Any, target: Any, **more: Any) -> Verdict:
        key = task.hash, source.hash
        if key not in self._verdicts:
            self._verdicts[key] = self._verifier.verify(task, source, target, **more)
        return self._verdicts[key]


def operators(what: str) -> list[tuple[str, str]]:
    """Name and text of each, in an order that is drawn once, so that a run that is cut off has seen a fair part."""
    builtin = [BUILTIN / f"{name}.py" for name in (LARGE if what == "profile" else HARDER)]
    chosen = [(path.stem, path.read_text()) for path in builtin]
    chosen += [] if what == "profile" else sorted(OPERATORS.items())
    random.Random(SEED).shuffle(chosen)
    return chosen


def session(arm: str, ablation: Sequence[str], name: str, text: str, rules: Scripted, slow: float | None) -> Row:
    player = WeakPlayer(name, SEED, rules, slow)
    with tempfile.TemporaryDirectory() as folder:

        def act(link: Connection) -> None:
            messages = link.body["messages"]
            reply = player(messages)
            told, said = sum(estimate(m["content"]) for m in messages), estimate(reply)
            usage = {"prompt_tokens": told, "completion_tokens": said, "total_tokens": told + said}
            answer(reply, usage=usage)(link)

        with FakeServer(act) as server:
            (Path(folder) / "kernellab.toml").write_text(SETTINGS.format(url=server.url))
            done = design(
                text, dsl="cpp", roles={"designer": "model", "coder": "model"}, name=name,
                workspace=folder, ablation=tuple(ablation), max_turns=TURNS, improve=True,
                options=OPTIONS if slow is None else {},
                memory="off",
            ).wait(3600)  # fmt: skip
        best, turns = done.state.best(), list(done.state.turns.values())
        right = [n for n, t in enumerate(turns) if t.verdict is not None and t.verdict.passed]
        before = sum(len(done.state.exchanges(t.id)) for t in turns[: right[0]]) if right else player.asked
        first = turns[right[0]].verdict if right else None
        return Row(
            name, arm, best is not None, player.asked, player.wrong,
            sum(t.verdict is not None and not t.verdict.passed for t in turns),
            sum(t.gate is not None and t.gate.state.value == "wrong" for t in turns),
            best.verdict.speedup if best else None, _share(first), _share(best.verdict if best else None),
            player.asked - before, done.reason,
        )  # fmt: skip


def _share(verdict: Verdict | None) -> float | None:
    if verdict is None or verdict.time is None or not verdict.sol_ms:
        return None
    return verdict.sol_ms / verdict.time.median_ms


def interval(values: Sequence[float], of: Callable[[Any], Any] = np.mean) -> str:
    """A mean (or what ``of`` makes of the values) with its 95 % interval."""
    if not values:
        return ""
    drawn = np.random.default_rng(SEED).choice(np.asarray(values, float), (4000, len(values)))
    low, high = np.percentile([of(row) for row in drawn], [2.5, 97.5])
    return f"{of(np.asarray(values, float)):.2f} [{low:.2f}, {high:.2f}]"


def _geomean(values: Any) -> float:
    return float(np.exp(np.mean(np.log(values))))


def complete(rows: Sequence[Row], arms: Sequence[str]) -> dict[str, dict[str, Row]]:
    """Operator -> arm -> row, of the operators that every arm was played on."""
    by: dict[str, dict[str, Row]] = {}
    for row in rows:
        by.setdefault(row.operator, {})[row.arm] = row
    return {name: found for name, found in by.items() if found.keys() >= set(arms)}


def worth_table(rows: Sequence[Row]) -> str:
    """Solved, requests and speedup of each arm; differences and ratios are paired with the full arm."""
    by = complete(rows, list(ARMS))
    lines = [
        f"{len(by)} operators in all arms.", "",
        "| arm | solved | share, 95 % | requests a session | requests - full's | slips written | sketches refused "
        "| kernels refused | speedup of what is solved | speedup / full's, both solved |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for arm in ARMS:
        own = [found[arm] for found in by.values()]
        pairs = [(found[arm], found["full"]) for found in by.values()]
        speed = [row.speedup for row in own if row.speedup]
        ratios = [a.speedup / b.speedup for a, b in pairs if a.speedup and b.speedup]
        same = arm == "full"
        lines.append(
            f"| {arm} | {sum(r.solved for r in own)} of {len(own)} | {interval([float(r.solved) for r in own])} "
            f"| {interval([r.requests for r in own])} "
            f"| {'' if same else interval([a.requests - b.requests for a, b in pairs])} "
            f"| {sum(r.wrong for r in own)} | {sum(r.gated for r in own)} | {sum(r.failed for r in own)} "
            f"| {interval(speed, _geomean)} | {'' if same else interval(ratios, _geomean)} |"
        )
    return "\n".join(lines)


def profile_table(rows: Sequence[Row]) -> str:
    """Requests after the first right kernel and the final share of the bound, of operators that began far from it."""
    by = complete(rows, list(PROFILE_ARMS))
    # the first answer is the same in both arms
    by = {n: f for n, f in by.items() if all(r.first_share and r.first_share < 1 / ABOVE for r in f.values())}
    lines = [
        f"{len(by)} operators whose first right kernel took more than {ABOVE} times its bound.", "",
        "| arm | requests after the first right kernel | first share of the bound | final share | final / first |",
        "|---|---|---|---|---|",
    ]  # fmt: skip
    for arm in PROFILE_ARMS:
        own = [found[arm] for found in by.values()]
        gain = [r.share / r.first_share for r in own if r.share and r.first_share]
        lines.append(
            f"| {arm} | {interval([r.later for r in own])} | {interval([r.first_share or 0.0 for r in own])} "
            f"| {interval([r.share or 0.0 for r in own])} | {interval(gain, _geomean)} |"
        )
    with_, without = PROFILE_ARMS
    if by:
        requests = interval([f[with_].later - f[without].later for f in by.values()])
        share = interval([(f[with_].share or 0.0) / (f[without].share or 1.0) for f in by.values()], _geomean)
        lines += ["", f"With less without: {requests} requests; final share, ratio {share}."]
    return "\n".join(lines)


def claimed(folder: Path | None, name: str) -> bool:
    """Is an operator this process's to play? The first that asks gets it."""
    if folder is None:
        return True
    folder.mkdir(parents=True, exist_ok=True)
    try:
        (folder / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("worth", "profile"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--most", type=int, default=0, help="at most so many operators")
    parser.add_argument("--claims", type=Path, help="folder of the operators that processes have taken")
    parser.add_argument("--table", action="store_true", help="the table of what was run")
    asked = parser.parse_args()
    arms = ARMS if asked.what == "worth" else PROFILE_ARMS
    rows = [Row(**json.loads(line)) for line in asked.out.read_text().splitlines()] if asked.out.exists() else []
    if not asked.table:
        for name in [name for name in os.environ if name.startswith(("KERNELLAB_MODEL", "OPENAI_"))]:
            del os.environ[name]
        remembering = Remembering(engine().verifier())
        engine().verifier = lambda: remembering  # type: ignore[assignment,return-value,method-assign]
        rules, played = Scripted(), {(row.operator, row.arm) for row in rows}
        for name, text in operators(asked.what)[: asked.most or None]:
            if all((name, arm) in played for arm in arms) or not claimed(asked.claims, name):
                continue
            for arm, ablation in arms.items():
                if (name, arm) not in played:
                    rows.append(session(arm, ablation, name, text, rules, SLOW if asked.what == "profile" else None))
                    with asked.out.open("a") as out:
                        out.write(json.dumps(asdict(rows[-1])) + "\n")
                    print(json.dumps(asdict(rows[-1])), flush=True)
    print(worth_table(rows) if asked.what == "worth" else profile_table(rows), flush=True)
    os._exit(0)  # threads of the verifier and of the endpoint are not waited for


if __name__ == "__main__":
    main()
