"""A model's graph: the operations of one call, each with its module, over the model's own parameters.

The graph is torch.export's, before anything is decomposed, so that its operations are those that eager dispatches. A
model that cannot be exported as a whole is taken apart into the largest of its modules that can.
"""

from __future__ import annotations

import io
import logging
import re
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.export.graph_signature import InputKind
from torch.fx import Node
from torch.utils._pytree import tree_leaves

from kernellab.model_integration.objects import Form, plain_outputs
from kernellab.model_integration.sources import Call, Workload
from kernellab.operations.aten import Copies, copies_of
from kernellab.task.faking import tracing

if TYPE_CHECKING:
    Module = torch.nn.Module

#: where the model's own code stands in a message of the tracer's
_PLACE = re.compile(r'(?:File "[^"]*", line |\([^()\n]*:)(\d+),? in forward\b')
#: a module of more operations than this is taken apart instead
_MOST_NODES = 6000


@dataclass(frozen=True)
class Op:
    """One operation: its place in the graph, its word (``layer_norm``), and its module's path in the model."""

    index: int
    node: Node
    word: str
    path: str

    @property
    def name(self) -> str:
        return self.node.name


@dataclass(frozen=True, eq=False)
class Unit:
    """A module (``path`` in the model, "" for the model) whose call is one graph of plain operations.

    ``inputs`` are the placeholders, in the order of the flattened call; ``state`` maps a node to a parameter's or
    buffer's path below the module, ``constants`` to a tensor that the call makes itself. ``form`` makes the call's
    outputs of the graph's, where they hold an object that torch's trees do not know.
    """

    path: str
    module: Module
    ops: tuple[Op, ...]
    inputs: tuple[Node, ...]
    state: dict[Node, str]
    constants: dict[Node, Any]
    outputs: Any
    call: Call
    in_spec: Any
    out_spec: Any
    by_node: dict[Node, Op] = field(repr=False)
    form: Form | None = None


@dataclass(frozen=True)
class Problem:
    """Why a part of a model (its path, "" for the whole) has no graph, and what to do; sentences without full stops."""

    path: str
    reason: str
    remedy: str

    @property
    def text(self) -> str:
        return f"{self.path or 'the whole model'}: {self.reason}. {self.remedy}."


@dataclass(frozen=True)
class Captured:
    """The units of a model, and why a part of it has none."""

    units: tuple[Unit, ...]
    problems: tuple[Problem, ...] = ()


def capture_model(workload: Workload) -> Captured:
    """The graphs of the model: one where it can be exported whole, else one for each of its largest parts."""
    units: list[Unit] = []
    problems: list[Problem] = []
    calls: dict[str, Call] = {"": workload.draw(0)}
    looked = False
    open_ = [""]
    while open_:
        path = open_.pop(0)
        if path not in calls:
            continue
        module = workload.model.get_submodule(path)
        try:
            units.append(_unit(path, module, calls[path]))
            continue
        except Exception as error:  # whatever the tracer meets: the parts below may still be traced
            if path == "" or not list(module.children()):
                problems.append(_problem(path, error))
        if not looked:
            calls = {**_calls(workload), **calls}
            looked = True
        open_ += [f"{path}.{name}".lstrip(".") for name, _ in module.named_children()]
    return Captured(tuple(units), tuple(problems))


def _unit(path: str, module: Module, call: Call) -> Unit:
    args, kwargs = call
    with tracing(), _quiet(), torch.no_grad(), plain_outputs(module) as form:
        program = torch.export.export(module, args, kwargs, strict=False)
    graph = program.graph
    if len(graph.nodes) > _MOST_NODES:
        raise _TooLarge(f"it has {len(graph.nodes)} operations, more than {_MOST_NODES}")
    kinds = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    inputs: list[Node] = []
    state: dict[Node, str] = {}
    constants: dict[Node, Any] = {}
    ops: list[Op] = []
    outputs: Any = ()
    for node in list(graph.nodes):
        if node.op == "placeholder":
            spec = kinds[node.name]
            if spec.kind is InputKind.USER_INPUT:
                inputs.append(node)
            elif spec.kind in (InputKind.PARAMETER, InputKind.BUFFER) and spec.target in _names(module):
                state[node] = spec.target
            else:
                constants[node] = program.constants[spec.target]
        elif node.op == "call_function":
            if "._ops." not in type(node.target).__module__ and type(node.target).__name__ not in (
                "OpOverload", "builtin_function_or_method",
            ):  # fmt: skip
                raise ValueError(f"it uses {node.target}, which is no plain operation")
            _out_of_place(node)
            ops.append(Op(len(ops), node, _word(node), _below(path, _stack(node))))
        elif node.op == "output":
            outputs = node.args[0]
        else:
            raise ValueError(f"it calls {node.target} as a whole")
    spec = program.call_spec
    return Unit(
        path, module, tuple(ops), tuple(inputs), state, constants, outputs, call, spec.in_spec, spec.out_spec,
        {op.node: op for op in ops}, form(),
    )  # fmt: skip


