"""Reads a task's text or file, runs it once in each process, and describes it as a Task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from kernellab.errors import MOST_BYTES, TaskError, counted
from kernellab.task.audit import quality
from kernellab.task.module import task_module
from kernellab.task.task import Arg, ArgKind, Task

if TYPE_CHECKING:
    from kernellab.task.module import TaskModule
    from kernellab.task.observe import StateSpec
    from kernellab.task.shapes import InputSpec


def load_task(text_or_path: str | Path, name: str | None = None, *, audit: bool = False) -> Task:
    """Return the Task of a module text (or a .py file); ``audit`` also runs :func:`quality` into ``flags``.

    >>> text = '''import torch
    ...
    ... def reference(x):
    ...     return torch.relu(x)
    ...
    ... def inputs():
    ...     return torch.randn(3, 5)
    ... '''
    >>> task = load_task(text, "relu")
    >>> [(argument.name, argument.shape, argument.dtype) for argument in task.args]
    [('x', (3, 5), 'float32')]

    Raises:
        TaskError: no reference, a reference that raises, inputs that do not fit, a syntax error with its line.
    """
    text, name = read_task(text_or_path, name)
    task = _load(name, text)
    return replace(task, flags=quality(task)) if audit else task


def read_task(text_or_path: str | Path, name: str | None = None, what: str = "task") -> tuple[str, str]:
    """Return a task's text and name without running it. Raises TaskError for a file of ``what`` that cannot be read."""
    is_path = isinstance(text_or_path, Path) or ("\n" not in text_or_path and text_or_path.strip().endswith(".py"))
    if not is_path:
        return str(text_or_path), name or what
    path = Path(text_or_path)
    try:
        if (size := path.stat().st_size) > MOST_BYTES:
            raise TaskError(
                f"The {what} file {path} has {size / 1e6:.0f} MB.",
                f"Give a {what}'s text; weights and data stay out of it.",
            )
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise TaskError(
            f"The {what} file {path} cannot be read: {reason}.", "Give the path of a Python file."
        ) from None
    return text, name or identifier(path.stem)


def identifier(stem: str) -> str:
    """Return ``stem`` as a valid name of a kernel, a sketch and a session: ``23_Softmax`` is ``task_23_Softmax``."""
    word = "".join(c if (c.isascii() and c.isalnum()) or c == "_" else "_" for c in stem).strip("_") or "task"
    return f"task_{word}" if word[0].isdigit() else word


@lru_cache(maxsize=256)
def _load(name: str, text: str) -> Task:
    # positional, as in Task.module: a keyword would be another entry of the cache
    return describe(task_module(name, text, False))


# -- from a running task module to a Task ------------------------------------------------------------------------------


def describe(module: TaskModule) -> Task:
    """Return the Task of a running module: arguments with symbolic shapes, outputs, policy.

    Raises:
        TaskError: as :func:`kernellab.task.load_task`.
    """
    from kernellab.task.policy import read_policy
    from kernellab.task.shapes import infer

    while True:
        try:
            shapes = infer(module)
            break
        except TaskError:
            # the listed cases of a task may be valid although their Dims' ranges are not
            if not module.narrow():
                raise
    module.described = True
    args = _arguments(module, shapes.inputs, shapes.state)
    policy = read_policy(module.namespace, args)
    args = tuple(
        Arg(**{**vars(a), "static": a.name in policy.static or a.kind in (ArgKind.PARAMETER, ArgKind.BUFFER)})
        for a in args
    )
    return Task(
        name=module.name,
        text=module.text,
        form=module.form,
        framework="numpy" if module.numpy else "torch",
        dims=module.dims,
        args=args,
        outputs=shapes.outputs,
        precision=policy.precision,
        tolerance=policy.tolerance,
        domain=policy.domain,
        static=tuple(a.name for a in args if a.static),
        hash=module.hash,
        notes=_notes(module),
        learnt=module.learnt(),
    )


def _notes(module: TaskModule) -> tuple[str, ...]:
    """Return notes on decisions that were made in reading the task."""
    listed = module.listed
    notes = ("eval mode: in training mode the reference is random",) if module.evaluates else ()
    if listed is None or not listed.left_out:
        return notes
    return (
        *notes,
        f"{counted(listed.left_out, 'case')} of {len(listed.bytes)} differ in more than sizes and are left out",
    )


def _arguments(
    module: TaskModule,
    inputs: Sequence[InputSpec | bool | int | float],
    state: Mapping[str, StateSpec],
) -> tuple[Arg, ...]:
    defaults = {p.name: p.default for p in module.parameters() if isinstance(p.default, (bool, int, float))}
    args: list[Arg] = []
    for name, value in zip(module.argument_names(), inputs, strict=True):
        if not isinstance(value, (bool, int, float)):
            args.append(Arg(name, ArgKind.TENSOR, value.dtype, value.shape, last=value.last))
        else:
            args.append(Arg(name, ArgKind.SCALAR, _scalar_dtype(value), default=defaults.get(name), value=value))
    for p in module.trailing_scalars(len(module.placed())):
        args.append(Arg(p.name, ArgKind.SCALAR, _scalar_dtype(p.default), default=p.default, value=p.default))
    taken = {a.name for a in args}
    for key, spec in state.items():
        kind = ArgKind.PARAMETER if spec.learnt else ArgKind.BUFFER
        args.append(Arg(_free(key, taken), kind, spec.dtype, spec.shape, key=key))
    return tuple(args)


def _free(key: str, taken: set[str]) -> str:
    base = "".join(c if c.isalnum() else "_" for c in key)
    base = f"p_{base}" if base[:1].isdigit() else base
    name = base
    while name in taken:
        name = f"{name}_"
    taken.add(name)
    return name


def _scalar_dtype(value: bool | int | float) -> str:
    return "bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "float64"
