"""A task's module with one interface for both forms: its sizes and inputs, its Model, and calls of its reference.

The native form has ``inputs(N=...)`` and ``reference(...)``; KernelBench's has ``get_inputs()`` and ``Model``. A
kernel's arguments are the tensors and numbers of the inputs, flattened, then the Model's state: for ``inputs() -> (x,
[y, 2])`` they are ``x, y, 2``.
"""

from __future__ import annotations

import inspect
import re
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from kernellab.errors import TaskError
from kernellab.task.call_inputs.cases import CHOSEN, LISTS, Listed, inputs_at, listed
from kernellab.task.call_inputs.randomness import draws_by_itself, may_draw
from kernellab.task.call_inputs.slots import Slot, arguments, filled, holes, slots_of, within
from kernellab.task.dims import Dim, TaskForm
from kernellab.task.dtypes import masks_as_queries, whole_divisions
from kernellab.task.faking import without_memory
from kernellab.task.meta.errors import TooLong
from kernellab.task.source import TaskSource
from kernellab.task.values import as_tensor, device_of, in_written_order, outputs_of, quiet_numpy, seeded, to_numpy

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

DEFAULT_SIZE = 1024
#: a task's own function that gives its last arguments from all of them, where these depend on the others
DERIVED = "_derived"
_FORMS = "Define reference(...) and inputs(...), or KernelBench's Model and get_inputs."


@dataclass(frozen=True)
class Learnt:
    """Facts about a task from running its reference; a Task outlives the module that ran."""

    mutates: bool
    written: tuple[int, ...]
    numpy: bool
    needs_values: bool
    listed: Listed | None
    dims: tuple[Dim, ...]
    slots: tuple[Slot, ...] | None
    evaluates: bool


