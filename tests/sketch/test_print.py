"""Printing is canonical: parse(print(t)) == t for every tree, and print(parse(text)) is a fixed point."""

from __future__ import annotations

import string
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.parse import parse
from kernellab.sketch.syntax.printer import format

SAMPLES = {p.stem: p.read_text(encoding="utf-8") for p in sorted((Path(__file__).parent / "samples").glob("*.sketch"))}

_RESERVED = {"for", "in", "range", "if", "elif", "else", "and", "or", "not", "true", "false", "True", "False", "None",
             "inf", "sketch", "symbols", "tensors", "constexpr", "require", "opaque"}  # fmt: skip
names = st.text(string.ascii_letters + "_", min_size=1, max_size=6).filter(lambda n: n not in _RESERVED)
numbers = st.one_of(
    st.integers(0, 10**6),
    st.floats(0, 1e12, allow_nan=False).filter(lambda f: f != int(f) or f < 1e15),
    st.just(float("inf")),
    st.integers(-100, -1),
    st.just(float("-inf")),
).map(tree.Num)
atoms: st.SearchStrategy[tree.Expr] = st.one_of(names.map(tree.Name), numbers, st.booleans().map(tree.Bool))


def _unary(op: str, operand: tree.Expr) -> tree.Expr:
    # -1 is a literal, so a minus before a number is not a Unary
    return operand if isinstance(operand, tree.Num) and op == "-" else tree.Unary(op, operand)


def _grow(inner: st.SearchStrategy[tree.Expr]) -> st.SearchStrategy[tree.Expr]:
    arithmetic = ["+", "-", "*", "/", "//", "%", "**", "&", "|", "^", "<<", ">>"]
    ops = st.sampled_from([*arithmetic, "<", "<=", ">", ">=", "==", "!=", "and", "or"])
    keywords = st.lists(st.builds(tree.Keyword, names, inner), max_size=2).map(tuple)
    slices = st.builds(tree.Slice, st.none() | inner, st.none() | inner, st.none() | inner)
    items = st.lists(inner | slices | st.just(tree.NewAxis()), min_size=1, max_size=3).map(tuple)
    return st.one_of(
        st.builds(tree.Binary, ops, inner, inner),
        st.builds(_unary, st.sampled_from(["-", "+", "~", "not"]), inner),
        st.builds(tree.Call, names, st.lists(inner, max_size=3).map(tuple), keywords),
        st.builds(tree.Subscript, names, items),
        st.builds(tree.List, st.lists(inner, min_size=1, max_size=3).map(tuple)),
    )


exprs = st.recursive(atoms, _grow, max_leaves=8)
comments = st.builds(
    tree.Comments,
    st.lists(st.sampled_from(["first", "a # b", ""]), max_size=2).map(tuple),
    st.none() | st.sampled_from(["why", "because of x"]),
)
calls = st.builds(tree.Call, names, st.lists(exprs, max_size=3).map(tuple))
assigns = st.builds(
    tree.Assign,
    st.lists(names.map(tree.Name), min_size=1, max_size=2).map(tuple),
    # a bare number before the first loop would be a constexpr
    exprs.filter(lambda e: not isinstance(e, tree.Num)),
    comments,
    st.booleans(),
)
moves = st.builds(
    tree.Move,
    st.sampled_from(["load", "store", "atomic_add"]),
    exprs.filter(lambda e: not isinstance(e, tree.List)),
    exprs,
    st.just(()) | st.just((tree.Keyword("pad", tree.Num(0)),)),
    comments,
    st.booleans(),
)
simple = st.one_of(assigns, moves, st.builds(tree.CallStmt, calls, comments, st.booleans()))
hints = st.lists(
    st.builds(tree.Hint, st.lists(st.just(tree.Str("parallel")) | numbers, max_size=2).map(tuple)), max_size=2
)


def _blocks(inner: st.SearchStrategy[tree.Stmt]) -> st.SearchStrategy[tree.Stmt]:
    bodies = st.lists(inner, min_size=1, max_size=3).map(tuple)
    ranges = st.lists(exprs, min_size=1, max_size=3).map(tuple)
    return st.one_of(
        st.builds(tree.For, names, ranges, bodies, hints.map(tuple), comments, st.booleans()),
        st.builds(tree.If, exprs, bodies, st.just(()) | bodies, comments, st.booleans()),
    )


stmts = st.recursive(simple, _blocks, max_leaves=6)
tensors = st.builds(
    tree.TensorDecl, names, st.lists(exprs, max_size=3).map(tuple), st.sampled_from(["f32", "bf16"]),
    st.sampled_from([None, "in", "out", "inout", "temp"]),
)  # fmt: skip
consts = st.builds(
    tree.ConstDecl, names, st.none() | numbers, st.lists(numbers, max_size=3).map(tuple)
).filter(lambda c: c.value is not None or not c.choices)  # fmt: skip
declarations = st.one_of(
    st.builds(
        tree.Declaration,
        st.just("symbols"),
        st.lists(st.builds(tree.SymbolDecl, names, st.none() | numbers), min_size=1, max_size=3).map(tuple),
        comments,
    ),
    st.builds(
        tree.Declaration,
        st.just("tensors"),
        st.lists(tensors, min_size=1, max_size=3).map(tuple),
        comments,
        st.booleans(),
    ),
    st.builds(tree.Declaration, st.just("constexpr"), st.lists(consts, min_size=1, max_size=3).map(tuple), comments),
    st.builds(tree.Declaration, st.just("require"), st.lists(exprs, min_size=1, max_size=2).map(tuple), comments),
)
sketches = st.builds(
    tree.Sketch, names, st.lists(declarations, max_size=3).map(tuple), st.lists(stmts, max_size=3).map(tuple), comments
)
files = st.builds(tree.SketchFile, st.lists(sketches, min_size=1, max_size=2).map(tuple))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(files)
def test_parse_undoes_print(file: tree.SketchFile) -> None:
    text = format(file)
    assert parse(text) == file
    assert format(text) == text


@pytest.mark.parametrize("name", SAMPLES)
def test_printing_samples_is_a_fixed_point(name: str) -> None:
    text = format(SAMPLES[name])
    assert parse(text) == parse(SAMPLES[name])
    assert format(text) == text


@pytest.mark.parametrize("name", SAMPLES)
def test_no_comment_is_lost(name: str) -> None:
    def words(text: str) -> list[str]:
        return sorted(line.split("#", 1)[1].strip() for line in text.splitlines() if "#" in line)

    assert words(format(SAMPLES[name])) == words(SAMPLES[name])


def test_comments_keep_their_places() -> None:
    text = """# top
sketch s {  # head
    # declarations
    symbols: N;  # sizes

    # the loop
    @llm_hint("parallel")  # one a core
    for i in range(N):  # rows  #: pin
        # inside
        x = alloc([N])  #: pin
        if i == 0:
            y = x
        else:
            # otherwise
            z = x
    # last
}

# end
"""
    assert format(text) == text


# ruff: noqa: E501 - sketches on one line
def test_equal_spellings_of_layout_print_alike() -> None:
    loose = 'sketch  s{symbols:M,N\n  tensors:X[ M,N ]:f32\n  @llm_hint( "parallel" )\n  for m in range( M ) :\n      load( X[ m , 0 : N ]->x );y=x*2;\n}'
    tight = 'sketch s {\n symbols: M, N;\n tensors: X[M, N]: f32;\n @llm_hint("parallel")\n for m in range(M):\n  load(X[m, 0:N] -> x)\n  y = x * 2\n}'
    assert format(loose) == format(tight)
