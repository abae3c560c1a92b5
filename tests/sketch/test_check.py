"""One sketch a rule: what the checker says, and where."""

from __future__ import annotations

import re

import pytest

from kernellab.sketch.check import check
from kernellab.sketch.syntax.messages import MESSAGES
from kernellab.target import Chip

HEAD = "sketch s {\n  symbols: M, N;\n  tensors: X[M, N]: f32; Y[M, N]: f32 out;\n  constexpr: T = 8;\n"


def sketch(body: str, head: str = HEAD) -> str:
    return head + body.strip("\n") + "\n}\n"


COPY = """
  @llm_hint("parallel")
  for m in range(M):
    for n in range(0, N, T):
      load(X[m, n:n+T] -> x)
      store(x -> Y[m, n:n+T])
"""

# ruff: noqa: E501 - one case a line reads as a table
#: rule -> (line of the first diagnostic of that rule, text)
#: rows of X go to rows of Y that I names
PICKED = HEAD.replace("Y[M, N]: f32 out", "Y[M, N]: f32 inout; I[M]: i64")
PICK = """
  @llm_hint("parallel")
  for m in range(0, M, T):
    load(I[m:m+T] -> at, pad=-1)
    load(X[m:m+T, 0:T] -> x)
"""
CASES = {
    "syntax": (6, sketch("  for m in range(M):\n    x = +\n")),
    "bracket": (5, sketch("  x = (1\n  load(X[0, 0:T] -> y)\n")),
    "indent": (6, sketch("  load(X[0, 0:T] -> x)\n      load(X[1, 0:T] -> y)\n")),
    "dedent": (7, sketch("  for m in range(M):\n      load(X[m, 0:T] -> x)\n    load(X[m, 0:T] -> y)\n")),
    "no-sketch": (1, "# nothing\n"),
    "layout": (6, sketch('  @llm_hint("parallel")\n  load(X[0, 0:T] -> x)\n')),
    "misplaced": (6, sketch("  for m in range(M):\n    a, b = 1, 2\n")),
    "keyword-order": (7, sketch("  load(X[0, 0:T] -> x)\n  s = alloc([1])\n  reduce_max(x, axis=0, s)\n")),
    "too-deep": (5, sketch("  x = 1.5" + " + 1.5" * 2000)),
    "unknown-name": (5, sketch("  y = xs + 1\n")),
    "unknown-operation": (6, sketch("  load(X[0, 0:T] -> x)\n  y = rsqr(x)\n")),
    "unknown-dtype": (5, sketch("  x = alloc([T], float32)\n")),
    "unknown-hint": (5, sketch(COPY.replace("parallel", "paralel"))),
    "declared-twice": (5, sketch("  load(X[0, 0:T] -> M)\n")),
    "unknown-role": (3, sketch(COPY, HEAD.replace("f32 out", "f32 output"))),
    "conflicting-declaration": (
        13,
        sketch(COPY) + "sketch t {\n  symbols: M, N;\n  tensors: X[M, N]: f16;\n}\n",
    ),
    "role": (6, sketch("  load(X[0, 0:T] -> x)\n  store(x -> X[0, 0:T])\n", HEAD.replace("f32;", "f32 in;", 1))),
    "constexpr-value": (4, sketch(COPY, HEAD.replace("T = 8", "T = 7 in {8, 16}"))),
    "unused-output": (3, sketch("  load(X[0, 0:T] -> x)\n")),
    "unused-name": (9, sketch(COPY.replace("store", "again = x * 2\n      again = again + 1\n      store"))),
    "arguments": (6, sketch("  load(X[0, 0:T] -> x)\n  y = exp(x, x, x)\n")),
    "shape-mismatch": (7, sketch("  load(X[0, 0:T] -> x)\n  load(X[0, 0:N] -> y)\n  z = x + y\n")),
    "new-name": (7, sketch("  load(X[0, 0:T] -> x)\n  load(X[0, 0:N] -> y)\n  x = y\n")),
    "alloc-visible": (6, sketch("  x = alloc([T])\n  x = alloc([T])\n")),
    "not-index": (5, sketch("  x = alloc([1.5])\n")),
    "rank": (5, sketch("  load(X[0:T] -> x)\n")),
    "extent-varies": (6, sketch("  for m in range(M):\n    load(X[m, 0:m] -> x)\n")),
    "axis": (6, sketch("  load(X[0, 0:T] -> x)\n  y = reduce_sum(x, axis=1)\n")),
    "gemm-assign": (7, sketch("  load(X[0:T, 0:T] -> a)\n  load(X[0:T, 0:T] -> b)\n  c = gemm(a, b)\n")),
    "tensor-as-value": (5, sketch("  y = X * 2\n")),
    "tile-logic": (6, sketch("  load(X[0, 0:T] -> x)\n  y = x > 0 and x < 1\n")),
    "dtype": (7, sketch("  c = alloc([T, T], f16, llm_hint=\"init_zero\")\n  load(X[0:T, 0:T] -> a)\n  gemm(a, a, c)\n")),
    "tile-index": (6, sketch("  load(X[0, 0:T] -> x)\n  y = x[0]\n")),
    "not-index-condition": (6, sketch("  load(X[0, 0] -> x)\n  if x > 0:\n    y = x\n")),
    "tile-index-as-offset": (
        7,
        sketch("  for m in range(M):\n    for n in range(ceil(N, T)):\n      load(X[m, n:n+T] -> x)\n"),
    ),
    "out-of-range": (5, sketch("  load(X[-1, 0:T] -> x)\n")),
    "not-covered": (7, sketch("  for m in range(M):\n    load(X[m, 0:T] -> x)\n    store(x -> Y[m, 0:T])\n")),
    "race": (8, sketch('  @llm_hint("parallel")\n  for m in range(M):\n    load(X[m, :] -> x)\n    store(x -> Y[0:M, :])\n')),
    "carried": (8, sketch('  a = 0.0\n  @llm_hint("parallel")\n  for m in range(M):\n    a = a + 1.0\n')),
    "parallel-tail": (10, sketch(COPY + "  y = 1.0\n")),
    "second-nest": (11, sketch(COPY + COPY.lstrip("\n"))),
    "side-effect": (7, sketch('  load(X[0, :] -> x)\n  y = x + 1\n  store(y -> Y[0:1, :])\n  @llm_hint("parallel")\n  for m in range(M):\n    z = 1.0\n')),
    "split": (
        7,
        sketch('  load(X[0, 0] -> z)\n  @llm_hint("split", 4)\n  for n in range(N):\n    load(X[0, n] -> x)\n    z = z * 0.5 + x\n'),
    ),
    "footprint": (8, sketch(COPY.replace("X[m, n:n+T] -> x", "X[m, n:n+T*9999] -> x").replace("Y[m, n:n+T]", "Y[m, n:n+T*9999]"))),
    "pad-identity": (8, sketch("  t = -inf\n  for n in range(0, N, T):\n    load(X[0, n:n+T] -> x)\n    t = max(t, reduce_max(x))\n")),
    "pad-mean": (7, sketch("  for n in range(0, N, T):\n    load(X[0, n:n+T] -> x)\n    t = reduce_mean(x)\n")),
    "undefined-read": (6, sketch("  x = alloc([T])\n  y = x + 1\n")),
    "nested-parallel": (6, sketch('  for m in range(M):\n    @llm_hint("parallel")\n    for n in range(N):\n      x = 1.0\n')),
    "parallel-dependence": (
        7,
        sketch(
            '  @llm_hint("parallel")\n  for m in range(M):\n    load(X[m+1, :] -> x)\n    load(X[m, :] -> y)\n    store(x + y -> X[m, :])\n',
            HEAD.replace("Y[M, N]: f32 out", "Y[M, N]: f32").replace("f32;", "f32 inout;", 1),
        ),
    ),
    "scatter-collides": (9, sketch(PICK + "    scatter(x -> Y[at, 0:T])\n", PICKED)),
    "scatter-meets": (10, sketch(PICK + "    gather(Y[at, 0:T] -> y)\n    scatter(x + y -> Y[at, 0:T], unique=true)\n", PICKED)),
    "unordered-add": (9, sketch(PICK + "    atomic_add(x -> Y[at, 0:T])\n", PICKED)),
    "scatter-pad": (9, sketch(PICK.replace(", pad=-1", "") + "    scatter(x -> Y[at, 0:T], unique=true)\n", PICKED)),
    "library": (5, sketch("  Y = library.mm(X, W)\n  x = 1.0\n")),
    "library-hint": (5, sketch(COPY.replace('"parallel"', '"parallel", "library"'))),
    "team": (9, sketch('  @llm_hint("parallel")\n  for m in range(M):\n    load(X[m, 0:T] -> x)\n    @llm_hint("team")\n    for n in range(N):\n      store(x -> Y[m, 0:T])\n')),
    "require": (4, sketch(COPY, HEAD + "  require: T % 16 == 0;\n")),
    "require-scope": (5, sketch(COPY, HEAD + "  require: N > 4;\n")),
    "opaque": (5, sketch(COPY.replace("store(x", "y = fft(x)\n      store(y"), HEAD + "  opaque: fft(x[K]: f32) -> [K]: f32;\n")),
}  # fmt: skip

