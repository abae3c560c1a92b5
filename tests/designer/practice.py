"""A task by rules from its source to a kernel beside eager, in one word and a reason.

The tables are those of practice_cases and model_cases.

python -m tests.designer.practice [--only WORD] [--part I/N] [--run]
"""

from __future__ import annotations

import argparse
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import torch

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.errors import KernellabError
from kernellab.lowering import lower
from kernellab.records import GateState, Source
from kernellab.sketch.check import load_program
from kernellab.sketch.gate import gate
from kernellab.sketch.program.bind import bind
from kernellab.task import Task, load_task
from tests.designer.coverage import CPU


def state_of(text: str, run: bool = False) -> tuple[str, str]:
    """``right``, ``library`` (right with a call of the framework), ``wrong``, ``refused`` or ``broken``; the reason."""
    try:
        task = load_task(text, "practice")
        result = None
        # a session tries the next design where the gate refuses one
        for reply in RulesDesigner().designs(DesignBrief(task, CPU)):
            result = gate(reply.sketch, task, seconds=0.2)
            if result.state is GateState.RIGHT:
                break
        else:
            return "wrong", result.reason if result else "there is no design"
        program = load_program(reply.sketch)
        source = lower(program, bind(program, task, {}, CPU), CPU)
        if run:
            compare(task, source)
    except KernellabError as error:
        return "refused", str(error)
    except AssertionError as error:
        return "wrong", str(error) or traceback.format_exc(limit=-2)
    except Exception as error:
        return "broken", f"{type(error).__name__}: {error}"
    if reply.library_calls:
        return "library", ", ".join(reply.library_calls)
    return "right", ""


def compare(task: Task, source: Source) -> None:
    """The compiled kernel beside eager: what it returns, and what it leaves in the arguments that are written.

    Raises:
        AssertionError: they differ.
    """
    from tests.lowering.test_cpp import load

    module = task.module()
    args = [a.clone() if isinstance(a, torch.Tensor) else a for a in module.sample(seed=3)]
    want = module.results(args)
    with tempfile.TemporaryDirectory() as folder:
        got = load(source, Path(folder)).kernel(*args)
    got = (*(got if isinstance(got, tuple) else (got,)), *(args[k] for k in module.written))
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-3, atol=2e-3, equal_nan=True)


def report(texts: Mapping[str, str], run: bool) -> None:
    """A line for each task, and the counts."""
    warnings.simplefilter("ignore")
    totals: Counter[str] = Counter()
    for name, text in texts.items():
        began = time.perf_counter()
        state, reason = state_of(text, run)
        totals[state] += 1
        print(f"{state:8} {time.perf_counter() - began:5.1f} s  {name}  {' '.join(reason.split())[:400]}", flush=True)
    print(f"-- all {totals.total()}: {dict(totals)}")


def main(texts: Mapping[str, str], about: str | None) -> None:
    """Reports on the tasks that the command line names: by a part of the name, one part of several, run or not."""
    options = argparse.ArgumentParser(description=about)
    options.add_argument("--only", default="")
    options.add_argument("--part", default="0/1")
    options.add_argument("--run", action="store_true")
    given = options.parse_args()
    part, parts = map(int, given.part.split("/"))
    chosen = [n for k, n in enumerate(texts) if given.only in n and k % parts == part]
    report({n: texts[n] for n in chosen}, given.run)


if __name__ == "__main__":
    from tests.designer.model_cases import MODELS
    from tests.designer.practice_cases import PRACTICE

    main({**PRACTICE, **MODELS}, __doc__)
