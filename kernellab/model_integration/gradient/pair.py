"""A forward and a backward kernel, designed apart and verified as a pair: gradients on hidden inputs against autograd.

Each of them has its verdict from the judge; the pair is right when the gradients that it gives through autograd are
those of the reference in float64, as exactly as the framework's own. Where the backward reads tensors that a forward
saved (:mod:`kernellab.model_integration.gradient.saved`), a third kernel is the forward that saves them: the backward
is compared with what that one saves, and the forward without saved tensors runs where no gradient is wanted.
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
from kernellab.model_integration.gradient.derive import PairTexts, pair_texts
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
    """What forward and backward together came to: the times of a step, and of its backward alone behind a forward that
    has been, with autograd's and with the pair's kernels."""

    time: Paired
    draws: int
    backward: Paired

    @property
    def text(self) -> str:
        right = f"results and gradients right on {self.draws} hidden draws"
        return f"{right}; forward and backward {self.time.text}; backward alone {self.backward.text}"


@dataclass(frozen=True, eq=False)
class Pair:
    """Sessions on one task: its forward, and its backward, which computes from the same inputs, and from the results of
    ``saving`` at ``saved`` where there is such a forward."""

    task: Task
    forward: Session
    backward: Session
    saving: Session | None = None
    saved: tuple[int, ...] = ()

    @property
    def sessions(self) -> tuple[Session, ...]:
        """All of them."""
        return (self.forward, self.backward, *([self.saving] if self.saving is not None else []))

    def wait(self, timeout: float | None = None) -> Pair:
        """Block until all have ended. Raises what ended one."""
        for session in self.sessions:
            session.wait(timeout)
        return self

    @cached_property
    def function(self) -> Callable[..., Any]:
        """The pair as one function that autograd knows: the forward kernel, and for gradients the backward kernel.
        Where a number is not the task's, and its default is built into the backward, autograd runs the reference.

        Raises:
            SessionError: one of them has no kernel that passed.
        """
        forward, backward = self.kernels
        count, results = len(self.task.tensors), len(self.task.outputs)
        trained_forward = self._saver or forward
        give = self.gradients_by(backward)

        class Trained(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, *args: Any) -> Any:
                made = _tuple(trained_forward(*args))
                ctx.save_for_backward(*args, *(made[at] for at in self.saved))
                return made[0] if results == 1 else made[:results]

            @staticmethod
            def backward(ctx: Any, *grads: Tensor | None) -> Any:
                if torch.is_grad_enabled():
                    return tuple(self._differentiable(grads, ctx.saved_tensors[:count]))
                return tuple(give(grads, ctx.saved_tensors[:count], ctx.saved_tensors[count:]))

        def function(*args: Any) -> Any:
            tensors, numbers = args[:count], list(args[count:])
            if not torch.is_grad_enabled() or not any(t.requires_grad for t in tensors):
                return forward(*args)
            if numbers != self._numbers[: len(numbers)]:
                return self.task.module().call([*args, *self._numbers[len(numbers) :]])
            return Trained.apply(*tensors)  # type: ignore[no-untyped-call]

        return function

    @property
    def kernels(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """The functions of the forward's kernel and the backward's."""
        return _quick(self.forward), _quick(self.backward)

    @cached_property
    def _saver(self) -> Callable[..., Any] | None:
        return _quick(self.saving) if self.saving is not None else None

    def gradients_by(self, backward: Callable[..., Any]) -> Callable[..., list[Tensor | None]]:
        """``backward`` as a function from the outputs' gradients (None: zeros), the inputs, and what was saved (the
        forward runs again without it) to the inputs' gradients, None for those that have none."""
        smooth = ["float" in a.dtype for a in self.task.tensors]
        saver = self._saver

        def gradients(
            grads: Sequence[Tensor | None], args: Sequence[Tensor], kept: Sequence[Tensor] = ()
        ) -> list[Tensor | None]:
            if saver is not None and not kept:
                made = _tuple(saver(*args))
                kept = [made[at] for at in self.saved]
            above = list(grads)
            if any(g is None for g in above):
                with torch.no_grad():
                    like = tensors_in(self.task.module().call([*args, *self._numbers]))
                above = [torch.zeros_like(o) if g is None else g for g, o in zip(above, like, strict=True)]
            computed = backward(*(g.contiguous() if g is not None else g for g in above), *args, *kept)
            remaining = iter(_tuple(computed))
            return [next(remaining) if is_smooth else None for is_smooth in smooth]

        return gradients

    def _differentiable(self, grads: Sequence[Tensor | None], args: Sequence[Tensor]) -> list[Tensor | None]:
        """The reference's gradients, for a second derivative: a kernel's have none."""
        outputs = tensors_in(self.task.module().call([*args, *self._numbers]))
        leaves = [a for a in args if a.requires_grad]
        pairs = [(o, g) for o, g in zip(outputs, grads, strict=True) if g is not None]
        made = iter(torch.autograd.grad([o for o, _ in pairs], leaves, [g for _, g in pairs], create_graph=True))
        return [next(made) if a.requires_grad else None for a in args]

    @property
    def _numbers(self) -> list[Any]:
        return [a.value for a in self.task.args if not a.is_tensor]

    def verify(self) -> Together:
        """Gradients on hidden inputs and sizes against autograd, then forward and backward timed compared with it.

        Raises:
            SwapError: a gradient is wrong; it names the input, the error and what is allowed.
        """
        return check(self.task, self.function, cuda=self.forward.target.backend is Backend.CUDA)

    def export(self, path: str | Path) -> Path:
        """Write the pair as one module, as :meth:`Session.export`: an operator of torch whose gradients are the
        backward's kernel. Return its path.

        Raises:
            SessionError: one of them has no kernel that passed, or the task cannot be described.
        """
        from kernellab.content import written
        from kernellab.export.compiled import compiled
        from kernellab.export.module import module_text
        from kernellab.export.package import Training, package

        training = Training((self.saving or self.forward).taken(), self.backward.taken(), self.saved)
        return written(Path(path), module_text(compiled(package([self.forward.taken()], training=training))))

    def __repr__(self) -> str:
        saving = f", forward that saves {self.saving.status.value}" if self.saving is not None else ""
        return f"<Pair of {self.task.name}: {self.forward.status.value}, backward {self.backward.status.value}{saving}>"


