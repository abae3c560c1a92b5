"""Built-in references with one place changed, shown to the judge: ``python -m tests.verifier.mutated_references``.

    [--count 60] [--each 1] [--seed 1] [--skip N] [--rank] [--only PATTERN] [--seconds 900] [--json FILE]

Each mutant is a plain bug that people write: a comparison turned round, a special case left out, a narrower type, a
term dropped, a maximum that forgets NaN or begins at -FLT_MAX, ties broken otherwise, truncated division. It runs in
torch, so that nothing is compiled. Prints by which stage each was refused, which were told as conditions, and those
that passed: a reader says which of these are equivalent. With ``--rank`` a ranking judges instead.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from kernellab.conditions import Condition, DrawnLimit, ScalarLimit, of
from kernellab.errors import KernellabError
from kernellab.records import Author, Source
from kernellab.target import Backend, Chip, Target
from kernellab.task import Task, load_task
from kernellab.task.sample.sizes import input_bytes
from kernellab.verifier import RankOptions, Verifier, VerifyOptions

BUILTIN = Path(__file__).resolve().parents[2] / "kernellab" / "bench" / "builtin"
#: of larger inputs a verdict takes long
MOST_BYTES = 24 << 20
TARGET = Target("cpp", Backend.CPU, Chip("test", "cpu", 2))
#: one edit of an expression: the text of the mutant with $0, $1.. for its parts
Edit = Callable[[ast.expr], Iterator[tuple[str, ast.expr]]]
_LEAST = "torch.finfo(torch.float32).min"


@dataclass(frozen=True)
class Fate:
    task: str
    change: str
    #: the stage that refused it, "condition", "passed" or "failed"
    fate: str
    words: str
    seconds: float


def _expression(text: str, **parts: ast.expr) -> ast.expr:
    """An expression with names replaced by parts."""

    class Fill(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return copy.deepcopy(parts[node.id]) if node.id in parts else node

    return Fill().visit(ast.parse(text, mode="eval").body)  # type: ignore[no-any-return]


_TURNED = {ast.Lt: "a <= b", ast.LtE: "a < b", ast.Gt: "a >= b", ast.GtE: "a > b", ast.Eq: "a >= b", ast.NotEq: "a < b"}
_SWAPPED = {
    ast.Lt: "a > b",
    ast.LtE: "a >= b",
    ast.Gt: "a < b",
    ast.GtE: "a <= b",
    ast.Eq: "a != b",
    ast.NotEq: "a == b",
}
_NEGATED = {ast.Lt: "~(a >= b)", ast.LtE: "~(a > b)", ast.Gt: "~(a <= b)", ast.GtE: "~(a < b)"}
_TERMS = {
    ast.Add: ("a", "b", "a - b"), ast.Sub: ("a", "a + b"), ast.Mult: ("a", "b"), ast.Div: ("a", "a * b"),
    ast.FloorDiv: ("torch.div(a, b, rounding_mode='trunc')",), ast.Mod: ("torch.fmod(a, b)",),
    ast.BitAnd: ("a", "a | b"), ast.BitOr: ("a",), ast.LShift: ("a",),
    ast.RShift: ("torch.div(a, 1 << b, rounding_mode='trunc')",),
}  # fmt: skip
#: calls by their last name: what becomes of the first operand x and the whole call c
_CALLS: dict[str, tuple[str, ...]] = {
    "relu": ("torch.fmax(x, torch.zeros(()))", "x"), "clamp": ("x",), "clamp_min": ("x",), "clamp_max": ("x",),
    "clip": ("x",), "nan_to_num": ("x",), "abs": ("x",), "masked_fill": ("x",), "neg": ("x",),
    "softmax": ("torch.nan_to_num(c)", "c.half().float()"), "log_softmax": ("torch.nan_to_num(c)",),
    "exp": ("torch.exp2(x)", "torch.exp(x.clamp(max=80))"), "float": ("x.half().float()",),
    "gelu": ("torch.nn.functional.gelu(x, approximate='tanh')",), "any": ("x.all()",), "all": ("x.any()",),
    "logsumexp": ("torch.nan_to_num(c)", "c.bfloat16().float()"), "log": ("torch.log1p(x)",), "square": ("x.abs()",),
    "sqrt": ("x",), "rsqrt": ("1 / x",), "round": (
        "torch.trunc(x)", "torch.floor(x + 0.5)", "torch.sign(x) * torch.floor(x.abs() + 0.5)", "torch.ceil(x - 0.5)"
    ),
    "floor": ("torch.trunc(x)",), "ceil": ("torch.trunc(x)",), "trunc": ("torch.floor(x)",),
    "argmax": ("torch.nan_to_num(x, -1e30).{c}",), "argmin": ("torch.nan_to_num(x, 1e30).{c}",),
    "amax": (f"torch.nan_to_num(x, {_LEAST}, neginf={_LEAST}).{{c}}",),
    "max": (f"torch.nan_to_num(x, {_LEAST}).{{c}}",),
    "amin": ("torch.nan_to_num(x, torch.inf).{c}",), "min": ("torch.nan_to_num(x, torch.inf).{c}",),
    "sum": ("torch.nan_to_num(x).{c}", "x.half().{c}.to(c.dtype)"),
    "mean": ("torch.nan_to_num(x).{c}", "x.bfloat16().{c}.to(c.dtype)"), "var": ("torch.nan_to_num(c)",),
    "cumsum": ("torch.nan_to_num(x).{c}", "c - x"), "cumprod": ("torch.nan_to_num(x).{c}",),
    "matmul": ("torch.nan_to_num(c)", "c.bfloat16().float()"), "bmm": ("torch.nan_to_num(c)",),
    "long": ("x.to(torch.int16)", "x.float().long()"), "sigmoid": ("torch.nan_to_num(c)",),
    "maximum": ("x",), "minimum": ("x",), "sign": ("torch.where(x < 0, -1.0, 1.0)",), "tanh": ("x / (1 + x.abs())",),
}  # fmt: skip
_NARROWER = {"int64": "int32", "int32": "int16", "int16": "int8", "float32": "float16", "float64": "float32"}


def edits(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """What becomes of an expression, each with words."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        for table, words in ((_TURNED, "turned"), (_NEGATED, "negated"), (_SWAPPED, "swapped")):
            if type(node.ops[0]) in table:
                text = table[type(node.ops[0])]
                yield f"comparison {words}: {text}", _expression(text, a=node.left, b=node.comparators[0])
    elif isinstance(node, ast.BinOp) and type(node.op) in _TERMS:
        for text in _TERMS[type(node.op)]:
            yield f"{type(node.op).__name__} -> {text}", _expression(text, a=node.left, b=node.right)
    elif isinstance(node, ast.Attribute) and node.attr in _NARROWER and isinstance(node.value, ast.Name):
        yield f"{node.attr} narrowed", ast.Attribute(node.value, _NARROWER[node.attr], node.ctx)
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float) and node.value not in (0, 1, -1, 2):
        yield f"{node.value} -> half", ast.Constant(type(node.value)(node.value / 2))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and not isinstance(node.operand, ast.Constant):
        yield "sign dropped", node.operand
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        yield from _of_call(node, node.func)


