"""Facts from a GPU kernel's device code."""

from __future__ import annotations

import re
from collections import Counter
from math import prod

from kernellab.lens.dry.records import Built
from kernellab.lens.gpu.limits import LIMITS, occupancy
from kernellab.lens.read.sass import instructions
from kernellab.lens.records import Fact

_USED = re.compile(r"\b(REG|STACK|SHARED|LOCAL):(\d+)")
_SHARED = re.compile(
    r"^\s*(?!\.extern).*\.shared\s+(?:\.align\s+\d+\s+)?\.[a-z]+(\d+)\s+[\w$]+(?:\[(\d+)\])?;", re.MULTILINE
)
_GLOBAL = re.compile(r"^(?:@!?U?P\w+ )?(?P<what>LDG|STG|LDGSTS)(?P<how>[.\w]*)")
_TENSOR = re.compile(r"^(?:@!?U?P\w+ )?(?P<name>HMMA|HGMMA|IMMA|IGMMA|QGMMA|DMMA|BGMMA|UTC\w*MMA)\b")
_ASYNC = re.compile(r"^(?:@!?U?P\w+ )?(?P<name>LDGSTS|UTMALDG|UTMASTG|UBLKCP)\b")
_SPILL = re.compile(r"^(?:@!?U?P\w+ )?(?:LDL|STL)\b")
_BARRIER = re.compile(r"^(?:@!?U?P\w+ )?(?:BAR\.SYNC|WARPSYNC\.ALL|SYNCS)")
_FLOAT = re.compile(r"^(?:@!?U?P\w+ )?(?P<name>[DFH])(?:FMA2?|ADD2?|MUL2?)\b")


def facts(built: Built, capability: int, cores: int, kernel: str) -> list[Fact]:
    """Return the facts of one kernel, marked with its name ``kernel``, "" if it is the only one."""
    used = {name: int(value) for name, value in _USED.findall(built.resources)}
    code = instructions(built.texts.get("sass", ""))
    shared = built.shared + static_shared(built.texts.get("ptx", ""))
    result = [_registers(used, kernel)] if "REG" in used else []
    if code:
        result.append(_spills(used, code, kernel))
    result.append(_shared(shared, built.shared, kernel))
    result += [
        *_occupancy(built, used.get("REG", 0), shared, capability, kernel),
        *_waves(built, used.get("REG", 0), shared, capability, cores, kernel),
        *_width(code, kernel),
        *_tensor(code, kernel),
        *_asynchronous(code, kernel),
        *_counts(code, kernel),
    ]
    return result


