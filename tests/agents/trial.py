"""A trial of the model roles: operators x arms, by a player behind a loopback endpoint who sees prompts alone.

    python -m tests.agents.trial [--player rules|DIR] [--errors 0.5] [--seed 0] [--arms full,gate,...]
                                 [--only WORD,WORD] [--improve] [--turns 12] [--jobs 1] [--out FILE]
                                 [--dsl cpp] [--tasks DIR] [--workspace DIR]

An arm leaves a part of the method out (``full`` leaves nothing out); ``memory`` adds one: the shipped library, but for
what computes the same as the task. The endpoint puts an error into a share of the
player's replies: which replies, and which error, follow from the seed, the operator and the reply's number alone, so
every arm meets the same weak player. Nothing is carried over: each session has a folder of its own, and a player that
is a program is made anew. With ``--player DIR`` prompts are files that a person or an agent answers, in
``DIR/ARM/OPERATOR``: let each arm be answered by somebody who has not seen the others.

``rules`` is a scripted player: it answers with the rules' own designs and code, uses no hint, and cannot answer where
the rules cannot. It measures what errors cost on each road, not what a model makes of a prompt.

``--dsl`` is of the documents in ``--workspace``, if kernellab has none of it: its folder ``knowledge`` is copied into
each session's own workspace.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

from kernellab.memory.library import seed
from kernellab.memory.memory import Memory
from kernellab.models.tokens import estimate
from kernellab.session import design
from tests.agents.players import Filed, Player, Scripted, mutated
from tests.models.fake_server import Act, Connection, FakeServer, answer

TASKS = Path(__file__).with_name("trials")
#: arm -> the part that it leaves out
ARMS = {"full": (), "gate": ("gate",), "sketch": ("sketch",), "intermediates": ("intermediates",), "memory": ()}
SETTINGS = '[models]\nbase_url = "{url}"\nmodel = "player"\nretries = 0\nfirst_token_s = 7200\ntotal_s = 7200\n'
#: of a verification: correctness in full, timing as short as it gets
OPTIONS = {"budget": 0.05}


@dataclass(frozen=True)
class Row:
    """One session. ``wrong`` counts the player's replies that were given an error, ``failed`` the kernels refused."""

    arm: str
    operator: str
    solved: bool
    turns: int
    requests: int
    tokens: int
    wrong: int
    gated: int
    failed: int
    speedup: float | None
    reason: str


def endpoint(player: Player, operator: str, errors: float, seed: int, wrong: list[int]) -> Act:
    """Answers each request by ``player``, with an error in a share of the replies; ``wrong`` gets their numbers."""
    asked = 0

    def act(link: Connection) -> None:
        nonlocal asked
        asked += 1
        messages = link.body["messages"]
        reply = player(messages)
        chance = random.Random(f"{seed} {operator} {asked}")
        if chance.random() < errors:
            slipped = mutated(reply, chance)
            if slipped != reply:
                wrong.append(asked)
            reply = slipped
        told, said = sum(estimate(m["content"]) for m in messages), estimate(reply)
        usage = {"prompt_tokens": told, "completion_tokens": said, "total_tokens": told + said}
        answer(reply, usage=usage)(link)

    return act


def session(arm: str, path: Path, player: Player, given: argparse.Namespace) -> Row:
    """One operator in one arm, from nothing."""
    wrong: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        with FakeServer(endpoint(player, path.stem, given.errors, given.seed, wrong)) as server:
            (Path(folder) / "kernellab.toml").write_text(SETTINGS.format(url=server.url))
            remembering = arm == "memory"
            if remembering:
                seed(Memory.open(Path(folder)))
            if given.workspace is not None:
                shutil.copytree(given.workspace / "knowledge", Path(folder) / "knowledge")
            done = design(
                path.read_text(), dsl=given.dsl, roles={"designer": "model", "coder": "model"}, name=path.stem,
                workspace=folder, ablation=ARMS[arm], max_turns=given.turns, improve=given.improve, options=OPTIONS,
                memory="on" if remembering else "off", hold_out=remembering,
            ).wait(7200)  # fmt: skip
        best, total = done.state.best(), done.trace.ledger()["total"]
        turns = list(done.state.turns.values())
        return Row(
            arm, path.stem, best is not None, len(turns), total["requests"],
            total["input_tokens"] + total["output_tokens"], len(wrong),
            sum(t.gate is not None and t.gate.state.value == "wrong" for t in turns),
            sum(t.verdict is not None and not t.verdict.passed for t in turns),
            best.verdict.speedup if best else None, done.reason,
        )  # fmt: skip


def table(rows: list[Row]) -> str:
    """One line an arm: sums over its operators, and the median speedup of what was solved."""
    lines = [
        "| arm | solved | turns | requests | tokens | errors put in | sketches refused | kernels refused | speedup |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for arm in dict.fromkeys(row.arm for row in rows):
        own = [row for row in rows if row.arm == arm]
        speed = [row.speedup for row in own if row.speedup]
        counts = (sum(getattr(row, name) for row in own) for name in ("wrong", "gated", "failed"))
        label = {"full": "full", "memory": "with memory"}.get(arm, f"no {arm}")
        lines.append(
            f"| {label} | {sum(row.solved for row in own)} of {len(own)} "
            f"| {sum(row.turns for row in own)} | {sum(row.requests for row in own)} "
            f"| {sum(row.tokens for row in own):,} | {' | '.join(map(str, counts))} "
            f"| {f'{statistics.median(speed):.2f}x' if speed else ''} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--player", default="rules")
    parser.add_argument("--errors", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--arms", default="full,gate,sketch,intermediates")
    parser.add_argument("--only", default="")
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--improve", action="store_true")
    parser.add_argument("--jobs", type=int, default=1, help="sessions at once, where a person or an agent answers many")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--dsl", default="cpp")
    parser.add_argument("--tasks", type=Path, default=TASKS)
    parser.add_argument("--workspace", type=Path)
    given = parser.parse_args()
    for name in [name for name in os.environ if name.startswith(("KERNELLAB_MODEL", "OPENAI_"))]:
        del os.environ[name]
    rows: list[Row] = []
    tasks = given.tasks.resolve()
    if given.workspace is not None:
        os.chdir(given.workspace)  # where the Verifier looks for what a DSL needs
        given.workspace = Path.cwd()
    chosen = [path for path in sorted(tasks.glob("*.py")) if any(word in path.stem for word in given.only.split(","))]

    def played(arm: str, path: Path) -> Row:
        player = Scripted() if given.player == "rules" else Filed(Path(given.player) / arm / path.stem)
        return session(arm, path, player, given)

    with ThreadPoolExecutor(given.jobs) as pool:
        for done in as_completed([pool.submit(played, arm, path) for path in chosen for arm in given.arms.split(",")]):
            rows.append(done.result())
            print(json.dumps(asdict(rows[-1])), flush=True)
            if given.out:
                given.out.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    print(table(rows), flush=True)
    os._exit(0)  # threads of the verifier and of the endpoint are not waited for


if __name__ == "__main__":
    main()