def _of_call(node: ast.Call, func: ast.Attribute) -> Iterator[tuple[str, ast.expr]]:
    name = func.attr
    if name == "where" and len(node.args) == 3:
        yield "where: always the first", node.args[1]
        yield "where: always the second", node.args[2]
        return
    is_function = ast.unparse(func.value) in ("torch", "F") or "functional" in ast.unparse(func.value)
    operand = node.args[0] if is_function and node.args else func.value
    for text in _CALLS.get(name, ()):
        rest = ast.Call(func, node.args[1:] if is_function else node.args, node.keywords)
        tail = ast.unparse(ast.Call(ast.Name(name), rest.args, rest.keywords))
        yield f"{name} -> {text}", _expression(text.replace("{c}", tail), x=operand, c=node)
    if name == "argmax" and not node.keywords and is_function is False:
        yield "argmax: the last of equals", _expression("x.shape[-1] - 1 - x.flip(-1).argmax(-1)", x=operand)


def mutants(task: Task) -> Iterator[tuple[str, str]]:
    """Candidates that differ from the reference of ``task`` in one place: words, text."""
    tree = ast.parse(task.text)
    kept = [n for n in tree.body if _is_kept(n)]
    function = next((n for n in kept if isinstance(n, ast.FunctionDef) and n.name == "reference"), None)
    if function is None:
        return
    function.name = "kernel"
    places = [n for n in ast.walk(function) if isinstance(n, ast.expr) and not _in_header(function, n)]
    for place in places:
        for words, new in edits(place):
            changed = copy.deepcopy(ast.Module(_replaced(kept, place, new), []))
            yield f"line {place.lineno}: {words}", ast.unparse(ast.fix_missing_locations(changed)) + "\n"


def _in_header(function: ast.FunctionDef, node: ast.expr) -> bool:
    return any(node in ast.walk(d) for d in (*function.args.defaults, *function.args.kw_defaults) if d is not None)


