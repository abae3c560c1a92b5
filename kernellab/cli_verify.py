"""``kernellab verify``: the full verification of any source, ours or not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernellab.cli_output import emit, read_text, say
from kernellab.dsls import Adapter, get_adapter
from kernellab.errors import KernellabError
from kernellab.records import Author, Source, StageResult, Verdict, one_line_each

if TYPE_CHECKING:
    from kernellab.verifier.options import VerifyOptions


def verify(
    task: Annotated[Path, typer.Argument(help="The task's Python file.")],
    source: Annotated[Path, typer.Argument(help="A Python file that defines kernel(...), or a folder with one.")],
    dsl: Annotated[str | None, typer.Option(help="What it is written in; default: read from its text.")] = None,
    allow_library: Annotated[bool, typer.Option(help="Take a candidate that leans on library operators.")] = False,
    baseline: Annotated[list[str] | None, typer.Option(help="eager, compile; repeatable.")] = None,
    level: Annotated[str, typer.Option(help="T0 static only, T1 quick, T2 isolated, T4 reproduced.")] = "T2",
    repeat: Annotated[int, typer.Option(help="How many times the timing is done.")] = 1,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> int:
    """Is SOURCE right, honest and fast for TASK? Exit 0 when verified, whatever its speed."""
    from kernellab.target_detect import detect_target
    from kernellab.task import load_task
    from kernellab.task_quality import admit
    from kernellab.verifier import Verifier

    loaded = load_task(task)
    weak = admit(loaded)
    candidate = read_source(source, dsl)
    target = detect_target(candidate.dsl)
    options = verify_options(baseline, level, repeat, allow_library)
    told = _Progress()
    with Verifier() as verifier:
        verdict = verifier.verify(loaded, candidate, target, options=options, progress=told)
    told.flush()
    verdict = verdict.model_copy(update={"flags": [*verdict.flags, *map(str, weak)]})
    if json:
        emit(verdict_dict(verdict))
    else:
        print(verdict_text(verdict))
    return 0 if verdict.passed else 1


def read_source(path: Path, dsl: str | None) -> Source:
    """A Source from a Python file or a folder; the DSL is read from the text where none is given.

    Raises:
        KernellabError: no such file, or a folder where it is not clear which file defines the kernel.
    """
    if not path.exists():
        raise KernellabError(f"The source {path} does not exist.", "Give a Python file, or a folder with one.")
    adapter = get_adapter(dsl) if dsl is not None else Adapter()
    if path.is_dir():
        files = {
            str(file.relative_to(path)): read_text(file, "source")
            for file in sorted(path.rglob("*"))
            if file.is_file() and file.suffix in adapter.suffixes
        }
        entry = adapter.entry_file if adapter.entry_file in files else _entry(path, files)
    else:
        files, entry = {path.name: read_text(path, "source")}, path.name
    return Source(dsl=dsl or _dsl_of(files), files=files, entry_file=entry, entry=adapter.entry, origin=Author.HUMAN)


def _entry(path: Path, files: dict[str, str]) -> str:
    python = [name for name in files if name.endswith(".py")]
    if "kernel.py" in files:
        return "kernel.py"
    defining = [n for n in python if "def kernel(" in files[n] or "class ModelNew" in files[n]]
    for found in (defining, python):
        if len(found) == 1:
            return found[0]
    raise KernellabError(f"{path} has {len(python)} Python files, and none is the entry.", "Name it kernel.py.")


def _dsl_of(files: dict[str, str]) -> str:
    text = "\n".join(files.values())
    return "triton" if "import triton" in text or "from triton" in text else "cpp"


def verify_options(
    baseline: list[str] | None, level: str = "T2", repeat: int = 1, allow_library: bool = False
) -> VerifyOptions:
    """The verifier's options. Raises KernellabError, naming the one that is wrong."""
    from pydantic import ValidationError

    from kernellab.verifier.options import VerifyOptions

    fields: dict[str, Any] = {"level": level, "repeat": repeat, "allow_library": allow_library}
    if baseline:
        fields["baselines"] = tuple(baseline)
    try:
        return VerifyOptions.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        where = "--" + str(first["loc"][0]).removesuffix("s")
        raise KernellabError(f"{where} {first['input']!r} cannot be used.", f"{first['msg']}.") from None


