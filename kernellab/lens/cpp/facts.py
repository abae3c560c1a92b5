"""Facts from an assembly: vector width, loops, stack, calls."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from kernellab.errors import counted
from kernellab.lens.cpp.build import Compiled, demangled
from kernellab.lens.cpp.loops import Loop, innermost
from kernellab.lens.cpp.mca import available, modelled
from kernellab.lens.read.rows import Row
from kernellab.lens.records import Fact

_BITS = {"x": 128, "y": 256, "z": 512}
_REGISTER = re.compile(r"\b([xyz])mm\d+")
_NEON = re.compile(r"\bv\d+\.\d+[bhsd]")
#: arithmetic on packed and on single floating-point numbers (x86)
ARITHMETIC = re.compile(
    r"^v?(?:f[n]?m(?:add|sub)\w*|add|sub|mul|div|sqrt|max|min|rsqrt14|rcp14|rsqrt|rcp)(?P<kind>[ps][sdh])\b"
)
STACK = re.compile(r"\[(?:rsp|rbp|sp)\b|\[x29\b|\d+\[(?:rsp|rbp)\b")
_STORE = re.compile(r"^v?mov\w*\s+(?:\w+ PTR )?-?\d*\[")
_REMARK = re.compile(r"([^/:]+):(\d+):\d+: optimized: +loop vectorized using (\d+) byte vectors")
_NO_MCA = "llvm-mca is not installed, so the loop's cycles are not known: apt-get install llvm, or brew install llvm."


def vector_bits(instruction: str) -> int:
    """Return the width in bits of an x86 instruction's arithmetic on packed numbers; 0 for others."""
    match = ARITHMETIC.match(instruction)
    widths = [_BITS[kind] for kind in _REGISTER.findall(instruction)]
    return max(widths, default=0) if match and match["kind"][0] == "p" else 0


def facts(compiled: Compiled, rows: Sequence[Row], main: str) -> tuple[list[Fact], list[str]]:
    """Return the facts, and notes on what is missing. ``rows`` are those of the level "asm"."""
    loops = innermost(rows)
    hot = loops[0] if loops else None
    result = [*_width(rows, loops), *_vectorised(compiled, main), *_frame(compiled, rows)]
    notes = []
    if hot is not None:
        result += _loop(hot, main)
        model = modelled(hot)
        if model is not None:
            held = f"; what holds it back most is {model.bottleneck}" if model.bottleneck else ""
            result.append(
                Fact(
                    "cycles an iteration", f"{model.cycles:.1f}",
                    f"llvm-mca's model of {model.cpu}: {model.cycles:.1f} cycles an iteration of the loop at line "
                    f"{hot.first} of asm, {model.instructions_per_cycle:.1f} instructions a cycle{held}. "
                    "All data are taken to be in L1.",
                )
            )  # fmt: skip
        elif available() is None:
            notes.append(_NO_MCA)
        else:
            notes.append("llvm-mca knows no model of this CPU for the hottest loop's instructions.")
    return result, notes


def _width(rows: Sequence[Row], loops: Sequence[Loop]) -> list[Fact]:
    """Return the vector width of the arithmetic in innermost loops; of all arithmetic without a loop."""
    # of several loops from the same lines, the first is the loop and the others compute its remainder
    first = {frozenset(at for row in loop.rows for at in row.places): loop for loop in reversed(loops)}
    inside = [text for loop in first.values() for text in loop.instructions] or [row.text.strip() for row in rows]
    kinds = Counter[str]()
    for text in inside:
        if (match := ARITHMETIC.match(text)) is None:
            if _NEON.search(text) and text.startswith("f"):
                kinds["128 bits"] += 1
            continue
        bits = max((_BITS[name] for name in _REGISTER.findall(text)), default=128)
        kinds[f"{bits} bits" if match["kind"].startswith("p") else "one number"] += 1
    if not kinds:
        return []
    wide = sorted(kinds, key=lambda k: -int(k.split()[0]) if k[0].isdigit() else 0)
    total, single = sum(kinds.values()), kinds["one number"]
    widths = ", ".join(f"{kinds[k]} of {k}" if k[0].isdigit() else f"{kinds[k]} on one number" for k in wide)
    if single == total:
        what = "none of it is vectorised: each instruction computes one number"
    elif single:
        what = f"{total - single} of {total} instructions are vectorised"
    else:
        what = "all of it is vectorised"
    sentence = f"Floating-point arithmetic in the innermost loops: {widths}; {what}."
    return [Fact("vector width", wide[0] if wide[0] != "one number" else "scalar", sentence)]


