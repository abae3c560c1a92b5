"""What the text leaves implicit: dtypes, casts, scopes, roles, hints, and which assignment declares a tile."""

from __future__ import annotations

import re

import pytest

from kernellab.errors import SketchError
from kernellab.sketch.check import check, load_program

# ruff: noqa: E501 - sketches on one line
from kernellab.sketch.program.ints import num
from kernellab.sketch.program.program import (
    Alloc,
    Apply,
    Assign,
    Const,
    DType,
    Index,
    Load,
    Loop,
    LoopHints,
    MultiAssign,
    Param,
    Program,
    Range,
    Read,
    Store,
    TensorRole,
    Value,
)
from kernellab.sketch.program.walk import statements

HEAD = (
    "sketch s {\n  symbols: M, N;\n"
    "  tensors: X[M, N]: f32; H[M, N]: f16; D[M, N]: f64; I[M, N]: i32; B[M, N]: bool; P[M, N]: u8;\n"
    "  constexpr: T = 8; eps = 1e-6; alpha;\n"
    "  load(X[0, 0:T] -> x); load(H[0, 0:T] -> h); load(D[0, 0:T] -> d); load(I[0, 0:T] -> i)\n"
    "  load(B[0, 0:T] -> b); load(P[0, 0:T] -> p)\n"
)


def program(body: str, head: str = HEAD) -> Program:
    return load_program(head + "  " + body.strip().replace("\n", "\n  ") + "\n}")


def last(body: str) -> Assign:
    stmt = program(body).kernels[0].body[-1]
    assert isinstance(stmt, Assign)
    return stmt


def rules(body: str, head: str = HEAD) -> list[str]:
    return [d.rule for d in check(head + "  " + body.strip().replace("\n", "\n  ") + "\n}").errors]


def apply(value: Value) -> Apply:
    assert isinstance(value, Apply)
    return value


@pytest.mark.parametrize(
    ("expr", "dtype"),
    [
        ("x + 1", "f32"), ("h + h", "f32"), ("h + d", "f64"), ("h", "f16"), ("x * d", "f64"), ("x + i", "f32"),
        ("i + 1", "i32"), ("i + 1.5", "f32"), ("i / i", "f32"), ("i // 2", "i32"), ("b + 1", "i64"), ("p + p", "u8"),
        ("p + i", "i32"), ("x > 0", "bool"), ("logical_and(b, x > 0)", "bool"), ("cast(x, bf16)", "bf16"),
        ("cast(x, bf16) * 2", "f32"), ("h[:, None]", "f16"), ("reduce_sum(h)", "f32"), ("reduce_sum(d)", "f64"),
        ("exp(d)[None]", "f64"), ("arange(T)[:, None] + d", "f64"), ("(i + 1)[None]", "i32"), ("cast(x, bf16)[:, None]", "bf16"),
        ("reduce_sum(b)", "i64"), ("reduce_sum(i)", "i64"), ("reduce_max(i)", "i32"), ("reduce_mean(full([T], 1))", "f32"),
        ("argmax(h)", "i64"), ("reduce_any(x > 0)", "bool"), ("cumsum(i)", "i64"), ("exp(i)", "f32"), ("exp(h)", "f32"),
        ("min(h, 1.0)", "f32"), ("where(b, i, 0)", "i32"), ("where(b, 1.0, 0.0)", "f32"), ("arange(T)", "i64"),
        ("dot(h[None, :], h[:, None])", "f32"), ("dot(p[None, :], p[:, None])", "i32"), ("full([T], 0.0)", "f32"),
        ("full([T], 0, bf16)", "bf16"), ("x ** 2", "f32"), ("round(h)", "f32"), ("concat(h, h, axis=0)", "f16"),
    ],
)  # fmt: skip
def test_dtype_of_values(expr: str, dtype: str) -> None:
    assert last(f"y = {expr}").tile.dtype.value == dtype


