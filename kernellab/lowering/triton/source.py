"""Sketch -> Triton: one file that defines a ``@triton.jit`` function for each sketch and ``kernel(*args)``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from kernellab.errors import LoweringError
from kernellab.lowering.comment_only import index_lines
from kernellab.lowering.gluon import Asynchronous, Refused, asynchronous
from kernellab.lowering.gluon import names as gluon_names
from kernellab.lowering.gpu_host import GpuHost
from kernellab.lowering.kernel_cache import remembered
from kernellab.lowering.library_call import own_kernels
from kernellab.lowering.narrow_integers import narrowed
from kernellab.lowering.triton import launched
from kernellab.lowering.triton.kernel import KernelWriter, Written
from kernellab.lowering.triton.library import library as library_text
from kernellab.lowering.triton.text import join_comments
from kernellab.lowering.unseen import Walk, with_walks
from kernellab.records import Source
from kernellab.sketch.program.bind import Binding
from kernellab.sketch.program.ints import WIDE_ELEMENTS
from kernellab.sketch.program.program import Constexpr, DType, Loop, Program
from kernellab.sketch.program.walk import statements
from kernellab.target import Backend, Target

_FILE = "kernel.py"


def _refuse_float8(program: Program, target: Target) -> None:
    """Refuse float8_e4m3fn where Triton does not have it: on GPUs without a rate for float8 (NVIDIA's before sm_89).

    Raises:
        LoweringError: the chip has no such rate, and a tensor of the program has the dtype.
    """
    rates = target.chip.peak_flops
    if target.backend is not Backend.CUDA or "f8" in rates or not {"bf16", "f16"} & set(rates):
        return
    for tensor in program.tensors:
        if tensor.dtype is DType.F8E4M3:
            raise LoweringError(
                f"{target.chip.name} has no rate for float8, so Triton no float8_e4m3fn, and {tensor.name!r} is one.",
                "Choose --dsl cuda_c, store bfloat16, or add peak_flops.f8 to the chip's file if it has float8.",
            )


def lower_triton(program: Program, binding: Binding, target: Target) -> Source:
    """Return ``kernel.py``, which computes ``program`` and needs torch and triton only.

    The kernels run on Triton 3.6 and later, on a GPU and in Triton's interpreter; for the interpreter some library
    functions have other bodies, since it treats NaN, bfloat16 and custom combines differently.

    Raises:
        LoweringError: a statement has no Triton form, with the reason.
    """
    interpreter = target.backend is not Backend.CUDA
    _refuse_float8(program, target)
    values = _fixed_integers(program, binding)
    wide = _index_dtype(program, values)
    program, walks = with_walks(program, values)
    # offsets of large tensors have 64 bits
    program = narrowed(program, values) if not wide else program
    kernels = []
    for kernel in own_kernels(program):
        kernels.append(_write(program, kernel.name, values, wide, walks.get(kernel.name), interpreter=interpreter))
    own, reasons = _asynchronous(program, binding, values, wide, target, walks)
    quick = bool(kernels) and not interpreter
    tests = frozenset(walk.test for walk in walks.values())
    host = Host(program, binding, kernels, "INDEX" if wide == "INDEX" else "", own, quick, tests)
    host_text = host.write()

    text = _head(program, kernels, own, reasons, quick=quick, interpreter=interpreter)
    mapped: dict[int, int] = {}
    for kernel, written in zip(own_kernels(program), kernels, strict=True):
        signature = ", ".join(map(str, host.kernel_parameters(written)))
        text += ("@kl_launched\n" if quick else "") + f"@triton.jit\ndef {written.name}({signature}):\n"
        first, quiet = text.count("\n") + 1, index_lines(program, kernel)
        body, lines = join_comments(written.lines, program.text.splitlines(), first, quiet)
        text += body + "\n\n"
        mapped.update(lines)
        if kernel.name in own:
            part, lines = _in_gluon(program, own[kernel.name], text.count("\n"))
            text += part
            mapped.update(lines)
    return Source(
        dsl="triton", files={_FILE: text + host_text}, entry_file=_FILE, entry="kernel", line_map={_FILE: mapped}
    )


def _head(
    program: Program, kernels: list[Written], own: Mapping[str, Asynchronous], reasons: Mapping[str, str], *,
    quick: bool, interpreter: bool,
) -> str:  # fmt: skip
    """Return the file's text before its kernels: docstring, imports, and the library functions that they call.

    ``own``: the kernels in Gluon, by name; ``quick``: launches go past Triton's own."""
    head = f'"""{", ".join(k.name for k in program.kernels)}: written from a kernellab sketch.{_routes(reasons)}"""\n\n'
    clusters = any(kernel.cluster > 1 for kernel in own.values())
    modules = [("functools", quick), ("inspect", clusters), ("operator", quick), ("warnings", bool(own))]
    head += "".join(f"import {name}\n" for name, needed in modules if needed)
    head += "\n" if quick else ""
    head += "import torch\nimport triton\nimport triton.language as tl\n\n"
    imports = gluon_names.IMPORTS + (gluon_names.CLUSTERS if clusters else "")
    head += (f"{imports}\n\n{gluon_names.HELPERS}" if own else "") + "\n"
    head += (f"{launched.HELPERS}\n\n" if quick else "") + (f"{launched.MAPS}\n\n" if own else "")
    called = frozenset().union(*(written.used for written in kernels))
    called |= frozenset().union(*(f.used() for kernel in own.values() for f in kernel.functions))
    helpers = library_text(called, interpreter=interpreter)
    return head + (helpers + "\n\n" if helpers else "")


def why_not_asynchronous(program: Program, binding: Binding, target: Target) -> dict[str, str]:
    """Return for each kernel why it has no form in Gluon on ``target``; "" if it has one."""
    values = _fixed_integers(program, binding)
    _, reasons = _asynchronous(program, binding, values, _index_dtype(program, values), target, {})
    return {k.name: reasons.get(k.name, "no loop is hinted copy_engine") for k in own_kernels(program)}


def in_gluon(program: Program, binding: Binding, target: Target) -> tuple[str, dict[int, int]]:
    """Return the Gluon part of :func:`lower_triton`'s file ("" without one), and its lines' places in the sketch."""
    values = _fixed_integers(program, binding)
    text, mapped = "", dict[int, int]()
    program, walks = with_walks(program, values)
    for kernel in _asynchronous(program, binding, values, _index_dtype(program, values), target, walks)[0].values():
        part, lines = _in_gluon(program, kernel, text.count("\n"))
        text += part
        mapped.update(lines)
    return text, mapped


def _in_gluon(program: Program, kernel: Asynchronous, before: int) -> tuple[str, dict[int, int]]:
    """Return the functions of one kernel, after ``before`` lines of their file."""
    text, mapped = "if gluon is not None:\n\n", dict[int, int]()
    for start, part in kernel.text():
        text += start
        body, lines = join_comments(part, program.text.splitlines(), before + text.count("\n") + 1)
        text += body + "\n"
        mapped.update(lines)
    return text + "\n", mapped


def _asynchronous(
    program: Program, binding: Binding, values: dict[str, int], wide: str, target: Target, walks: Mapping[str, Walk]
) -> tuple[dict[str, Asynchronous], dict[str, str]]:
    """Return the kernels that have a form in Gluon, and for each with such hints the reason why it has none ("" if it
    has one)."""
    kernels: dict[str, Asynchronous] = {}
    reasons: dict[str, str] = {}
    for kernel in own_kernels(program):
        if not any(isinstance(s, Loop) and s.hints.copy_engine for s in statements(kernel.body)):
            continue
        options = {
            name: int(binding.constexpr.get(name) or default)
            for name, default in (("num_warps", 8), ("num_stages", 3))
            if program.declares(kernel.name, name)
        }
        try:
            kernels[kernel.name] = asynchronous(program, kernel, values, wide, target, options, walks.get(kernel.name))
            reasons[kernel.name] = ""
        except Refused as refused:
            reasons[kernel.name] = str(refused)
    return kernels, reasons


def _routes(reasons: Mapping[str, str]) -> str:
    """Return a line for each kernel with hints for Gluon."""
    lines = [
        f"\n\n{name}: Triton, since {why}." if why
        else f"\n\n{name}: Gluon, and Triton where the copy engine refuses a tensor or Gluon is missing."
        for name, why in reasons.items()
    ]  # fmt: skip
    return "".join(lines) + ("\n" if lines else "")


def _write(
    program: Program, name: str, values: dict[str, int], wide: str, walk: Walk | None, *, interpreter: bool
) -> Written:
    kernel = next(k for k in program.kernels if k.name == name)

    def written(consts: Mapping[str, int]) -> Written:
        writer = KernelWriter(program, kernel, consts, wide, interpreter=interpreter, walk=walk)
        try:
            return writer.write()
        except LoweringError as error:
            line = writer.out.at
            if not line or error.line:
                raise
            raise LoweringError(error.message, error.remedy, line) from error

    return remembered(program, ("triton", name, wide, interpreter, walk is not None), values, written)


def _fixed_integers(program: Program, binding: Binding) -> dict[str, int]:
    """Return the integers that are fixed at lowering time: constexprs, and symbols of a static task."""
    values = {name: value for name, value in binding.fixed.items() if name in program.symbols}
    for constexpr in program.constexprs:
        value = binding.constexpr.get(constexpr.name, constexpr.value)
        if constexpr.name in LAUNCH_OPTIONS or (constexpr.name in binding.scalars and not constexpr.is_extent):
            continue
        if value is None:
            raise LoweringError(
                f"The constexpr {constexpr.name!r} has no value.", f"Set it: {constexpr.name} = ... in the sketch."
            )
        if isinstance(value, int) or (float(value).is_integer() and constexpr.is_extent):
            values[constexpr.name] = int(value)
    return values


def _index_dtype(program: Program, values: dict[str, int]) -> str:
    """Return the dtype to which index scalars are cast: "" (i32 is enough), tl.int64, or INDEX if the host decides."""
    largest = 0
    for tensor in program.tensors:
        total = 1
        for extent in tensor.shape:
            if not extent.names() <= values.keys():
                return "INDEX"
            total *= extent.evaluate(values)
        largest = max(largest, total)
    return "tl.int64" if largest >= WIDE_ELEMENTS else ""


# -- the Python function that checks arguments, makes outputs and launches the jitted kernels --------------------------

#: constexpr names that are launch options, not parameters of a kernel
LAUNCH_OPTIONS = ("num_warps", "num_stages")
#: warps of a launch that reduces a tile's mask: on an H200 32 took 11 us of 63
_TEST_WARPS = "8"
#: bytes of a tile for each warp: 32 for each thread
_WARP_BYTES = 1024


class Host:
    """The host function. ``index`` is the constexpr parameter with the index dtype, "" if it is fixed at lowering
    time."""

    def __init__(
        self,
        program: Program,
        binding: Binding,
        kernels: list[Written],
        index: str,
        asynchronous: Mapping[str, Asynchronous] = MappingProxyType({}),
        quick: bool = False,
        tests: frozenset[str] = frozenset(),
    ) -> None:
        self.asynchronous, self.quick, self.tests = asynchronous, quick, tests
        self.host = GpuHost(program, binding)
        self.program, self.binding = program, binding
        self.kernels, self.index = kernels, index

    def write(self) -> str:
        """The function's text."""
        return self.host.write(self._launches)

    def _launches(self) -> None:
        if self.index:
            sizes = ", ".join(map(self.host.elements, self.program.tensors))
            self.host.put(f"{self.index} = tl.int64 if max({sizes}) >= {WIDE_ELEMENTS} else tl.int32")
        if any(k.describes for k in self.kernels):
            self.host.put('triton.set_allocator(lambda size, *_: torch.empty(size, dtype=torch.int8, device="cuda"))')
        if any(k.persistent or k.team for k in self.kernels) or any(a.persistent for a in self.asynchronous.values()):
            device = self.host.device()
            cores = f"torch.cuda.get_device_properties({device}).multi_processor_count"
            text = f"kl_cores({device})" if self.quick else f'{cores} if {device}.type == "cuda" else 4'
            self.host.put(f"_cores = {text}")
        self.host.in_order({k.name.removesuffix("_kernel"): partial(self._launch, k) for k in self.kernels})

    def _launch(self, kernel: Written) -> None:
        wanted = kernel.used.union(*(number.names for number in kernel.computed.values()))
        for name, number in kernel.computed.items():
            if name in wanted:
                self.host.put(f"{name} = {number.text}")
        grid, team = kernel.grid, kernel.team
        if team:
            device = self.host.device()
            fit = f"max(1, min({team.most}, _cores // max(1, {grid})))"
            self.host.put(f'{team.size} = {fit} if {device}.type == "cuda" else 1')
            places = f"{grid} if {team.size} > 1 else 0"
            self.host.put(f"{team.arrived} = torch.zeros({places}, dtype=torch.int32, device={device})")
            grid = f"({grid}) * {team.size}"
        own = self.asynchronous.get(kernel.name.removesuffix("_kernel"))
        if own is not None:
            self._launch_asynchronous(kernel, own)
        # by position: a keyword costs Triton's launcher 0.4 us
        arguments = [p.name for p in self.kernel_parameters(kernel)]
        arguments += [f"{name}={text}" for name, text in self._options(kernel)]
        if team:
            # programs that wait for each other must all run at once; the interpreter has no such option
            arguments.append(f'**({{"launch_cooperative_grid": True}} if {team.size} > 1 else {{}})')
        indent = "    " if own is not None else ""
        self.host.put(f"{indent}{kernel.name}[({grid},)]({', '.join(arguments)})")

    def _launch_asynchronous(self, kernel: Written, own: Asynchronous) -> None:
        for name, number in own.computed.items():
            if name not in kernel.computed and name in own.functions[-1].parameters:
                self.host.put(f"{name} = {number.text}")
        name = kernel.name.removesuffix("_kernel")
        self.host.put(f'if kl_asynchronous("{name}", {", ".join(own.tensors)}):')
        warps, stages = (n if self.program.declares(name, n) else str(v) for n, v in own.options.items())
        warps += f" // {own.groups}" if own.groups > 1 else ""
        if own.cluster > 1:
            self.host.put(f"    _cluster = {own.cluster} if kl_clusters else 1")
        argument_texts = {"STAGES": stages, "WARPS": warps, "GROUPS": str(own.groups)}
        argument_texts |= {name: descriptor.call() for name, descriptor in own.descriptors.items()}
        argument_texts |= own.arguments
        arguments = [argument_texts.get(n, n) for n in own.functions[-1].parameters]
        arguments += [f"num_warps={warps}", *(["num_ctas=_cluster"] if own.cluster > 1 else [])]
        self.host.put(f"    {own.functions[-1].name}[({own.grid},)]({', '.join(arguments)})")
        self.host.put("else:")

    def _options(self, kernel: Written) -> list[tuple[str, str]]:
        declared = [name for name in LAUNCH_OPTIONS if self.program.declares(kernel.name.removesuffix("_kernel"), name)]
        options = [(name, name) for name in declared]
        if "num_warps" not in declared:
            name = kernel.name.removesuffix("_kernel")
            options.append(("num_warps", _TEST_WARPS if name in self.tests else _warps(kernel)))
        if "num_stages" not in declared and kernel.facts.has_dot:
            # the option is that of another kernel: tl.range then has no number
            hinted = kernel.facts.stages if any(c.name == "num_stages" for c in self.program.constexprs) else 0
            options.append(("num_stages", str(hinted or 3)))
        return options

    def kernel_parameters(self, kernel: Written) -> list[KernelParameter]:
        """Return the parameters of the jitted function: pointers, sizes and scalars, then constexprs."""
        parameters = [KernelParameter(t.name, True) for t in self.program.tensors]
        parameters += [KernelParameter(s, True) for s in self.program.symbols if s not in self.binding.fixed]
        runtime = [c for c in self.program.constexprs if self._is_runtime(c)]
        parameters += [KernelParameter(c.name, True, _wants_f64(self.program)) for c in runtime]
        parameters += [KernelParameter(kernel.team.arrived, True)] if kernel.team else []
        parameters += [KernelParameter(s, False) for s in self.program.symbols if s in self.binding.fixed]
        parameters += [KernelParameter(c.name, False) for c in self.program.constexprs if c not in runtime]
        parameters += [KernelParameter(name, False) for name in kernel.computed]
        parameters += [KernelParameter(self.index, False)] if self.index else []
        parameters += [KernelParameter(kernel.team.size, False)] if kernel.team else []
        return [p for p in parameters if p.name in kernel.used]

    def _is_runtime(self, constexpr: Constexpr) -> bool:
        return constexpr.name in self.binding.scalars and not constexpr.is_extent


@dataclass(frozen=True)
class KernelParameter:
    name: str
    #: True: passed at run time; False: a tl.constexpr
    runtime: bool
    f64: bool = False

    def __str__(self) -> str:
        if not self.runtime:
            return f"{self.name}: tl.constexpr"
        return f"{self.name}: tl.float64" if self.f64 else self.name


def _wants_f64(program: Program) -> bool:
    return any(t.dtype is DType.F64 for t in program.tensors)


def _warps(kernel: Written) -> str:
    """Return the number of warps: about 32 bytes of the largest tile for each thread (two 16-byte accesses in flight),
    more for tiles above 16 KB."""
    facts, elements = kernel.facts, kernel.facts.elements.known
    if facts.has_dot:
        return "8" if max(elements, facts.sums) > 128 * 64 else "4"
    if facts.scan_warps:
        return str(facts.scan_warps)
    share = _WARP_BYTES // facts.widest
    if facts.elements.padded:
        total = " * ".join([*([str(elements)] if elements > 1 else []), *facts.elements.padded])
        return f"max(1, min(16, {total} // {share}))"
    return str(32 if elements >= 32 * share * 4 else max(1, min(16, elements // share)))


__all__ = ["lower_triton"]
