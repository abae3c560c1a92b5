"""An installed module as a DSL's documents see it: what marks and launches its kernels, and which function carries out
which operation of a sketch. All by its names, signatures and docstrings; nothing of it is run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import packages_distributions

from kernellab import python_tree
from kernellab.errors import KernellabError
from kernellab.knowledge.pages import DocumentError
from kernellab.knowledge.toolchain import Name, Toolchain, toolchain
from kernellab.operations.sketch import OPS

PREFIX = "python:"
#: from this length on a signature is shown without its annotations
_LONG = 100
#: characters that are kept of a docstring
_ROOM = 2400
#: what DSLs call operations of the sketch language, where they call them otherwise
_CALLED = {
    "load": ("load",), "store": ("store",), "gemm": ("gemm",), "matmul": ("gemm", "dot"), "dot": ("gemm", "dot"),
    "mma": ("gemm",), "maximum": ("max",), "minimum": ("min",),
    "power": ("pow",), "fabs": ("abs",), "absolute": ("abs",), "negative": ("neg",), "logistic": ("sigmoid",),
    "select": ("where",), "swapaxes": ("transpose",), "broadcast_to": ("broadcast",), "concatenate": ("concat",),
    "astype": ("cast",), "take": ("gather",), "atomic_add": ("atomic_add",), "zeros": ("alloc",), "empty": ("alloc",),
    "sum": ("reduce_sum",), "prod": ("reduce_prod",), "amax": ("reduce_max",), "amin": ("reduce_min",),
    "mean": ("reduce_mean",), "any": ("reduce_any",), "ndrange": ("parallel",), "prange": ("parallel",),
}  # fmt: skip
#: what an operation is written with where a DSL has no function for it; a reduction by the operation that joins two
_WRITTEN_WITH = {
    "sigmoid": ("exp",), "silu": ("exp",), "tanh": ("exp",), "softplus": ("exp", "log"), "gelu": ("erf", "tanh", "exp"),
    "rsqrt": ("sqrt",), "exp2": ("exp",), "log2": ("log",), "sinh": ("exp",), "cosh": ("exp",),
    "expm1": ("exp",), "log1p": ("log",), "argmax": ("max",),
    "argmin": ("min",), "reduce_mean": ("add",), "abs": ("max",), "clamp": ("min", "max"),
}  # fmt: skip
#: two things in one word, told apart by an axis
_BY_AXIS = {"max": ("reduce_max",), "min": ("reduce_min",)}
#: the argument that takes a kernel, and those that say how often it runs
_KERNELS = frozenset(("kernel", "body", "func", "fn", "f"))
_GRIDS = frozenset(("grid", "dim", "dims", "grid_dim", "num_blocks", "block_dim", "threads", "blocks"))
#: what tells a kernel which of its runs it is
_PLACES = frozenset((
    "program_id", "num_programs", "thread_id", "tid", "block_id", "block_idx", "thread_idx", "get_block_idx",
))  # fmt: skip


@dataclass(frozen=True)
class Module:
    """An installed module: as it is imported, and as code calls it."""

    name: str
    alias: str

    @property
    def package(self) -> str:
        return self.name.partition(".")[0]

    @property
    def distribution(self) -> str:
        return next(iter(packages_distributions().get(self.package, ())), self.package)


@dataclass(frozen=True)
class Offer:
    """What modules offer to a kernel's author: ``text`` is Markdown, a section for each function.

    ``decorators`` mark kernels, ``launchers`` are functions that take one and a grid, both without the module's name.
    """

    introduction: str
    text: str
    decorators: tuple[str, ...] = ()
    launchers: tuple[str, ...] = ()

    @property
    def pattern(self) -> str:
        """A regular expression for a kernel that is handed to a launcher; empty where there is no launcher."""
        if not self.launchers:
            return ""
        names = self.launchers[0] if len(self.launchers) == 1 else f"(?:{'|'.join(self.launchers)})"
        return rf"\b{names}\(\s*(?:(?:functools\.)?partial\(\s*)?(?P<name>\w+)"


def modules_of(raw: str) -> tuple[Module, ...]:
    """The modules of ``python:MODULE as NAME, MODULE as NAME``; none for another kind of documentation.

    Raises:
        DocumentError: it is not written so.
    """
    if not raw.startswith(PREFIX):
        return ()
    modules = []
    for part in raw.removeprefix(PREFIX).split(","):
        match = re.fullmatch(r"\s*([A-Za-z_][\w.]*)(?:\s+as\s+([A-Za-z_]\w*))?\s*", part)
        if match is None:
            raise DocumentError(f"{part.strip()!r} names no module.", "Write python:MODULE, or python:MODULE as NAME.")
        modules.append(Module(match[1], match[2] or match[1].rpartition(".")[2]))
    return tuple(modules)


def offer(modules: Sequence[Module]) -> Offer:
    """What the first of ``modules`` offers, all of it; of the others, what carries out an operation of a sketch.

    Raises:
        DocumentError: one is not installed, or cannot be imported.
    """
    first, *others = modules
    by_module = [_names(module) for module in modules]
    names = [n for n in by_module[0].names.values() if _is_public(n, first)]
    launchers = _likest([_last(n) for n in names if _launches(n)], ("launch", "call", "run"))
    decorators = _likest([_last(n) for n in names if _marks(n)], ("kernel", "jit"))
    # what a launcher's documentation calls by a proper name is needed for a launch
    central = set(re.findall(r"\b[A-Z]\w+", " ".join(n.doc for n in names if _last(n) in launchers)))
    lines = [f"# {first.name} API", ""]
    for name in names:
        word = _last(name)
        if word in (*launchers, *decorators):
            operations: tuple[str, ...] = ("launch", "parallel")
        elif word in _PLACES or word in central:
            operations = ("launch",)
        else:
            operations = operations_of(f"{word}{name.signature}")
        lines += _section(name, operations, _cut(name.doc))
    for module, offered in zip(others, by_module[1:], strict=True):
        for operations, name in _one_each(n for n in offered.names.values() if _is_public(n, module)):
            lines += _section(name, operations, name.doc.split("\n\n")[0])
    own = by_module[0].names.get(first.alias)
    return Offer(own.doc if own else "", "\n".join(lines), decorators, launchers)


def operations_of(heading: str) -> tuple[str, ...]:
    """The sketch's operations that a function is for, by its name: ``pl.load(ref, idx)`` loads."""
    match = re.match(r"[`\s]*(?:\w+\.)*(\w+)\s*\(", heading)
    word = match[1].removeprefix("tile_") if match else ""
    if word in _BY_AXIS and re.search(r"\baxis\b", heading):
        return _BY_AXIS[word]
    return _CALLED.get(word) or ((word,) if word in OPS else ())


