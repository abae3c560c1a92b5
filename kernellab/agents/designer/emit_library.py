"""Text of a sketch that is one call of the library: a plain product or convolution, tile by tile."""

from __future__ import annotations

import re

from kernellab.agents.designer.build import Builder
from kernellab.agents.designer.convs import numbers_of
from kernellab.agents.designer.extents import Extent
from kernellab.agents.designer.library import LibraryCall, Operand
from kernellab.agents.designer.text import DTYPES, Names, plus
from kernellab.errors import DesignError
from kernellab.task import Task

#: extents of a tile at most; they steer the interpreter alone, since a call has its own
_TILE, _WINDOW_TILE = 64, 256

#: what stands above each such sketch
_WHY = "The library's: one call makes this {}; what is around it is ours."


class LibraryEmitter:
    """One sketch. ``role`` says what each tensor is (" temp" or nothing); ``taken`` are names that mean something."""

    def __init__(
        self, b: Builder, call: LibraryCall, roles: dict[str, str], taken: set[str], dims: list[str], gpu: bool,
        precision: str,
    ) -> None:  # fmt: skip
        self.b, self.call, self.roles, self.dims = b, call, roles, dims
        self.names = Names(taken | {o.tensor for o in call.operands} | {call.tensor})
        self.core = "grididx" if gpu else "coreidx"
        self.precision = f', precision="{precision}"' if precision != "ieee" else ""
        self.lines: list[str] = []
        self.depth = 0

    def sketch(self, name: str) -> str:
        """The whole sketch."""
        tensors = self._product() if self.call.is_product else self._convolution()
        used = set(re.findall(r"[A-Za-z_]\w*", "\n".join([*tensors, *self.lines])))
        symbols = [d for d in self.dims if d in used]
        head = [f"sketch {name} {{", f"    # {_WHY.format('product' if self.call.is_product else 'convolution')}"]
        head += [f"    symbols: {', '.join(symbols)};"] if symbols else []
        return "\n".join([*head, f"    tensors: {' '.join(f'{t};' for t in tensors)}", "", *self.lines, "}"])

    # -- the two families

    def _product(self) -> list[str]:
        left, right = self.call.operands
        batched = len(self.call.shape) == 3
        b, m, n, k = (self.names.fresh(name) for name in "bmnk")
        rows, cols = self.call.shape[-2:]
        sums = left.shape[left.order[-1]]
        tm, tn, tk = _tile(rows), _tile(cols), _tile(sums)
        if batched:
            self._loop(b, self.call.shape[0], 1, True)
        self._loop(m, rows, tm, True)
        self._loop(n, cols, tn, True)
        acc = self._start(tm, tn)
        self._loop(k, sums, tk)
        where = {"b": b, "m": f"{m}:{m}+{tm}", "n": f"{n}:{n}+{tn}", "k": f"{k}:{k}+{tk}"}
        given = []
        for operand, letters in ((left, "bmk" if batched else "mk"), (right, "bkn" if batched else "kn")):
            mine = dict(zip(operand.order, letters, strict=True))
            order = [mine[d] for d in range(len(operand.shape))]
            tile = self._load(operand, [where[x] for x in order])
            as_it_lies = [x for x in order if x != "b"] == list(letters.replace("b", ""))
            given.append(tile if as_it_lies else f"transpose({tile})")
        self._put(f"gemm({given[0]}, {given[1]}, {acc}{self.precision})")
        self.depth -= 1
        self._put(f"store({acc} -> {self.call.tensor}[{', '.join([b] * batched + [where['m'], where['n']])}])")
        shapes = [(o.tensor, o.shape) for o in self.call.operands]
        return self._tensors([*shapes, (self.call.tensor, self.call.shape)])

    def _convolution(self) -> list[str]:
        numbers = numbers_of(self.b, self.call.node)
        source, weight = self.call.operands
        groups, rank = numbers.groups, len(numbers.stride)
        inside = _over(source.shape[1], groups)
        mine = weight.shape[1] if numbers.transposed else _over(weight.shape[0], groups)
        g = self.names.fresh("g")
        split = groups > 1
        x_shape = (source.shape[0], *((groups, inside) if split else (inside,)), *source.shape[2:])
        pair = (inside, mine) if numbers.transposed else (mine, inside)
        w_shape = (*((groups,) if split else ()), *pair, *weight.shape[2:])
        y_shape = (self.call.shape[0], *((groups, mine) if split else (mine,)), *self.call.shape[2:])
        b, o, c = (self.names.fresh(name) for name in "boc")
        places = [self.names.fresh(name) for name in ("d", "h", "w")[3 - rank :]]
        taps = [self.names.fresh(f"k{name}") for name in ("d", "h", "w")[3 - rank :]]
        to, tc = _tile(mine, _WINDOW_TILE), _tile(inside, _WINDOW_TILE)
        tb = _tile(self.call.shape[0], _WINDOW_TILE) if numbers.transposed else 1
        self._loop(b, self.call.shape[0], tb, True)
        if split:
            self._loop(g, groups, 1, True)
        self._loop(o, mine, to, True)
        tile = 1 if numbers.transposed else _tile(self.call.shape[-1], _WINDOW_TILE)
        for p, extent in zip(places, self.call.shape[2:], strict=True):
            self._loop(p, extent, tile if p == places[-1] else 1, True)
        acc = self._start(tb, to) if numbers.transposed else self._start(to, tile)
        self._loop(c, inside, tc)
        for tap, extent in zip(taps, weight.shape[2:], strict=True):
            self._loop(tap, extent, 1)
        at = []
        for p, tap, s, pad, step in zip(
            places, taps, numbers.stride, numbers.padding, numbers.dilation, strict=True
        ):  # fmt: skip
            by = tap if step == 1 else f"{tap}*{step}"
            if numbers.transposed:
                inner = f"{plus(p, pad)} - {by}"
                if s > 1:
                    self._put(f"if ({inner}) % {s} == 0:")
                    self.depth += 1
                at.append(f"({inner}) // {s}" if s > 1 else inner)
            else:
                first = f"{p if s == 1 else f'{p}*{s}'}{f' - {pad}' if pad else ''} + {by}"
                last = p == places[-1]
                reach = f"{first}:{first} + {tile * s}" + (f":{s}" if s > 1 else "")
                at.append(reach if last else first)
        batch = f"{b}:{b}+{tb}" if numbers.transposed else b
        group = [g] if split else []
        channels, outs = f"{c}:{c}+{tc}", f"{o}:{o}+{to}"
        x = self._load(source, [batch, *group, channels, *at])
        w = self._load(weight, [*group, *((channels, outs) if numbers.transposed else (outs, channels)), *taps])
        first, second = (x, w) if numbers.transposed else (w, x)
        self._put(f"gemm({first}, {second}, {acc}{self.precision})")
        self.depth = self.outer
        stored = places if numbers.transposed else [*places[:-1], f"{places[-1]}:{places[-1]}+{tile}"]
        self._put(f"store({acc} -> {self.call.tensor}[{', '.join([batch, *group, outs, *stored])}])")
        return self._tensors([(source.tensor, x_shape), (weight.tensor, w_shape), (self.call.tensor, y_shape)])

    # -- lines

    def _put(self, text: str) -> None:
        self.lines.append("    " * (self.depth + 1) + text)

    def _loop(self, name: str, extent: Extent, step: int, parallel: bool = False) -> None:
        if parallel:
            first = '"library", ' if not self.lines else ""
            self._put(f'@llm_hint({first}"parallel", "{self.core}")')
        self._put(f"for {name} in range({extent if step == 1 else f'0, {extent}, {step}'}):")
        self.depth += 1

    def _start(self, rows: int, cols: int) -> str:
        name = self.names.fresh("acc")
        self.outer = self.depth
        kind = "f64" if self.call.node.dtype == "float64" else "f32"
        self._put(f'{name} = alloc([{rows}, {cols}], {kind}, llm_hint=["accumulator", "init_zero"])')
        return name

    def _load(self, operand: Operand, index: list[str]) -> str:
        tile = self.names.fresh(f"{operand.tensor}_tile")
        self._put(f"load({operand.tensor}[{', '.join(index)}] -> {tile})")
        return tile

    def _tensors(self, shapes: list[tuple[str, tuple[Extent, ...]]]) -> list[str]:
        dtype = DTYPES[self.call.node.dtype]
        return [f"{n}[{', '.join(map(str, shape))}]: {dtype}{self.roles.get(n, ' temp')}" for n, shape in shapes]


