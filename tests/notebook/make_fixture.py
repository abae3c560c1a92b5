"""Writes what the workbench really says as JSON, for the front end's tests: ``python tests/notebook/make_fixture.py``.

One real C++ session without a model: designed by rules, its sketch broken by a person, its code broken at the last
tile by a person (an edge-tile failure, routed by the Conductor), forked, and pinned. After each step the traits of a
workbench that is on no page are dumped, with the answers to the front end's questions, into widgets/fixtures.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TASK = """
import torch
from kernellab import Dim

def reference(x, w, eps: float = 1e-6):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w

M, N = Dim("M", 1, 4096), Dim("N", 64, 4096)
def inputs(M=512, N=1024):
    return torch.randn(M, N), torch.rand(N)
"""

SKETCH = """sketch rms_norm {
    symbols: M, N;
    tensors: x[M, N]: f32; w[N]: f32; y[M, N]: f32 out;
    constexpr: eps = 1e-06; BLOCK = 256 in {128, 256, 512};

    @llm_hint("parallel", "coreidx")
    for m in range(M):
        acc = alloc([BLOCK], f32, llm_hint=["fastest", "accumulator", "init_zero"])
        for n in range(0, N, BLOCK):
            load(x[m, n:n+BLOCK] -> v)
            acc = acc + v * v
        scale = rsqrt(reduce_sum(acc, axis=0) / N + eps)
        for n in range(0, N, BLOCK):
            load(x[m, n:n+BLOCK] -> v)
            load(w[n:n+BLOCK] -> u)
            store(v * scale * u -> y[m, n:n+BLOCK])
}
"""

#: what the model of the loopback server answers: a right sketch, with claims that the record can check
REPLY = f"""Each row is independent, so rows run in parallel; a row is read twice and stays in L2.

```sketch
{SKETCH}```

```json
{{"claims": ["3.0 times as fast as eager", "the tiles of one iteration take 3 kB"]}}
```
"""

TRAITS = ("head", "turns", "changed", "detail", "roofline", "texts", "partial", "shown", "beat")


def edge_tile(files: dict[str, str]) -> dict[str, str]:
    """The kernel with its output loop stopped one vector short: wrong in the last tile of N only."""
    name = "kernel.cpp"
    at = files[name].rindex("for (int64_t")
    loop = files[name][at:]
    broken, count = re.subn(r"; (\w+) < ([^;]+);", r"; \1 < (\2) / 16 * 16;", loop, count=1)
    assert count == 1, "the lowered kernel has no loop to break"
    return {name: files[name][:at] + broken}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[2] / "widgets" / "fixtures")
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ.pop("KERNELLAB_APPROVE", None)
        record(out, Path(folder))
        record_model(out, Path(folder))


def record_model(out: Path, workspace: Path) -> None:
    """A session whose Designer is a model: what it was told and answered, and while it writes."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
    from kernellab.notebook.board.workbench import Workbench
    from kernellab.session import design
    from tests.models.fake_server import Connection, FakeServer

    go_on = threading.Event()

    def slowly(link: Connection) -> None:
        link.open_stream()
        link.delta(role="assistant", reasoning_content="The reduction runs along the rows.")
        link.delta(content=REPLY[:120])
        go_on.wait(60)
        link.delta(content=REPLY[120:])
        link.delta(finish="stop")
        link.usage({"prompt_tokens": 8123, "completion_tokens": 412, "prompt_tokens_details": {"cached_tokens": 6016}})
        link.done()

    with FakeServer(slowly) as server:
        os.environ |= {"KERNELLAB_MODEL_URL": server.url, "KERNELLAB_MODEL": "small-coder"}
        session = design(TASK, dsl="cpp", name="rms_model", roles="designer=model", approve="all", workspace=workspace)
        bench = Workbench(session)
        until(lambda: bench.partial["length"] == 120)
        dump(bench, out, "writing")
        go_on.set()
        session.wait(120)
        until(lambda: bool(bench.detail["exchanges"]))
        dump(bench, out, "model")
        answer = ask(bench, "exchange", exchange=bench.detail["exchanges"][0]["id"])
        (out / "exchange.json").write_text(json.dumps(answer, indent=1, sort_keys=True) + "\n")
        session.stop()
        bench.close()