def written_with(operation: str) -> tuple[str, ...]:
    """The operations that one of the sketch language is written with where a DSL has no function for it."""
    op = OPS.get(operation)
    return _WRITTEN_WITH.get(operation) or ((op.join,) if op is not None and op.join else ())


def _names(module: Module) -> Toolchain:
    try:
        offered = toolchain({module.alias: module.name})
    except KernellabError as error:
        raise DocumentError(error.message, error.remedy) from None
    if offered.missing:
        raise DocumentError(f"The module {module.name} is not installed.", "Install it, or give Markdown or HTML.")
    return offered


def _is_public(name: Name, module: Module) -> bool:
    return bool(name.signature and name.doc and name.name.count(".") == module.alias.count(".") + 1)


def _last(name: Name) -> str:
    return name.name.rpartition(".")[2]


def _arguments(signature: str) -> list[str]:
    tree = _parsed(signature)
    return [] if tree is None else [a.arg for a in (*tree.posonlyargs, *tree.args, *tree.kwonlyargs)]


def _launches(name: Name) -> bool:
    arguments = _arguments(name.signature)
    return bool(arguments) and arguments[0] in _KERNELS and bool(_GRIDS & set(arguments))


def _marks(name: Name) -> bool:
    """Does its first sentence call it a decorator of kernels, or say that it marks functions as such?"""
    first = name.doc.split("\n\n")[0].lower()
    says = "decorator" in first or first.startswith(("mark ", "marks "))
    return says and ("kernel" in first or "jit" in _last(name)) and not first.startswith("return")


def _likest(names: Sequence[str], words: Sequence[str]) -> tuple[str, ...]:
    """Functions whose names have one of ``words``, where there are some; a class is none."""
    functions = [name for name in names if name.islower() and not name.startswith("get_")]
    return tuple([n for n in functions if any(word in n for word in words)] or functions)


def _one_each(names: Iterable[Name]) -> list[tuple[tuple[str, ...], Name]]:
    """For each operation the function of the shortest name (``max`` before ``amax``)."""
    by_path: dict[tuple[str, ...], Name] = {}
    for name in names:
        operations = operations_of(f"{_last(name)}{name.signature}")
        # another module's load and store are of files
        if not operations or operations[0] in ("load", "store"):
            continue
        if operations not in by_path or len(name.name) < len(by_path[operations].name):
            by_path[operations] = name
    return sorted(by_path.items())


def _section(name: Name, operations: tuple[str, ...], doc: str) -> list[str]:
    line = [f"Sketch operations: {', '.join(operations)}", ""] if operations else []
    text = doc.replace("```", "'''").strip()
    return [f"## `{name.name}{short_signature(name.signature)}`", "", *line, "```text", text, "```", ""]


def _cut(doc: str) -> str:
    """The first lines of a docstring, as many as a prompt has room for."""
    if len(doc) <= _ROOM:
        return doc
    return doc[: doc.rfind("\n", 0, _ROOM)].rstrip() + "\n..."


def _parsed(signature: str) -> ast.arguments | None:
    # <object object at 0x...> is no Python, and another at every import
    text = re.sub(r"<[^<>]*>", "...", signature)
    try:
        body = python_tree.parse(f"def _{text}: pass").body[0]
    except SyntaxError:
        return None
    return body.args if isinstance(body, ast.FunctionDef) else None


def short_signature(signature: str) -> str:
    """A signature in one line: names and defaults alone where its annotations make it long."""
    tree = _parsed(signature)
    if tree is None or (len(signature) <= _LONG and "<" not in signature):
        return re.sub(r" at 0x[0-9a-f]+", "", signature)
    for argument in (*tree.posonlyargs, *tree.args, *tree.kwonlyargs, tree.vararg, tree.kwarg):
        if argument is not None:
            argument.annotation = None
    return f"({ast.unparse(tree)})"