@pytest.mark.parametrize(
    ("expr", "written"),
    [
        ("x.sum(0)", "reduce_sum(x, axis=...)"), ("x.t()", "transpose(x)"), ("torch.exp(x)", "exp(tile)"),
        ("x.max()", "reduce_max(x, axis=...)"), ("torch.amax(x, -1)", "reduce_max(tile, axis=...)"),
        ("sum(x)", "reduce_sum(tile, axis=...)"), ("mean(x)", "reduce_mean(tile, axis=...)"),
        ("max(x)", "max(a, b) for two values; of one tile, reduce_max(x, axis=...)"), ("maximum(x, 0)", "max."), ("x.maximum(y)", "max(x, ...)"),
    ],
)  # fmt: skip
def test_pytorch_s_methods_are_told_as_operations(expr: str, written: str) -> None:
    with pytest.raises(SketchError, match=re.escape(f"Write {written}")):
        last(f"y = {expr}")


@pytest.mark.parametrize(
    ("body", "dtype"),
    [
        ("a = alloc([T])\nload(H[0, 0:T] -> a)", "f16"),
        ('a = alloc([T], llm_hint=["accumulator", "init_zero"])\na = a + h', "f32"),
        ('a = alloc([T], llm_hint=["accumulator", "init_zero"])\na = a + d', "f64"),
        ('a = alloc([T], llm_hint="init_zero")\na = a + i', "i32"),
        ("a = alloc([T])\nmul(h, h, a)", "f32"),
        ("a = alloc([T])\na = h", "f16"),
        ("a = alloc([T], bf16)\na = x", "bf16"),
        ("a = alloc([T])\nif T > 4:\n  a = d", "f64"),
        ("a = alloc([T], llm_hint=\"init_zero\")\nc = alloc([T])\nc = a * 2\na = d", "f64"),
        ('a = alloc([T, T], llm_hint="init_zero")\nload(P[0:T, 0:T] -> q)\ngemm(q, q, a)', "i32"),
        ('a = alloc([T, T], llm_hint="init_zero")\nload(H[0:T, 0:T] -> q)\ngemm(q, q, a)', "f32"),
        ("a = -inf\na = max(a, reduce_max(d))", "f64"),
        ("a = 0\nfor k in range(4):\n  a = a + reduce_sum(h)", "f32"),
        ("a = full([T], -inf)\na = max(a, d)", "f64"),
    ],
)  # fmt: skip
def test_dtype_of_tiles_that_do_not_say(body: str, dtype: str) -> None:
    tiles = [s.tile for s in statements(program(body).kernels[0].body) if isinstance(s, (Alloc, Assign, Load))]
    assert next(t for t in tiles if t.name == "a").dtype.value == dtype


def test_rounding_happens_where_a_narrower_tile_is_written() -> None:
    stmt = last("a = alloc([T], f16)\na = h * 2")
    outer = apply(stmt.value)
    assert (outer.op, outer.type.dtype) == ("cast", DType.F16)
    product = apply(outer.args[0])
    assert (product.op, product.type.dtype) == ("mul", DType.F32)
    assert apply(product.args[0]).op == "cast"


def test_storing_casts_to_the_tensor() -> None:
    found = program("store(x -> Y[0, 0:T])", HEAD.replace("P[M, N]: u8;", "P[M, N]: u8; Y[1, T]: f16;"))
    stmt = found.kernels[0].body[-1]
    assert isinstance(stmt, Store)
    assert (apply(stmt.value).op, stmt.value.type.dtype) == ("cast", DType.F16)
    assert found.tensor("Y").role is TensorRole.OUT


def test_three_spellings_mean_the_same() -> None:
    values = [
        last(b).value
        for b in ("c = alloc([T])\nadd(x, d, c)", "c = alloc([T])\nc = add(x, d)", "c = alloc([T])\nc = x + d")
    ]
    assert values[0] == values[1] == values[2]


def test_weak_numbers_take_the_dtype_of_what_they_meet() -> None:
    value = apply(last("y = d * (1.0 / N) + eps").value)
    assert value.type.dtype is DType.F64
    assert isinstance(value.args[1], Param) and value.args[1].type.dtype is DType.F64
    scale = apply(apply(value.args[0]).args[1])
    assert scale.op == "div" and scale.type.dtype is DType.F64
    assert isinstance(scale.args[0], Const) and isinstance(scale.args[1], Index)