def static_shared(ptx: str) -> int:
    """Return the bytes of shared memory that the text declares with a size."""
    return sum(int(bits) // 8 * int(count or 1) for bits, count in _SHARED.findall(ptx) if ".extern" not in ptx or bits)


def _registers(used: dict[str, int], kernel: str) -> Fact:
    number = used["REG"]
    sentence = f"Each thread has {number} of at most 255 registers; 64 or fewer let 1,024 threads share an SM."
    return Fact("registers", str(number), sentence, kernel)


def _spills(used: dict[str, int], code: list[str], kernel: str) -> Fact:
    size, count = max(used.get("LOCAL", 0), used.get("STACK", 0)), sum(bool(_SPILL.match(line)) for line in code)
    if not count and not size:
        return Fact("spills", "0 B", "Nothing is spilled: all values of a thread stay in registers.", kernel)
    sentence = (
        f"A thread keeps {size} bytes in local memory and moves them with {count} instructions: values without a "
        "register go through L1, and to memory where that is full."
    )
    return Fact("spills", f"{size} B", sentence, kernel)


def _shared(shared: int, dynamic: int, kernel: str) -> Fact:
    sentence = (
        f"A block uses {shared:,} bytes of shared memory, {dynamic:,} of them asked for at the launch."
        if shared
        else "A block uses no shared memory."
    )
    return Fact("shared memory", f"{shared:,} B", sentence, kernel)


def _occupancy(built: Built, registers: int, shared: int, capability: int, kernel: str) -> list[Fact]:
    held = occupancy(capability, built.block, registers, shared)
    if held is None or not registers:
        return []
    if not held.blocks:
        return [Fact("occupancy", "0 %", f"A block does not fit on an SM: {held.limited_by} allow none.", kernel)]
    most = LIMITS[capability].warps
    sentence = (
        f"{held.blocks} blocks of {built.block} threads fit on an SM, {held.warps} of {most} warps; "
        f"{held.limited_by} allow no more."
    )
    return [Fact("occupancy", f"{100 * held.share:.0f} %", sentence, kernel)]


def _waves(built: Built, registers: int, shared: int, capability: int, cores: int, kernel: str) -> list[Fact]:
    held, blocks = occupancy(capability, built.block, registers, shared), prod(built.grid)
    if held is None or not held.blocks or not built.grid or not cores:
        return []
    at_once = held.blocks * cores
    waves = blocks / at_once
    grid = " x ".join(str(n) for n in built.grid if n != 1) or "1"
    if waves < 1:
        idle = max(0, cores - blocks)
        rest = f"{idle} of {cores} SMs get none" if idle else f"the {cores} SMs could hold {at_once:,}"
        return [Fact("waves", f"{waves:.2f}", f"The grid of {grid} blocks is less than one wave: {rest}.", kernel)]
    last = blocks % at_once or at_once
    sentence = f"The grid of {grid} blocks runs in {waves:.2f} waves of {at_once:,}; the last has {last:,}."
    return [Fact("waves", f"{waves:.2f}", sentence, kernel)]


def _width(code: list[str], kernel: str) -> list[Fact]:
    widths = Counter[int]()
    for line in code:
        if match := _GLOBAL.match(line):
            parts = match["how"].split(".")
            bits = next((int(p) for p in ("128", "64") if p in parts or f"BYPASS.{p}" in match["how"]), 0)
            small = next((n for word, n in (("U8", 8), ("S8", 8), ("U16", 16), ("S16", 16)) if word in parts), 32)
            widths[bits or small] += 1
    if not widths:
        return []
    listed = ", ".join(f"{count} of {bits} bits" for bits, count in sorted(widths.items(), reverse=True))
    widest, total = max(widths), sum(widths.values())
    if set(widths) == {128}:
        verdict = "all are as wide as an instruction can be"
    elif 128 in widths:
        verdict = f"{widths[128]} of {total} are as wide as they can be"
    else:
        verdict = "none is as wide as it can be (128): wider ones need fewer instructions for the same bytes"
    return [Fact("vector width", f"{widest} bits", f"Loads and stores of global memory: {listed}; {verdict}.", kernel)]


def _tensor(code: list[str], kernel: str) -> list[Fact]:
    names = Counter(match["name"] for line in code if (match := _TENSOR.match(line)))
    plain = Counter(match["name"] for line in code if (match := _FLOAT.match(line)))
    if names:
        listed = ", ".join(f"{count} {name}" for name, count in names.items())
        return [Fact("tensor cores", listed, f"Products run on the tensor cores: {listed} in the code.", kernel)]
    if sum(plain.values()) < 64:
        return []
    return [
        Fact("tensor cores", "none", "No instruction uses the tensor cores; products are scalar multiply-adds.", kernel)
    ]


def _asynchronous(code: list[str], kernel: str) -> list[Fact]:
    names = Counter(match["name"] for line in code if (match := _ASYNC.match(line)))
    if not names:
        return []
    listed = ", ".join(f"{count} {name}" for name, count in names.items())
    sentence = f"Data come to shared memory while the block computes: {listed}, without registers between."
    return [Fact("asynchronous copies", listed, sentence, kernel)]


def _counts(code: list[str], kernel: str) -> list[Fact]:
    if not code:
        return []
    real = [line for line in code if not line.startswith(("NOP", "BRA `(.L_x", "BRA 0x"))]
    barriers = sum(bool(_BARRIER.match(line)) for line in code)
    doubles = sum((m := _FLOAT.match(line)) is not None and m["name"] == "D" for line in code)
    result = [
        Fact(
            "instructions",
            str(len(real)),
            f"The device code has {len(real)} instructions, {barriers} of them barriers.",
            kernel,
        )
    ]
    if doubles:
        sentence = f"{doubles} instructions compute in 64 bits, which is many times slower on most GPUs: is that meant?"
        result.append(Fact("64-bit arithmetic", str(doubles), sentence, kernel))
    return result
