"""``y = library.mm(x, w)``: a call of the framework's library on whole tensors, alone in its sketch."""

from __future__ import annotations

from kernellab.errors import counted
from kernellab.sketch.program.aten import BadCall, operands_of, read_call, symbols_of
from kernellab.sketch.program.ints import IntKind
from kernellab.sketch.program.library import (
    DTYPES,
    LIBRARY,
    PRECISIONS,
    PREFIX,
    LibraryOp,
    Misfit,
    Setting,
    SettingKind,
    same_extent,
)
from kernellab.sketch.program.program import LibraryCall, SettingValue, Tensor, TensorRole, Touch, Whole
from kernellab.sketch.resolve.arguments import bind_arguments, read_flag, read_word
from kernellab.sketch.resolve.expr import read_index
from kernellab.sketch.resolve.operands import show
from kernellab.sketch.resolve.place import read_tensor
from kernellab.sketch.resolve.scope import Scope
from kernellab.sketch.syntax import tree, walk
from kernellab.sketch.syntax.messages import nearest

_ALONE = "Give it a separate sketch: what comes before and after goes into other sketches of the file."


def read_library(scope: Scope, sketch: tree.Sketch) -> LibraryCall | None:
    """Return the call that ``sketch`` consists of; None if it has none. A wrong one is reported.

    Raises:
        Refused: the sketch has a call, and other statements too.
    """
    calls = [s for s in walk.statements(sketch.body) if walk.library_call(s) is not None]
    if not calls:
        return None
    first = calls[0]
    if len(sketch.body) > 1 or sketch.body[0] is not first:
        other = next((s for s in sketch.body if s is not first), first)
        what = f"A library call stands alone in its sketch, and line {other.span.line} is another statement."
        raise scope.refuse("library", first.span, what=what, remedy=_ALONE)
    call = walk.library_call(first)
    assert call is not None
    op = _operation(scope, call)
    if not isinstance(first, tree.Assign) or len(first.targets) != 1:
        what = f"'{call.func}' gives one tensor, and it is not assigned to one."
        raise scope.refuse("library", call.span, what=what, remedy=f"Write {op.signature}.")
    return _call(scope, op, call, first)


def _operation(scope: Scope, call: tree.Call) -> LibraryOp:
    operation = LIBRARY.get(call.func.removeprefix(PREFIX))
    if operation is None:
        raise scope.unknown_operation(call.func, call.span)
    return operation


def _call(scope: Scope, op: LibraryOp, call: tree.Call, stmt: tree.Assign) -> LibraryCall:
    names = tuple(s.name for s in op.settings)
    bound = bind_arguments(scope, call, (*op.operands, *(f"{n}?" for n in (*names, "precision"))))
    expected = [o.rstrip("?") for o in op.operands]
    operands = tuple(_operand(scope, bound[name]) for name in expected if name in bound)
    target = stmt.targets[0]
    if scope.names.tensors.get(target.id) is None:
        what = f"'{target.id}' is not a tensor, and a library call writes a whole tensor."
        remedy = nearest(target.id, scope.names.tensors) or "Declare it under tensors:."
        raise scope.refuse("library", target.span, what=what, remedy=remedy)
    out = read_tensor(scope, target, Touch.WRITE)
    settings = tuple((s.name, _setting(scope, call, s, bound.get(s.name))) for s in op.settings)
    precision = read_word(scope, bound.get("precision"), PRECISIONS, "precision of a library call")
    _check_tensors(scope, call, operands, out, op.free)
    if op.free:
        _check_operands(scope, call, str(dict(settings)["call"]), len(operands))
        return LibraryCall(op.name, out, operands, settings, precision, stmt.span)
    try:
        shape = op.shape([o.shape for o in operands], dict(settings))
    except Misfit as error:
        raise scope.refuse("shape-mismatch", call.span, what=f"{error.what}.", remedy=error.remedy) from None
    if len(shape) != len(out.shape) or not all(map(same_extent, shape, out.shape)):
        what = f"{call.func} makes {show(shape)} here, and '{out.name}' is declared {show(out.shape)}."
        raise scope.refuse("shape-mismatch", target.span, what=what, remedy=f"Declare {out.name}{show(shape)}.")
    return LibraryCall(op.name, out, operands, settings, precision, stmt.span)