def _vectorised(compiled: Compiled, main: str) -> list[Fact]:
    """GCC's own remarks about loops."""
    by_line: dict[tuple[str, int], int] = {}
    for remark in compiled.remarks:
        if note := _REMARK.search(remark):
            place = note[1], int(note[2])
            by_line[place] = max(by_line.get(place, 0), 8 * int(note[3]))
    if not by_line:
        return []
    own = [f"line {line} ({bits} bits)" for (file, line), bits in sorted(by_line.items()) if file == main]
    other = sum(file != main for file, _ in by_line)
    lines = ", ".join(own) or "none of this file"
    more = f", and {other} of the headers" if other else ""
    return [Fact("loops vectorised", str(len(by_line)), f"GCC vectorised the loop at {lines}{more}.")]


def _frame(compiled: Compiled, rows: Sequence[Row]) -> list[Fact]:
    shown = {row.text.rstrip(":") for row in rows if row.text.endswith(":") and not row.text.startswith(".L")}
    names = demangled("\n".join(compiled.stack)).split("\n") if compiled.stack else ()
    named = dict(zip(names, compiled.stack.values(), strict=False))
    own = {name: size for name, size in named.items() if name in shown}
    if not own:
        return []
    name, size = max(own.items(), key=lambda item: item[1])
    return [Fact("stack frame", f"{size} B", f"{name} keeps {size} bytes on the stack, saved registers included.")]


def _loop(hot: Loop, main: str) -> list[Fact]:
    body = hot.instructions
    stack = [text for text in body if STACK.search(text)]
    stores = sum(bool(_STORE.match(text)) for text in stack)
    calls = sorted({text.split()[-1].removesuffix("@PLT") for text in body if text.startswith(("call", "bl "))})
    divisions = sum(bool(re.match(r"v?(?:div|sqrt)[ps][sd]|f(?:div|sqrt)", text)) for text in body)
    lines = hot.lines(main)
    at = f"line{'s' if len(lines) > 1 else ''} {_spans(lines)}" if lines else "no line of this file"
    result = [
        Fact(
            "hottest loop",
            f"{len(body)} instructions",
            f"{hot.label} at line {hot.first} of asm, from {at}: taken for the hottest since it has the most packed "
            "instructions of all loops without another inside.",
        )
    ]
    if stack:
        times, written = counted(len(stack), "time"), counted(stores, "store")
        sentence = (
            f"Each iteration of that loop touches the stack {times} ({written}): values that have no register, or an "
            "array that was not kept in registers."
        )
    else:
        sentence = "The loop keeps all its values in registers."
    result.append(Fact("spills in the loop", str(len(stack)), sentence))
    if calls:
        names = ", ".join(calls)
        result.append(
            Fact("calls in the loop", str(len(calls)), f"The loop calls {names}, which keeps it from being vectorised.")
        )
    if divisions:
        what = counted(divisions, "division or square root", "divisions or square roots")
        sentence = f"{what} an iteration: each takes several times as long as a product."
        result.append(Fact("divisions in the loop", str(divisions), sentence))
    return result


def _spans(lines: Sequence[int]) -> str:
    """``8, 10-12``"""
    spans: list[list[int]] = []
    for line in lines:
        if spans and line == spans[-1][1] + 1:
            spans[-1][1] = line
        else:
            spans.append([line, line])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)