def dump(bench: Any, out: Path, name: str) -> None:
    time.sleep(0.4)  # the publisher's period, and a margin
    found = {trait: getattr(bench, trait) for trait in TRAITS}
    (out / f"{name}.json").write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    print(f"{name}: {len(json.dumps(found))} bytes, {len(bench.turns) + len(bench.changed)} rows")


def until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "what the fixture waits for never came"
        time.sleep(0.01)


def ask(bench: Any, what: str, /, **body: Any) -> Any:
    """The workbench's answer, as the front end would get it."""
    sent: list[dict[str, Any]] = []
    bench.send = lambda content, buffers=None: sent.append(content)
    bench._handle_custom_msg({"id": f"fixture-{what}", "body": {"ask": what, **body}}, [])
    until(lambda: bool(sent))
    return sent[0]


def record(out: Path, workspace: Path) -> None:
    from kernellab.notebook.board.workbench import Workbench
    from kernellab.session import design

    session = design(TASK, dsl="cpp", name="rms_norm", approve="routing", workspace=workspace)
    bench = Workbench(session)
    until(lambda: bool(session.trace.stages) and any(len(s) >= 2 for s in session.trace.stages.values()))
    dump(bench, out, "verifying")
    session.wait(180)
    until(lambda: bool(bench.head["operator"]))
    dump(bench, out, "designed")
    session.edit_sketch(SKETCH)
    session.wait(180)
    dump(bench, out, "edited")
    good = session.source
    assert good is not None
    session.edit_source(edge_tile(dict(good.files)))
    session.wait(180)
    dump(bench, out, "edge_tile")
    session.edit_sketch(SKETCH.replace("x[m, n:n+BLOCK] -> v", "x[m, n:n+BLOCKS] -> v"))
    session.wait(180)
    dump(bench, out, "unparsable")
    edited = next(t for t in session.turns if t.sketch == SKETCH)
    session.fork(edited)
    session.wait(60)
    dump(bench, out, "forked")
    pinned = SKETCH.replace("load(w[n:n+BLOCK] -> u)", "load(w[n:n+BLOCK] -> u)  #: pin").replace(
        "= 256 in", "= 512 in"
    )
    session.edit_sketch(pinned)
    session.wait(180)
    dump(bench, out, "pinned")
    session.set_role("coder", "human")
    session.redirect("coder", "vectorise the second loop")
    session.wait(60)
    dump(bench, out, "brief")
    broken = SKETCH.replace("scale * u", "scales * u")
    coders = [t.id for t in session.turns if t.candidate]
    answers = {
        "check": ask(bench, "check", text=SKETCH),
        "check_broken": ask(bench, "check", text=broken),
        "complete": ask(bench, "complete", text=broken, line=16, col=22),
        "hover": ask(bench, "hover", text=SKETCH, line=8, col=10),
        "hover_fault": ask(bench, "hover", text=broken, line=16, col=24),
        "candidates": ask(bench, "candidates", offset=0, limit=50, sort="speedup"),
        "compare": ask(bench, "compare", a=coders[0], b=coders[1]),
        "artefact": ask(bench, "artefact", name="asm"),
        "brief": ask(bench, "brief"),
        "explain": ask(bench, "explain", what="speed"),
        "touches": ask(bench, "touches", text=SKETCH),
        "unknown": ask(bench, "weather"),
    }
    (out / "answers.json").write_text(json.dumps(answers, indent=1, sort_keys=True) + "\n")
    session.stop()
    dump(bench, out, "stopped")
    bench.close()


if __name__ == "__main__":
    main()
