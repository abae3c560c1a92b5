"""A forward and a backward kernel, designed apart and verified as a pair: gradients on hidden inputs against autograd.

Each of the two has its verdict from the judge; the pair is right when the gradients that it gives through autograd are
those of the reference in float64, as exactly as the framework's own.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kernellab.errors import SwapError
from kernellab.model_integration.gradient.derive import backward_text
from kernellab.model_integration.sources import tensors_in
from kernellab.model_integration.swap.check import compared
from kernellab.model_integration.swap.clock import Paired, by_turns
from kernellab.target import Backend
from kernellab.task import Task, load_task

if TYPE_CHECKING:
    from kernellab.session import Session


#: hidden draws on which a pair's gradients are compared
_DRAWS = 3


@dataclass(frozen=True)
class Together:
    """What forward and backward together came to: a step's time with autograd's and with the pair's kernels."""

    time: Paired
    draws: int

    @property
    def text(self) -> str:
        return f"gradients right on {self.draws} hidden draws; forward and backward {self.time.text}"


@dataclass(frozen=True, eq=False)
class Pair:
    """Two sessions on one task: its forward, and its backward, which computes from the same inputs."""

    task: Task
    forward: Session
    backward: Session

    def wait(self, timeout: float | None = None) -> Pair:
        """Block until both have ended. Raises what ended either."""
        self.forward.wait(timeout)
        self.backward.wait(timeout)
        return self

    @cached_property
    def function(self) -> Callable[..., Any]:
        """The pair as one function that autograd knows: the forward kernel, and for gradients the backward kernel.

        Raises:
            SessionError: one of them has no kernel that passed.
        """
        forward, backward = self.kernels
        count = len(self.task.tensors)
        single = len(self.task.outputs) == 1
        give = self.gradients_by(backward)

        class Trained(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, *args: Any) -> Any:
                ctx.save_for_backward(*args[:count])
                ctx.rest = len(args) - count
                return forward(*args)

            @staticmethod
            def backward(ctx: Any, *grads: Tensor | None) -> Any:
                return (*give(grads, ctx.saved_tensors), *[None] * ctx.rest)

        def function(*args: Any) -> Any:
            outputs = Trained.apply(*args)  # type: ignore[no-untyped-call]
            return outputs if single or isinstance(outputs, tuple) else tuple(outputs)

        return function

    @property
    def kernels(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """Both kernels' functions."""
        kernels = []
        for session in (self.forward, self.backward):
            best = session.best
            best.check_allowed()
            kernels.append(best.quick)
        return kernels[0], kernels[1]

    def gradients_by(self, backward: Callable[..., Any]) -> Callable[..., list[Tensor | None]]:
        """``backward`` as a function from the outputs' gradients (None: zeros) and the inputs to the inputs' gradients,
        None for those that have none."""
        smooth = ["float" in a.dtype for a in self.task.tensors]

        def gradients(grads: Sequence[Tensor | None], args: Sequence[Tensor]) -> list[Tensor | None]:
            above = list(grads)
            if any(g is None for g in above):
                with torch.no_grad():
                    like = tensors_in(self.task.module().call([*args, *self._numbers]))
                above = [torch.zeros_like(o) if g is None else g for g, o in zip(above, like, strict=True)]
            computed = backward(*(g.contiguous() if g is not None else g for g in above), *args)
            remaining = iter(computed if isinstance(computed, (tuple, list)) else (computed,))
            return [next(remaining) if is_smooth else None for is_smooth in smooth]

        return gradients

    @property
    def _numbers(self) -> list[Any]:
        return [a.value for a in self.task.args if not a.is_tensor]

    def verify(self) -> Together:
        """Gradients on hidden inputs and sizes against autograd, then forward and backward timed compared with it.

        Raises:
            SwapError: a gradient is wrong; it names the input, the error and what is allowed.
        """
        return check(self.task, self.function, cuda=self.forward.target.backend is Backend.CUDA)

    def __repr__(self) -> str:
        return f"<Pair of {self.task.name}: {self.forward.status.value}, backward {self.backward.status.value}>"


def check(task: Task, function: Callable[..., Any], *, cuda: bool = False) -> Together:
    """``function``'s gradients against those of the task's reference, and both timed; as :meth:`Pair.verify`."""

    def reference(*args: Any) -> Any:
        return task.module().call(list(args))

    names = [a.name for a in task.tensors if "float" in a.dtype]
    for _ in range(_DRAWS):
        args = _drawn(task, secrets.randbits(31), cuda)
        above = [torch.randn_like(o) for o in tensors_in(reference(*args))]
        exact = _gradients(reference, [_wide(a) for a in args], [_wide(g) for g in above])
        before, now = _gradients(reference, args, above), _gradients(function, args, above)
        for name, n, b, e in zip(names, now, before, exact, strict=True):
            wrong = compared(f"the gradient of {name}", n, b, e)
            if wrong is not None:
                raise SwapError(
                    f"The pair {task.name}: {wrong.what} is off by {wrong.error:.2g}, where {wrong.allowed:.2g} is "
                    f"allowed (autograd's own error is {wrong.before:.2g}).",
                    "Design the backward again; the forward's verdict stands.",
                )
    args = _drawn(task, 0, cuda, own_sizes=True)
    above = [torch.randn_like(o) for o in tensors_in(reference(*args))]
    time = by_turns(
        lambda: _gradients(reference, args, above), lambda: _gradients(function, args, above),
        "cuda" if cuda else "cpu",
    )  # fmt: skip
    return Together(time, _DRAWS)


def _drawn(task: Task, seed: int, cuda: bool, own_sizes: bool = False) -> list[Any]:
    module = task.module()
    own, chance = module.default_sizes(), random.Random(seed)
    sizes = {d.name: chance.randint(max(1, d.min), max(1, min(d.max, 2 * own[d.name]))) for d in task.dims}
    args = module.sample(own if own_sizes else sizes, seed)
    return [a.cuda() if cuda and isinstance(a, torch.Tensor) else a for a in args]


def _gradients(function: Callable[..., Any], args: Sequence[Any], above: Sequence[Tensor]) -> list[Tensor]:
    leaves = [a.detach().requires_grad_(a.is_floating_point()) if isinstance(a, torch.Tensor) else a for a in args]
    with torch.enable_grad():
        outputs = tensors_in(function(*leaves))
    trainable = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    return list(torch.autograd.grad(outputs, trainable, above))


def pair(task: str | Path | Task, *, name: str | None = None, wait: bool = False, **options: Any) -> Pair:
    """Design a task's forward and its backward; options are :func:`kernellab.design`'s.

    Raises:
        CaptureError: the backward cannot be derived. TaskError, TargetError, SessionError: as ``design``.
    """
    from kernellab.session import design

    loaded = load_task(task, name) if isinstance(task, (str, Path)) else task
    back = backward_text(loaded)
    forward = design(loaded.text, name=loaded.name, **options)
    backward = design(back, name=f"{loaded.name}_backward", **options)
    joined = Pair(loaded, forward, backward)
    return joined.wait() if wait else joined


def _wide(value: Any) -> Any:
    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


__all__ = ["Pair", "Together", "check", "pair"]
