"""Definitions and workloads of flashinfer-bench and SOL-ExecBench: operators in JSON, sizes in JSON lines.

A definition names its axes (constant, variable, computed), inputs, outputs, and a reference ``run`` as text; a workload
has the sizes of the variable axes and the origin of each input. Variable axes become Dims if all inputs are random and
the definition's constraints are equations of axes; else the task has the sizes of one workload."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Literal

from jinja2 import Environment, StrictUndefined, Template
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kernellab import python_tree
from kernellab.bench.suites.record import Asked, SuiteTask
from kernellab.errors import TaskError, counted, refused
from kernellab.task import identifier

#: the size of a variable axis without a workload; chosen, not measured
_DEFAULT_SIZE = 256
#: the operator's name in a reference
_RUN = "run"


class _Part(BaseModel):
    """A part of a definition or workload; keys that are not named here are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Axis(_Part):
    """An axis: ``const`` has a value, ``expr`` an expression over other axes, ``var`` a size in each workload."""

    type: Literal["const", "var", "expr"]
    value: int | None = None
    expression: str = ""


class Tensor(_Part):
    """``shape`` has names of axes; None means a Python number."""

    shape: tuple[str, ...] | None
    dtype: str


class Definition(_Part):
    """One operator: its axes, tensors by name, and the reference as Python text."""

    name: str = Field(min_length=1)
    op_type: str | None = None
    axes: dict[str, Axis]
    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]
    reference: str
    constraints: tuple[str, ...] | None = None
    custom_inputs_entrypoint: str | None = None


class Input(_Part):
    """The origin of one input of a workload: drawn, a number, stored in a file, or made by a function."""

    type: Literal["random", "scalar", "safetensors", "custom"]
    value: bool | int | float | None = None
    path: str = ""
    tensor_key: str = ""


class Workload(_Part):
    """Sizes of the variable axes, and the origin of each input."""

    axes: dict[str, int]
    inputs: dict[str, Input]


def flashinfer(asked: Asked) -> list[tuple[str, SuiteTask]]:
    """``definitions/**/NAME.json`` with ``workloads/**/NAME.jsonl``; ``--only ^gemm/`` takes an operator's type."""
    root = Path(asked.rest)
    files = sorted(p for p in root.rglob("*.json") if "definitions" in p.relative_to(root).parts[:-1])
    workloads = {p.stem: p for p in sorted(root.rglob("*.jsonl")) if "workloads" in p.relative_to(root).parts[:-1]}
    return _tasks([(p, workloads.get(p.stem)) for p in files], root, "definitions/NAME.json")


def solexec(asked: Asked) -> list[tuple[str, SuiteTask]]:
    """Folders with a ``definition.json`` and a ``workload.jsonl``; a task's category is the name of the parent
    folder."""
    root = Path(asked.rest)
    files = sorted(root.rglob("definition.json"))
    return _tasks([(p, p.with_name("workload.jsonl")) for p in files], root, "definition.json")


def _tasks(files: Sequence[tuple[Path, Path | None]], root: Path, layout: str) -> list[tuple[str, SuiteTask]]:
    if not files:
        raise TaskError(f"There is no {layout} in {str(root)!r}.", "Name a folder with such definitions.")
    tasks = []
    for path, lines in files:
        of_folder = lines is not None and path.parent == lines.parent
        above = (path.parent.parent if of_folder else path.parent).name
        try:
            definition = _read(path)
            workloads = list(_workloads(lines)) if lines is not None and lines.is_file() else []
            name, category = definition.name, definition.op_type or above
            text, note = task_text(definition, workloads, root)
        except TaskError as error:
            # the suite's other tasks run: this one fails with the sentence, and counts as failed
            name, category = path.parent.name if of_folder else path.stem, above
            text, note = f"raise ValueError({str(error)!r})\n", str(error)
        tasks.append((f"{category}/{name}", SuiteTask(identifier(name), category, text, name, large=True, note=note)))
    return tasks


def _read(path: Path) -> Definition:
    try:
        return Definition.model_validate_json(path.read_text(encoding="utf-8"))
    except (ValidationError, OSError) as error:
        raise TaskError(
            f"{path} is not a definition: {_first(error)}.", "Correct that file, or leave it out."
        ) from None


