"""Runs a task's module text: finds the form, samples inputs, calls the reference."""

from __future__ import annotations

import builtins
import hashlib
import inspect
import linecache
import random
import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kernellab.errors import KernellabError, TaskError
from kernellab.task import Dim, Task, TaskForm

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

DEFAULT_SIZE = 1024
#: sessions sample in threads of their own
_SEEDING = threading.RLock()
_DEFINE_IT = "Define or import it in this cell: a task's text runs on its own, not in the notebook's namespace."
_FORMS = "Define reference(...) and inputs(...), or KernelBench's Model and get_inputs."


class TaskModule:
    """The module that a task's text makes, with one way in for both forms.

    Raises:
        TaskError: the text has a syntax error, raises, or lacks what its form needs.
    """

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self.hash = hashlib.sha256(text.encode()).hexdigest()[:16]
        self.filename = f"<task {name} {self.hash}>"
        self.namespace = self._execute()
        self.form = self._form()
        self.dims = self._dims()
        self._models: dict[str, Any] = {}
        #: the reference writes into its own arguments, so it gets copies
        self.mutates = False
        #: the reference works on NumPy arrays
        self.numpy = False
        #: fake tensors do not carry it: shapes are found by real runs
        self.needs_values = False

    # -- what the verifier, the designer and the session call

    @property
    def task(self) -> Task:
        from kernellab.task import load_task

        return load_task(self.text, self.name)

    def default_sizes(self) -> dict[str, int]:
        """The sizes that the task states (the defaults of ``inputs``), by Dim."""
        if not self.dims:
            return {}
        parameters = inspect.signature(self.namespace["inputs"]).parameters
        sizes = {}
        for dim in self.dims:
            default = parameters[dim.name].default
            sizes[dim.name] = int(default) if isinstance(default, int) else min(max(DEFAULT_SIZE, dim.min), dim.max)
        return sizes

    def sample(self, sizes: Mapping[str, int] | None = None, seed: int = 0) -> tuple[Any, ...]:
        """The flattened arguments exactly as ``kernel(*args)`` gets them: tensors (CPU unless the task says
        otherwise) and Python scalars, then the Model's state in state_dict order.

        ``seed`` sets torch's, NumPy's and Python's generators, and leaves them as they were. Parameters and buffers
        are the Model's own; ``task_inputs.redraw`` gives random ones.
        """
        with seeded(seed):
            given = self.raw_inputs(self._all_sizes(sizes))
        return (*(as_tensor(v) for v in self._with_defaults(given)), *self.state().values())

    def reference(self, args: Sequence[Any]) -> tuple[Tensor, ...]:
        """The reference's outputs, flattened, on the device and in the dtypes of ``args``; no gradients, eval mode."""
        import torch

        if self.mutates:
            args = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
        device = next((a.device for a in args if isinstance(a, torch.Tensor)), torch.device("cpu"))
        with torch.no_grad():
            if device.type in ("cpu", "meta"):
                return self.flatten(self.call(args))
            with torch.device(device):
                return self.flatten(self.call(args))

    @property
    def call_signature(self) -> inspect.Signature:
        """The signature of ``reference`` or ``Model.forward`` (without self)."""
        if self.form is TaskForm.NATIVE:
            return inspect.signature(self.namespace["reference"])
        # read from the class, for a Model built here could be one of fake tensors
        signature = inspect.signature(self.namespace["Model"].forward)
        return signature.replace(parameters=list(signature.parameters.values())[1:])

    @property
    def kernel_parameters(self) -> tuple[str, ...]:
        """The names of ``kernel``'s parameters in order."""
        return tuple(a.name for a in self.task.args)

    # -- steps that the description and the audit share

    def call(self, args: Sequence[Any], model: Any = None) -> Any:
        """The reference on flattened arguments, its raw result."""
        if self.form is TaskForm.NATIVE:
            given = [to_numpy(a) for a in args] if self.numpy else list(args)
            positional, keywords = self._bind(given)
            return self._guard("reference", self.namespace["reference"], *positional, **keywords)
        from torch.func import functional_call

        model = model if model is not None else self.model(_device(args))
        state = model.state_dict()
        split = len(args) - len(state)
        positional, keywords = self._bind(args[:split])
        values = dict(zip(state, args[split:], strict=True))
        return self._guard("Model.forward", functional_call, model, values, tuple(positional), keywords)

    def raw_inputs(self, sizes: Mapping[str, int]) -> list[Any]:
        """What ``inputs`` or ``get_inputs`` gives, as a list, checked to be tensors and scalars only."""
        if self.form is TaskForm.NATIVE:
            what = "inputs"
            values = self._guard(what, self.namespace["inputs"], **sizes)
        else:
            what = "get_inputs"
            values = self._guard(what, self.namespace["get_inputs"])
        values = list(values) if isinstance(values, (tuple, list)) else [values]
        for i, value in enumerate(values):
            if not (is_array(value) or isinstance(value, (bool, int, float))):
                raise TaskError(
                    f"{what}() gives a {type(value).__name__} as value {i + 1}, which no kernel argument can be.",
                    "Give tensors, NumPy arrays and numbers only.",
                )
        return values

    def model(self, device: Any = None) -> Any:
        """The Model, built once a device with seed 0, in eval mode."""
        key = str(device or "cpu")
        if key not in self._models:
            model = self.new_model()
            self._models[key] = model.to(device) if device is not None else model
        return self._models[key]

    def new_model(self) -> Any:
        """A fresh Model with seed 0, in eval mode, on whatever mode or device is active."""
        init = self.namespace.get("get_init_inputs")
        with seeded(0):
            given = self._guard("get_init_inputs", init) if init else []
            positional, keywords = _init_arguments(given)
            return self._guard("Model", self.namespace["Model"], *positional, **keywords).eval()

    def state(self) -> dict[str, Tensor]:
        """The Model's parameters and buffers in state_dict order; empty for the native form."""
        if self.form is TaskForm.NATIVE:
            return {}
        return {k: v.detach() for k, v in self.model().state_dict().items()}

    def flatten(self, result: Any) -> tuple[Tensor, ...]:
        """Every output as a tensor, in order."""
        outputs = tuple(as_tensor(v, number=True) for v in _leaves(result))
        if not outputs:
            raise TaskError(
                "The reference returns nothing that a kernel could compute.", "Return a tensor or a tuple of tensors."
            )
        return outputs

    # -- inside

    def _execute(self) -> dict[str, Any]:
        linecache.cache[self.filename] = (len(self.text), None, self.text.splitlines(keepends=True), self.filename)
        try:
            code = compile(self.text, self.filename, "exec", dont_inherit=True)
        except SyntaxError as error:
            raise TaskError(
                f"The task has a syntax error on line {error.lineno}: {error.msg}.", "Mend that line and run it again."
            ) from None
        except ValueError as error:
            raise TaskError(f"The task's text cannot be compiled: {error}.", "Give plain Python text.") from None
        module = types.ModuleType(f"kernellab_task_{self.hash}")
        module.__file__ = self.filename
        # dataclasses and pickle look a class's module up by name
        sys.modules[module.__name__] = module
        self._guard("the task's text", exec, code, module.__dict__)
        return module.__dict__

    def _form(self) -> TaskForm:
        has = self.namespace.__contains__
        if has("reference"):
            if not callable(self.namespace["reference"]):
                raise TaskError("`reference` is not a function.", "Write def reference(...).")
            if not callable(self.namespace.get("inputs")):
                raise TaskError(
                    "The task defines reference but no inputs().",
                    "Add def inputs(): that returns the reference's arguments as a tensor, tuple or list.",
                )
            return TaskForm.NATIVE
        if has("Model"):
            if not callable(self.namespace.get("get_inputs")):
                raise TaskError(
                    "The task defines Model but no get_inputs().", "Add get_inputs() as KernelBench has it."
                )
            return TaskForm.KERNELBENCH
        raise TaskError("The task defines no reference.", _FORMS)

    def _dims(self) -> tuple[Dim, ...]:
        found: dict[str, Dim] = {}
        for value in self.namespace.values():
            for dim in value if isinstance(value, (tuple, list)) else (value,):
                if isinstance(dim, Dim) and found.setdefault(dim.name, dim) != dim:
                    raise TaskError(f"Two Dims are named {dim.name}.", "Give each Dim its own name.")
        if not found:
            return ()
        if self.form is TaskForm.KERNELBENCH:
            raise TaskError("A task with Model and get_inputs has fixed shapes.", "State it with reference and inputs.")
        parameters = inspect.signature(self.namespace["inputs"]).parameters
        for dim in found.values():
            if dim.name not in parameters:
                raise TaskError(
                    f"inputs() does not take the Dim {dim.name}.",
                    f"Write def inputs({', '.join(found)}), with defaults.",
                )
            default = parameters[dim.name].default
            if isinstance(default, int) and not dim.min <= default <= dim.max:
                raise TaskError(
                    f"The default {dim.name}={default} of inputs() lies outside its Dim ({dim.min} to {dim.max}).",
                    "Change the default or the Dim's range.",
                )
        return tuple(sorted(found.values(), key=lambda d: list(parameters).index(d.name)))

    def _all_sizes(self, sizes: Mapping[str, int] | None) -> dict[str, int]:
        unknown = set(sizes or ()) - {d.name for d in self.dims}
        if unknown:
            raise TaskError(f"The task has no Dim named {sorted(unknown)[0]}.", "Name the Dims that it declares.")
        return {**self.default_sizes(), **(sizes or {})}

    def _with_defaults(self, given: Sequence[Any]) -> list[Any]:
        return [*given, *(p.default for p in self.trailing_scalars(len(given)))]

    def trailing_scalars(self, given: int) -> list[inspect.Parameter]:
        """The reference's parameters behind the first ``given`` whose defaults are numbers."""
        return [p for p in self.parameters()[given:] if isinstance(p.default, (bool, int, float))]

    def parameters(self) -> list[inspect.Parameter]:
        """The reference's parameters that can be given one by one."""
        kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        return [p for p in self.call_signature.parameters.values() if p.kind not in kinds]

    def _bind(self, values: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        parameters = self.parameters()
        given = len(values)
        names = [p.name for p in parameters[:given]]
        # scalars may lie behind a parameter whose default is no number and so is not an argument of the kernel
        for count in range(given + 1):
            if count + len(self.trailing_scalars(count)) == given:
                names = [p.name for p in [*parameters[:count], *self.trailing_scalars(count)]]
        by_name = {p.name: p for p in parameters}
        positional: list[Any] = []
        keywords: dict[str, Any] = {}
        for i, value in enumerate(values):
            name = names[i] if i < len(names) else ""
            in_place = i < len(parameters) and parameters[i].name == name
            if not name or (in_place and by_name[name].kind is not inspect.Parameter.KEYWORD_ONLY and not keywords):
                positional.append(value)
            else:
                keywords[name] = value
        return positional, keywords

    def _guard(self, what: str, function: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
        """Calls the task's code; whatever it raises becomes one sentence with the line."""
        try:
            return function(*args, **keywords)
        except KernellabError:
            raise
        except (Exception, SystemExit) as error:
            raise self._explain(what, error) from error

    def _explain(self, what: str, error: BaseException) -> TaskError:
        line = self._line(error)
        at = f" at line {line}" if line else ""
        if isinstance(error, NameError) and error.name and not hasattr(builtins, error.name):
            return TaskError(f"The name {error.name!r} is not defined{at} of the task.", _DEFINE_IT)
        if isinstance(error, ImportError):
            return TaskError(f"The task imports what is not here{at}: {error}.", "Install it, or do without it.")
        shown = what if " " in what else f"{what}()"
        text = next(iter(str(error).strip().splitlines()), "").rstrip(".")
        # a function keeps its name as it is written
        shown = shown[:1].upper() + shown[1:] if " " in shown else shown
        message = f"{shown} raises {type(error).__name__}{at}{': ' + text if text else ''}."
        if what in ("reference", "Model.forward"):
            return TaskError(message, "See that inputs() gives what the reference takes, and that it runs on its own.")
        return TaskError(message, "Mend it: it must run on its own.")

    def _line(self, error: BaseException) -> int | None:
        line, trace = None, error.__traceback__
        while trace:
            if trace.tb_frame.f_code.co_filename == self.filename:
                line = trace.tb_lineno
            trace = trace.tb_next
        return line


# -- values ------------------------------------------------------------------------------------------------------------


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Sets torch's, NumPy's and Python's generators to ``seed`` and restores them (device generators excepted).

    One thread at a time: the generators are the process's.
    """
    import numpy as np
    import torch

    with _SEEDING:
        numpy_state, python_state = np.random.get_state(), random.getstate()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            np.random.seed(seed % 2**32)
            random.seed(seed)
            try:
                yield
            finally:
                np.random.set_state(numpy_state)
                random.setstate(python_state)


def is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def as_tensor(value: Any, number: bool = False) -> Any:
    """NumPy arrays as tensors that share their memory where that is possible; ``number`` also takes numbers."""
    import numpy as np
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach()
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.ascontiguousarray(value) if np.ndim(value) else np.array(value)
        try:
            return torch.from_numpy(array if array.flags.writeable else array.copy())
        except TypeError:
            raise TaskError(
                f"An array of NumPy dtype {array.dtype} has no tensor dtype.", "Use a float, integer or bool dtype."
            ) from None
    if number:
        return torch.as_tensor(value)
    return value


def to_numpy(value: Any) -> Any:
    import torch

    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else value


def _leaves(result: Any) -> Iterator[Any]:
    if isinstance(result, Mapping):
        result = tuple(result.values())
    if isinstance(result, (tuple, list)):
        for item in result:
            yield from _leaves(item)
    elif is_array(result) or isinstance(result, (bool, int, float)):
        yield result
    elif result is not None:
        raise TaskError(
            f"The reference returns a {type(result).__name__}, which no kernel can compute.",
            "Return a tensor, or a tuple of tensors and numbers.",
        )


def _init_arguments(given: Any) -> tuple[list[Any], dict[str, Any]]:
    """KernelBench's list of positional arguments; also ``[args, kwargs]`` and a bare dict."""
    if isinstance(given, Mapping):
        return [], dict(given)
    given = list(given)
    if len(given) == 2 and isinstance(given[0], (list, tuple)) and isinstance(given[1], Mapping):
        return list(given[0]), dict(given[1])
    return given, {}


def _device(args: Sequence[Any]) -> Any:
    import torch

    device = next((a.device for a in args if isinstance(a, torch.Tensor)), None)
    return device if device is not None and device.type not in ("cpu", "meta") else None