class TaskModule:
    """The module of a task's text, with one interface for both forms.

    Raises:
        TaskError: the text has a syntax error, raises, or does not have what its form needs.
    """

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        source = TaskSource(name, text)
        self.hash, self.filename, self.namespace = source.hash, source.filename, source.namespace
        self._guard = source.guard
        self.form = self._form()
        #: the places of a call's values in the latest inputs
        self.slots: tuple[Slot, ...] | None = None
        #: the relation of the cases that the task lists; None if it draws inputs by sizes
        self.listed = self._listed()
        self.dims = self.listed.dims if self.listed else self._dims()
        self._models: dict[str, Any] = {}
        #: held while a call's values replace those of a Model, or these are read: sessions are threads
        self.calling = threading.RLock()
        self._evaluates: bool | None = None
        #: the reference writes into its own arguments, so it gets copies
        self.mutates = False
        #: positions of arguments that it writes into, in order, without a Model's state
        self.written: tuple[int, ...] = ()
        #: the reference works on NumPy arrays
        self.numpy = False
        #: it fails on fake tensors: shapes are found by real runs
        self.needs_values = False
        #: the facts above are known
        self.described = False

    def learnt(self) -> Learnt:
        """Return the facts, for another module of the same text."""
        return Learnt(
            self.mutates, self.written, self.numpy, self.needs_values, self.listed, self.dims, self.slots,
            self.evaluates,
        )  # fmt: skip

    def learn(self, facts: Learnt) -> None:
        """Set the facts that another module of this text has found."""
        self.mutates, self.written, self.numpy = facts.mutates, facts.written, facts.numpy
        self.needs_values, self.listed, self.dims = facts.needs_values, facts.listed, facts.dims
        # set before any call: inputs() must not run for them on a fake or meta device
        self.slots = None if facts.slots is None else within(facts.slots, self.namespace)
        self._evaluates = facts.evaluates
        self.described = True

    # -- for the verifier, the designer and the session

    def default_sizes(self) -> dict[str, int]:
        """Return the default sizes of the task (the defaults of ``inputs``), by Dim."""
        if not self.dims:
            return {}
        if self.listed:
            return dict(self.listed.main_sizes)
        parameters = inspect.signature(self.namespace["inputs"]).parameters
        sizes = {}
        for dim in self.dims:
            default = parameters[dim.name].default
            sizes[dim.name] = int(default) if isinstance(default, int) else min(max(DEFAULT_SIZE, dim.min), dim.max)
        return sizes

    def sample(self, sizes: Mapping[str, int] | None = None, seed: int = 0) -> tuple[Any, ...]:
        """Return the flattened arguments exactly as ``kernel(*args)`` gets them: tensors (CPU unless the task says
        otherwise) and Python scalars, then the Model's state in state_dict order.

        ``seed`` sets torch's, NumPy's and Python's generators, which are restored afterwards. Parameters and buffers
        are those of the Model; :func:`kernellab.task.sample.inputs.redraw` draws random ones."""
        with seeded(seed):
            inputs = self.raw_inputs(self._all_sizes(sizes))
        return (*(as_tensor(v) for v in self._with_defaults(inputs)), *self.state().values())

    def derived(self, args: Sequence[Any]) -> tuple[Any, ...]:
        """Return ``args`` with the last ones as the task's ``_derived`` computes them from the others, if it has one: a
        backward's, which are what its forward saved."""
        function = self.namespace.get(DERIVED)
        if function is None:
            return tuple(args)
        import torch

        with torch.no_grad():
            made = self._guard(DERIVED, function, *args)
        return (*args[: len(args) - len(made)], *made)

    def reference(self, args: Sequence[Any]) -> tuple[Tensor, ...]:
        """Return the reference's outputs, flattened, on the device and in the dtypes of ``args``; without gradients."""
        return self.called(args)[0]

    def results(self, args: Sequence[Any]) -> tuple[Tensor, ...]:
        """As :meth:`reference`; after the outputs come the inputs that it writes into (:attr:`written`)."""
        outputs, after = self.called(args)
        return (*outputs, *(as_tensor(after[i]) for i in self.written))

    def called(self, args: Sequence[Any]) -> tuple[tuple[Tensor, ...], Sequence[Any]]:
        """Return the reference's outputs, and its arguments: clones, if it writes into some."""
        import torch

        if self.mutates:
            # one tensor that is given twice stays one
            clones = {id(a): a.clone() for a in args if isinstance(a, torch.Tensor)}
            args = [clones.get(id(a), a) for a in args]
        device = next((a.device for a in args if isinstance(a, torch.Tensor)), torch.device("cpu"))
        with torch.no_grad(), masks_as_queries(args), whole_divisions(args), in_written_order():
            if device.type in ("cpu", "meta"):
                return self.flatten(self.call(args)), args
            with torch.device(device):
                return self.flatten(self.call(args)), args

    @cached_property
    def call_signature(self) -> inspect.Signature:
        """Return the signature of ``reference`` or ``Model.forward`` (without self)."""
        if self.form is TaskForm.NATIVE:
            return inspect.signature(self.namespace["reference"])
        # from the class: a Model built here could have fake tensors
        signature = inspect.signature(self.namespace["Model"].forward)
        return signature.replace(parameters=list(signature.parameters.values())[1:])

    # -- for the description and the audit

    def call(self, args: Sequence[Any], model: Any = None) -> Any:
        """Return the reference's raw result for flattened arguments."""
        if self.form is TaskForm.NATIVE:
            arguments = [to_numpy(a) for a in args] if self.numpy else list(args)
            positional, keywords = self.bind(arguments)
            # NumPy warns of overflows in values that nothing reads; the comparison reports results that are not finite
            with quiet_numpy() if self.numpy else nullcontext():
                return self._guard("reference", self.namespace["reference"], *positional, **keywords)
        from torch.func import functional_call

        model = model if model is not None else self.model(device_of(args))
        state = model.state_dict()
        split = len(args) - len(state)
        positional, keywords = self.bind(args[:split])
        values = dict(zip(state, args[split:], strict=True))
        with self.calling:
            return self._guard("Model.forward", functional_call, model, values, tuple(positional), keywords)

    def raw_inputs(self, sizes: Mapping[str, int]) -> list[Any]:
        """Return a kernel's arguments among the values of ``inputs`` or ``get_inputs``: tensors and scalars only."""
        import torch

        native = self.form is TaskForm.NATIVE
        if self.listed:
            what = LISTS[native]
            inputs, slots = inputs_at(lambda: self._guard(what, self.namespace[what]), self.listed, dict(sizes), what)
        else:
            what = "inputs" if native else "get_inputs"
            values = self._guard(what, self.namespace[what], **(sizes if native else {}))
            values = list(values) if isinstance(values, (tuple, list)) else [values]
            slots = slots_of(values, what)
            inputs = arguments(values, slots)
            if any(isinstance(a, torch.Tensor) and a.device.type == "meta" for a in inputs):
                raise TaskError(
                    f"{what}() gives a tensor on the device meta, which has no values.", "Make it on the CPU."
                )
            if values and not inputs:
                raise TaskError(
                    f"{what}() gives a {type(values[0]).__name__} and no tensor.", "Give what the kernel computes from."
                )
        if self.slots not in (None, slots):
            raise TaskError(
                f"What {what}() gives besides tensors and numbers changes between sizes or between draws.",
                "Keep words, None and lists of sizes the same, or let the reference read sizes from its tensors.",
            )
        self.slots = slots
        return inputs

    def argument_names(self) -> list[str]:
        """Return the names of the values of :meth:`raw_inputs`."""
        slots = self.placed()
        names = [p.name for p in self.parameters()]
        return holes(slots, [*names, *(f"arg{i}" for i in range(len(names), len(slots)))][: len(slots)])

    def placed(self) -> tuple[Slot, ...]:
        """Return the places of a call's values."""
        if self.slots is None:
            with seeded(0):
                self.raw_inputs(self.default_sizes())
        assert self.slots is not None
        return self.slots

    def narrow(self) -> bool:
        """Reduce a listed task: first to Dims from the smallest case on, then to the main case alone. Returns False if
        it cannot be reduced."""
        if not self.listed or not self.dims:
            return False
        lower = self.listed.at_least(low=False)
        self.listed = lower if self.dims != lower.dims else self.listed.fixed()
        self.dims, self.slots = self.listed.dims, None
        return True

    def model(self, device: Any = None) -> Any:
        """Return the Model, built once for each device with seed 0."""
        key = str(device or "cpu")
        if key not in self._models:
            model = self.new_model()
            self._models[key] = model.to(device) if device is not None else model
        return self._models[key]

    def new_model(self) -> Any:
        """Return a new Model with seed 0, in the active mode or on the active device: as it is built (in training mode
        by default), or in eval mode if :attr:`evaluates`."""
        model = self._built()
        return model.eval() if self.evaluates else model

    @property
    def evaluates(self) -> bool:
        """Is the Model random in training mode (dropout)? Then a kernel is compared with eval mode."""
        if self._evaluates is None:
            self._evaluates = self.form is TaskForm.KERNELBENCH and (
                may_draw(self._built(), self.text) or draws_by_itself(self.text, self._forward)
            )
        return self._evaluates

    def _forward(self, trains: bool, watch: AbstractContextManager[Any]) -> None:
        """Call a Model once on fake inputs, inside ``watch``: as it is built (in training mode by default), or in eval
        mode."""

        # tensors that a reference keeps from this run have no values
        other = task_module(self.name, self.text, False)

        def run() -> None:
            model = other._built() if trains else other._built().eval()
            args = other.raw_inputs(other.default_sizes())
            arguments = [*args, *model.state_dict().values()]
            with watch:
                other.call(arguments, model)

        without_memory(run)

    def _built(self) -> Any:
        with seeded(0):
            positional, keywords = self.init_arguments()
            return self._guard("Model", self.namespace["Model"], *positional, **keywords)

    def init_arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments of the Model's constructor."""
        init = self.namespace.get("get_init_inputs")
        return _init_arguments(self._guard("get_init_inputs", init) if init else [])

    def state_of(self, seed: int) -> tuple[Tensor, ...]:
        """Return the values of :meth:`state` of a Model constructed directly after the generators were set to ``seed``;
        empty for the native form."""
        if self.form is TaskForm.NATIVE:
            return ()
        positional, keywords = self.init_arguments()
        with seeded(seed):
            model = self._guard("Model", self.namespace["Model"], *positional, **keywords)
        return tuple(v.detach() for v in model.state_dict().values())

    def state(self) -> dict[str, Tensor]:
        """Return the Model's parameters and buffers in state_dict order; empty for the native form."""
        if self.form is TaskForm.NATIVE:
            return {}
        with self.calling:
            return {k: v.detach() for k, v in self.model().state_dict().items()}

    def flatten(self, result: Any) -> tuple[Tensor, ...]:
        """Return every output as a tensor, in order; none if the reference only writes into its arguments."""
        outputs = tuple(as_tensor(v, number=True) for v in outputs_of(result))
        if not outputs and not self.written:
            raise TaskError(
                "The reference returns nothing that a kernel could compute.", "Return a tensor or a tuple of tensors."
            )
        return outputs

    # -- internal

    def _form(self) -> TaskForm:
        has = self.namespace.__contains__
        if has("reference"):
            if not callable(self.namespace["reference"]):
                raise TaskError("`reference` is not a function.", "Write def reference(...).")
            if not any(callable(self.namespace.get(name)) for name in ("inputs", LISTS[1])):
                raise TaskError(
                    "The task defines reference but no inputs().",
                    "Add def inputs(): that returns the reference's arguments as a tensor, tuple or list.",
                )
            return TaskForm.NATIVE
        if has("Model"):
            if not any(callable(self.namespace.get(name)) for name in ("get_inputs", LISTS[0])):
                raise TaskError(
                    "The task defines Model but no get_inputs().", "Add get_inputs() as KernelBench has it."
                )
            return TaskForm.KERNELBENCH
        raise TaskError("The task defines no reference.", _FORMS)

    def _listed(self) -> Listed | None:
        what = LISTS[self.form is TaskForm.NATIVE]
        if not callable(self.namespace.get(what)):
            return None
        chosen = self.namespace.get(CHOSEN)

        def known() -> Listed:
            with seeded(0):
                return listed(self._guard(what, self.namespace[what]), chosen, what)

        try:
            return without_memory(known)
        except TooLong:
            raise
        except TaskError:
            # inputs that need values are drawn for real; any other fault occurs again
            return known()

    def _dims(self) -> tuple[Dim, ...]:
        dims: dict[str, Dim] = {}
        for value in self.namespace.values():
            for dim in value if isinstance(value, (tuple, list)) else (value,):
                if isinstance(dim, Dim) and dims.setdefault(dim.name, dim) != dim:
                    raise TaskError(f"Two Dims are named {dim.name}.", "Give each Dim its own name.")
        if not dims:
            return ()
        if self.form is TaskForm.KERNELBENCH:
            raise TaskError("A task with Model and get_inputs has fixed shapes.", "State it with reference and inputs.")
        parameters = inspect.signature(self.namespace["inputs"]).parameters
        for dim in dims.values():
            if dim.name not in parameters:
                raise TaskError(
                    f"inputs() does not take the Dim {dim.name}.",
                    f"Write def inputs({', '.join(dims)}), with defaults.",
                )
            default = parameters[dim.name].default
            if isinstance(default, int) and not dim.min <= default <= dim.max:
                raise TaskError(
                    f"The default {dim.name}={default} of inputs() lies outside its Dim ({dim.min} to {dim.max}).",
                    "Change the default or the Dim's range.",
                )
        return tuple(sorted(dims.values(), key=lambda d: list(parameters).index(d.name)))

    def _all_sizes(self, sizes: Mapping[str, int] | None) -> dict[str, int]:
        unknown = set(sizes or ()) - {d.name for d in self.dims}
        if unknown:
            raise TaskError(f"The task has no Dim named {sorted(unknown)[0]}.", "Name the Dims that it declares.")
        return {**self.default_sizes(), **(sizes or {})}

    def _with_defaults(self, inputs: Sequence[Any]) -> list[Any]:
        return [*inputs, *(p.default for p in self.trailing_scalars(len(self.placed())))]

    def trailing_scalars(self, count: int) -> list[inspect.Parameter]:
        """Return the reference's parameters after the first ``count`` whose defaults are numbers."""
        return [p for p in self.parameters()[count:] if isinstance(p.default, (bool, int, float))]

    def untried(self) -> tuple[tuple[str, str], ...]:
        """Return what a verdict has one value of: the parameters whose defaults are not numbers and that inputs() does
        not set, and the arguments of a Model's constructor; names and values as code."""
        rest = self.parameters()[len(self.placed()) :]
        fixed = [(p.name, p.default) for p in rest if not isinstance(p.default, (bool, int, float))]
        if self.form is not TaskForm.NATIVE:
            positional, keywords = self.init_arguments()
            bound = inspect.signature(self.namespace["Model"]).bind(*positional, **keywords)
            fixed += bound.arguments.items()
        # on one line, and without addresses, which differ each time
        texts = ((name, re.sub(r" at 0x[0-9a-f]+", "", repr(value))) for name, value in fixed)
        return tuple((name, " ".join(text.split())[:60]) for name, text in texts)

    def parameters(self) -> list[inspect.Parameter]:
        """Return the reference's parameters without ``*args`` and ``**kwargs``."""
        kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        return [p for p in self.call_signature.parameters.values() if p.kind not in kinds]

    def bind(self, values: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        rest = iter(values)
        inputs = filled(self.placed(), rest)
        parameters = self.parameters()
        # parameters after *args have no position
        open_ended = any(p.kind is p.VAR_POSITIONAL for p in self.call_signature.parameters.values())
        in_place = [p for p in parameters if not (open_ended and p.kind is p.KEYWORD_ONLY)]
        positional: list[Any] = []
        keywords: dict[str, Any] = {}
        for i, value in enumerate(inputs):
            if i < len(in_place) and (keywords or in_place[i].kind is inspect.Parameter.KEYWORD_ONLY):
                keywords[in_place[i].name] = value
            else:
                positional.append(value)
        for parameter, value in zip(self.trailing_scalars(len(inputs)), rest, strict=False):
            keywords[parameter.name] = value
        return positional, keywords


def _init_arguments(listed: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return positional and keyword arguments from KernelBench's list, from ``[args, kwargs]`` or from a dict."""
    if isinstance(listed, Mapping):
        return [], dict(listed)
    listed = list(listed)
    if len(listed) == 2 and isinstance(listed[0], (list, tuple)) and isinstance(listed[1], Mapping):
        return list(listed[0]), dict(listed[1])
    return listed, {}


@lru_cache(maxsize=64)
def task_module(name: str, text: str, memory: bool = True) -> TaskModule:
    """Return the running module of a task's text, made once in each process. Without ``memory`` it is the module for
    runs without memory, whose tensors a reference may keep (a table in an ``lru_cache``)."""
    return TaskModule(name, text)


def forget_modules() -> None:
    """Release all tasks' modules and their weights; they are made again on demand."""
    task_module.cache_clear()
