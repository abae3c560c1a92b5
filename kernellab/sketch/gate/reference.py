"""The reference in float64: what the task computes, without its rounding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kernellab.errors import CaptureError, TaskError
from kernellab.task import Task
from kernellab.task.dtypes import parts

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor


def reference(task: Task, args: Sequence[Any]) -> tuple[Tensor, ...]:
    """Return the reference's results on ``args``, complex ones as pairs. Its sorts are stable, as a sketch's ``sort``
    and ``topk`` are and torch's are not. Raises TaskError: it does not accept ``args``."""
    from kernellab.task.meta.ties import Tied

    with Tied(turned=False):
        return tuple(map(parts, task.module().results(args)))


def reference64(task: Task, args: Sequence[Any]) -> tuple[Tensor, ...] | None:
    """Return the reference's results on ``args`` with every float in float64, complex ones as pairs; None if those are
    not available.

    Arguments in float64 are enough if no narrower float then appears inside the reference, which is watched. If one
    does, because the reference fixes a dtype, its captured graph is rewritten and run."""
    import torch

    upcast = tuple(_upcast(a) if isinstance(a, torch.Tensor) else a for a in args)
    watch = _narrow_floats()
    try:
        with watch, _dtype_numbers(watch):
            outputs = reference(task, upcast)
    except (TaskError, RuntimeError):
        outputs = None
    all_wide = outputs is not None and all(not o.is_floating_point() or o.dtype == torch.float64 for o in outputs)
    if all_wide and not watch.seen and task.framework == "torch":
        return outputs
    captured = _captured64(task, args)
    if captured is not None:
        return captured
    return outputs if all_wide and not watch.seen else None


#: largest change of a steady result, in units, if inputs change by one unit; chosen, not measured
_STEADY = 64.0


def steady(task: Task, args: Sequence[Any]) -> bool:
    """Are the reference's results nearly the same if each float is changed by a unit in its last place? If they are not
    (a normalised constant row), the order of a sum decides, and a difference proves nothing."""
    import torch

    generator = torch.Generator().manual_seed(0)

    def moved(x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or not x.is_floating_point():
            return x
        sign = torch.randint(2, tuple(x.shape), generator=generator) * 2 - 1
        return x * (1 + sign.double() * torch.finfo(x.dtype).eps).to(x.dtype)

    def answers(values: Sequence[Any]) -> tuple[Tensor, ...]:
        in_float64 = reference64(task, values)
        return in_float64 if in_float64 is not None else reference(task, values)

    allowed = _STEADY * max((torch.finfo(a.dtype).eps for a in args if moved(a) is not a), default=0.0)
    try:
        exact, changed = answers(args), answers([moved(a) for a in args])
    except TaskError:
        return False
    return all(
        torch.equal(a, b)
        if not a.is_floating_point()
        else float((a.double() - b.double()).norm()) <= allowed * float(a.double().norm())
        for a, b in zip(exact, changed, strict=True)
    )


def _upcast(x: Tensor) -> Tensor:
    import torch

    return x.double() if x.is_floating_point() else x.to(torch.complex128) if x.is_complex() else x


@lru_cache(maxsize=256)
def reference_flops(task: Task) -> int:
    """Return the FLOPs of products, convolutions and attention in one call of the reference at the task's sizes, as
    torch counts them; 0 if it cannot be traced."""
    from torch.utils.flop_counter import flop_registry

    from kernellab.task.fakes import fake_run
    from kernellab.task.meta.operators import Operators

    class Flops(Operators):  # type: ignore[no-untyped-call]
        total = 0

        def ran(self, func: Any, args: Any, kwargs: Any) -> Any:
            result = func(*args, **kwargs)
            formula = flop_registry.get(func.overloadpacket)
            self.total += int(formula(*args, **kwargs, out_val=result)) if formula else 0
            return result

    run = None if task.dims else fake_run(task, Flops)
    return 0 if run is None else run[1].total


def _captured64(task: Task, args: Sequence[Any]) -> tuple[Tensor, ...] | None:
    """Return the results of the captured graph, if it agrees with the reference on ``args`` (it may contain fixed
    sizes)."""
    from kernellab.capture import capture, run_graph
    from kernellab.task.meta.ties import Tied

    try:
        graph = capture(task)
        with Tied(turned=False):
            declared = run_graph(graph, args)
        expected = reference(task, args)
        if len(declared) != len(expected) or not all(map(_close, declared, expected)):
            return None
        with Tied(turned=False):
            return tuple(run_graph(graph, args, f64=True))
    except (CaptureError, TaskError, RuntimeError, IndexError, KeyError, ValueError):
        return None  # no float64 reference; the declared dtype is still compared


def _close(got: Tensor, want: Tensor) -> bool:
    import torch

    if got.shape != want.shape:
        return False
    return bool(torch.allclose(got.double(), want.double(), rtol=2e-2, atol=1e-2, equal_nan=True))


def _dtype_numbers(watch: Any) -> Any:
    """Return a mode that records calls that derive a number from their operand's dtype, which float64 would change."""
    import torch
    from torch.overrides import TorchFunctionMode

    class Numbers(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            keywords = dict(kwargs or {})
            if func in (torch.rms_norm, torch.nn.functional.rms_norm):
                watch.seen = watch.seen or (args[3] if len(args) > 3 else keywords.get("eps")) is None
            elif func in (torch.nan_to_num, torch.Tensor.nan_to_num):
                watch.seen = True
            return func(*args, **keywords)

    return Numbers()


def _is_narrow(x: Tensor) -> bool:
    import torch

    return x.dtype not in (torch.float64, torch.complex128)


def _rounds(scalar: Tensor, args: Sequence[Any]) -> bool:
    """Does ``scalar`` hold a rounded one of the call's Python numbers?"""
    numbers = [n for n in args if isinstance(n, float) and math.isfinite(n)]
    return bool(numbers) and scalar.device.type != "meta" and float(scalar) not in numbers


def _narrow_floats() -> Any:
    """Return a mode that records floats narrower than float64 among the results of torch's operations."""
    import torch
    from torch.utils._pytree import tree_leaves

    from kernellab.task.meta.operators import Operators

    class Watch(Operators):  # type: ignore[no-untyped-call]
        seen = False

        def ran(self, func: Any, args: Any, kwargs: Any) -> Any:
            result = func(*args, **kwargs)
            # the bits of a float64 are another number
            self.seen = self.seen or func is torch.ops.aten.view.dtype
            for leaf in tree_leaves(result):
                is_narrow = isinstance(leaf, torch.Tensor) and parts(leaf).is_floating_point() and _is_narrow(leaf)
                if is_narrow and leaf.numel():
                    # a Python number becomes a scalar of its value, unless a narrow float rounds it
                    is_rounded = leaf.dim() > 0 or func is torch.ops.aten._to_copy.default or _rounds(leaf, args)
                    self.seen = self.seen or is_rounded
            return result

    return Watch()
