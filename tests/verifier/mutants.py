"""How many plain errors a ranking lets through: ``python -m tests.verifier.mutants [--count N] [--seed S]``.

The zoo's errors, and honest C++ kernels of the zoo with one place of their code changed at random (an operator, a
bound, an index, a constant, a statement left out). What a ranking takes is verified in full; where the verification
refuses it, the ranking let an error through, where it passes, the change made no difference. What does not compile is
told apart. Ends with 1 when more than one error in two hundred got through.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from kernellab.errors import KernellabError
from kernellab.records import Source, Stage
from kernellab.target import Backend
from kernellab.verifier import RankOptions, Verifier, VerifyOptions
from tests.zoo.exhibit import Exhibit, exhibits

#: share of the errors that may get through
MOST = 1 / 200
#: what is looked for, and one of what it becomes
CHANGES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"(?<=\w) <= (?=\w)", (" < ",)),
    (r"(?<=\w) < (?=\w)", (" <= ", " + 1 < ")),
    (r"(?<=[\w\])]) \+ (?=[\w(])", (" - ", " + 1 + ")),
    (r"(?<=[\w\])]) - (?=[\w(])", (" + ",)),
    (r"(?<=[\w\])]) \* (?=[\w(])", (" + ", " * 2 * ")),
    (r"(?<=[\w\])]) / (?=[\w(])", (" * ",)),
    (r" \+= ", (" = ", " -= ")),
    (r"\[i\]", ("[0]", "[i + 1]")),
    (r"\[j\]", ("[0]",)),
    (r"(?<=[\w\])])\[i \* N \+ j\]", ("[j * N + i]",)),
    (r"\bfmax\b", ("fmin",)),
    (r"\bmax\b", ("min",)),
    (r"= 0(?=[;,])", ("= 1",)),
    (r"= 0\.0f(?=[;,])", ("= 1.0f",)),
    (r"\b1\.0f\b", ("0.5f",)),
    (r"\b0\.5f\b", ("1.0f",)),
    (r"1e-0?[56]f?", ("1e-2f",)),
    (r"-INFINITY", ("0.0f",)),
    (r"\bsqrt\b", ("cbrt",)),
    (r"\bexp\b", ("exp2",)),
    (r"\bsize\(0\)", ("size(1)",)),
    (r"\bsize\(1\)", ("size(0)",)),
    (r"\+\+(?=[ijkn]\))", ("++++",)),
    (r"\n +[\w\[\] *+]+ [+*]?= [^;{}\n]+;(?=\n)", ("\n",)),
)  # fmt: skip
_CODE = re.compile(r'r"""\n.*?"""', re.DOTALL)


@dataclass(frozen=True)
class Fate:
    """What became of one candidate: ``refused`` by the ranking, ``through`` though wrong, ``same`` as the honest one,
    ``unbuilt``, or ``failed`` where nothing could be told. ``seconds`` are those after the build."""

    name: str
    change: str
    fate: str
    reason: str
    seconds: float
    why: str = ""


def mutants(honest: Exhibit, count: int, draw: random.Random) -> Iterator[tuple[str, Source]]:
    """At most ``count`` different sources with one place changed, and the change in words."""
    source = honest.source("cpu")
    places = [
        (name, match.start() + code.start(), match.group(), new)
        for name, text in source.files.items()
        # what our lowerings bring along is mostly not used
        if not name.startswith("kl_")
        for code in ([re.match(r".*", text, re.DOTALL)] if name.endswith((".cpp", ".h")) else _CODE.finditer(text))
        if code is not None
        for pattern, becomes in CHANGES
        for match in re.finditer(pattern, code.group())
        for new in becomes
    ]
    for name, at, old, new in draw.sample(places, min(count, len(places))):
        text = source.files[name]
        line = text.count("\n", 0, at) + 1
        changed = text[:at] + new + text[at + len(old) :]
        files = {**source.files, name: changed}
        yield f"{name}:{line} {old.strip()!r} -> {new.strip()!r}", source.model_copy(update={"files": files})


def candidates(count: int, seed: int) -> Iterator[tuple[Exhibit, str, Source]]:
    """The zoo's errors that this machine can show, then as many mutants as are wanted."""
    every = [e for e in exhibits() if "cpu" in e.card.where and e.target("cpu").backend is Backend.CPU]
    for error in (e for e in every if e.kind == "errors"):
        yield error, "", error.source("cpu")
    honest = [e for e in every if e.honest and e.card.dsl == "cpp"]
    draw = random.Random(seed)
    each = -(-count // len(honest))
    found = [(e, change, source) for e in honest for change, source in mutants(e, each, draw)]
    draw.shuffle(found)
    yield from found[:count]


def judged(verifier: Verifier, shown: Exhibit, change: str, source: Source) -> Fate:
    card, target = shown.card, shown.target("cpu")
    asked = RankOptions(allow_library=card.allow_library, budget=0.05, threads=card.threads, deadline=card.deadline)
    try:
        ranking = verifier.rank(shown.task, source, target, options=asked)
    except KernellabError as error:
        return Fate(shown.name, change, "failed", error.message, 0.0)
    fate = Fate(shown.name, change, "refused", ranking.reason, ranking.seconds)
    if ranking.stage in (Stage.STATIC, Stage.BUILD):
        return replace(fate, fate="unbuilt")
    if not ranking.ranked:
        return fate
    full = VerifyOptions(
        allow_library=card.allow_library, budget=0.05, threads=card.threads, deadline=max(card.deadline, 120.0)
    )
    verdict = verifier.verify(shown.task, source, target, options=full)
    why = f"{verdict.stage.value}: {verdict.reason}"
    return replace(fate, fate="same" if verdict.passed else "through", why="" if verdict.passed else why)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=240, help="mutants beside the zoo's errors")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3600.0, help="begin none after so many seconds")
    parser.add_argument("--json", type=Path, help="write all fates here")
    options = parser.parse_args(arguments)
    end = time.monotonic() + options.seconds
    fates: list[Fate] = []
    with Verifier() as verifier:
        for shown, change, source in candidates(options.count, options.seed):
            if time.monotonic() > end:
                break
            fates.append(judged(verifier, shown, change, source))
            found = fates[-1]
            if found.fate in ("through", "failed"):
                print(f"{found.fate}: {found.name} {found.change}\n    {found.why or found.reason}", flush=True)
    counts = {f: sum(x.fate == f for x in fates) for f in ("refused", "through", "same", "unbuilt", "failed")}
    wrong = counts["refused"] + counts["through"]
    seconds = [f.seconds for f in fates if f.fate in ("refused", "same", "through")]
    print(", ".join(f"{name} {count}" for name, count in counts.items()))
    print(f"{counts['through']} of {wrong} errors through; median {statistics.median(seconds):.2f} s after the build")
    if options.json:
        options.json.write_text(json.dumps([asdict(f) for f in fates], indent=1))
    return 1 if counts["failed"] or counts["through"] > MOST * wrong else 0


if __name__ == "__main__":
    sys.exit(main())
