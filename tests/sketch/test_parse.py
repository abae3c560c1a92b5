"""What text means as a tree: every construct of the language, and faults with their lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernellab.errors import SketchError
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.parse import parse, parse_with_faults
from kernellab.sketch.syntax.printer import format

SAMPLES = {p.stem: p.read_text(encoding="utf-8") for p in sorted((Path(__file__).parent / "samples").glob("*.sketch"))}


def body(text: str) -> tuple[tree.Stmt, ...]:
    return parse("sketch s {\n" + text + "\n}").sketches[0].body


def only(text: str) -> tree.Stmt:
    (stmt,) = body(text)
    return stmt


def declared(text: str) -> tuple[tree.Declaration, ...]:
    return parse("sketch s {\n" + text + "\n}").sketches[0].declarations


N = tree.Name


def test_figure_2_of_the_paper_parses_unchanged() -> None:
    (sketch,) = parse(SAMPLES["paper_figure_2"]).sketches
    assert sketch.name == "rms_norm_optimized"
    assert [d.kind for d in sketch.declarations] == ["symbols", "tensors", "constexpr"]
    (outer,) = sketch.body
    assert isinstance(outer, tree.For) and outer.var == "b"
    assert outer.comments.before == () and outer.hints[0].comments.before == (
        "Reduce parallel dimensions, only parallelize on batch and D1 dimensions",
    )
    assert outer.hints[0].args == (tree.Str("parallel"), tree.Str("coreidx"))


def test_declarations_of_every_kind_on_one_line() -> None:
    found = declared(
        "symbols: M, N; tensors: X[M, N]: f32; Y[M+1]: f16 out; constexpr: eps = 1e-6; B = 8 in {8, 16}; T;"
        " require: B >= 8; B % 8 == 0; opaque: fft(x[N]: f32) -> [N]: f32;"
    )
    assert [d.kind for d in found] == ["symbols", "tensors", "constexpr", "require", "opaque"]
    assert found[0].items == (tree.SymbolDecl("M"), tree.SymbolDecl("N"))
    assert found[1].items == (
        tree.TensorDecl("X", (N("M"), N("N")), "f32"),
        tree.TensorDecl("Y", (tree.Binary("+", N("M"), tree.Num(1)),), "f16", "out"),
    )
    assert found[2].items == (
        tree.ConstDecl("eps", tree.Num(1e-6)),
        tree.ConstDecl("B", tree.Num(8), (tree.Num(8), tree.Num(16))),
        tree.ConstDecl("T"),
    )
    assert len(found[3].items) == 2
    assert found[4].items == (tree.OpaqueDecl("fft", (tree.TensorDecl("x", (N("N"),), "f32"),), (N("N"),), "f32"),)


def test_declarations_go_on_over_indented_lines() -> None:
    (found,) = declared("  tensors: X[N]: f32;\n           Y[N]: f32 out;")
    assert [t.name for t in found.items if isinstance(t, tree.TensorDecl)] == ["X", "Y"]


@pytest.mark.parametrize(
    "text", ["constexpr: eps, TILE_SIZE;", "constexpr: eps, TILE_SIZE", "constexpr: eps; TILE_SIZE;"]
)
def test_constexprs_may_be_a_comma_list(text: str) -> None:
    (found,) = declared(text)
    assert found.items == (tree.ConstDecl("eps"), tree.ConstDecl("TILE_SIZE"))


def test_bare_constants_before_the_loop_are_constexprs() -> None:
    found = declared("m0, n0 = 128, 256\ntile = 64\nfor i in range(m0):\n  x = 1.0")
    assert [(d.kind, d.items) for d in found] == [
        ("constexpr", (tree.ConstDecl("m0", tree.Num(128)), tree.ConstDecl("n0", tree.Num(256)))),
        ("constexpr", (tree.ConstDecl("tile", tree.Num(64)),)),
    ]


def test_a_number_that_is_written_again_is_a_tile() -> None:
    assert declared("acc = 0.0\nfor i in range(4):\n  acc = acc + 1.0") == ()


def test_moves() -> None:
    region = tree.Subscript("X", (N("m"), tree.Slice(N("n"), tree.Binary("+", N("n"), N("B")))))
    pad = tree.Keyword("pad", tree.Num(float("-inf")))
    assert only("load(X[m, n:n+B] -> x, pad=-inf)") == tree.Move("load", region, N("x"), (pad,))
    assert only("store(x -> X[m, n:n+B])") == tree.Move("store", N("x"), region)
    assert only("gather(T, i -> x)") == tree.Move("gather", tree.List((N("T"), N("i"))), N("x"))


def test_slices_with_missing_bounds_and_steps() -> None:
    stmt = only("load(X[:, ::2, 1:] -> x)")
    assert isinstance(stmt, tree.Move) and isinstance(stmt.source, tree.Subscript)
    assert stmt.source.items == (tree.Slice(), tree.Slice(step=tree.Num(2)), tree.Slice(tree.Num(1)))


def test_new_axis() -> None:
    stmt = only("y = x[:, None]")
    assert isinstance(stmt, tree.Assign)
    assert stmt.value == tree.Subscript("x", (tree.Slice(), tree.NewAxis()))


@pytest.mark.parametrize("value", ["exp(x)", "(x + 1.0)", "library.mm(x, y)"])
def test_a_value_without_a_name_gets_a_new_axis_and_is_printed_so(value: str) -> None:
    stmt = only(f"y = {value}[:, None]")
    assert isinstance(stmt, tree.Assign) and isinstance(stmt.value, tree.Indexed)
    assert stmt.value.items == (tree.Slice(), tree.NewAxis())
    frame = "sketch s {{\n    symbols: N;\n    tensors: X[N]: f32;\n\n    y = {}[:, None]\n}}\n"
    assert format(parse(frame.format(value))).endswith(frame.format(value).partition("\n\n")[2])


def test_positional_after_keyword_is_marked() -> None:
    stmt = only("reduce_max(x, axis=0, m)")
    assert isinstance(stmt, tree.CallStmt)
    assert stmt.call == tree.Call("reduce_max", (N("x"), N("m")), (tree.Keyword("axis", tree.Num(0)),))
    assert stmt.call.misordered


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("a + b * c", "(a + (b * c))"),
        ("a - b - c", "((a - b) - c)"),
        ("-a ** 2", "(- (a ** 2))"),
        ("a ** -b", "(a ** (- b))"),
        ("a // b % c", "((a // b) % c)"),
        ("(a + b) * c", "((a + b) * c)"),
        ("a < b + c", "(a < (b + c))"),
        ("a < b <= c", "((a < b) and (b <= c))"),
        ("not a == b or c", "((not (a == b)) or c)"),
    ],
)
def test_precedence(text: str, shape: str) -> None:
    def show(e: tree.Expr) -> str:
        if isinstance(e, tree.Binary):
            return f"({show(e.left)} {e.op} {show(e.right)})"
        if isinstance(e, tree.Unary):
            return f"({e.op} {show(e.operand)})"
        assert isinstance(e, (tree.Name, tree.Num))
        return e.id if isinstance(e, tree.Name) else str(e.value)

    stmt = only(f"x = {text}")
    assert isinstance(stmt, tree.Assign)
    assert show(stmt.value) == shape


def test_if_elif_else_nest() -> None:
    stmt = only("if a == 0:\n  x = 1.0\nelif a == 1:\n  x = 2.0\nelse:\n  x = 3.0")
    assert isinstance(stmt, tree.If)
    (inner,) = stmt.orelse
    assert isinstance(inner, tree.If) and len(inner.orelse) == 1


def test_several_statements_on_a_line_and_behind_a_colon() -> None:
    assert len(body("load(X[0] -> x); y = x; store(y -> Y[0]);")) == 3
    stmt = only("for i in range(N): load(X[i] -> x); store(x -> Y[i])")
    assert isinstance(stmt, tree.For) and len(stmt.body) == 2


def test_a_statement_goes_on_inside_brackets() -> None:
    assert only("y = add(a,\n        b)  # both") == only("y = add(a, b)")


def test_pins_and_comments_are_kept() -> None:
    first, second = body("# above\nload(X[0] -> x)  # behind  #: pin\ny = x  #: pin")
    assert first.comments == tree.Comments(("above",), "behind") and first.pinned
    assert second.comments == tree.NO_COMMENTS and second.pinned


def test_places_are_those_of_the_file_also_for_lines_read_before() -> None:
    text = "sketch s {\n  load(X[0] -> x)\n}"
    moved = "\n\n# comment\n" + text
    for source, line in ((text, 2), (moved, 5), (text, 2)):
        (stmt,) = parse(source).sketches[0].body
        assert isinstance(stmt, tree.Move)
        assert (stmt.span.line, stmt.span.col) == (line, 3)
        assert stmt.source.span.line == line


def test_windows_line_ends_and_tabs() -> None:
    assert parse("sketch s {\r\n\tfor i in range(N):\r\n\t\tx = 1.0\r\n}\r\n") == parse(
        "sketch s {\n    for i in range(N):\n        x = 1.0\n}\n"
    )


@pytest.mark.parametrize(
    ("short", "long"),
    [("x -= y * 2.0 + 1.0", "x = x - (y * 2.0 + 1.0)"), ("x **= 2", "x = x ** 2"), ("x //= y", "x = x // y"),
     ("x |= y", "x = x | y"), ("x <<= 2", "x = x << 2")],
)  # fmt: skip
def test_an_augmented_assignment_is_the_assignment(short: str, long: str) -> None:
    frame = "sketch s {{\n    symbols: N;\n    tensors: X[N]: f32;\n    for n in range(N):\n        {}\n}}\n"
    assert format(parse(frame.format(short))) == format(parse(frame.format(long)))


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("for i in range(N)", "colon"),
        ("for x in xs:", "range"),
        ("y = x.T", "transpose"),
        ("y = x @ z", "gemm"),
        ("y = x[:, None][None]", "statement"),
        ("while x:", "while"),
        ("return x", "returns nothing"),
        ("store(x, Y)\nload(X[0] x)", "->"),
        ("Y[0] = x", "store"),
        ("y = (a + ", "closed"),
        ("y = a $ b", "$"),
        ("@unroll\nfor i in range(N):\n  y = 1.0", "unroll"),
        ("else:\n  y = 1.0", "no if"),
    ],
)
def test_faults_say_what_and_where(line: str, word: str) -> None:
    with pytest.raises(SketchError) as caught:
        body(line)
    found = caught.value.diagnostics
    assert any(word in d.message + d.remedy for d in found), found
    assert all(2 <= d.line <= 6 for d in found)


def test_an_unclosed_sketch_is_a_fault() -> None:
    with pytest.raises(SketchError, match="ends inside a sketch"):
        parse("sketch s {\n  x = 1.0\n")


def test_an_unreadable_loop_after_a_hint_gives_its_own_fault_alone() -> None:
    text = """sketch warm {
    symbols: N;
    tensors: X[N]: f32; Y[N]: f32 out;
    @llm_hint("parallel", "core")
    for m in range(N, step=2):
        load(X[m] -> x)
        store(x -> Y[m])
}
"""
    _, faults = parse_with_faults(text)
    assert [(fault.line, fault.message) for fault in faults] == [(5, "range takes no 'step='.")]
    assert faults[0].col == text.splitlines()[4].index("step") + 1