def test_first_assignment_declares_and_later_ones_update() -> None:
    found = program("a = x + 1\nfor k in range(3):\n  a = a * 2\n  c = a")
    assigns = [s for s in statements(found.kernels[0].body) if isinstance(s, Assign)]
    assert [(a.tile.name, a.declares) for a in assigns] == [("a", True), ("a", False), ("c", True)]


def test_sibling_blocks_have_their_own_tiles() -> None:
    found = program("for k in range(3):\n  c = x\nfor k in range(3):\n  c = d")
    tiles = [s.tile for s in statements(found.kernels[0].body) if isinstance(s, Assign)]
    assert [(t.name, t.dtype.value) for t in tiles] == [("c", "f32"), ("c", "f64")]
    assert tiles[0].uid != tiles[1].uid


def test_a_tile_ends_with_its_block() -> None:
    assert rules("for k in range(3):\n  c = x\ny = c") == ["unknown-name"]


def test_an_index_name_is_not_a_tile() -> None:
    found = program("for k in range(M):\n  row = k * T\n  load(X[k, row:row+T] -> y)")
    loop = found.kernels[0].body[-1]
    assert isinstance(loop, Loop)
    (load,) = loop.body
    assert isinstance(load, Load)
    item = load.region.index[1]
    assert isinstance(item, Range)
    assert (str(item.start), str(item.extent)) == ("(k * T)", "T")


def test_scalar_index_drops_its_dimension() -> None:
    found = program("load(X[1, 0:T] -> y)\nload(X[1, 2] -> z)\nload(X[0:T, :] -> w)")
    loads = [s.tile for s in found.kernels[0].body if isinstance(s, Load)][-3:]
    assert [len(t.shape) for t in loads] == [1, 0, 2]


def test_one_element_slices_stand_for_a_tile_of_one() -> None:
    body = "m = alloc([1])\nreduce_max(x, m, axis=0)\nstore(m -> Y[0])"
    stmt = program(body, HEAD.replace("P[M, N]: u8;", "P[M, N]: u8; Y[1]: f32;")).kernels[0].body[-1]
    assert isinstance(stmt, Store) and stmt.region.shape == (num(1),)


def test_ceil_divides_indices_and_rounds_tiles() -> None:
    found = program("r = alloc([T])\nceil(x, r)\nfor k in range(ceil(N, T)):\n  y = ceil(x)")
    assert apply(found.kernels[0].body[-2].value).op == "ceil"  # type: ignore[union-attr]
    loop = found.kernels[0].body[-1]
    assert isinstance(loop, Loop) and loop.stop.op == "cdiv"


def test_hints_of_a_loop() -> None:
    text = '@llm_hint("parallel", "grididx.x")\n@llm_hint("swizzle", 4)\nfor m in range(M):\n  @llm_hint("pipeline", 3, "unroll")\n  for n in range(N):\n    y = 1.0'
    outer = program(text).kernels[0].body[-1]
    assert isinstance(outer, Loop)
    assert outer.hints == LoopHints(parallel=True, axis="grididx.x", swizzle=4)
    inner = outer.body[0]
    assert isinstance(inner, Loop)
    assert inner.hints == LoopHints(pipeline=3, unroll=0)


def test_welford_has_two_results() -> None:
    stmt = program("load(H[0, :] -> row)\nmean, var = welford(row, axis=0)").kernels[0].body[-1]
    assert isinstance(stmt, MultiAssign)
    assert [t.dtype for t in stmt.tiles] == [DType.F32, DType.F32]
    assert stmt.declares == (True, True) and dict(stmt.attrs)["axes"] == (0,)


def test_softmax_is_along_the_last_axis_where_none_is_given() -> None:
    *_, plain = program("y = softmax(h)").kernels[0].body
    *_, named = program("y = softmax(h, axis=-1)").kernels[0].body
    assert isinstance(plain, Assign) and isinstance(named, Assign)
    assert plain.value == named.value