#: rules that speak of two texts; test_pins.py has them
OF_REVISIONS = {"pin", "pin-mark", "require-author"}
CHIP = Chip("small", "cpu", 1, l2_bytes=64 * 1024)


def test_every_rule_has_a_case() -> None:
    assert set(CASES) | OF_REVISIONS == set(MESSAGES)


@pytest.mark.parametrize("rule", CASES)
def test_rule_is_diagnosed_at_its_line(rule: str) -> None:
    line, text = CASES[rule]
    result = check(text, chip=CHIP)
    found = [d for d in result.diagnostics if d.rule == rule]
    assert found, [f"{d.line} {d.rule}: {d.message}" for d in result.diagnostics]
    assert found[0].line == line
    assert found[0].code == MESSAGES[rule].code
    assert found[0].message and not re.search(r"\{\w", found[0].message + found[0].remedy)
    assert result.ok is (not result.errors)


def test_codes_are_unique() -> None:
    codes = [m.code for m in MESSAGES.values()]
    assert len(codes) == len(set(codes))


def test_a_right_sketch_has_no_diagnostics() -> None:
    assert check(sketch(COPY), chip=CHIP).diagnostics == ()


def test_akg_matmul_is_diagnosed_at_both_loads_and_the_store() -> None:
    text = """sketch matmul {
  symbols: M, N, K;
  tensors: A[M, K]: f16; B[K, N]: f16; C[M, N]: f32;
  m0, k0, n0 = 128, 256, 256
  @llm_hint("parallel", "grididx.x")
  for i_outer in range(0, ceil(M, m0)):
    @llm_hint("parallel", "grididx.y")
    for j_outer in range(0, ceil(N, n0)):
      c = alloc([m0, n0], llm_hint=["fastest", "accumulator", "init_zero"])
      a = alloc([m0, k0], llm_hint=["fast", "input_cache"])
      b = alloc([k0, n0], llm_hint=["fast", "input_cache"])
      @llm_hint("pipeline")
      for k_outer in range(0, ceil(K, k0)):
        load(A[i_outer:i_outer+m0, k_outer:k_outer+k0] -> a)
        load(B[k_outer:k_outer+k0, j_outer:j_outer+n0] -> b)
        gemm(a, b, dst=c)
      store(c -> C[i_outer:i_outer+m0, j_outer:j_outer+n0])
}"""
    found = check(text).diagnostics
    assert [(d.rule, d.line) for d in found] == [("tile-index-as-offset", n) for n in (14, 15, 17)]
    assert "A[i_outer*m0:(i_outer+1)*m0, k_outer*k0:(k_outer+1)*k0]" in found[0].remedy


