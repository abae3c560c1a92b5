"""Conversion of an exported program to a Graph: symbols become Dims again, scalars and lines are recovered."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch.export.graph_signature import InputKind

from kernellab.capture.graph import BITS, Extent, Formula, Graph, Input, Node, Ref, Sym, sym
from kernellab.capture.masks import has_open_size, mask_of, open_size, where_of_put
from kernellab.capture.size_terms import REMEDY, SizeTerms
from kernellab.errors import CaptureError
from kernellab.operations.aten import Role, base_name, role_of
from kernellab.task import ArgKind, Task
from kernellab.task.formula import Term, named, read, simplified, solve
from kernellab.task.recurrent import ATEN
from kernellab.task.sample.sizes import runs_at

#: operation as traced -> its name in a graph
_NAMES = {**ATEN, "aten.view.dtype": BITS}


class OneSize(CaptureError):
    """A trace that holds at one size, of a reference that runs at others."""


class ProgramReader:
    """Converts an exported program to a Graph."""

    def __init__(self, task: Task, program: Any, args: Sequence[Any], scalars: Mapping[str, float]) -> None:
        self.task, self.program, self.args = task, program, args
        self.scalar_values = _scalar_forms(scalars)
        self.scalars_seen: set[str] = set()
        self.names: dict[str, Formula] = {}
        self.size_terms = SizeTerms(self.names, {d.name: d.max for d in task.dims})
        self.refs: dict[Any, Any] = {}
        self.filename = task.module().filename
        #: for nodes that a loop over a Dim created: the loop and the step
        self.steps: dict[str, tuple[int, int]] = {}
        #: names of the task's arguments and of nodes
        self.taken = {a.name for a in task.args}

    def graph(self) -> Graph:
        """Return the graph of the program, without nodes that no output depends on."""
        inputs: list[Input] = []
        constants: dict[str, Any] = {}
        kinds = {s.arg.name: s for s in self.program.graph_signature.input_specs}
        specs = [(i, a) for i, a in enumerate(self.task.args) if a.is_tensor]
        placeholders = [n for n in self.program.graph.nodes if n.op == "placeholder"]
        users = [n for n in placeholders if kinds[n.name].kind is InputKind.USER_INPUT]
        for fx, (_, spec) in zip(users, specs, strict=True):
            self._learn_symbols(fx, replace(spec, last=False).held.shape)
        for fx, (position, spec) in zip(users, specs, strict=True):
            spec_held = replace(spec, last=False).held
            inputs.append(Input(spec.name, position, tuple(map(read, spec_held.shape)), spec_held.dtype, spec.last))
            self._check_dims(fx, spec)
            self.refs[fx] = Ref(spec.name)
        for fx in placeholders:
            if fx in self.refs:
                continue
            value = self._constant(kinds[fx.name])
            name = f"const_{len(constants)}"
            constants[name] = value
            inputs.append(Input(name, -1, tuple(value.shape), str(value.dtype).removeprefix("torch.")))
            self.refs[fx] = Ref(name)
        nodes = [n for fx in self.program.graph.nodes for n in self._nodes(fx)]
        self._check_told(inputs)
        outputs = tuple(self._outputs())
        positions = {a.name: i for i, a in enumerate(self.task.args) if a.kind is ArgKind.SCALAR}
        fixed = {
            a.name: self.args[i]
            for i, a in enumerate(self.task.args)
            if a.kind is ArgKind.SCALAR and a.name not in self.scalars_seen
        }
        return Graph(
            inputs=tuple(inputs),
            nodes=tuple(nodes),
            outputs=outputs,
            scalars={n: positions[n] for n in positions if n in self.scalars_seen},
            fixed=fixed,
            constants=constants,
            branches=tuple(self._branches()),
        ).live()

    # -- symbols

    def _learn_symbols(self, fx: Any, shape: Sequence[int | str]) -> None:
        for size, extent in zip(fx.meta["val"].shape, shape, strict=True):
            expr = _sympy(size)
            formula = read(extent)
            if isinstance(formula, Formula) and expr is not None and expr.is_Symbol:
                name = self.names.get(str(expr))
                # a plain Dim name is more informative than an expression
                if name is None or (formula.name and not name.name):
                    self.names[str(expr)] = formula

    def _check_dims(self, fx: Any, spec: Any) -> None:
        for size, extent in zip(fx.meta["val"].shape, spec.held.shape, strict=True):
            if isinstance(extent, str) and _sympy(size) is None:
                raise self._fixed(spec.name, extent, int(size))

    def _fixed(self, argument: str, extent: str, size: int) -> CaptureError:
        """Return the error for a trace that holds at a single size of an extent: either the reference does, or it
        converts the size to a plain number."""
        sizes = self.task.sizes_of(self.args)
        formula = read(extent)
        varied = formula.names() & sizes.keys() if isinstance(formula, Formula) else ()
        more = [{**sizes, name: sizes[name] + by} for name in sorted(varied) for by in (1, 2, 5, -1, -2)]
        other_sizes = [o for o in more if all(d.min <= o[d.name] <= d.max for d in self.task.dims if d.name in o)]
        if any(runs_at(self.task, tuple(o.items())) for o in other_sizes):
            return OneSize(
                f"The reference of {self.task.name!r} makes a plain number of the size {extent} of {argument!r} (a "
                f"loop over it, or int() of it), so that what was traced holds at {extent} = {size} alone.",
                f"Write it without that number (a scan in place of the loop), fix {extent}, or let a person or a model "
                "design the kernel.",
            )
        return CaptureError(
            f"The reference of {self.task.name!r} works only when the extent {extent} of {argument!r} is {size}.",
            "Declare that extent as a fixed number.",
        )

    def _check_told(self, inputs: Sequence[Input]) -> None:
        """Raise CaptureError if the arguments' sizes do not determine a Dim in their extents."""
        extents = [(k, e) for k, e in enumerate(e for i in inputs for e in i.shape)]
        solved = solve(extents)
        for argument in inputs:
            for extent in argument.shape:
                unknown = sorted(extent.names() - solved.keys()) if isinstance(extent, Formula) else []
                if unknown:
                    raise CaptureError(
                        f"The size of {unknown[0]} does not follow from the arguments of {self.task.name!r}: it stands "
                        f"in the extent {extent} of {argument.name!r}, which is the same at several sizes.",
                        f"Add an argument with the extent {unknown[0]}, or fix {unknown[0]}.",
                    )

    def _branches(self) -> Iterator[tuple[int, str]]:
        """Yield the lines of the task that asked whether a condition on sizes holds, and the answer at the traced
        ones."""
        values = (fx.meta.get("val") for fx in self.program.graph.nodes)
        mode = next((v.fake_mode for v in values if hasattr(v, "fake_mode")), None)
        for guard in mode.shape_env.guards if mode is not None else ():
            place = guard.sloc.framework_loc
            if getattr(place, "filename", None) == self.filename:
                symbols = guard.expr.free_symbols
                called = {s: sympy.Symbol(str(self.names.get(str(s), s)), integer=True) for s in symbols}
                yield place.lineno, str(guard.expr.subs(called))

    def _constant(self, spec: Any) -> Any:
        for table in (self.program.constants, self.program.state_dict):
            if spec.target in table:
                return table[spec.target].detach()
        raise CaptureError(f"The reference of {self.task.name!r} uses an object that is not a tensor.", REMEDY)

    def extent(self, size: Any) -> Extent:
        """Return a traced size as an extent."""
        expr = _sympy(size)
        if expr is None:
            return int(size)
        term = self._term_of(expr)
        if isinstance(term, float) or (isinstance(term, Formula) and term.is_function):
            sentence = f"The extent of a tensor in {self.task.name!r} is {term}, no whole arithmetic on Dims."
            raise CaptureError(sentence, REMEDY)
        return term

    def _term_of(self, expr: Any) -> Term:
        """Return a size expression over Dims and scalar arguments; a symbol may itself be an expression over Dims."""
        term = self.size_terms.term(expr)
        if not all(self.names[str(s)].name for s in expr.free_symbols if str(s) in self.names):
            return simplified(term)
        # the length of a view of T*T elements by T is T
        return simplified(term) if _divides(term) and not _divides(simplified(term)) else term

    # -- nodes

    def _nodes(self, fx: Any) -> Sequence[Node]:
        """Return the operations of one line of the trace: usually one, none if it computes a number or selects a
        result."""
        if fx.op in ("placeholder", "output"):
            return ()
        value = fx.meta.get("val")
        if fx.target is operator.getitem:
            self.refs[fx] = Ref(self.refs[fx.args[0]].name, int(fx.args[1]))
            return ()
        if value is None or not _is_tensor(value):
            self._number(fx, value)
            return ()
        line = self._line(fx)
        op = _NAMES.get(str(fx.target), str(fx.target))
        if role_of(base_name(op)) is Role.RANDOM:
            raise CaptureError(
                f"Line {line} of {self.task.name!r} draws random numbers ({op}).", "Pass random values in as inputs."
            )
        first = next(v for v in value if v is not None) if isinstance(value, (tuple, list)) else value
        if has_open_size(first):
            raise open_size(self.task.name, line, op)
        results: tuple[Any, ...] = ()
        if isinstance(value, (tuple, list)):
            results = tuple((self._shape(v), _dtype(v)) for v in value if v is not None)
        name = self._name(fx)
        self.refs[fx] = Ref(name)
        if mark := (fx.meta.get("custom") or {}).get("step"):
            self.steps[name] = mark
        node = Node(
            name=name,
            op=op,
            args=_spelled(op, tuple(self._arg(a) for a in fx.args), fx.args),
            kwargs=tuple((k, self._arg(v)) for k, v in fx.kwargs.items()),
            shape=self._shape(first),
            dtype=_dtype(first),
            line=line,
            results=results,
        )
        masked = mask_of(fx, line)
        if masked is None:
            return (node,)
        at, mask = masked
        return where_of_put(node, at, self._shape(mask.meta["val"]), self._shape(fx.args[2].meta["val"]))

    def _name(self, fx: Any) -> str:
        """Return the name of a node: that of the trace, unless an argument has it (a buffer ``index`` that aten.index
        reads)."""
        name = str(fx.name)
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def _shape(self, value: Any) -> tuple[Extent, ...]:
        return tuple(self.extent(s) for s in value.shape)

    def _number(self, fx: Any, value: Any) -> None:
        """Record a node that computes a size or a check, not a tensor."""
        if value is not None:
            expr = _sympy(value)
            if expr is not None and any(str(symbol) not in self.names for symbol in expr.free_symbols):
                raise CaptureError(
                    f"Line {self._line(fx)} of {self.task.name!r} reads a tensor's values into a Python number.",
                    "Keep it a tensor: leave out item().",
                )
            if expr is not None:
                self.refs[fx] = sym(self._term_of(expr), "Float" in type(value).__name__)
            else:
                self.refs[fx] = value

    def _arg(self, value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            return self.refs[value]
        if isinstance(value, (tuple, list)):
            return tuple(self._arg(v) for v in value)
        if isinstance(value, float) and value in self.scalar_values:
            expr, name = self.scalar_values[value]
            self.scalars_seen.add(name)
            return Sym(expr, is_float=True)
        if isinstance(value, (torch.dtype, torch.memory_format, torch.layout)):
            return str(value)
        if isinstance(value, torch.device):
            return None
        if isinstance(value, (bool, int, float, str)) or value is None:
            return value
        return sym(self.extent(value), is_float=False)

    def _line(self, fx: Any) -> int:
        marked = (fx.meta.get("custom") or {}).get("line")
        if marked:
            return int(marked)
        trace = fx.meta.get("stack_trace") or ""
        lines = re.findall(re.escape(self.filename) + r'", line (\d+)', trace)
        return int(lines[-1]) if lines else 0

    def _outputs(self) -> list[Ref]:
        out = next(n for n in self.program.graph.nodes if n.op == "output")
        kinds = [spec.kind.name for spec in self.program.graph_signature.output_specs]
        refs = []
        for value, kind in zip(out.args[0], kinds, strict=True):
            if kind != "USER_OUTPUT":
                # buffers that a Model in training mode writes are not outputs
                continue
            ref = self._arg(value)
            if not isinstance(ref, Ref):
                raise CaptureError(f"An output of {self.task.name!r} is a constant number.", "Return tensors only.")
            refs.append(ref)
        return refs


def _spelled(op: str, args: tuple[Any, ...], schema_arguments: Sequence[Any]) -> tuple[Any, ...]:
    """Return the arguments with None replaced by the value that torch derives from the operand's dtype, which a float64
    run changes."""
    if op != "aten.rms_norm.default" or (len(args) > 3 and args[3] is not None):
        return args
    dtype = schema_arguments[0].meta["val"].dtype
    eps = float(torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32).eps)
    return (*args[:3], *(None,) * (3 - len(args)), eps)


