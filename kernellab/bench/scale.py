"""Reduces a task of fixed shapes along its batch dimensions, as a separate Task file.

Large problems are for a GPU: on a CPU they take minutes, and under Triton's interpreter hours. A kernel for fixed
shapes is made for just these, so the problem itself is made smaller before anything is designed for it. If the batch is
not enough, the axes of sliding windows are cut, too. If a number at the top of the file is the extent, that number is
changed, and nothing large is drawn; else the drawn inputs are sliced."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kernellab import python_tree
from kernellab.errors import TaskError
from kernellab.task import ArgKind, Task, TaskForm, load_task
from kernellab.task.call_inputs.cases import CHOSEN, Listed
from kernellab.task.sample.shrink import FreeAxis, bytes_after, free_axes, window_axes

#: about 256 programs of a kilobyte each, which Triton's interpreter runs in seconds
INTERPRETED_BYTES = 1 << 20
#: bytes for which eager takes milliseconds on a few cores, and far more than their caches
CPU_BYTES = 64 << 20
#: least extent of a cut axis, so that several tiles and a remainder stay; the same for a leading axis. Chosen, not
#: measured, as the next two
_SMALLEST, _SMALLEST_LEADING = 37, 3
#: least extent of a cut axis of a sliding window
_SMALLEST_WINDOW = 33
#: largest power of two that a cut extent keeps, and the largest share of the extent that is lost for it
_LARGEST_DIVISOR, _MOST_LOST = 64, 0.125
#: functions whose numbers may be the extents
_DRAWING = ("get_inputs", "inputs")

_WRAPPER = """

# -- the same problem at most {limit} bytes large: {words}
_{name}_at_full_size = {name}


def {name}():
    given = _{name}_at_full_size()
    several = isinstance(given, (tuple, list))
    parts = list(given) if several else [given]
    for position, dim, size in {cuts}:
        part = parts[position][(slice(None),) * dim + (slice(0, size),)]
        parts[position] = part.contiguous() if hasattr(part, "contiguous") else part.copy()
    return {result}
"""


@dataclass(frozen=True)
class Scaled:
    """``text`` is the smaller task; ``words`` name the cut axes, "" if nothing was cut."""

    text: str
    words: str = ""


def scaled(task: Task, limit_bytes: int) -> Scaled:
    """Return ``task`` with inputs and outputs of at most ``limit_bytes``, or as near as its batch dimensions allow.

    Dynamic tasks stay as they are: the Verifier chooses their sizes. Of a task that lists cases a smaller one is taken.
    Leading axes are cut first, and none that a parameter shares. A task whose indices would point past a cut axis stays
    unchanged."""
    listed = task.module().listed
    if listed is not None:
        return _smaller_case(task, listed, limit_bytes)
    small = _cut(task, limit_bytes)
    if not small.words or not any(a.is_tensor and a.dtype.startswith(("int", "uint")) for a in task.args):
        return small
    try:
        module = load_task(small.text, task.name).module()
        module.reference(module.sample(seed=0))
    except TaskError:
        return Scaled(task.text)
    return small


def _cut(task: Task, limit_bytes: int) -> Scaled:
    """As :func:`scaled`, without a check that the result runs."""
    from kernellab.task.sample.sizes import input_bytes

    total = input_bytes(task)
    if task.dims or total <= limit_bytes:
        return Scaled(task.text)
    sizes: dict[FreeAxis, int] = {}
    for axis in free_axes(task):
        if total <= limit_bytes:
            break
        if not all(task.args[position].kind is ArgKind.TENSOR for position, _ in axis.axes):
            continue
        leading = all(dim == 0 for _, dim in axis.axes)
        # if one axis is not enough, several are cut by similar factors
        least = max(_SMALLEST_LEADING if leading else _SMALLEST, int(axis.size * limit_bytes / total))
        size = _rounded_down(axis.size, _largest(task, axis, sizes, limit_bytes, least))
        if size < axis.size:
            sizes[axis] = size
            total = bytes_after(task, sizes)
    if total > limit_bytes:
        sizes |= window_axes(task, sizes, limit_bytes, _SMALLEST_WINDOW)
    if not sizes:
        return Scaled(task.text)
    words = ", ".join(f"{axis.size} -> {size}" for axis, size in sizes.items())
    text, left = _by_numbers(task, sizes)
    if not left:
        return Scaled(text, words)
    kernelbench = task.form is TaskForm.KERNELBENCH
    wrapper = _WRAPPER.format(
        name="get_inputs" if kernelbench else "inputs",
        limit=limit_bytes,
        words=words,
        cuts=[(position, dim, size) for axis, size in left.items() for position, dim in axis.axes],
        result="parts" if kernelbench else "tuple(parts) if several else parts[0]",
    )
    return Scaled(text.rstrip() + "\n" + wrapper, words)


def _smaller_case(task: Task, listed: Listed, limit_bytes: int) -> Scaled:
    """Return the largest case that fits, the smallest if none does; outputs are assumed to be as large as inputs."""
    if 2 * listed.bytes[listed.main] <= limit_bytes:
        return Scaled(task.text)
    fitting = [i for i, size in enumerate(listed.bytes) if 2 * size <= limit_bytes]
    position = max(fitting, key=listed.bytes.__getitem__) if fitting else listed.bytes.index(min(listed.bytes))
    if position == listed.main:
        return Scaled(task.text)
    return Scaled(f"{task.text.rstrip()}\n\n{CHOSEN} = {position}\n", f"case {listed.main} -> {position}")


def _largest(task: Task, axis: FreeAxis, sizes: Mapping[FreeAxis, int], limit_bytes: int, least: int) -> int:
    """Return the largest extent that fits, ``least`` if none does; axes that vary together count more than once."""
    most = axis.size
    while least < most:
        middle = (least + most + 1) // 2
        fits = bytes_after(task, {**sizes, axis: middle}) <= limit_bytes
        least, most = (middle, most) if fits else (least, middle - 1)
    return least


def _rounded_down(before: int, size: int) -> int:
    """Return ``size``, or a little less to keep powers of two of the full extent: rows of odd length start at odd
    addresses, and 16-byte accesses would then not be possible."""
    step = _LARGEST_DIVISOR
    while step > 1 and (before % step or size - size % step < size * (1 - _MOST_LOST)):
        step //= 2
    return size - size % step


class _Renumbered(NamedTuple):
    """A task's text with other numbers, and the cut axes that no number of the file determines alone."""

    text: str
    left: dict[FreeAxis, int]