def test_akg_pointwise_sketch_is_diagnosed_too() -> None:
    text = """sketch relu {
  symbols: N;
  tensors: X[N]: f32; Y[N]: f32;
  tile_size = 1024
  @llm_hint("parallel", "grididx")
  for i in range(0, ceil(N, tile_size)):
    x = alloc([tile_size], llm_hint=["fast"])
    load(X[i:i+tile_size] -> x)
    relu(x, x)
    store(x -> Y[i:i+tile_size])
}"""
    assert [(d.rule, d.line) for d in check(text).errors] == [("tile-index-as-offset", 8), ("tile-index-as-offset", 10)]


@pytest.mark.parametrize(
    ("loops", "store"),
    [
        ("for i in range(0, ceil(N, T)):", "Y[m, i*T:(i+1)*T]"),
        ("for i in range((N + T - 1) // T):", "Y[m, i*T:i*T+T]"),
        ("for i in range(0, N, 2*T):\n    for j in range(0, 2*T, T):", "Y[m, i+j:i+j+T]"),
        ("for i in range(0, N, T):", "Y[m, i:i+2*T]"),
    ],
)
def test_tilings_that_cover_are_accepted(loops: str, store: str) -> None:
    depth = " " * (4 + loops.count("\n"))
    width = "2*T" if "2*T]" in store else "T"
    body = f'  @llm_hint("parallel")\n  for m in range(M):\n   {loops}\n{depth}store(full([{width}], 1.0) -> {store})\n'
    assert check(sketch(body)).errors == ()


def test_two_stores_cover_together() -> None:
    body = '  @llm_hint("parallel")\n  for m in range(M):\n    for n in range(N):\n      if n % 2 == 0:\n        store(1.0 -> Y[m, n])\n      else:\n        store(2.0 -> Y[m, n])\n'
    assert check(sketch(body)).errors == ()
    assert [d.rule for d in check(sketch(body.split("      else")[0])).errors] == ["not-covered"]