def verdict_dict(verdict: Verdict) -> dict[str, Any]:
    """The contract's names, with the whole record under ``verdict``."""
    eager = verdict.against("eager")
    time = verdict.time
    return {
        "passed": verdict.passed,
        "stage": verdict.stage.value,
        "reason": verdict.reason,
        "label": verdict.label,
        "trust": verdict.trust.value,
        "flags": verdict.flags,
        "evidence": verdict.evidence.model_dump(mode="json") if verdict.evidence else None,
        "time_ms": time.median_ms if time else None,
        "spread": [time.q1_ms, time.q3_ms] if time else None,
        "baseline_ms": eager.baseline_time.median_ms if eager else None,
        "compile_ms": c.baseline_time.median_ms if (c := verdict.against("compile")) else None,
        "speedup": verdict.speedup,
        "speedups": {c.baseline: [c.speedup, c.low, c.high] for c in verdict.comparisons},
        "sol_ms": verdict.sol_ms,
        "own_share": verdict.own_share,
        "build_seconds": verdict.build_seconds,
        "environment": verdict.environment.model_dump(mode="json"),
        "stages": [
            {"name": s.name.value, "passed": s.passed, "state": s.state.value, "seconds": s.seconds, "note": s.note}
            for s in one_line_each(verdict.stages)
        ],
    }


def verdict_text(verdict: Verdict) -> str:
    """The verdict in lines for people."""
    head = "passed" if verdict.passed else f"failed at {verdict.stage.value}"
    label = f" ({verdict.label})" if verdict.label else ""
    lines = [f"{head}, {verdict.trust.value}{label}: {verdict.reason}"]
    if verdict.time:
        lines.append(
            f"  {verdict.time.median_ms:.4g} ms (quartiles {verdict.time.q1_ms:.4g} to {verdict.time.q3_ms:.4g})"
        )
    lines += [
        f"  {c.speedup:.2f}x {c.baseline} ({c.low:.2f} to {c.high:.2f}; it takes {_ms(c.baseline_time.median_ms)})"
        for c in verdict.comparisons
    ]
    if verdict.sol_ms:
        lines.append(f"  bound on this chip {_ms(verdict.sol_ms)}")
    lines += [f"  flag: {flag}" for flag in verdict.flags]
    evidence = verdict.evidence
    if evidence is not None:
        lines += [f"  {line.file}:{line.line or '?'}: {line.message}" for line in evidence.compiler[:10]]
        if evidence.signature:
            lines.append(f"  signature: {evidence.signature}")
        if evidence.first_wrong is not None:
            case = ", ".join(f"{name}={size}" for name, size in evidence.sizes.items())
            lines.append(f"  first wrong {evidence.first_wrong} at {case}: got {evidence.got}, want {evidence.want}")
        lines += [f"    {row}" for row in evidence.error_map]
    return "\n".join(lines)


def _ms(value: float) -> str:
    return f"{value:.4g} ms"


class _Progress:
    """A line on stderr for each stage, once all its parts are known."""

    def __init__(self) -> None:
        self._parts: list[StageResult] = []

    def __call__(self, part: StageResult) -> None:
        if self._parts and self._parts[0].name is not part.name:
            self.flush()
        self._parts.append(part)

    def flush(self) -> None:
        for stage in one_line_each(self._parts):
            say(f"{stage.name.value:<8} {stage.state.value:<12} {stage.seconds:6.2f} s  {stage.note}".rstrip())
        self._parts = []
