"""A model to profile and what it is called with: from a file's text, or as objects of this process."""

from __future__ import annotations

import linecache
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_map_only

from kernellab.errors import KernellabError, ProfileError, TaskError
from kernellab.model_integration.objects import tensors_in
from kernellab.task import read_task
from kernellab.task.values import seeded

if TYPE_CHECKING:
    Module = torch.nn.Module

#: a call's arguments: positional and by name
Call = tuple[tuple[Any, ...], dict[str, Any]]
_ALONE = "See that the file runs on its own."
_FORMS = "Define `model` or Model (with get_init_inputs() where it takes arguments), and inputs() or get_inputs()."


@dataclass(frozen=True)
class Workload:
    """A model on its device, and ``draw``: a seed to a call's arguments there. ``loss`` turns outputs into a number."""

    name: str
    model: Module
    draw: Callable[[int], Call]
    loss: Callable[[Any], torch.Tensor]
    train: bool = False

    @property
    def device(self) -> torch.device:
        args, kwargs = self.draw(0)
        tensors = [*self.model.parameters(), *tensors_in((args, kwargs))]
        return tensors[0].device if tensors else torch.device("cpu")


def model_of(text_or_path: str | Path, *, device: str | None = None, train: bool = False) -> Workload:
    """The model that a module's text (or a .py file) defines, on ``device`` (default: a GPU where there is one).

    The text defines ``model`` or ``Model`` with ``get_init_inputs``, and ``inputs`` or ``get_inputs``, which give the
    call's arguments (a tensor, a list, or a mapping of names). ``loss(outputs)`` may be defined for a training step.

    Raises:
        ProfileError: the text does not run, or does not define one of them; or there is no such device.
    """
    try:
        text, name = read_task(text_or_path, what="model")
    except TaskError as error:
        raise ProfileError(error.message, error.remedy) from None
    space = _executed(text, name)
    with seeded(0):
        model = space.get("model")
        if not isinstance(model, torch.nn.Module):
            if not callable(space.get("Model")):
                raise ProfileError(f"{name} defines neither `model` nor `Model`.", _FORMS)
            positional, keywords = _init(_run(name, space.get("get_init_inputs", list)))
            model = _run(name, space["Model"], *positional, **keywords)
    draw = space.get("inputs", space.get("get_inputs"))
    if not callable(draw):
        raise ProfileError(f"{name} does not say what the model is called with.", _FORMS)
    where = _device(device)
    model = model.to(where).train(train)

    def drawn(seed: int) -> Call:
        with seeded(seed):
            args, kwargs = _call(_run(name, draw))
        moved: Call = _to((args, kwargs), where)
        return moved

    workload = Workload(name, model, drawn, space.get("loss", square_loss), train)
    _first_call(workload)
    return workload


def _device(name: str | None) -> torch.device:
    gpu = torch.cuda.is_available()
    try:
        where = torch.device(name or ("cuda" if gpu else "cpu"))
    except RuntimeError:
        raise ProfileError(f"torch has no device {name!r}.", "Give cpu or cuda.") from None
    if where.type == "cuda" and not (gpu and (where.index or 0) < torch.cuda.device_count()):
        raise ProfileError(f"The device {name} is not on this machine.", "Give cpu, or a GPU that torch finds.")
    return where


def workload_of(
    model: Module, args: Sequence[Any], kwargs: Mapping[str, Any], *, train: bool, loss: Any = None, name: str = ""
) -> Workload:
    """A model of this process with one call's arguments; other draws keep their support (sign, range, integers).

    Raises:
        ProfileError: it is no module, or does not run on them.
    """
    if not isinstance(model, torch.nn.Module):
        raise ProfileError(
            f"A {type(model).__name__} is not a torch module.",
            "Give a torch.nn.Module with its call's arguments, kernellab.profile(model, *inputs), or a file's path.",
        )
    example: Call = (tuple(args), dict(kwargs))

    def drawn(seed: int) -> Call:
        if seed == 0:
            return example
        with seeded(seed):
            other: Call = _mapped(example, redrawn)
            return other

    workload = Workload(name or type(model).__name__, model, drawn, loss or square_loss, train)
    _first_call(workload, "Give a call's arguments, kernellab.profile(model, *inputs), with which it runs.")
    return workload


def square_loss(outputs: Any) -> torch.Tensor:
    """The mean square of all outputs: a loss that every output element matters to."""
    floats = [o for o in tensors_in(outputs) if o.is_floating_point()]
    return torch.stack([o.float().square().mean() for o in floats]).sum()


def redrawn(value: torch.Tensor) -> torch.Tensor:
    """Other values of the same support: integers and bools within the range, floats about the same mean and spread."""
    if not value.numel():
        return value
    low, high = value.amin(), value.amax()
    if not value.is_floating_point():
        if value.dtype == torch.bool:
            return torch.rand(value.shape, device=value.device) < value.float().mean()
        return torch.randint(int(low), int(high) + 1, value.shape, device=value.device, dtype=value.dtype)
    wide = value.float()
    if low >= 0:
        return (torch.rand(value.shape, device=value.device) * (high - low).float() + low.float()).to(value.dtype)
    spread = wide.std() if value.numel() > 1 else wide.abs()
    return (torch.randn(value.shape, device=value.device) * spread + wide.mean()).to(value.dtype)


def _mapped(value: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    return tree_map_only(torch.Tensor, change, value)


def _to(value: Any, where: torch.device) -> Any:
    return _mapped(value, lambda tensor: tensor.to(where))


def _executed(text: str, name: str) -> dict[str, Any]:
    module = types.ModuleType(f"kernellab_model_{name}")
    module.__file__ = f"<model {name}>"
    linecache.cache[module.__file__] = (len(text), None, text.splitlines(keepends=True), module.__file__)
    sys.modules[module.__name__] = module
    try:
        code = compile(text, module.__file__, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        place = f" at line {error.lineno}: {error.msg}" if isinstance(error, SyntaxError) else f": {error}"
        raise ProfileError(f"{name} is not Python{place}.", "Correct it.") from None
    _run(name, exec, code, module.__dict__)
    return module.__dict__


def _run(name: str, function: Callable[..., Any], *args: Any, remedy: str = _ALONE, **kwargs: Any) -> Any:
    try:
        return function(*args, **kwargs)
    except KernellabError:
        raise
    except (Exception, SystemExit) as error:
        reason = next(iter(str(error).strip().splitlines()), "").rstrip(".")
        what = getattr(function, "__name__", "its call")
        raise ProfileError(
            f"{name} fails in {'its text' if what == 'exec' else what}: {type(error).__name__}: {reason}.",
            remedy,
        ) from error


def _first_call(workload: Workload, remedy: str = _ALONE) -> None:
    args, kwargs = workload.draw(0)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        _run(workload.name, partial(workload.model, *args, **kwargs), remedy=remedy)


def _call(value: Any) -> Call:
    if isinstance(value, Mapping):
        return (), dict(value)
    if isinstance(value, (tuple, list)):
        if len(value) == 2 and isinstance(value[0], (tuple, list)) and isinstance(value[1], Mapping):
            return tuple(value[0]), dict(value[1])
        return tuple(value), {}
    return (value,), {}


def _init(value: Any) -> Call:
    if isinstance(value, (tuple, list, Mapping)):
        return _call(value)
    return (value,), {}


__all__ = ["Call", "Workload", "model_of", "redrawn", "square_loss", "tensors_in", "workload_of"]