def _scalar_forms(scalars: Mapping[str, float]) -> dict[float, tuple[Formula, str]]:
    """Return the constants that a scalar argument may appear as: itself, and common arithmetic on it."""
    forms: dict[float, tuple[Formula, str]] = {}
    for name, v in scalars.items():
        if not math.isfinite(v):
            continue
        it = named(name)
        rest = Formula("-", (1, it))
        for expr in (
            it, Formula("neg", (it,)), rest, Formula("+", (1, it)), Formula("-", (it, 1)), Formula("/", (1, it)),
            Formula("*", (2, it)), Formula("/", (it, 2)), Formula("*", (it, it)), Formula("neg", (rest,)),
        ):  # fmt: skip
            forms.setdefault(expr.value({name: v}), (expr, name))
    for a, b in combinations(scalars, 2):
        for op in "*+-":
            expr = Formula(op, (named(a), named(b)))
            forms.setdefault(expr.value(scalars), (expr, a))
    return forms


def _is_tensor(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(isinstance(v, torch.Tensor) for v in value)
    return isinstance(value, torch.Tensor)


def _dtype(value: Any) -> str:
    return str(value.dtype).removeprefix("torch.")


def _sympy(size: Any) -> Any:
    """Return the sympy expression of a symbolic number, None for a plain one."""
    node = getattr(size, "node", None)
    if node is None:
        return None
    expr = node.expr
    return None if expr.is_number else expr


def _divides(term: Term) -> bool:
    """Return whether the term contains a quotient of integers."""
    return isinstance(term, Formula) and not term.name and (term.op == "//" or any(map(_divides, term.args)))
