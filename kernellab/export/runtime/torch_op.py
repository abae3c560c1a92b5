"""A verified kernel as an operator of torch: guards, the reference behind them, shapes for tracing, gradients.

An operator is made from a folder: ``operator.json`` (its arguments and shape classes), ``reference.py`` (the function
that decides what is right, ``call(*args)``) and the kernels' files. Calls that no class was verified for go to the
reference, and so do gradients, unless the folder has kernels for them; the first of each kind says so.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from .autograd import Differentiable
from .guards import Parameter, Refusal, ShapeClass, value_of
from .launcher import Launcher, Unavailable, quiet, said
from .prebuilt import load
from .reference import Reference, leaves
from .training import Training, without_autocast, without_cast_cache

#: signatures of calls (what decides about a kernel except values) whose class is remembered
_MOST_SIGNATURES = 1024
_KINDS = {"int64": "SymInt", "float64": "float", "bool": "bool"}
#: the kinds of a refusal, in the order in which guards are asked
_GUARD_ORDER = ("number", "device", "dtype", "shape", "dim", "strides", "alignment")
_COUNT = itertools.count(2)
#: the reference was measured to be faster for certain
_FASTER = Refusal("faster", "")
#: what a kernel is built with where it is used
_NEEDS = {
    "cpp": "apache-tvm-ffi, ninja and a C++ compiler, or an export with compiled code for this machine",
    "triton": "triton and a C compiler",
    "cuda_c": "apache-tvm-ffi or cuda-core, and NVIDIA's compiler",
}


class _Output(NamedTuple):
    """A result's shape (of the task's: numbers, or expressions over Dims) and dtype."""

    shape: tuple[Any, ...]
    dtype: torch.dtype


class _Start(NamedTuple):
    """From the size ``least`` on, the kernel in ``folder`` was the fastest; "": the reference was."""

    least: int
    folder: str


class _Choice(NamedTuple):
    """The kernel is chosen by the size of a Dim."""

    dim: str
    starts: list[_Start]


class Operator:
    """``call`` is the quick way in, ``op`` the operator that torch.compile and torch.export see.

    ``check_values``: "first" looks at the values of each new shape's first call, "always" at those of every call,
    "never" at none. It counts only where the verdict holds for some values alone; on a GPU a look waits for the device,
    and while a CUDA graph is captured there is none.
    """

    def __init__(self, folder: Path, *, graph: bool = False, check_values: str = "first") -> None:
        facts = json.loads((folder / "operator.json").read_text(encoding="utf-8"))
        self.folder = folder
        self.name: str = facts["name"]
        self.outputs = [_Output(tuple(o["shape"]), getattr(torch, o["dtype"])) for o in facts["outputs"]]
        self.written: tuple[int, ...] = tuple(facts.get("written", ()))
        self.classes = sorted((ShapeClass.of(c) for c in facts["classes"]), key=lambda c: c.breadth)
        choice = facts.get("choice")
        self.choice = _Choice(choice["dim"], [_Start(*start) for start in choice["starts"]]) if choice else None
        self.parameters: tuple[Parameter, ...] = self.classes[0].parameters
        self._defaults = tuple(p.default for p in self.parameters)
        self.numbers = [p.default for p in self.parameters if not p.is_tensor]
        self.reference = Reference(folder / "reference.py")
        self.check_values = check_values
        self._signatures: dict[tuple[Any, ...], ShapeClass | Refusal] = {}
        self._kernels: dict[str, Callable[..., Any]] = {}
        #: folders of kernels that cannot be built here
        self._unbuilt: set[str] = set()
        #: calls whose guards hold by what they look like alone
        self._straight_to: dict[tuple[Any, ...], Callable[..., Any]] = {}
        self._loading = threading.RLock()
        self.training = Training(self, folder, **facts["training"]) if facts.get("training") else None
        self.launcher: Launcher | None = None
        self.op, self._backward, self._library, namespace = self._register(facts["namespace"])
        if self.training is not None:
            self.training.register(self._library, namespace)
        self.call: Callable[..., Any] = self.op if self.written else self._straight()
        if any(c.repeatable for c in self.classes) and not self.written and torch.cuda.is_available():
            try:
                self.launcher = Launcher(self.op, differentiable=True, graph=graph)
                self.call = self.launcher.table
            except Unavailable as error:
                said(f"{self.name}: kernels are launched the ordinary way: {error}.")

    # -- calls ---------------------------------------------------------------------------------------------------------

    def _straight(self) -> Callable[..., Any]:
        """The operator without torch's dispatcher, where nothing watches the call and no gradient is wanted."""
        op: Callable[..., Any] = self.op
        try:
            # a profiler names what the dispatcher calls
            asks = (*quiet(), torch._C._autograd._profiler_enabled, _forward_mode)
        except (Unavailable, AttributeError):
            return op
        run, enabled, classes = self.run, torch.is_grad_enabled, self._straight_to
        plain, parameter = torch.Tensor, torch.nn.Parameter

        def call(*args: Any) -> Any:
            grad_enabled = enabled()
            for a in args:
                kind = type(a)
                if kind is plain or kind is parameter:
                    if a.is_meta or (grad_enabled and a.requires_grad):
                        return op(*args)
                elif isinstance(a, plain):
                    return op(*args)
            for ask in asks:
                if ask():
                    return op(*args)
            kernel = classes.get(tuple(map(_signature, args)))
            if kernel is not None and self.check_values != "always":
                try:
                    return kernel(*args)
                except (TypeError, ValueError):  # said by the other way
                    pass
            return run(*args)

        return call

    def run(self, *args: Any) -> Any:
        """Below autograd: the kernel of the class that takes the call, or the reference."""
        args = self._complete(args)
        signature = tuple(_signature(a) for a in args)
        shape_class = self._signatures.get(signature)
        first = shape_class is None
        if shape_class is None:
            shape_class = self._class_of(args)
            if len(self._signatures) < _MOST_SIGNATURES:
                self._signatures[signature] = shape_class
        if isinstance(shape_class, ShapeClass) and shape_class.limits_values and self._checks_values(first):
            refusal = shape_class.refuses_values(args)
            if refusal:
                self._signatures.pop(signature, None)
                shape_class = refusal
        if isinstance(shape_class, ShapeClass):
            shape_class = shape_class.refuses_shared(args) or shape_class
        if isinstance(shape_class, Refusal):
            return self._refuse(shape_class, args)
        if not self._built(shape_class):
            return self._run_reference(args)
        try:
            result = self._run_kernel(shape_class, args)
        except (TypeError, ValueError) as error:  # a kernel's own checks of its arguments are guards too
            refusal = Refusal(f"{shape_class.folder} refuses", str(error).rstrip("."))
            self._signatures[signature] = refusal
            return self._refuse(refusal, args)
        if first and shape_class.shared and signature in self._signatures:
            self._straight_to[signature] = self._kernel(shape_class)
        return result

    def _run_kernel(self, shape_class: ShapeClass, args: tuple[Any, ...]) -> Any:
        kernel = self._kernel(shape_class)
        by_values = shape_class.limits_values and self.check_values == "always"
        if self.launcher is None or not shape_class.repeatable or not shape_class.shared or by_values:
            return kernel(*args)
        result = self.launcher.run(kernel, *args)
        note = self.launcher.notes.get(kernel)
        if note:
            said(f"{self.name}: its kernels are launched the ordinary way: {note}.", f"{id(self)} launch")
        return result

    def _checks_values(self, first: bool) -> bool:
        return (self.check_values == "always" or (first and self.check_values == "first")) and not _capturing()

    def _class_of(self, args: Sequence[Any]) -> ShapeClass | Refusal:
        refusals, takers = [], []
        for candidate in self.classes:
            refusal = candidate.refuses(args)
            if refusal is not None:
                refusals.append(refusal)
                continue
            if self.choice is None:
                return candidate
            takers.append(candidate)
        if takers and self.choice is not None:
            size = takers[0].sizes(args)[self.choice.dim]
            fastest = next(start.folder for start in reversed(self.choice.starts) if start.least <= size)
            return next((t for t in takers if t.folder == fastest), takers[0]) if fastest else _FASTER
        # of the class that came nearest to taking it
        return max(refusals, key=lambda refusal: _GUARD_ORDER.index(refusal.key.rpartition(" ")[2]))

    def _refuse(self, refusal: Refusal, args: Sequence[Any]) -> Any:
        """Run the reference instead of a kernel, and say why."""
        if refusal is not _FASTER:
            said(
                f"{self.name}: {refusal.reason}, which its kernel was not verified for; the reference runs instead.",
                f"{id(self)} {refusal.key}",
            )
        return self._run_reference(args)

    def _run_reference(self, args: Sequence[Any]) -> Any:
        with without_cast_cache():
            return self._packed(self._separate(self.reference(*args), args))

    def _built(self, shape_class: ShapeClass) -> bool:
        """Is there a kernel of this class? One that cannot be built here is tried once, and said once."""
        if shape_class.folder in self._kernels:
            return True
        with self._loading:
            if shape_class.folder not in self._unbuilt:
                try:
                    self._kernel(shape_class)
                    return True
                except Exception as error:  # whatever a compiler or a runtime that is not there raises
                    self._unbuilt.add(shape_class.folder)
                    lines = str(error).strip().splitlines() or [""]
                    line = next((line for line in lines if "not found" in line or "error:" in line), lines[0])
                    said(
                        f"{self.name}: its kernel cannot be built here ({type(error).__name__}: {line.strip()[:200]}), "
                        f"so the reference runs instead. It needs {_NEEDS.get(shape_class.dsl, shape_class.dsl)}.",
                        f"{id(self)} {shape_class.folder} build",
                    )
        return False

    def _kernel(self, shape_class: ShapeClass) -> Callable[..., Any]:
        kernel = self._kernels.get(shape_class.folder)
        if kernel is None:
            with self._loading:
                kernel = self._kernels.get(shape_class.folder) or self._loaded(shape_class)
                self._kernels[shape_class.folder] = kernel
        return kernel

    def _loaded(self, shape_class: ShapeClass) -> Callable[..., Any]:
        if shape_class.interpreted:
            os.environ.setdefault("TRITON_INTERPRET", "1")
        path = self.folder / shape_class.folder / shape_class.entry_file
        title = f"_{self.name}_{shape_class.folder.replace('/', '_')}_{id(self)}"
        module = load(path, title, lambda why: said(f"{self.name}: {why}; it is compiled here."))
        function = getattr(module, shape_class.entry)

        def kernel(*args: Any) -> Any:
            with without_autocast():
                return self._packed([t if t.is_contiguous() else t.contiguous() for t in leaves(function(*args))])

        return kernel

    def _separate(self, results: Sequence[torch.Tensor], args: Sequence[Any]) -> list[torch.Tensor]:
        """Contiguous results that share no memory with an argument, as an operator of torch must give."""
        argument_storages = {a.untyped_storage().data_ptr() for a in args if isinstance(a, torch.Tensor) and a.numel()}
        separate = []
        for result in results:
            plain = result.detach().contiguous()
            is_shared = plain.untyped_storage().data_ptr() in argument_storages
            separate.append(plain.clone() if is_shared else plain)
        return separate

    def _packed(self, results: Sequence[torch.Tensor]) -> Any:
        if not self.outputs:
            return None  # torch's form of no results
        return results[0] if len(self.outputs) == 1 else tuple(results[: len(self.outputs)])

    # -- what torch asks -----------------------------------------------------------------------------------------------

    def _register(self, namespace: str) -> tuple[Any, Any, Any, str]:
        parameters = [self._schema(i, p) for i, p in enumerate(self.parameters)]
        result = "Tensor" if len(self.outputs) == 1 else f"({', '.join(['Tensor'] * len(self.outputs))})"
        while hasattr(torch.ops, namespace) and hasattr(getattr(torch.ops, namespace), self.name):
            namespace = f"{namespace.rstrip('0123456789')}{next(_COUNT)}"  # the module was loaded before
        library = torch.library.Library(namespace, "FRAGMENT")
        library.define(f"{self.name}({', '.join(parameters)}) -> {result}")
        library.define(f"{self.name}_backward(Tensor?[] grads, Tensor[] tensors, Scalar[] numbers, bool[] wanted)"
                       " -> Tensor[]")  # fmt: skip
        space = getattr(torch.ops, namespace)
        op, backward = getattr(space, self.name).default, getattr(space, f"{self.name}_backward").default
        library.impl(self.name, self.run, "CompositeExplicitAutograd")
        library.impl(self.name, self._autograd, "Autograd")
        library.impl(f"{self.name}_backward", self.gradients, "CompositeExplicitAutograd")
        torch.library.register_fake(op, self._fake, lib=library)
        torch.library.register_fake(backward, self._fake_gradients, lib=library)
        return op, backward, library, namespace

    def _schema(self, position: int, parameter: Parameter) -> str:
        if not parameter.is_tensor:
            default = "" if parameter.default is None else f"={parameter.default}"
            return f"{_KINDS[parameter.dtype]} {parameter.name}{default}"
        alias = f"(a{position}!)" if position in self.written else ""
        return f"Tensor{alias} {parameter.name}"

    def _complete(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """With the defaults at the end, which torch leaves out where a call does."""
        return args if len(args) == len(self._defaults) else args + self._defaults[len(args) :]

    def _autograd(self, *args: Any) -> Any:
        args = self._complete(args)
        if self.launcher is not None:
            result = self.launcher.table.hit(*args)
            if result is not NotImplemented:
                return result
        if _transformed():
            # derivatives of any order and mode are the reference's
            return self._packed(self.reference(*args))
        if torch.is_grad_enabled() and any(isinstance(a, torch.Tensor) and a.requires_grad for a in args):
            if self.written:
                refusal = Refusal("gradient", "a gradient is wanted of arguments that it writes into")
                said(f"{self.name}: {refusal.reason}; the reference runs instead.", f"{id(self)} {refusal.key}")
                return self._packed(self.reference(*args))
            results = Differentiable.apply(self, *args)
            return results
        with torch._C._AutoDispatchBelowAutograd():
            return self.op(*args)

    def _fake(self, *args: Any) -> Any:
        """Results without contents, shaped as the reference's; by the verified formulas where it needs values."""
        args = self._complete(args)
        device = next(a.device for a in args if isinstance(a, torch.Tensor))
        try:
            outputs = [_Output(tuple(o.shape), o.dtype) for o in self.reference(*args)]
        except Exception:  # whatever a reference raises that reads values
            sizes = self.classes[-1].sizes(args)
            outputs = [_Output(tuple(value_of(e, sizes) for e in o.shape), o.dtype) for o in self.outputs]
        return self._packed([torch.empty(o.shape, dtype=o.dtype, device=device) for o in outputs])

    def gradients(
        self, grads: list[torch.Tensor | None], tensors: list[torch.Tensor], numbers: list[Any], needs_grad: list[bool]
    ) -> list[torch.Tensor]:
        """The reference's gradients with respect to the wanted tensors, from inputs computed again."""
        with torch.enable_grad():
            fresh = [t.detach().requires_grad_(w) for t, w in zip(tensors, needs_grad, strict=True)]
            results = self.reference(*self._joined(fresh, numbers))
        pairs = [(r, g) for r, g in zip(results, grads, strict=True) if r.requires_grad and g is not None]
        leaves = [t for t, w in zip(fresh, needs_grad, strict=True) if w]
        if not pairs:
            return [torch.zeros_like(t) for t in leaves]
        computed = torch.autograd.grad([r for r, _ in pairs], leaves, [g for _, g in pairs], allow_unused=True)
        return [torch.zeros_like(t) if g is None else g.contiguous() for t, g in zip(leaves, computed, strict=True)]

    def differentiable_gradients(
        self, grads: Sequence[Any], tensors: Sequence[torch.Tensor], numbers: list[Any], needs_grad: list[bool]
    ) -> list[torch.Tensor | None]:
        """As :meth:`gradients`, one for each parameter, and themselves differentiable: for a second backward."""
        results = self.reference(*self._joined(tensors, numbers))
        pairs = [(r, g) for r, g in zip(results, grads, strict=True) if r.requires_grad and g is not None]
        leaves = [t for t, w in zip(tensors, needs_grad, strict=True) if w]
        computed: Any = (None,) * len(leaves)
        if pairs:
            computed = torch.autograd.grad(
                [r for r, _ in pairs], leaves, [g for _, g in pairs], create_graph=True, allow_unused=True
            )
        rest, asked = iter(computed), iter(needs_grad)
        return [next(rest) if p.is_tensor and next(asked) else None for p in self.parameters]

    def _fake_gradients(self, grads: Any, tensors: list[torch.Tensor], numbers: Any, needs_grad: list[bool]) -> Any:
        pairs = zip(tensors, needs_grad, strict=True)
        return [torch.empty_like(t, memory_format=torch.contiguous_format) for t, w in pairs if w]

    def _joined(self, tensors: Sequence[torch.Tensor], numbers: Sequence[Any]) -> list[Any]:
        """The call's arguments in order."""
        left, right = iter(tensors), iter(numbers)
        kinds = {"bool": bool, "int64": int, "float64": float}
        return [next(left) if p.is_tensor else kinds[p.dtype](next(right)) for p in self.parameters]


def _forward_mode() -> bool:
    """Are tangents carried along?"""
    return torch.autograd.forward_ad._current_level >= 0


def _transformed() -> bool:
    """Is the call inside torch.func's grad, jvp or vmap of these, or are tangents carried along?"""
    return _forward_mode() or torch._C._functorch.peek_interpreter_stack() is not None


def _signature(value: Any) -> Any:
    """What decides whether a kernel takes an argument, but for its values."""
    if not isinstance(value, torch.Tensor):
        return value
    aligned = value.is_meta or value.data_ptr() % 16 == 0
    return value.shape, value.stride(), value.dtype, value.device, aligned


def _capturing() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


__all__ = ["Operator"]
