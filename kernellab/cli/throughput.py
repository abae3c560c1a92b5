"""``kernellab bench throughput``: candidates a minute, cold and warm, beside an evaluation in a fresh process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernellab.cli.output import emit, say
from kernellab.content import written
from kernellab.errors import KernellabError


def throughput(
    dsl: Annotated[str | None, typer.Option(help="cpp or triton; default: triton with a GPU, else cpp.")] = None,
    candidates: Annotated[int, typer.Option(min=1, help="Verdicts for each number of judges.")] = 8,
    workers: Annotated[str, typer.Option(help="Judges side by side, one number or several: 1,2,4.")] = "1",
    fresh: Annotated[
        int | None, typer.Option(min=0, help="Pairs with a fresh process; default: as many as candidates.")
    ] = None,
    kernelbench: Annotated[
        Path | None, typer.Option(help="A checkout of KernelBench: compare with its own evaluation.")
    ] = None,
    rows: Annotated[int, typer.Option(min=1, help="Rows of 1024 floats in each input.")] = 1024,
    out: Annotated[Path | None, typer.Option(help="A file for the JSON object.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> int:
    """Candidates a minute, cold and warm. Exit 0 when every candidate passed.

    The ratio is of pairs taken in turn in one run: a candidate by a warm judge, then the same in a fresh process, as
    KernelBench evaluates it (its own evaluation with --kernelbench and a CUDA device, else that manner).
    """
    from kernellab.bench.throughput import candidate, measure, table
    from kernellab.dsls.machine import detect_target

    target = detect_target(dsl)
    candidate(target.dsl, 0)
    found = measure(target, candidates, _numbers(workers), kernelbench, rows, fresh, say)
    plain = {
        **found.model_dump(mode="json"),
        "ratios": found.ratios,
        "warm_median_seconds": found.warm_median,
        "per_minute": {r.workers: {"cold": r.cold_per_minute, "warm": r.warm_per_minute} for r in found.rates},
    }
    if out is not None:
        import json as to_json

        written(out, to_json.dumps(plain, indent=2) + "\n")
    if json:
        emit(plain)
    else:
        print(table(found))
    return 0 if not found.failures else 1


def _numbers(text: str) -> list[int]:
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise KernellabError(f"--workers {text} is not a list of numbers.", "Write --workers 1,2,4.")
    return found