def test_softmax_expands_and_keeps_its_exponentials() -> None:
    *_, kept, stmt = program("y = softmax(h, axis=0)").kernels[0].body
    assert isinstance(kept, Assign) and apply(kept.value).op == "exp"
    assert isinstance(stmt, Assign)
    value = apply(stmt.value)
    assert value.op == "div" and value.args[0] == Read(kept.value.type, kept.tile)


def test_constexprs_know_whether_they_are_extents() -> None:
    found = {c.name: c for c in program("y = x * eps + alpha").constexprs}
    assert {n: c.is_extent for n, c in found.items()} == {"T": True, "eps": False, "alpha": False}
    assert found["alpha"].value is None


def test_roles_are_inferred_and_temp_is_shared() -> None:
    text = """sketch a {
  symbols: N;
  tensors: X[N]: f32; P[N]: f32 temp;
  load(X[0:N] -> x)
  store(x -> P[0:N])
}
sketch b {
  tensors: P[N]: f32 temp; Y[N]: f32;
  load(P -> p)
  store(p -> Y)
}"""
    found = load_program(text)
    assert {t.name: t.role.value for t in found.tensors} == {"X": "in", "P": "temp", "Y": "out"}
    assert [(sorted(k.reads), sorted(k.writes)) for k in found.kernels] == [(["X"], ["P"]), (["P"], ["Y"])]


def test_opaque_operations_are_typed_and_named() -> None:
    text = HEAD.replace("  load(X", "  opaque: fft(v[K]: f32) -> [K, 2]: f32;\n  load(X", 1)
    found = program("y = fft(h)", text)
    stmt = found.kernels[0].body[-1]
    assert isinstance(stmt, Assign)
    assert [str(d) for d in stmt.tile.shape] == ["T", "2"]
    assert found.opaque == ("fft",)


def test_places_refer_to_the_given_text() -> None:
    found = program("y = x")
    stmt = found.kernels[0].body[-1]
    assert found.text.splitlines()[stmt.span.line - 1].strip() == "y = x"


def test_load_program_raises_with_the_diagnostics() -> None:
    with pytest.raises(SketchError, match="Unknown name 'xx'") as caught:
        program("y = xx\nz = yy")
    assert [d.rule for d in caught.value.diagnostics] == ["unknown-name", "unknown-name"]


def test_a_wrong_statement_does_not_cascade() -> None:
    assert rules("y = xx\nz = y + 1\nw = z") == ["unknown-name"]
    assert rules("load(X[0, q:q+T] -> now)\ny = exp(now) + q") == ["unknown-name"]
    assert rules("load(X[0, 0:T] -> now[0:3])\ny = exp(now)") == ["arguments"]
    assert rules("load(now <- X[0, 0:T])\ny = exp(now)") == ["arguments"]
    assert rules("now[0] = x\ny = exp(now)") == ["syntax"]
    assert rules("y = xx\nz = yy") == ["unknown-name"] * 2, "two faults are two"


def test_a_tile_of_a_block_that_ended_is_told_with_the_line_that_made_it() -> None:
    text = HEAD + "  for i in range(2):\n    load(X[i, 0:T] -> now)\n  y = exp(now)\n}\n"
    (found,) = (d for d in check(text).diagnostics if d.rule == "unknown-name")
    made = next(n for n, line in enumerate(text.split("\n"), start=1) if "-> now" in line)
    assert found.rule == "unknown-name" and f"The tile of line {made} ended with its block" in found.remedy
    never = check(HEAD + "  for i in range(2):\n    y = exp(now)\n  z = exp(now)\n}\n").diagnostics
    told = [d.remedy for d in never if d.rule == "unknown-name"]
    assert len(told) == 1 and "ended" not in told[0]


def test_results_do_not_depend_on_what_was_read_before() -> None:
    first = program("y = x * eps")
    load_program(
        "sketch o {\n  symbols: M, N;\n  tensors: X[M, N]: f64;\n  constexpr: T = 8; eps = 2;\n  load(X[0, 0:T] -> x)\n  y = x * eps\n}"
    )
    assert program("y = x * eps") == first