def _by_numbers(task: Task, sizes: Mapping[FreeAxis, int]) -> _Renumbered:
    """Return the text with top-level numbers changed for cut axes."""
    text, left, shapes = task.text, dict(sizes), [list(a.shape) for a in task.args]
    for axis, size in sizes.items():
        expected = [list(s) for s in shapes]
        for position, dim in axis.axes:
            expected[position][dim] = size
        places = _assignments(text, axis.size)
        # each number alone, then all of them
        for some in [*([place] for place in places), *([places] if len(places) > 1 else [])]:
            trial = text
            for place in sorted(some, reverse=True):
                trial = _with_number(trial, place, axis.size, size)
            try:
                shapes_at = [list(a.shape) for a in load_task(trial, task.name).args]
            except TaskError:
                continue
            if shapes_at == expected:
                text, shapes = trial, expected
                del left[axis]
                break
    return _Renumbered(text, left)


class _Place(NamedTuple):
    """A number in a text: its line (from 0), and its columns in bytes."""

    line: int
    start: int
    end: int


def _assignments(text: str, value: int) -> list[_Place]:
    """Return each ``value`` in a top-level ``NAME = NUMBER`` (product, tuple of numbers),
    and in the function that draws the inputs."""
    assignments = []
    for statement in python_tree.parse(text).body:
        nodes: list[ast.expr] = []
        if isinstance(statement, ast.Assign):
            nodes = _numbers(statement.value)
        elif isinstance(statement, ast.FunctionDef) and statement.name in _DRAWING:
            nodes = [n for n in ast.walk(statement) if isinstance(n, ast.expr)]
        assignments += [_Place(n.lineno - 1, n.col_offset, n.end_col_offset or 0) for n in nodes if _is(n, value)]
    return assignments


def _is(node: ast.expr, value: int) -> bool:
    return node.lineno == node.end_lineno and _number(node) == value


def _numbers(node: ast.expr) -> list[ast.expr]:
    return list(node.elts) if isinstance(node, (ast.Tuple, ast.List)) else [node]


def _number(node: ast.expr) -> int | None:
    """Return the int of an expression of numbers, else None."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        left, right = _number(node.left), _number(node.right)
        return None if left is None or right is None else left * right
    return None


def _with_number(text: str, place: _Place, before: int, after: int) -> str:
    lines = text.split("\n")
    raw = lines[place.line].encode()  # ast counts columns in bytes
    changed = raw[: place.start] + str(after).encode() + raw[place.end :]
    lines[place.line] = changed.decode() + f"  # {before} at full size"
    return "\n".join(lines)
