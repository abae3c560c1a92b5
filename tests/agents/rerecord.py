"""A notebook's recorded replies, given again to the prompts of today.

    python -m tests.agents.rerecord NOTEBOOK REPLAY

The first cell of the notebook that plays REPLAY is run with model roles behind an endpoint that gives the recorded
replies in their order, and the session's exchanges take the file's place. For prompts that changed in words alone:
where a reply would be another one, record it with a model.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
from pathlib import Path

from kernellab.cli import main as kernellab
from kernellab.session import design
from tests.models.fake_server import FakeServer, answer

SETTINGS = '[models]\nbase_url = "{url}"\nmodel = "{model}"\nretries = 0\n'


def rerecord(notebook: Path, replay: Path) -> None:
    cells = ["".join(cell["source"]) for cell in json.loads(notebook.read_text())["cells"]]
    cell = next(c for c in cells if c.startswith("%%kernel_design") and f"replay:replays/{replay.name}" in c)
    head, _, text = cell.partition("\n")
    words = shlex.split(head)
    exchanges = [json.loads(line) for line in replay.read_text().splitlines()[1:]]
    acts = [answer(e["reply"], usage=_usage(e["usage"])) for e in exchanges]
    with tempfile.TemporaryDirectory() as folder, FakeServer(*acts) as server:
        (Path(folder) / "kernellab.toml").write_text(SETTINGS.format(url=server.url, model=exchanges[0]["model"]))
        done = design(
            text, dsl=words[words.index("--dsl") + 1], chip=words[words.index("--chip") + 1],
            roles={"designer": "model", "coder": "model"}, name=words[1], workspace=folder,
            improve="--no-improve" not in words,
        ).wait(600)  # fmt: skip
        if done.state.best() is None:
            raise SystemExit(f"No kernel passed with the recorded replies: {done.reason}")
        print(done.reason)
        target = replay.resolve()
        target.unlink()
        os.chdir(folder)
        kernellab(["replay", "export", done.id, "--out", str(target)])
        # the endpoint calls its model by a name of its own
        target.write_text(target.read_text().replace('"fake-1"', json.dumps(exchanges[0]["model"])))


def _usage(recorded: dict[str, int]) -> dict[str, int]:
    told, said = recorded["input_tokens"], recorded["output_tokens"]
    return {"prompt_tokens": told, "completion_tokens": said, "total_tokens": told + said}


if __name__ == "__main__":
    rerecord(*map(Path, sys.argv[1:3]))
