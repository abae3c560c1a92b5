"""Kernels for an operator's gradients: a forward that also gives what the backward reads, and the backward.

Both are operators in folders of the package. Their own references are of the task's dtypes and shapes; any other call
has the results and the gradients of the operator's reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch


class _Forward(NamedTuple):
    """The operator's results, in its form, and what is kept for the backward."""

    results: Any
    kept: list[torch.Tensor]


class Training:
    """The kernels in ``folders`` of ``folder`` for the gradients of ``operator``; ``saved`` are the results
    of the forward that the backward reads."""

    def __init__(self, operator: Any, folder: Path, folders: Sequence[str], saved: Sequence[int]) -> None:
        self.operator, self.saved = operator, saved
        self._forward, self._backward = (type(operator)(folder / inside) for inside in folders)
        self._forward_reference = self._forward.reference
        self._forward.reference, self._backward.reference = self._saved_by_reference, self._by_autograd
        self._op: Callable[..., list[torch.Tensor]] | None = None

    def register(self, library: torch.library.Library, namespace: str) -> None:
        """Define the gradients as an operator of ``library``, below which autograd still works."""
        name = f"{self.operator.name}_gradients"
        library.define(f"{name}(Tensor[] grads, Tensor[] tensors, Tensor[] kept) -> Tensor[]")
        library.impl(name, self._gradients, "CompositeExplicitAutograd")
        op = getattr(getattr(torch.ops, namespace), name).default
        torch.library.register_fake(op, self._fake, lib=library)
        self._op = op

    def set_check_values(self, check_values: str) -> None:
        """Look at values as the operator does."""
        self._forward.check_values = self._backward.check_values = check_values

    def run(self, count: int, tensors: Sequence[torch.Tensor]) -> _Forward:
        """Run the forward; ``count``: the operator's results."""
        results = _tuple(self._forward.op(*tensors))
        return _Forward(results[0] if count == 1 else results[:count], [results[at] for at in self.saved])

    def gradients(
        self, grads: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor], kept: Sequence[torch.Tensor]
    ) -> list[torch.Tensor | None]:
        """The gradients of the tensors, None for those that have none."""
        upstream = [g.contiguous() for g in grads]
        computed: Any = NotImplemented
        if self._backward.launcher is not None:
            computed = self._backward.launcher.table.hit(*upstream, *tensors, *kept)
        if computed is NotImplemented:
            assert self._op is not None
            computed = self._op(upstream, list(tensors), list(kept))
        remaining = iter(_tuple(computed))
        return [next(remaining) if t.is_floating_point() else None for t in tensors]

    def _gradients(
        self, grads: list[torch.Tensor], tensors: list[torch.Tensor], kept: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        return list(_tuple(self._backward.run(*grads, *tensors, *kept)))

    def _fake(
        self, grads: list[torch.Tensor], tensors: list[torch.Tensor], kept: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        return [torch.empty_like(t, memory_format=torch.contiguous_format) for t in tensors if t.is_floating_point()]

    # -- instead of the kernels

    def _saved_by_reference(self, *args: Any) -> list[torch.Tensor]:
        """The results, and what is saved: without elements where the call is not of the task's dtypes and shapes, as
        no backward's kernel takes it then."""
        if self._forward.classes[0].has_form(args):
            with without_autocast():
                return list(self._forward_reference(*args))
        results = list(self.operator.reference(*args, *self.operator.numbers))
        extra = len(self._forward.outputs) - len(results)
        return [*results, *(results[0].new_empty(0) for _ in range(extra))]

    def _by_autograd(self, *args: Any) -> list[torch.Tensor]:
        grads, saved = len(self.operator.outputs), len(self.saved)
        tensors = list(args[grads : len(args) - saved])
        needs_grad = [t.is_floating_point() for t in tensors]
        return list(self.operator.gradients(list(args[:grads]), tensors, self.operator.numbers, needs_grad))


def without_autocast() -> AbstractContextManager[Any]:
    """Under autocast products take narrower operands than a kernel's code, or a text with explicit dtypes, expects."""
    return torch._C._DisableAutocast() if torch._C._is_any_autocast_enabled() else nullcontext()


@contextmanager
def without_cast_cache() -> Iterator[None]:
    """Autocast keeps what it casts a weight to; cast below autograd, that has no gradient for those who use it next."""
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(before)


def _tuple(results: Any) -> tuple[Any, ...]:
    return tuple(results) if isinstance(results, (tuple, list)) else (results,)


__all__ = ["Training", "without_autocast", "without_cast_cache"]