def _replaced(body: list[ast.stmt], place: ast.expr, new: ast.expr) -> list[ast.stmt]:
    class Put(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return new if node is place else self.generic_visit(copy.copy(node))

        def generic_visit(self, node: ast.AST) -> ast.AST:
            for field, value in ast.iter_fields(node):
                if isinstance(value, list):
                    setattr(node, field, [self.visit(v) if isinstance(v, ast.AST) else v for v in value])
                elif isinstance(value, ast.AST):
                    setattr(node, field, self.visit(value))
            return node

    return [Put().visit(statement) for statement in body]  # type: ignore[misc]


def _is_kept(node: ast.stmt) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module != "kernellab"
    if isinstance(node, ast.Assign):
        return not (isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "Dim") and not any(
            isinstance(t, ast.Name) and t.id in ("TOLERANCE", "PRECISION", "DOMAIN", "STATIC") for t in node.targets
        )
    return not (isinstance(node, ast.FunctionDef) and node.name == "inputs") and not (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    )


def chosen(count: int, seed: int, only: str = "", each: int = 1) -> Iterator[tuple[Task, str, str]]:
    """Mutants of ``count`` references in turn, at most ``each`` of one, drawn at random."""
    draw = random.Random(seed)
    files = sorted(BUILTIN.glob("*/*.py"))
    draw.shuffle(files)
    given = 0
    for file in files:
        if given == count:
            return
        if only not in str(file):
            continue
        try:
            task = load_task(file.read_text(), file.stem)
            if task.framework == "numpy" or input_bytes(task) > MOST_BYTES:
                continue
            found = list(mutants(task))
        except (KernellabError, SyntaxError):
            continue
        if found:
            given += 1
            for change, text in draw.sample(found, min(each, len(found))):
                yield task, change, text


def judged(verifier: Verifier, task: Task, change: str, text: str, rank: bool) -> Fate:
    source = Source(dsl="cpp", files={"kernel.py": text}, origin=Author.HUMAN)
    began = time.monotonic()
    try:
        if rank:
            options = RankOptions(allow_library=True, budget=0.05, threads=1)
            ranking = verifier.rank(task, source, TARGET, options=options)
            told = _limits(ranking.conditions)
            fate, words = ranking.stage.value, ranking.reason
            passed = ranking.ranked
        else:
            asked = VerifyOptions(allow_library=True, budget=0.05, threads=1, deadline=120)
            verdict = verifier.verify(task, source, TARGET, options=asked)
            told = _limits(verdict.conditions)
            fate, words, passed = verdict.stage.value, verdict.reason, verdict.passed
        if passed:
            fate, words = ("condition" if told else "passed"), ", ".join(c.label for c in told)
    except KernellabError as error:
        fate, words = "failed", error.message
    return Fate(task.name, change, fate, words, time.monotonic() - began)


def _limits(conditions: Sequence[Condition]) -> list[DrawnLimit | ScalarLimit]:
    """Those that name values for which a kernel is wrong."""
    return [*of(conditions, DrawnLimit), *(c for c in of(conditions, ScalarLimit) if c.refuted)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60, help="references")
    parser.add_argument("--each", type=int, default=1, help="mutants of one reference, at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--skip", type=int, default=0, help="of these mutants, leave out so many")
    parser.add_argument("--only", default="", help="references whose path contains it")
    parser.add_argument("--rank", action="store_true")
    parser.add_argument("--seconds", type=float, default=1800.0, help="begin none after so many seconds")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    end = time.monotonic() + options.seconds
    fates: list[Fate] = []
    with Verifier() as verifier:
        for number, (task, change, text) in enumerate(chosen(options.count, options.seed, options.only, options.each)):
            if number < options.skip:
                continue
            if time.monotonic() > end:
                break
            fates.append(judged(verifier, task, change, text, options.rank))
            one = fates[-1]
            print(
                f"{one.fate:10s} {one.seconds:5.1f} s  {one.task}: {one.change}\n{'':19s}{one.words[:150]}", flush=True
            )
    counts = Counter(f.fate for f in fates)
    killed = sum(n for fate, n in counts.items() if fate not in ("condition", "passed", "failed"))
    print(", ".join(f"{name} {count}" for name, count in counts.most_common()))
    print(f"{killed} of {len(fates)} refused, {counts['condition']} told as conditions, {counts['passed']} passed")
    if options.json:
        options.json.write_text(json.dumps([asdict(f) for f in fates], indent=1))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