def check(task: Task, function: Callable[..., Any], *, cuda: bool = False) -> Together:
    """``function``'s gradients against those of the task's reference, and both timed; as :meth:`Pair.verify`."""

    def reference(*args: Any) -> Any:
        return task.module().call(list(args))

    names = [f"the gradient of {a.name}" for a in task.tensors if "float" in a.dtype]
    count = len(task.outputs)
    names = [*(["the result"] if count == 1 else [f"result {i + 1}" for i in range(count)]), *names]
    for _ in range(_DRAWS):
        args = _drawn(task, secrets.randbits(31), cuda)
        above = [torch.randn_like(o) for o in tensors_in(reference(*args))]
        exact = _step(reference, [_wide(a) for a in args], [_wide(g) for g in above])
        before, now = _step(reference, args, above), _step(function, args, above)
        for name, n, b, e in zip(names, now, before, exact, strict=True):
            wrong = compared(name, n, b, e)
            if wrong is not None:
                raise SwapError(
                    f"The pair {task.name}: {wrong.what} is off by {wrong.error:.2g}, where {wrong.allowed:.2g} is "
                    f"allowed (autograd's own error is {wrong.before:.2g}).",
                    "Design the backward again; the forward's verdict stands.",
                )
    args = _drawn(task, 0, cuda, own_sizes=True)
    above = [torch.randn_like(o) for o in tensors_in(reference(*args))]
    device = "cuda" if cuda else "cpu"
    time = by_turns(lambda: _step(reference, args, above), lambda: _step(function, args, above), device)
    backward = by_turns(_behind(reference, args, above), _behind(function, args, above), device)
    return Together(time, _DRAWS, backward)


def _drawn(task: Task, seed: int, cuda: bool, own_sizes: bool = False) -> list[Any]:
    module = task.module()
    own, chance = module.default_sizes(), random.Random(seed)
    sizes = {d.name: chance.randint(max(1, d.min), max(1, min(d.max, 2 * own[d.name]))) for d in task.dims}
    args = module.sample(own if own_sizes else sizes, seed)
    return [a.cuda() if cuda and isinstance(a, torch.Tensor) else a for a in args]


def _step(function: Callable[..., Any], args: Sequence[Any], above: Sequence[Tensor]) -> list[Tensor]:
    """The results and the gradients."""
    outputs, leaves = _forward(function, args)
    return [*(o.detach() for o in outputs), *torch.autograd.grad(outputs, leaves, above)]


def _behind(function: Callable[..., Any], args: Sequence[Any], above: Sequence[Tensor]) -> Callable[[], Any]:
    """The backward alone, as often as it is called behind one forward."""
    outputs, leaves = _forward(function, args)
    return lambda: torch.autograd.grad(outputs, leaves, above, retain_graph=True)


def _forward(function: Callable[..., Any], args: Sequence[Any]) -> tuple[list[Tensor], list[Tensor]]:
    """The results, and the leaves to which their gradients lead."""
    leaves = [a.detach().requires_grad_(a.is_floating_point()) if isinstance(a, torch.Tensor) else a for a in args]
    with torch.enable_grad():
        outputs = tensors_in(function(*leaves))
    return outputs, [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]


def _quick(session: Session) -> Callable[..., Any]:
    best = session.best
    best.check_allowed()
    return best.quick


def _tuple(results: Any) -> tuple[Any, ...]:
    return tuple(results) if isinstance(results, (tuple, list)) else (results,)


def pair(task: str | Path | Task, *, name: str | None = None, wait: bool = False, **options: Any) -> Pair:
    """Design a task's forward and its backward; options are :func:`kernellab.design`'s.

    Raises:
        CaptureError: the backward cannot be derived. TaskError, TargetError, SessionError: as ``design``.
    """
    from kernellab.session import design

    loaded = load_task(task, name) if isinstance(task, (str, Path)) else task
    texts = pair_texts(loaded)
    forward = design(loaded.text, name=loaded.name, **options)
    joined = designed(loaded, forward, texts, lambda text, name: design(text, name=name, **options))
    return joined.wait() if wait else joined


def designed(task: Task, forward: Session, texts: PairTexts, design: Callable[[str, str], Session]) -> Pair:
    """The pair of a forward that is designed, with what ``design`` makes of the other texts, by their names."""
    saving = design(texts.forward, f"{task.name}_forward") if texts.forward else None
    return Pair(task, forward, design(texts.backward, f"{task.name}_backward"), saving, texts.saved)


def _wide(value: Any) -> Any:
    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


__all__ = ["Pair", "Together", "check", "designed", "pair"]