def _operand(scope: Scope, expr: tree.Expr) -> Whole:
    """Return a tensor by its name, or transposed: ``transpose(X)``, ``transpose(X, [1, 0, 2])``."""
    if isinstance(expr, tree.Name):
        tensor = read_tensor(scope, expr, Touch.READ)
        return Whole(tensor, tuple(range(len(tensor.shape))))
    if not isinstance(expr, tree.Call) or expr.func != "transpose":
        what = "A library call takes whole tensors."
        remedy = "Name a tensor, or turn one: transpose(X). What is worked on before goes into a sketch before."
        raise scope.refuse("library", expr.span, what=what, remedy=remedy)
    bound = bind_arguments(scope, expr, ("x", "perm?"))
    inner = _operand(scope, bound["x"])
    rank = len(inner.order)
    perm = (*range(rank - 2), rank - 1, rank - 2) if rank > 1 else (0,)
    if "perm" in bound:
        items = bound["perm"].items if isinstance(bound["perm"], tree.List) else (bound["perm"],)
        perm = tuple(_number(scope, item, "A dimension") for item in items)
    if sorted(perm) != list(range(rank)):
        what = f"{list(perm)} is not an order of {counted(rank, 'dimension')}."
        raise scope.refuse("axis", expr.span, what=what, remedy="Name each dimension once, counted from 0.")
    return Whole(inner.tensor, tuple(inner.order[p] for p in perm))


def _setting(scope: Scope, call: tree.Call, setting: Setting, argument: tree.Expr | None) -> SettingValue:
    if argument is None and setting.kind is SettingKind.CALL:
        what = f"{call.func} does not say what it calls."
        raise scope.refuse("arguments", call.span, what=what, remedy='Write call="kthvalue.default(x0, 3, -1)[0]".')
    if argument is None:
        return setting.default
    if setting.kind is SettingKind.CALL:
        return _text(scope, call, argument)
    if setting.kind is SettingKind.FLAG:
        return read_flag(scope, argument, argument.span, setting.name)
    if setting.kind is SettingKind.NUMBER:
        if isinstance(argument, tree.Num):
            return float(argument.value)
        what = f"{setting.name} of {call.func} is a number."
        raise scope.refuse("arguments", argument.span, what=what, remedy=f"Write {setting.name}=0.125.")
    is_list = isinstance(argument, tree.List) and setting.kind is SettingKind.INTS
    items = argument.items if is_list and isinstance(argument, tree.List) else (argument,)
    numbers = tuple(_number(scope, item, f"{setting.name} of {call.func}") for item in items)
    if min(numbers, default=setting.least) < setting.least:
        what = f"{setting.name} of {call.func} is {min(numbers)}, and is {setting.least} or more."
        raise scope.refuse("arguments", argument.span, what=what, remedy=f"Write {setting.name}={setting.least}.")
    # one number for all dimensions is written once
    return numbers if len(set(numbers)) > 1 or not numbers else numbers[0]


def _text(scope: Scope, call: tree.Call, argument: tree.Expr) -> str:
    """Return the text of a call of ATen; its symbols are those of the file."""
    if not isinstance(argument, tree.Str):
        what, remedy = f"call of {call.func} is a text.", 'Write call="kthvalue.default(x0, 3, -1)[0]".'
        raise scope.refuse("arguments", argument.span, what=what, remedy=remedy)
    try:
        call_node = read_call(argument.value)
    except BadCall as error:
        raise scope.refuse("arguments", argument.span, what=error.what, remedy=error.remedy) from None
    for name in sorted(symbols_of(call_node)):
        read_index(scope, tree.Name(name, argument.span))
    return argument.value


def _check_operands(scope: Scope, call: tree.Call, text: str, count: int) -> None:
    """Refuse operands that the text does not use, and operands in the text that are missing."""
    names = operands_of(read_call(text))
    if names != set(range(count)):
        what = (
            f"{call.func} is given {count} operand(s), and its text names {', '.join(f'x{n}' for n in sorted(names))}."
        )
        raise scope.refuse("arguments", call.span, what=what, remedy="Name each operand: x0 is the first.")


def _number(scope: Scope, expr: tree.Expr, what: str) -> int:
    index = read_index(scope, expr)
    if index.kind is not IntKind.NUM:
        raise scope.refuse("arguments", expr.span, what=f"{what} is a plain number.", remedy="Write the number itself.")
    return index.value


def _check_tensors(scope: Scope, call: tree.Call, operands: tuple[Whole, ...], out: Tensor, free: bool) -> None:
    """Refuse a result in the caller's tensor or an operand's, and, unless the dtypes are ``free``, several dtypes."""
    if out.role is TensorRole.INOUT:
        what = f"{call.func} would write into the caller's tensor '{out.name}'."
        raise scope.refuse("library", call.span, what=what, remedy="Give the result a separate tensor: out or temp.")
    if any(o.tensor.name == out.name for o in operands):
        what = f"{call.func} reads and writes '{out.name}'."
        raise scope.refuse("library", call.span, what=what, remedy="Give the result a separate tensor: out or temp.")
    if free:
        return
    dtypes = dict.fromkeys([*(o.tensor.dtype for o in operands), out.dtype])
    if len(dtypes) > 1 or not set(dtypes) <= set(DTYPES):
        what = f"{call.func} takes and gives one dtype, and these are {', '.join(d.value for d in dtypes)}."
        remedy = f"Declare all tensors of the call as one of {', '.join(d.value for d in DTYPES)}."
        raise scope.refuse("dtype", call.span, what=what, remedy=remedy)
