"""Does a model with kernels in it compute what it computed before? On inputs that no one has seen, in its precision.

The rule is the judge's: the error against the model in float64 may be at most some times the model's own error before,
or the floor of its precision class. Where the model does not run in float64, it is its difference from before.
"""

from __future__ import annotations

import copy
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from kernellab.model_integration.measure import kept_state, used_gpus
from kernellab.model_integration.ranked import Row
from kernellab.model_integration.sources import Call, Workload, tensors_in
from kernellab.model_integration.swap.call import Replacement
from kernellab.model_integration.values import inputs_of
from kernellab.verifier.protocol.rules import ERROR

#: hidden draws of the model's inputs
DRAWS = 3


@dataclass(frozen=True)
class Fault:
    """The first output (or gradient) that is wrong: its error now, what is allowed, and the model's own before."""

    what: str
    error: float
    allowed: float
    before: float


@dataclass(frozen=True)
class Expected:
    """One hidden call: its arguments, what the model gave before, and what it gives in float64 (None: not known)."""

    call: Call
    before: dict[str, Tensor]
    exact: dict[str, Tensor] | None


def misfit(workload: Workload, row: Row, replacement: Replacement) -> str:
    """How the kernel's results differ in number, shape or dtype from the region's, or which input it writes into, ""
    where there is nothing."""
    region = row.places[0]
    # the kernel is given no parameter itself: what writes into one would leave the model changed
    values = [
        value.clone() if node in region.unit.state or node in region.unit.constants else value
        for node, value in zip(region.inputs, inputs_of(workload, region), strict=True)
    ]
    with torch.no_grad():
        want = replacement.reference(*values)
        before = [_version(value) for value in values]
        outputs = replacement.function(*values)
    for i, (value, version) in enumerate(zip(values, before, strict=True)):
        if _version(value) != version:
            return f"it writes into its input {i}"
    if len(want) != len(outputs):
        return f"it gives {len(outputs)} results, and the region has {len(want)}"
    for w, m in zip(want, outputs, strict=True):
        if not isinstance(m, torch.Tensor) or (w.shape, w.dtype) != (m.shape, m.dtype):
            got = f"{m.dtype}{list(m.shape)}" if isinstance(m, torch.Tensor) else f"a {type(m).__name__}"
            return f"it gives {got.removeprefix('torch.')}, and the region {w.dtype}{list(w.shape)}".replace(
                "torch.", ""
            )
    return ""


def _version(value: Any) -> int:
    """How often a tensor was written to by torch; 0 where it does not count."""
    return 0 if value.is_inference() else int(value._version)


def expected(workload: Workload, draws: int = DRAWS) -> list[Expected]:
    """The model as it is, on hidden inputs: to be asked for before anything is changed."""
    wide = _in_float64(workload)
    answers = []
    for _ in range(draws):
        call = workload.draw(secrets.randbits(31) + 1)
        before = results(workload, workload.model, call)
        exact = None
        if wide is not None:
            try:
                exact = results(workload, wide, _widened(call))
            except Exception:  # an operation without a float64 form: the difference from before is what is left
                wide = None
        answers.append(Expected(call, before, exact))
    return answers


def fault(workload: Workload, hidden: Sequence[Expected]) -> Fault | None:
    """The first way in which the model, as it is now, differs from what was expected; None where it does not."""
    for one in hidden:
        now = results(workload, workload.model, one.call)
        if now.keys() != one.before.keys():
            odd = min(now.keys() ^ one.before.keys())
            return Fault(f"{odd}, which only one of them has,", float("inf"), 0, 0)
        for name, value in now.items():
            difference = compared(name, value, one.before[name], one.exact.get(name) if one.exact else None)
            if difference is not None:
                return difference
    return None


def results(workload: Workload, model: Any, call: Call) -> dict[str, Tensor]:
    """Outputs, and where the model trains the gradients of its parameters, by name."""
    args, kwargs = call
    with kept_state(model), torch.random.fork_rng(devices=used_gpus()):
        torch.manual_seed(0)
        if not workload.train:
            with torch.no_grad():
                outputs = model(*args, **kwargs)
            return {f"output {i}": t.detach() for i, t in enumerate(tensors_in(outputs))}
        model.zero_grad(set_to_none=True)
        outputs = model(*args, **kwargs)
        workload.loss(outputs).backward()  # type: ignore[no-untyped-call]
        tensors = {f"output {i}": t.detach() for i, t in enumerate(tensors_in(outputs))}
        gradients = {n: p.grad.detach().clone() for n, p in model.named_parameters() if p.grad is not None}
        return tensors | {f"the gradient of {n}": g for n, g in gradients.items()}


def compared(name: str, now: Tensor, before: Tensor, exact: Tensor | None) -> Fault | None:
    """How ``now`` differs from ``before`` beyond what its precision class allows; ``exact``: the float64 value."""
    if now.shape != before.shape or now.dtype != before.dtype:
        return Fault(f"{name} ({tuple(now.shape)} {now.dtype})", float("inf"), 0, 0)
    if not now.is_floating_point():
        return None if torch.equal(now, before) else Fault(name, 1.0, 0.0, 0.0)
    word = str(now.dtype).removeprefix("torch.")
    floor = ERROR.floor.get(word, ERROR.floor["float32"])
    if now.device.type == "cuda" and word == "float32" and torch.backends.cudnn.allow_tf32:
        floor = ERROR.floor_tf32
    truth = before.double() if exact is None else exact.to(before.device)
    own = 0.0 if exact is None else _distance(before, truth)
    allowed = max(ERROR.framework_factor * own, floor)
    error = _distance(now, truth)
    return None if error <= allowed else Fault(name, error, allowed, own)


def _distance(value: Tensor, truth: Tensor) -> float:
    """Relative Frobenius error; infinite where finite and non-finite places differ."""
    wide = value.double()
    finite = torch.isfinite(truth)
    if not torch.equal(torch.isfinite(wide), finite):
        return float("inf")
    wide, truth = wide[finite], truth[finite]
    size = float(truth.norm())
    return float((wide - truth).norm()) / size if size else float(wide.norm())


def _in_float64(workload: Workload) -> Any:
    """A copy of the model in float64, as it was before; None where it cannot be copied."""
    try:
        wide = copy.deepcopy(workload.model)
    except Exception:  # a model may hold what cannot be copied
        return None
    return wide.double()


def _widened(call: Call) -> Call:
    change: Callable[[Any], Any] = lambda t: t.double() if t.is_floating_point() else t  # noqa: E731
    wide: Call = tree_map_only(torch.Tensor, change, call)
    return wide


__all__ = ["DRAWS", "Expected", "Fault", "compared", "expected", "fault", "misfit", "results"]
