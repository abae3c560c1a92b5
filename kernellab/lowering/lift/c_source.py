"""Reads the kernels of a lowered C++ or CUDA-C source: numbered statements in the braces that hold them."""

from __future__ import annotations

import re

from kernellab.lowering.lift.products import operand_lines
from kernellab.lowering.lift.text import Body, Host, Line, grid_hints
from kernellab.records import Source

_COMMENT = re.compile(r"^(?P<code>.*?)\s*// (?P<number>\d+): (?P<text>.+)$")
_KERNEL = re.compile(r'^(?:static void|extern "C" __global__ .*?)\s?(\w+)\(([^()]*)\) \{$')
_PARALLEL = re.compile(r"#pragma omp parallel for(?: collapse\((\d+)\))?")
_UNROLL = re.compile(r"#pragma (?:GCC )?unroll ?(\d*)$")


def read(source: Source, host: Host) -> list[Body]:
    """The kernels in the order in which the host runs them.

    Raises:
        LoweringError: a product's operand is read in a way that has no reading back.
    """
    started = re.findall(r'_run\("(\w+)"', source.files.get(source.entry_file, ""))
    files = [f"{name}.cu" for name in started] if source.dsl == "cuda_c" else ["kernel.cpp"]
    bodies = []
    for file in files:
        lines = source.files.get(file, "").split("\n")
        for n, line in enumerate(lines):
            if kernel := _KERNEL.match(line):
                end = next((k for k in range(n, len(lines)) if lines[k] == "}"), len(lines))
                parameters = tuple(_in_the_sketch(p) for p in re.findall(r"(\w+)(?:,|$)", kernel[2]))
                bodies.append(_Reader(host).read(kernel[1], parameters, lines[n + 1 : end]))
    if source.dsl == "cuda_c":
        _launch(bodies, source.files.get(source.entry_file, ""), host)
    return bodies


def _in_the_sketch(parameter: str) -> str:
    """The name of a tensor that C++ or CUDA-C could not take as it is."""
    from kernellab.lowering.c_family import names
    from kernellab.lowering.cuda_c import kernel

    own = parameter.removesuffix("_tensor")
    return own if own in names.RESERVED | kernel.RESERVED else parameter


def _launch(bodies: list[Body], python: str, host: Host) -> None:
    """Which sketch asks for warps, and for stages: the one with a loop that runs ahead."""
    blocks = re.findall(r"threads = _block\(([^,]*),", python)
    for body, warps in zip(bodies, blocks, strict=False):
        ahead = [line for line in body.lines if any('"pipeline"' in hint for hint in line.hints)]
        if "num_stages" in host.constants:
            for line in ahead:
                line.hints = tuple(h.replace('"pipeline"', '"pipeline", num_stages') for h in line.hints)
        body.launch = ("num_warps",) if warps == "num_warps" else ()
    if "num_stages" in host.constants and not any("num_stages" in body.words for body in bodies) and bodies:
        bodies[-1].launch += ("num_stages",)


class _Reader:
    """One kernel, line by line. Statements come back in the sketch's order; each lies in the loops whose code holds
    it where it is first seen."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.found: dict[float, Line] = {}
        self.grid: list[Line] = []
        #: braces around the statement, and which of them a loop or test of the sketch has opened: (depth, number)
        self.depth = 0
        self.opened: list[tuple[int, float]] = []
        self.closed: float | None = None
        self.parallel, self.unroll = 0, ""

    def read(self, name: str, parameters: tuple[str, ...], lines: list[str]) -> Body:
        swizzle = ""
        for line in lines:
            if m := _PARALLEL.search(line):
                self.parallel = int(m[1] or 1)
            if m := re.search(r"\bgroup_rows\w* = kl::imin\(index_t\((\d+)\)", line):
                swizzle = m[1]
            comment = _COMMENT.match(line)
            code = comment["code"] if comment else line
            if comment and float(comment["number"]) not in self.found:
                self._statement(float(comment["number"]), comment["text"], code)
            if comment and "kl::gemm(" in code and "kl::matrix(" in code:
                self._product(float(comment["number"]), comment["text"], code)
            elif code.strip() == "else {" and self.closed is not None:
                self._open(max(self.found) + 0.5, Line("else:", self._at))
            self.unroll = m[1] or "0" if (m := _UNROLL.search(line)) else ""
            self.depth += code.count("{") - code.count("}")
            self.closed = None
            while self.opened and self.opened[-1][0] > self.depth:
                _, number = self.opened.pop()
                self.closed = number if self.found[number].text.startswith("if ") else None
        grid_hints(self.grid, swizzle)
        return Body(name, parameters, [self.found[k] for k in sorted(self.found)])

    @property
    def _at(self) -> int:
        return len(self.grid) + len(self.opened)

    def _open(self, number: float, line: Line) -> None:
        self.found[number] = line
        self.opened.append((self.depth + 1, number))

    def _statement(self, number: float, text: str, code: str) -> None:
        # code may have sunk into a test that follows it in the sketch
        line = Line(text, len(self.grid) + sum(opener < number for _, opener in self.opened))
        if text.startswith("for ") and not code.strip().startswith("for "):
            self.found[number] = line
            self.grid.append(line)
        elif text.startswith(("for ", "if ")) and code.rstrip().endswith("{"):
            line.hints = self._loop_hints(text, code)
            self._open(number, line)
        else:
            self.found[number] = line

    def _loop_hints(self, text: str, code: str) -> tuple[str, ...]:
        if not text.startswith("for "):
            return ()
        if self.parallel:
            self.parallel -= 1
            return ('"parallel", "coreidx"',)
        hints: tuple[str, ...] = ('"pipeline"',) if re.match(r"\s*for \(index_t \w+_ahead\w* = ", code) else ()
        if self.unroll:
            hints += (f'"unroll", {self.unroll}' if self.unroll != "0" else '"unroll"',)
        return hints

    def _product(self, number: float, text: str, code: str) -> None:
        visible: list[str] = []
        least = self._at
        for key in sorted((k for k in self.found if k < number), reverse=True):
            line = self.found[key]
            least = min(least, line.depth)
            if line.depth <= least:
                visible.append(line.text)
        made = operand_lines(text, code, self.host, visible)
        for k, load in enumerate(made):
            self.found[number - 1 + (k + 1) / 100] = Line(load, self._at)
        if made and self.opened and not self.found[self.opened[-1][1]].hints:
            self.found[self.opened[-1][1]].hints = ('"pipeline"',)
