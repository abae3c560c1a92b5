"""The worker's side: it notes which instructions of the candidate's Python run, and asks the candidate's objects for
what they counted. The candidate can change all of this; the judge treats the answer as a claim."""

from __future__ import annotations

import contextlib
import ctypes
import dis
import json
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

#: name of the file with the answer, below the scratch folder
ANSWER = "work/covered.json"
#: largest number of operands (8-byte words) taken from one object
_WORDS = 1 << 16

#: code object to the offsets of its instructions that ran
_ran: dict[CodeType, set[int]] = {}


def watch(root: str) -> None:
    """From now on, note the instructions of files below ``root`` that run, in all threads of Python."""
    below = f"{os.path.realpath(root)}/", f"{root}/"
    if sys.version_info >= (3, 13):
        _monitor(below)
    else:
        _trace(below)


def _trace(below: tuple[str, ...]) -> None:
    def entered(frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(below):
            return None
        offsets = _ran.setdefault(code, set())
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        offsets.add(frame.f_lasti)

        def ran(frame: FrameType, event: str, _: Any) -> Any:
            if event == "opcode":
                offsets.add(frame.f_lasti)
            return ran

        return ran

    # CPython 3.12 looks at this when tracing begins, and else traces no instruction (python/cpython#103615)
    sys._getframe().f_trace_opcodes = True
    threading.settrace(entered)
    sys.settrace(entered)


def _monitor(below: tuple[str, ...]) -> None:
    """CPython 3.13 traces no instruction of a module or of a function's first call, so it is asked another way."""
    if sys.version_info >= (3, 12):
        monitoring, events = sys.monitoring, sys.monitoring.events
        tool = next(number for number in range(6) if monitoring.get_tool(number) is None)
        monitoring.use_tool_id(tool, "kernellab")

        def entered(code: CodeType, offset: int) -> Any:
            if not code.co_filename.startswith(below):
                return monitoring.DISABLE
            _ran.setdefault(code, set()).add(offset)
            monitoring.set_local_events(tool, code, events.INSTRUCTION)
            return None

        def ran(code: CodeType, offset: int) -> None:
            _ran.setdefault(code, set()).add(offset)

        for event in (events.PY_START, events.PY_RESUME):
            monitoring.register_callback(tool, event, entered)
        monitoring.register_callback(tool, events.INSTRUCTION, ran)
        monitoring.set_events(tool, events.PY_START | events.PY_RESUME)


def call(function: Callable[..., Any], args: Sequence[Any], how: Mapping[str, Any], written: Sequence[int]) -> None:
    """Call the candidate as a stage did: once, once for each of the stacked contents, or in another state of its
    caller (``how["op"]``)."""
    import torch

    from kernellab.verifier.worker import caller_states

    torch.set_flush_denormal(False)
    stacked = how["stacked"]
    if stacked:
        for i in range(len(args[stacked[0]])):
            function(*(a[i].clone() if position in stacked else a for position, a in enumerate(args)))
    elif how["op"] in caller_states.STATES:
        caller_states.elsewhere(how["op"], function, written)(*args)
    else:
        function(*args)


def write(root: str, compared: bool) -> None:
    """Write what Python ran since the last call to :data:`ANSWER`, and with ``compared`` the operands of comparisons.
    The counts of native code go to GCC's own files."""
    scratch = Path(root).parent
    answer = {"python": _python(root), "compared": _compared(str(scratch), compared)}
    (scratch / ANSWER).write_text(json.dumps(answer), encoding="utf-8")


def _python(root: str) -> dict[str, list[list[int]]]:
    """Each file below ``root`` with the places of what ran since the last call: line, column, last line, last column
    (columns are -1 where this Python does not know them)."""
    found: dict[str, set[tuple[int, int, int, int]]] = {}
    for code, offsets in list(_ran.items()):
        name = os.path.relpath(os.path.realpath(code.co_filename), os.path.realpath(root))
        held = found.setdefault(name, set())
        held.update(place for offset, place in _places(code) if offset in offsets)
        offsets.clear()
    return {name: [list(place) for place in sorted(held)] for name, held in found.items()}


@cache
def _places(code: CodeType) -> tuple[tuple[int, tuple[int, int, int, int]], ...]:
    return tuple(places(code))


def places(code: CodeType) -> Iterator[tuple[int, tuple[int, int, int, int]]]:
    """Yield the offset and the place of each instruction that has one."""
    if sys.version_info < (3, 11):
        line = code.co_firstlineno
        for instruction in dis.get_instructions(code):
            line = instruction.starts_line or line
            yield instruction.offset, (line, -1, line, -1)
        return
    for instruction in dis.get_instructions(code):
        at = instruction.positions
        if at is not None and at.lineno is not None:
            last, first = at.end_lineno or at.lineno, -1 if at.col_offset is None else at.col_offset
            yield instruction.offset, (at.lineno, first, last, -1 if at.end_col_offset is None else at.end_col_offset)


def _compared(scratch: str, wanted: bool) -> list[dict[str, Any]]:
    """For each comparison in the candidate's objects since the last call: its file, line, and pairs of operands."""
    result: list[dict[str, Any]] = []
    for path, base in _objects(scratch):
        with contextlib.suppress(OSError, AttributeError, subprocess.SubprocessError, ValueError):
            library = ctypes.CDLL(path)
            library.kernellab_counted()
            if not wanted:
                continue
            library.kernellab_compared.restype = ctypes.c_uint64
            words = (ctypes.c_uint64 * _WORDS)()
            count = library.kernellab_compared(words, ctypes.c_uint64(_WORDS), ctypes.c_size_t(base))
            sites = list(_sites(list(words[:count])))
            lines = _lines(path, [at for at, _ in sites])
            for (_, pairs), place in zip(sites, lines, strict=True):
                if place is not None:
                    result.append({"file": place[0], "line": place[1], "pairs": pairs})
    return result


def _sites(words: list[int]) -> Iterator[tuple[int, list[list[Any]]]]:
    at = 0
    while at + 3 <= len(words):
        place, kind, count = words[at : at + 3]
        values = words[at + 3 : at + 3 + 2 * count]
        kinds = "<d" if kind == 16 else "<q"
        numbers = [struct.unpack(kinds, struct.pack("<Q", value))[0] for value in values]
        # JSON has no infinity and no NaN
        whole = [str(number) if number != number or abs(number) == float("inf") else number for number in numbers]
        yield place, [whole[i : i + 2] for i in range(0, len(whole) - 1, 2)]
        at += 3 + 2 * count


def _lines(path: str, addresses: list[int]) -> list[tuple[str, int] | None]:
    """File and line of each return address in an object."""
    if not addresses:
        return []
    # the call is the instruction before
    given = "\n".join(f"{address - 1:x}" for address in addresses)
    command = ["addr2line", "-e", path]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=20, check=True)
    result: list[tuple[str, int] | None] = []
    for line in done.stdout.splitlines():
        file, _, number = line.partition(" ")[0].rpartition(":")
        result.append((file, int(number)) if number.isdigit() else None)
    return [*result, *[None] * len(addresses)][: len(addresses)]


def _objects(scratch: str) -> list[tuple[str, int]]:
    """Path and base address of each mapped object below the scratch folder."""
    below = f"{os.path.realpath(scratch)}/", f"{scratch}/"
    found: dict[str, int] = {}
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        for line in file:
            fields = line.rstrip("\n").split(None, 5)
            if len(fields) == 6 and fields[5].startswith(below) and int(fields[2], 16) == 0:
                found.setdefault(fields[5], int(fields[0].partition("-")[0], 16))
    return list(found.items())
