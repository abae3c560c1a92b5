"""Words of ``@llm_hint`` and ``llm_hint=``. Only ``init_zero``, ``no_init`` and ``accumulator`` affect the meaning."""

from __future__ import annotations

from kernellab.sketch.program.ints import IntKind
from kernellab.sketch.program.program import LoopHints
from kernellab.sketch.resolve.expr import read_index
from kernellab.sketch.resolve.scope import Refused, Scope
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.messages import nearest

AXES = (
    "grididx", "grididx.x", "grididx.y", "grididx.z", "coreidx", "threadidx", "threadidx.x", "threadidx.y",
    "threadidx.z", "warp",
)  # fmt: skip
LOOP_HINTS = (
    "parallel", "vectorize", "simd", "unroll", "pipeline", "persistent", "swizzle", "split", "copy_engine",
    "warp_roles", "in_turn", "registers", "ahead", "async_store", "cluster", "team",
)  # fmt: skip
MEMORY_HINTS = (
    "fastest", "fast", "medium", "slow", "accumulator", "input_cache", "output_buffer", "temp_workspace",
    "shared_between_threads", "init_zero", "no_init",
)  # fmt: skip
#: the number of a hint without one; 0 leaves it to the lowering
_DEFAULTS = {
    "pipeline": 2, "swizzle": 8, "unroll": 0, "split": 0, "warp_roles": 1, "registers": None,
    "async_store": 1, "cluster": 2,
}  # fmt: skip


def loop_hints(hints: tuple[tree.Hint, ...], scope: Scope) -> LoopHints:
    """Return the hints of one loop; an unknown word causes a warning and is dropped."""
    values: dict[str, object] = {}
    last = ""
    for hint in hints:
        for arg in hint.args:
            number = _number(arg, scope)
            if number is not None:
                if last in _DEFAULTS:
                    values[last] = number
                continue
            word = arg.value if isinstance(arg, tree.Str) else arg.id if isinstance(arg, tree.Name) else "?"
            if word in AXES:
                values["axis"] = word
                continue
            if word == "library":
                scope.note("library-hint", arg.span)
                continue
            if word not in LOOP_HINTS:
                remedy = nearest(word, (*LOOP_HINTS, *AXES)) or f"Known hints: {', '.join(LOOP_HINTS)}."
                scope.note("unknown-hint", arg.span, name=word, remedy=remedy)
                continue
            last = "vectorize" if word == "simd" else word
            values[last] = _DEFAULTS.get(last, True)
    return LoopHints(**values)  # type: ignore[arg-type]


def _number(arg: tree.Expr, scope: Scope) -> int | None:
    """Return a hint's number; for a constexpr its default."""
    if isinstance(arg, tree.Num):
        return int(arg.value)
    if isinstance(arg, tree.Name) and arg.id in scope.names.constexprs:
        value = scope.names.constexprs[arg.id].value
        return int(value) if value is not None else None
    if isinstance(arg, (tree.Str, tree.Name)):
        return None
    try:
        index = read_index(scope, arg)
    except Refused:
        return None
    return index.value if index.kind is IntKind.NUM else None


def memory_hints(argument: tree.Expr | None, scope: Scope) -> tuple[str, ...]:
    """Return the words of ``llm_hint=``, a list or one string."""
    if argument is None:
        return ()
    items = argument.items if isinstance(argument, tree.List) else (argument,)
    words = []
    for item in items:
        word = item.value if isinstance(item, tree.Str) else item.id if isinstance(item, tree.Name) else "?"
        if word not in MEMORY_HINTS:
            remedy = nearest(word, MEMORY_HINTS) or f"Known hints: {', '.join(MEMORY_HINTS)}."
            scope.note("unknown-hint", item.span, name=word, remedy=remedy)
        words.append(word)
    return tuple(words)