def _tile(extent: Extent, most: int = _TILE) -> int:
    """A power of two that holds the extent, or the most that a tile is long."""
    return min(most, 1 << max(0, (extent - 1).bit_length())) if isinstance(extent, int) else most


def _over(extent: Extent, groups: int) -> Extent:
    return extent if groups == 1 or not isinstance(extent, int) else extent // groups


def with_calls(
    parts: list[str], reads: list[set[str]], b: Builder, task: Task, gpu: bool, taken: set[str]
) -> list[str]:
    """Own sketches and those of the library's calls in order: each call stands before the first that reads it.

    ``reads`` are the tensors of each own sketch.

    Raises:
        DesignError: nothing reads what the library would make.
    """
    roles = {i.name: "" for i in b.graph.inputs}
    titles = Names({line.split()[1] for part in parts for line in part.splitlines() if line.startswith("sketch ")})
    dims = [d.name for d in task.dims]
    found: list[str] = []
    placed: set[str] = set()

    def place(tensor: str) -> None:
        if tensor in placed or tensor not in b.calls:
            return
        placed.add(tensor)
        call = b.calls[tensor]
        for operand in call.operands:
            place(operand.tensor)
        emitter = LibraryEmitter(b, call, roles, taken, dims, gpu, _precision(task, call, gpu))
        found.append(emitter.sketch(titles.fresh(f"{task.name}_library")))

    for part, read in zip(parts, reads, strict=True):
        for tensor in sorted(read):
            place(tensor)
        found.append(part)
    if not placed:
        raise DesignError("The rules need no product of the library here.", "Use the schedules of own kernels.")
    return found


def _precision(task: Task, call: LibraryCall, gpu: bool) -> str:
    """What torch's flags say, as the task sets them."""
    if call.node.dtype != "float32" or not gpu:
        return "ieee"
    wanted = task.precision.get("matmul", "ieee") if call.is_product else task.precision.get("conv", "tf32")
    return "tf32" if wanted == "tf32" else "ieee"
