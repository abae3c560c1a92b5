"""Builds in a worker: the candidate from its files, or a baseline from the task's own text."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernellab.verifier.protocol.rules import COMPILED

Load = Callable[[Sequence[Any]], Sequence[Any]]


@dataclass
class Built:
    """The function to call, the conversion of the judge's arguments to its own, and the tensors that receive a model's
    last arguments."""

    function: Callable[..., Any]
    load: Load = lambda args: args
    parameters: list[Any] = field(default_factory=list)
    #: number of arguments passed to it, if its last ones are left out
    taken: int | None = None
    #: another instance of the model's class, with other weights, if the message asked for ``two``
    other: Built | None = None


def candidate(message: dict[str, Any], device: str) -> Built:
    """Import ``entry_file`` below ``root``, after the build command of its DSL; in the same way as a user if the
    message has the ``module``'s name. Exceptions propagate."""
    root = message["root"]
    path = os.path.join(root, message["entry_file"])
    sys.path.insert(0, root)
    sys.argv = [path]
    if message.get("command"):
        _run_build(message["command"], root)
    name = message.get("module", "kernel_source")
    if "module" not in message:
        ready()
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    entry = getattr(module, message["entry"], None)
    model = getattr(module, "ModelNew", None)
    if callable(entry):
        count = taken(entry, message.get("arguments", 0), message.get("defaults", 0))
        return Built(entry) if count is None else Built(entry, lambda args: args[:count], taken=count)
    if model is not None:
        built = _model(model, message, device)
        if message.get("two"):
            seed = message.get("seed")
            with contextlib.suppress(Exception):  # one that cannot be built twice says so to its user
                built.other = _model(model, {**message, "seed": None if seed is None else seed + 1}, device)
        return built
    raise AttributeError(f"{message['entry_file']} defines neither {message['entry']} nor ModelNew")


def ready() -> None:
    """Make Triton's interpreter check bounds, and run one configuration where autotuning would need a GPU."""
    if os.environ.get("TRITON_INTERPRET") == "1":
        from kernellab.verifier.worker import interpreter

        interpreter.install()


def taken(entry: Any, arguments: int, defaults: int) -> int | None:
    """The number of ``arguments`` of an entry that omits some of the last ones, which are ``defaults`` numbers with a
    default; None if it accepts all, or has no signature."""
    try:
        parameters = inspect.signature(entry).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return None
    count = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)
    return count if arguments - defaults <= count < arguments else None


def _model(cls: Any, message: dict[str, Any], device: str) -> Built:
    built = message.get("seed")
    _seed(built or 0)
    model = cls(*message.get("init_args", ()), **message.get("init_kwargs", {}))
    if message.get("evaluates"):
        model.eval()
    if device != "cpu":
        model = model.to(device)
    names = message.get("state", [])
    count = len(names)
    state = model.state_dict()
    parameters = [state[n] for n in names] if set(names) <= set(state) else list(state.values())

    def load(args: Sequence[Any]) -> Sequence[Any]:
        split = len(args) - count
        if built is not None:
            # the reference holds what its constructor drew with the same seed
            return args[:split]
        own = model.state_dict()
        new_state = dict(zip(names, args[split:], strict=True))
        if new_state.keys() < own.keys() and all(own[n].shape == v.shape for n, v in new_state.items()):
            # it has further buffers in addition to the reference's, which keep their values
            new_state = {**own, **new_state}
        elif set(own) != set(new_state):
            # first strictly by name, otherwise by order and shape
            if [tuple(v.shape) for v in own.values()] != [tuple(v.shape) for v in new_state.values()]:
                raise ValueError(
                    f"ModelNew's state_dict ({list(own)}) fits the reference's ({names}) neither by name nor by "
                    "order and shape"
                )
            new_state = dict(zip(own, new_state.values(), strict=True))
        model.load_state_dict(new_state, strict=True)
        return args[:split]

    return Built(_no_grad(model), load, parameters)


def _seed(seed: int) -> None:
    """Set the generators to the state in which the reference was constructed."""
    import random

    import numpy as np
    import torch

    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


def baseline(message: dict[str, Any], role: str, device: str) -> Built:
    """The task's own reference, compiled by torch.compile if the ``role`` requires it, before this returns."""
    from kernellab.task import TaskForm
    from kernellab.task.module import TaskModule
    from kernellab.verifier.cases.device import sample

    # not Task, whose imports take 2 s and would make this process differ from a candidate's
    module = TaskModule(message["name"], message["text"])
    module.numpy = message["numpy"]
    native = module.form is TaskForm.NATIVE
    load, function = _native(module) if native else _model_of(module.model(None if device == "cpu" else device))
    import torch

    # once for the whole process, which runs nothing else: a wrapper would be part of each timed call
    torch.set_grad_enabled(False)
    if role not in COMPILED:
        return Built(function, load)
    _precompile_no_headers()
    compiled = Built(torch.compile(function, mode=COMPILED[role]), load)
    # the first calls compile; they run here, so that the judge need not wait for them
    for _ in range(2):
        compiled.function(*load(sample(module, message["sizes"], 0, device)))
    return compiled


def _precompile_no_headers() -> None:
    """Inductor would write torch's precompiled headers into the temporary folder of the process that imported it, where
    this one may not write. Releases before torch 2.12 read no variable for this (set in judge/pool.py)."""
    from torch._inductor import config

    if hasattr(config, "cpp_cache_precompile_headers"):
        config.cpp_cache_precompile_headers = False


def _model_of(model: Any) -> tuple[Load, Callable[..., Any]]:
    """A reference's Model, which gets its state from the last arguments."""

    def load(args: Sequence[Any]) -> Sequence[Any]:
        state = model.state_dict()
        split = len(args) - len(state)
        model.load_state_dict(dict(zip(state, args[split:], strict=True)), strict=True)
        return args[:split]

    return load, model


def _native(module: Any) -> tuple[Load, Callable[..., Any]]:
    """A native reference's own call, with its keywords bound outside the clock."""
    from kernellab.task.values import to_numpy

    bound: dict[str, Any] = {}
    reference = module.namespace["reference"]

    def load(args: Sequence[Any]) -> Sequence[Any]:
        values = [to_numpy(a) for a in args] if module.numpy else list(args)
        positional, keywords = module.bind(values)
        bound["keywords"] = keywords
        return tuple(positional)

    def call(*args: Any) -> Any:
        result = reference(*args, **bound["keywords"])
        return tuple(module.flatten(result)) if module.numpy else result

    return load, call


def _no_grad(function: Callable[..., Any]) -> Callable[..., Any]:
    import torch

    def call(*args: Any) -> Any:
        with torch.no_grad():
            return function(*args)

    return call


def _run_build(command: Sequence[str], root: str) -> None:
    """Run the command of a DSL's spec.toml in the source's folder. Raises RuntimeError with its log."""
    import subprocess

    done = subprocess.run(list(command), cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}.\n{done.stderr or done.stdout}")


def write_files(root: Path, files: dict[str, str]) -> None:
    """Write the source's files under ``root``. Raises ValueError for a path outside of it."""
    for name, text in files.items():
        path = (root / name).resolve()
        if not path.is_relative_to(root.resolve()):
            raise ValueError(f"the file name {name!r} leaves the source's folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
