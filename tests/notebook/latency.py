"""How long a keystroke waits for its diagnostics: ``python tests/notebook/latency.py``.

A person edits a sketch of 200 lines: words are typed, retyped, broken and fixed, all over the text. Each edit goes
through the workbench's own path, message to answer, with an idle kernel, and the task and chip of a real session, so
that cost and footprint are worked out too. Prints the 50th and 95th percentiles in ms.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

TASK = """
import torch
from kernellab import Dim
def reference(x):
    return torch.softmax(x, -1)
M, N = Dim("M", 1, 4096), Dim("N", 64, 4096)
def inputs(M=512, N=1024):
    return torch.randn(M, N)
"""


def long_sketch(lines: int = 200) -> str:
    """One nest with many statements, as a fused operator has them, in several launches."""
    text = ["sketch stage_0 {", "    symbols: M, N;", "    tensors: x[M, N]: f32; t0[M, N]: f32 temp;"]
    text += ["    constexpr: BLOCK = 256 in {128, 256, 512};", ""]
    stage = 0
    body = 0
    while len(text) < lines - 8:
        if body == 0:
            source, target = ("x", "t0") if stage == 0 else (f"t{stage - 1}", f"t{stage}")
            if stage:
                kinds = f"tensors: {source}[M, N]: f32 temp; {target}[M, N]: f32 temp;"
                text += [f"sketch stage_{stage} {{", "    symbols: M, N;", f"    {kinds}"]
                text += ["    constexpr: BLOCK = 256 in {128, 256, 512};", ""]
            text += ['    @llm_hint("parallel", "coreidx")', "    for m in range(M):"]
            text += ["        for n in range(0, N, BLOCK):", f"            load({source}[m, n:n+BLOCK] -> v0)"]
            body = 1
        elif body < 16:
            operation = ("exp(v{0} * 0.5)", "max(v{0}, 0.1)", "v{0} * v{0} + 1.0", "where(v{0} > 0.0, v{0}, 0.25)")
            text.append(f"            v{body} = {operation[body % 4].format(body - 1)}")
            body += 1
        else:
            text += [f"            store(v{body - 1} -> {target}[m, n:n+BLOCK])", "}", ""]
            stage, body = stage + 1, 0
    if body:
        text += [f"            store(v{body - 1} -> {target}[m, n:n+BLOCK])", "}", ""]
    last = stage if body else stage - 1
    text += ["sketch finish {", "    symbols: M, N;", f"    tensors: t{last}[M, N]: f32 temp; y[M, N]: f32 out;"]
    text += ['    @llm_hint("parallel", "coreidx")', "    for m in range(M):", f"        load(t{last}[m, 0:N] -> v)"]
    text += ["        store(softmax(v, axis=0) -> y[m, 0:N])", "}", ""]
    return "\n".join(text)


def keystrokes(text: str, count: int, seed: int = 1) -> list[str]:
    """The text after each of ``count`` keystrokes: a line is retyped character by character, then the next."""
    draw = random.Random(seed)
    states: list[str] = []
    while len(states) < count:
        lines = text.split("\n")
        places = [i for i, line in enumerate(lines) if "=" in line or "load" in line or "for" in line]
        at = draw.choice(places)
        whole = lines[at]
        start = len(whole) - len(whole.lstrip())
        cut = draw.randrange(start, len(whole))
        for end in [*range(len(whole) - 1, cut, -1), *range(cut, len(whole) + 1)]:
            lines[at] = whole[:end]
            states.append("\n".join(lines))
    return states[:count]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=600)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        print(measure(args.keys, Path(folder), args.json))


def measure(keys: int, workspace: Path, as_json: bool) -> str:
    from kernellab.notebook.board.workbench import Workbench
    from kernellab.session import design

    session = design(TASK, dsl="cpp", name="softmax", roles="designer=human", workspace=workspace)
    bench = Workbench(session)
    answered = threading.Event()
    answers: list[dict[str, Any]] = []

    def take(content: dict[str, Any], buffers: object = None) -> None:
        answers.append(content)
        answered.set()

    bench.send = take  # type: ignore[method-assign,assignment]
    session.wait(60)
    while not bench.head["operator"]:
        time.sleep(0.05)
    text = long_sketch()
    first = ask(bench, answered, answers, 0, text)
    faults = [d["message"] for d in answers[-1]["value"]["diagnostics"]]
    assert not faults, faults
    took = [ask(bench, answered, answers, i, state) for i, state in enumerate(keystrokes(text, keys), 1)]
    right = [ms for ms, given in zip(took, answers[1:], strict=True) if given["value"]["cost"]]
    found = {
        "lines": text.count("\n") + 1,
        "keys": len(took),
        "first_ms": round(first, 1),
        "p50_ms": round(statistics.median(took), 1),
        "p95_ms": round(sorted(took)[int(0.95 * len(took))], 1),
        "max_ms": round(max(took), 1),
        "p95_right_ms": round(sorted(right)[int(0.95 * len(right))], 1) if right else 0.0,
        "broken": sum(1 for a in answers[1:] if a["value"]["diagnostics"]),
        "costed": sum(1 for a in answers[1:] if a["value"]["cost"]),
    }
    bench.close()
    session.stop()
    return json.dumps(found) if as_json else "  ".join(f"{name} {value}" for name, value in found.items())


def ask(bench: Any, answered: threading.Event, answers: list[dict[str, Any]], number: int, text: str) -> float:
    answered.clear()
    began = time.perf_counter()
    bench._handle_custom_msg({"id": f"keys-{number}", "body": {"ask": "check", "text": text}}, [])
    assert answered.wait(30)
    json.dumps(answers[-1])
    return (time.perf_counter() - began) * 1e3


if __name__ == "__main__":
    main()
