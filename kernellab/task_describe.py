"""What a running task module states, as a Task: its arguments with symbolic shapes, its outputs, its policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kernellab.task import Arg, ArgKind, Task

if TYPE_CHECKING:
    from kernellab.task_load import TaskModule


def describe(module: TaskModule) -> Task:
    """The Task that a running module states: arguments with symbolic shapes, outputs, policy.

    Raises:
        TaskError: as :func:`kernellab.task.load_task`.
    """
    from kernellab.task_policy import read_policy
    from kernellab.task_shapes import infer

    shapes = infer(module)
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
    )


def _arguments(
    module: TaskModule,
    inputs: Sequence[tuple[tuple[int | str, ...], str] | bool | int | float],
    state: Mapping[str, tuple[tuple[int | str, ...], str, bool]],
) -> tuple[Arg, ...]:
    parameters = module.parameters()
    args: list[Arg] = []
    for i, given in enumerate(inputs):
        parameter = parameters[i] if i < len(parameters) else None
        name = parameter.name if parameter else f"arg{i}"
        default = parameter.default if parameter and isinstance(parameter.default, (bool, int, float)) else None
        if isinstance(given, tuple):
            args.append(Arg(name, ArgKind.TENSOR, given[1], given[0]))
        else:
            args.append(Arg(name, ArgKind.SCALAR, _scalar_dtype(given), default=default, value=given))
    for p in module.trailing_scalars(len(inputs)):
        args.append(Arg(p.name, ArgKind.SCALAR, _scalar_dtype(p.default), default=p.default, value=p.default))
    taken = {a.name for a in args}
    for key, (shape, dtype, learnt) in state.items():
        kind = ArgKind.PARAMETER if learnt else ArgKind.BUFFER
        args.append(Arg(_free(key, taken), kind, dtype, shape, key=key))
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