def _workloads(path: Path) -> Iterator[Workload]:
    """Yield the workloads; each line is a workload, or a trace with one."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            yield Workload.model_validate(record.get("workload", record))
        except (ValueError, AttributeError) as error:
            raise TaskError(
                f"Line {number} of {path} is not a workload: {_first(error)}.", "Correct that line."
            ) from None


def _first(error: Exception) -> str:
    if isinstance(error, ValidationError):
        fault = error.errors()[0]
        return refused(fault, ".".join(map(str, fault["loc"])))
    return str(error).splitlines()[0].rstrip(".")


def task_text(definition: Definition, workloads: Sequence[Workload], root: Path) -> tuple[str, str]:
    """Return the task of a definition at its middle workload, as a module's text, and notes on decisions.

    Raises:
        TaskError: an axis, expression or input that the schema does not have.
    """
    ordered = sorted(workloads, key=lambda w: prod(w.axes.values()))
    chosen = ordered[len(ordered) // 2] if ordered else Workload(axes={}, inputs={})
    derived, rest = _derived(definition)
    variable = [n for n, a in definition.axes.items() if a.type == "var" and n not in derived]
    fixed = rest or any(i.type in ("safetensors", "custom") for i in chosen.inputs.values())
    run = _function(definition)
    text = _template().render(
        definition=definition,
        run=run.name if run is not None else _RUN,
        sizes={n: chosen.axes.get(n, _DEFAULT_SIZE) for n in variable},
        most={n: max([w.axes[n] for w in workloads if n in w.axes], default=_DEFAULT_SIZE) for n in variable},
        dynamic=bool(variable) and not fixed,
        derived=derived,
        inputs=[_input(definition, chosen, name, root) for name in definition.inputs],
        scalars={n: i.value for n, i in chosen.inputs.items() if i.type == "scalar"},
        custom=any(i.type == "custom" for i in chosen.inputs.values()),
        passes_outputs=_passes_outputs(definition, run, derived),
    )
    noted = [f"the middle one of {counted(len(workloads), 'workload')}"] if len(workloads) > 1 else []
    noted += ["its sizes are fixed: its inputs depend on them"] if fixed and variable else []
    return text, ", ".join(noted)


def _derived(definition: Definition) -> tuple[dict[str, str], list[str]]:
    """Return the computed axes with their expressions, and the constraints that are not equations of axes."""
    derived = {n: _expression(a.expression, definition) for n, a in definition.axes.items() if a.type == "expr"}
    rest = []
    for constraint in definition.constraints or ():
        name, equals, expression = (part.strip() for part in constraint.partition("=="))
        names = _names(expression) if equals else {""}
        axis = definition.axes.get(name)
        is_free = axis is not None and axis.type == "var" and name not in derived
        if is_free and names <= definition.axes.keys() - derived:
            derived[name] = _expression(expression, definition)
        else:
            rest.append(constraint)
    return derived, rest


def _names(expression: str) -> set[str]:
    """Return the names in an expression, with "" if it is more than arithmetic."""
    try:
        nodes = list(ast.walk(python_tree.parse(expression, mode="eval").body))
    except SyntaxError:
        return {""}
    named = [n for n in nodes if isinstance(n, (ast.Name, ast.Call, ast.Attribute, ast.Subscript))]
    return {n.id if isinstance(n, ast.Name) else "" for n in named}


def _expression(text: str, definition: Definition) -> str:
    if not text or not _names(text) <= definition.axes.keys():
        raise TaskError(
            f"{text!r} of {definition.name} is not an expression over its axes.", "Use names of axes and + - * //."
        )
    # sizes are whole numbers
    return re.sub(r"(?<!/)/(?!/)", "//", text)


def _input(definition: Definition, workload: Workload, name: str, root: Path) -> str:
    """Return the expression that makes one input."""
    spec, source = definition.inputs[name], workload.inputs.get(name, Input(type="random"))
    unknown = [axis for axis in spec.shape or () if axis not in definition.axes]
    if unknown:
        raise TaskError(f"The input {name} of {definition.name} has no axis {unknown[0]!r}.", "Declare it among axes.")
    if source.type == "custom":
        return f"custom[{name!r}]"
    if source.type == "safetensors":
        return f"stored({str(_blob(root, source.path))!r}, {source.tensor_key!r})"
    if source.type == "scalar":
        return repr(source.value)
    if spec.shape is None:
        return {"bool": "True"}.get(spec.dtype, "1.0" if "float" in spec.dtype else "1")
    return f"drawn([{', '.join(spec.shape)}], {spec.dtype!r})"


def _blob(root: Path, path: str) -> Path:
    """Return a stored file, below ``root`` or a folder next to it: a path may begin with folders that the checkout does
    not have."""
    parts = Path(path).parts
    places = [base.joinpath(*parts[skipped:]) for base in (root, *root.parents[:2]) for skipped in range(len(parts))]
    return next((p.resolve() for p in places if p.is_file()), root / path)


def _function(definition: Definition) -> ast.FunctionDef | None:
    """Return the operator in the reference: ``run``, or the one function whose parameters are the inputs' names, as in
    FlashInfer's traces; None if the reference cannot be parsed. Raises TaskError: there is neither."""
    try:
        tree = python_tree.parse(definition.reference)
    except SyntaxError:
        return None
    functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
    fitting = [f for f in functions.values() if [a.arg for a in f.args.args] == list(definition.inputs)]
    if (operator := functions.get(_RUN) or (fitting[0] if len(fitting) == 1 else None)) is None:
        raise TaskError(
            f"The reference of {definition.name} defines no run().",
            "Define run(inputs...) in it, or one function with the inputs' names.",
        )
    return operator


def _passes_outputs(definition: Definition, run: ast.FunctionDef | None, derived: Mapping[str, str]) -> bool:
    """Does ``run`` take its outputs, to write into, after its inputs?"""
    if run is None or len(run.args.args) != len(definition.inputs) + len(definition.outputs):
        return False
    of_inputs = {axis for spec in definition.inputs.values() for axis in spec.shape or ()}
    unsized = [n for n, a in definition.axes.items() if a.type == "var" and n not in of_inputs | derived.keys()]
    if unsized:
        raise TaskError(
            f"The outputs of {definition.name} need the axis {unsized[0]}, which no input has.",
            "Let run() return its outputs.",
        )
    return True


@lru_cache(maxsize=1)
def _template() -> Template:
    text = Path(__file__).with_name("definition.py.j2").read_text(encoding="utf-8")
    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    return environment.from_string(text)
