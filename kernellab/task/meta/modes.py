"""Two modes of torch in which a reference runs on meta tensors, which have only shapes and dtypes.

:class:`MetaOperators` runs each operator on meta tensors; :class:`Calls` sees the functions of torch before they become
operators: it counts them, answers for a tensor's attributes, and replaces recurrent layers of many steps.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only

from kernellab.task.dtypes import channels_last
from kernellab.task.meta.errors import TooLong, Unsupported, Unsure
from kernellab.task.meta.operators import Operators
from kernellab.task.meta.shape_rules import result
from kernellab.task.recurrent import RECURRENT, called

#: most calls of torch in one run, about 10 s without memory
_MOST_CALLS = 200_000


class _StandIn(NamedTuple):
    """A real tensor, kept alive so that its id stays its own, and the meta tensor that stands for it."""

    real: torch.Tensor
    meta: torch.Tensor


class MetaOperators(Operators):  # type: ignore[no-untyped-call]
    """Runs each operator on meta tensors that say they are on ``device``; operators that failed are added to
    ``unsure``."""

    def __init__(self, unsure: list[Any], device: str) -> None:
        super().__init__()
        self._unsure = unsure
        self._device = device
        #: by the id of the real tensor
        self._stand_ins: dict[int, _StandIn] = {}

    def ran(self, func: Any, args: Any, kwargs: Any) -> Any:
        try:
            return self._on_meta(func, args, dict(kwargs))
        except Exception as error:
            self._unsure.append(func)
            raise Unsure from error

    def _on_meta(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        schema = func._schema
        if any(a.name == "device" for a in schema.arguments):
            self._check_device(func, args, kwargs)
            kwargs["device"] = torch.device("meta")
        if "generator" in kwargs:
            kwargs["generator"] = None
        if schema.is_mutable and any(isinstance(t, torch.Tensor) and not t.is_meta for t in tree_leaves(args)):
            raise Unsupported
        args, kwargs = tree_map_only(torch.Tensor, self._without_memory, (args, kwargs))
        by_rule = result(func, args, kwargs)
        if by_rule is not None:
            return by_rule
        if func.overloadpacket is torch.ops.aten.convolution:
            raise Unsupported  # its kernel for meta tensors accepts channels that its groups do not divide
        keeps_format = func.is_view or torch.Tag.pointwise in func.tags
        if not keeps_format and any(isinstance(t, torch.Tensor) and channels_last(t) for t in tree_leaves(args)):
            raise Unsupported  # torch's kernels for meta tensors may return another memory format
        return func(*args, **kwargs)

    def _check_device(self, func: Any, args: Any, kwargs: Mapping[str, Any]) -> None:
        """Raise Unsupported unless the result is on this mode's device."""
        as_first = any(a.name == "self" for a in func._schema.arguments)
        device = kwargs.get("device") or (args[0].device if as_first and args else torch.device("cpu"))
        if device.type not in (self._device, "meta"):
            raise Unsupported
        moved = func is torch.ops.aten._to_copy.default and kwargs.get("device")
        if moved and kwargs.get("dtype") in (None, args[0].dtype):
            raise Unsupported  # a tensor on the CPU is not copied there: writes into it stay

    def _without_memory(self, value: Any) -> Any:
        if value.is_meta:
            return value
        on_cpu = self._device == value.device.type == "cpu"
        if not on_cpu or value.layout is not torch.strided or value.is_conj() or value.is_neg():
            raise Unsupported
        if id(value) not in self._stand_ins:
            meta = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
            self._stand_ins[id(value)] = _StandIn(value, meta)
        return self._stand_ins[id(value)].meta


class Calls(TorchFunctionMode):
    """Replaces recurrent layers of many steps by their shapes; tensors have the ``attributes``."""

    def __init__(self, attributes: Mapping[str, Any]) -> None:
        super().__init__()
        self._attributes = attributes
        self._count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        self._count += name != "__get__"  # reading a tensor's size or dtype does not count as a call
        if self._count > _MOST_CALLS:
            raise TooLong(
                f"The task makes more than {_MOST_CALLS:,} calls of torch in one run{_line()}, each by Python.",
                "Write its loop over whole tensors (x[:, None] - x[None] for pairs of rows), or give fewer rows.",
            )
        if self._attributes and name == "__get__" and func.__self__.__name__ in self._attributes:
            return self._attributes[func.__self__.__name__]
        if self._attributes:
            asks_for_meta = kwargs and torch.device(kwargs.get("device") or "cpu").type == "meta"
            names_type = func is torch.Tensor.type and len(args) == 1 and not kwargs
            if asks_for_meta or names_type or func is torch.Tensor.data_ptr:
                raise Unsure
        return called(func, RECURRENT, *args, **(kwargs or {}))


def _line() -> str:
    """Return the current line of a task's text, for a message."""
    frame: Any = sys._getframe(1)
    while frame is not None and not frame.f_code.co_filename.startswith("<task "):
        frame = frame.f_back
    return f" (at line {frame.f_lineno})" if frame is not None else ""