def test_overlapping_parallel_slices_race() -> None:
    body = '  @llm_hint("parallel")\n  for m in range(M):\n    store(full([2, N], 1.0) -> Y[m:m+2, :])\n'
    assert [d.rule for d in check(sketch(body)).errors] == ["race"]


def test_atomic_add_is_no_race() -> None:
    text = """sketch s {
  symbols: M, N;
  tensors: X[M, N]: f32; Y[N]: f32 out;
  @llm_hint("parallel")
  for m in range(M):
    load(X[m, :] -> x)
    atomic_add(x -> Y[0:N])
}"""
    assert check(text).errors == ()


@pytest.mark.parametrize("update", ["z = z + x", "z = max(z, x)", "z = z + x + x", "z = z - x", "add(x, z, z)"])
def test_reassociable_loops_may_split(update: str) -> None:
    body = f'  z = 0.0\n  @llm_hint("split", 4)\n  for n in range(N):\n    load(X[0, n] -> x)\n    {update}\n'
    assert check(sketch(body, HEAD.replace(" out", ""))).errors == ()


@pytest.mark.parametrize("update", ["z = x - z", "z = z + x * z", "z = exp(z)", "z = x", "z = z + x\n    y = z * 2"])
def test_other_loops_may_not_split(update: str) -> None:
    body = f'  z = 0.0\n  @llm_hint("split", 4)\n  for n in range(N):\n    load(X[0, n] -> x)\n    {update}\n'
    assert [d.rule for d in check(sketch(body, HEAD.replace(" out", ""))).errors] == ["split"]


@pytest.mark.parametrize(
    ("use", "warned"),
    [
        ("reduce_sum(x * x)", False),
        ("reduce_sum(x - 1.0)", True),
        ("reduce_sum(exp(x))", True),
        ("reduce_sum(where(n + arange(T) < N, exp(x), 0.0))", False),
        ("reduce_max(abs(x))", True),
        ("reduce_sum(where(x == 0.0, 0.0, x * log(x)) - x)", False),
        ("reduce_sum(where(x == 0.0, 1.0, x))", True),
        ("reduce_prod(exp(x))", False),
    ],
)
def test_padding_is_followed_through_values(use: str, warned: bool) -> None:
    body = f"  for n in range(0, N, T):\n    load(X[0, n:n+T] -> x)\n    y = {use}\n"
    found = [d for d in check(sketch(body, HEAD.replace(" out", ""))).diagnostics if d.rule == "pad-identity"]
    assert bool(found) is warned


@pytest.mark.parametrize(
    ("use", "remedy"),
    [("reduce_max(x)", "Load it with pad=-inf"), ("reduce_sum(exp(x))", "Mask it with where before reduce_sum")],
)
def test_another_pad_at_the_load_is_the_remedy_only_for_what_was_loaded(use: str, remedy: str) -> None:
    """``pad=0`` was the remedy for a tile that was loaded with it, and whose exponentials are 1 past the edge."""
    body = f"  for n in range(0, N, T):\n    load(X[0, n:n+T] -> x, pad=0)\n    y = {use}\n"
    found = [d for d in check(sketch(body, HEAD.replace(" out", ""))).diagnostics if d.rule == "pad-identity"]
    assert [d.remedy.startswith(remedy) for d in found] == [True]


def test_a_whole_row_has_no_padding() -> None:
    body = "  for m in range(M):\n    load(X[m, 0:N] -> x)\n    y = reduce_mean(x)\n"
    assert [d.rule for d in check(sketch(body, HEAD.replace(" out", ""))).diagnostics] == ["unused-name"]


def test_the_factors_of_a_product_are_read_however_its_destination_is_written() -> None:
    """``acc=`` names the destination as ``dst=`` does: the last factor was taken for it, and reported as unread."""
    body = """
      acc = alloc([T, T], f32, llm_hint="init_zero")
      load(X[0:T, 0:T] -> a)
      load(X[0:T, 0:T] -> b)
      gemm(a, b, acc=acc)
      store(acc -> Y[0:T, 0:T])
    """
    assert [d.rule for d in check(sketch(body)).diagnostics if d.rule == "unused-name"] == []


def test_given_values_break_a_constraint() -> None:
    text = sketch(COPY, HEAD + "  require: T >= 8;\n")
    assert check(text).ok
    assert [d.rule for d in check(text, constexpr={"T": 4}).errors] == ["require"]


def test_every_unreadable_line_has_its_own_diagnostic() -> None:
    text = sketch("  for m in range(M)\n    x += 1\n    while x:\n      y = 2 +\n")
    assert [d.line for d in check(text).errors] == [5, 6, 7, 8]