def _names(module: Module) -> set[str]:
    return {n for n, _ in module.named_parameters(remove_duplicate=False)} | {
        n for n, _ in module.named_buffers(remove_duplicate=False)
    }


def _word(node: Node) -> str:
    target: Any = node.target
    name = target._schema.name.split("::")[1] if hasattr(target, "_schema") else target.__name__
    return str(name)


def _out_of_place(node: Node) -> None:
    """``relu_`` of a value that no one reads afterwards becomes ``relu``."""
    target: Any = node.target
    if not hasattr(target, "_schema") or not target._schema.is_mutable or not node.args:
        return
    name = target._schema.name.split("::")[1]
    source: Any = node.args[0]
    if not name.endswith("_") or name.startswith("_") or not hasattr(source, "users"):
        return
    plain = getattr(getattr(torch.ops.aten, name[:-1], None), target._overloadname, None)
    alone = source.op == "call_function" and set(source.users) == {node} and not _is_view(source)
    if plain is not None and alone:
        node.target = plain


def _is_view(node: Node) -> bool:
    target: Any = node.target
    schema = getattr(target, "_schema", None)
    if schema is None:
        return True
    return any(r.alias_info is not None for r in schema.returns) or copies_of(_word(node)) is Copies.MAYBE


def _stack(node: Node) -> str:
    """The path of the innermost module that a node was traced in."""
    stack = node.meta.get("nn_module_stack") or {}
    path = next(reversed([entry[0] for entry in stack.values()]), "")
    path = re.sub(r"^L\['self'\]\.?", "", path)
    # the tracer marks the calls of a module that is called twice
    return re.sub(r"@\d+", "", re.sub(r"\['?([^\]']+)'?\]", r".\1", path)).lstrip(".")


def _below(path: str, inner: str) -> str:
    return f"{path}.{inner}".strip(".")


def _calls(workload: Workload) -> dict[str, Call]:
    """What each module was first called with in one call of the model."""
    calls: dict[str, Call] = {}
    handles = []
    for path, module in workload.model.named_modules():

        def seen(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any], path: str = path) -> None:
            calls.setdefault(path, (args, kwargs))

        handles.append(module.register_forward_pre_hook(seen, with_kwargs=True))
    args, kwargs = workload.draw(0)
    try:
        with torch.no_grad():
            workload.model(*args, **kwargs)
    finally:
        for handle in handles:
            handle.remove()
    return calls


def _problem(path: str, error: BaseException) -> Problem:
    """Why the tracer stopped."""
    if "DataDependent" in type(error).__name__:
        place = _PLACE.findall(str(error))
        where = f" at line {place[-1]}" if place else ""
        return Problem(
            path, f"its Python code{where} goes by the value of a tensor ({type(error).__name__})",
            "Write the choice with torch.where, or profile the parts between such choices",
        )  # fmt: skip
    if isinstance(error, _TooLarge):
        return Problem(path, str(error), "Profile one of its blocks")
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    sentence = lines[0].split(". ")[0].rstrip(".") if lines else ""
    return Problem(
        path, f"torch.export does not take it ({type(error).__name__}: {sentence[:240]})",
        "Write what it stops at with operations of torch, or profile the parts without it",
    )  # fmt: skip


class _TooLarge(ValueError):
    """A graph of more operations than are looked at as one."""


class _OthersOnly(io.TextIOBase):
    """A stream without what this thread writes: sessions of other threads go on telling."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._mine = stream, threading.get_ident()

    def write(self, text: str) -> int:
        return len(text) if threading.get_ident() == self._mine else self._stream.write(text)

    def flush(self) -> None:
        self._stream.flush()


@contextmanager
def _quiet() -> Iterator[None]:
    """The tracer's own warnings and prints are nothing for a person: what fails is reported in a sentence."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with (
            warnings.catch_warnings(),
            redirect_stdout(_OthersOnly(sys.stdout)),
            redirect_stderr(_OthersOnly(sys.stderr)),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def nodes_in(value: Any) -> Sequence[Node]:
    """The nodes among a node's arguments, in order."""
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Node)]


__all__ = ["Captured", "Op", "Problem", "Unit", "capture_model", "nodes_in"]
