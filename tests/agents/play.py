"""A session whose model is you: each prompt is a file, and you write the answer as a file.

    python -m tests.agents.play TASK FOLDER [--designer model] [--coder model] [--conductor rules]
                                [--without PART ...] [--turns 20] [--dsl cpp] [--budget 1.0]

``TASK`` is a file, or a name of the built-in suite (``scan/gated_cell``) or of ``tests/practice``. The session runs
until it ends or is cut off; the same call again resumes nothing: take another folder.

    FOLDER/001.prompt.md     what a model would be sent, with ``<!-- role -->`` before each message
    FOLDER/001.answer.md     yours: write it under another name and move it there, so that it is read whole
    FOLDER/turns.md          what came of it, renewed after each turn
    FOLDER/summary.json      at the end: requests, tokens, verdicts, why it ended

An empty answer file is an empty reply of a model. ``KEEP`` and ``{"done": "why"}`` mean what the prompt says.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

from kernellab.models.tokens import estimate
from kernellab.session import Session, design
from tests.agents.players import Filed
from tests.agents.trial import SETTINGS
from tests.models.fake_server import Connection, FakeServer, answer
from tests.practice.fields import FIELDS
from tests.practice.operators import OPERATORS

BUILTIN = Path(__file__).parents[2] / "kernellab/bench/builtin"


def task_text(name: str) -> tuple[str, str]:
    """A task's name and text. Raises SystemExit, naming what there is."""
    if name in (held := {**OPERATORS, **FIELDS}):
        return name, held[name]
    for path in (Path(name), BUILTIN / f"{name}.py"):
        if path.is_file():
            return path.stem, path.read_text()
    raise SystemExit(f"There is no task {name}: name a file, one of tests/practice, or one of {BUILTIN}.")


def told(session: Session) -> str:
    """The turns so far, one line each."""
    lines = []
    for turn in session.state.turns.values():
        said = turn.error or (turn.verdict.reason if turn.verdict else "") or (turn.gate.reason if turn.gate else "")
        said = said or (turn.route.reason if turn.route else "") or turn.rationale
        speed = turn.verdict.speedup if turn.verdict is not None and turn.verdict.passed else None
        fast = f" {speed:.2f}x eager." if speed else ""
        lines.append(f"- {turn.number} {turn.role.value}, {turn.author.value}, {turn.state.value}:{fast} {said}")
    return "\n".join(lines) + "\n"


def play(task: str, folder: Path, asked: argparse.Namespace, patience_s: float = 7200.0) -> Session:
    """One session, played from ``folder``; returns it when it has ended."""
    name, text = task_text(task)
    folder.mkdir(parents=True, exist_ok=True)
    if next(folder.glob("*.prompt.md"), None):
        raise SystemExit(f"{folder} holds prompts already: take another folder.")
    player, sizes = Filed(folder, patience_s), list[tuple[int, int]]()

    def act(link: Connection) -> None:
        messages = link.body["messages"]
        reply = player(messages)
        sizes.append((sum(estimate(m["content"]) for m in messages), estimate(reply)))
        usage = {"prompt_tokens": sizes[-1][0], "completion_tokens": sizes[-1][1], "total_tokens": sum(sizes[-1])}
        answer(reply, usage=usage)(link)

    with FakeServer(act) as server:
        (folder / "kernellab.toml").write_text(SETTINGS.format(url=server.url))
        session = design(
            text, dsl=asked.dsl, name=name, workspace=str(folder), max_turns=asked.turns, improve=True,
            roles={"designer": asked.designer, "coder": asked.coder, "conductor": asked.conductor},
            ablation=tuple(asked.without), options={"budget": asked.budget}, memory="off",
        )  # fmt: skip
        while not session.resting:
            (folder / "turns.md").write_text(told(session))
            time.sleep(0.5)
        session.wait(60)
    (folder / "turns.md").write_text(told(session))
    best = session.state.best()
    summary = {
        "task": name, "requests": player.asked, "prompt_tokens": sum(a for a, _ in sizes),
        "reply_tokens": sum(b for _, b in sizes), "turns": len(session.state.turns),
        "verdicts": [t.verdict.reason for t in session.state.turns.values() if t.verdict is not None],
        "speedup": best.verdict.speedup if best else None, "reason": session.reason,
    }  # fmt: skip
    (folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    return session


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task")
    parser.add_argument("folder", type=Path)
    for role, who in (("designer", "model"), ("coder", "model"), ("conductor", "rules")):
        parser.add_argument(f"--{role}", default=who, choices=("model", "rules", "rules>model"))
    parser.add_argument("--without", action="append", default=[])
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--dsl", default="cpp")
    parser.add_argument("--budget", type=float, default=1.0, help="seconds of timing in a verification")
    asked = parser.parse_args()
    for name in [name for name in os.environ if name.startswith(("KERNELLAB_MODEL", "OPENAI_"))]:
        del os.environ[name]
    session = play(asked.task, asked.folder.resolve(), asked)
    print(told(session), session.reason, sep="\n", flush=True)
    os._exit(0)  # threads of the verifier and of the endpoint are not waited for


if __name__ == "__main__":
    main()
