"""Rewrites of a sketch: what each makes, that what it makes means the same, and what it must leave alone."""

from __future__ import annotations

import pytest

from kernellab.content import content
from kernellab.errors import KernellabError, SketchError
from kernellab.records import Author, GateState
from kernellab.sketch.check import check
from kernellab.sketch.gate import gate
from kernellab.sketch.rewrite import REWRITES, rewrites
from kernellab.sketch.syntax.pins import check_pins, pinned_lines
from kernellab.sketch.syntax.printer import format
from tests.breadth import everything, seed, share
from tests.sketch.rewrite.designs import TARGETS, designs, drawn, places

CPU, GPU = TARGETS["cpp"], TARGETS["triton"]
MATMUL = """sketch matmul {
    symbols: M, N, K;
    tensors: A[M, K]: f32; B[K, N]: f32; C[M, N]: f32 out;
    constexpr: BM = 64 in {32, 64, 128}; BN = 64 in {32, 64, 128}; BK = 32 in {32, 64};

    @llm_hint("parallel", "grididx.x")
    for m in range(0, M, BM):
        @llm_hint("parallel", "grididx.y")
        for n in range(0, N, BN):
            acc = alloc([BM, BN], f32, llm_hint=["fastest", "accumulator", "init_zero"])
            @llm_hint("pipeline", 3)
            for k in range(0, K, BK):
                load(A[m:m+BM, k:k+BK] -> a)
                load(B[k:k+BK, n:n+BN] -> b)
                gemm(a, b, acc, precision="tf32x3")
            store(acc -> C[m:m+BM, n:n+BN])
}
"""
LIBRARY = """sketch product {
    symbols: M, N, K;
    tensors: A[M, K]: f32; B[K, N]: f32; Z[M, N]: f32 temp;

    Z = library.mm(A, B)
}

sketch activation {
    symbols: M, N;
    tensors: Z[M, N]: f32 temp; Y[M, N]: f32 out;
    constexpr: BM = 8 in {4, 8, 16}; BN = 256 in {128, 256, 512};

    @llm_hint("parallel", "grididx.x")
    for m in range(0, M, BM):
        @llm_hint("parallel", "grididx.y")
        for n in range(0, N, BN):
            load(Z[m:m+BM, n:n+BN] -> z)
            store(relu(z) -> Y[m:m+BM, n:n+BN])
}
"""


def _made(text: str, target=GPU, *names: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {name: [] for name in names or REWRITES}
    for variant in rewrites(text, target, names or None):
        found[variant.rewrite].append(variant.text)
    return found


def _picked() -> list[str]:
    """The tasks of this run: a few of the suite, others with another commit."""
    return places() if everything() else share(places(), seed(), 90)


@pytest.mark.parametrize("place", _picked())
def test_what_a_rewrite_makes_of_a_design_means_the_same(place: str) -> None:
    for design in designs(place, most=1):
        if gate(design.text, design.task, seconds=0.1).state is not GateState.RIGHT:
            continue
        for name in REWRITES:
            variant = drawn(design, name, seed())
            if variant is None:
                continue
            result = gate(variant.text, design.task, chip=design.target.chip, seconds=0.1)
            assert result.state is not GateState.WRONG, f"{name}: {variant.why}: {result.reason}\n{variant.text}"


def test_variants_are_canonical_checked_and_none_twice() -> None:
    variants = rewrites(MATMUL, GPU)
    texts = [v.text for v in variants]
    assert len(set(texts)) == len(texts) and format(MATMUL) not in texts
    for variant in variants:
        assert format(variant.text) == variant.text
        assert check(variant.text, chip=GPU.chip).program is not None
        assert variant.why and variant.rewrite in REWRITES


def test_the_order_of_variants_is_fixed() -> None:
    assert rewrites(MATMUL, GPU) == rewrites(MATMUL, GPU)


def test_interchange_swaps_the_grid_and_keeps_its_hints() -> None:
    (found,) = _made(MATMUL, GPU, "interchange")["interchange"]
    headers = [line.strip() for line in found.splitlines() if "for " in line or "parallel" in line]
    assert headers[:4] == [
        '@llm_hint("parallel", "grididx.x")', "for n in range(0, N, BN):",
        '@llm_hint("parallel", "grididx.y")', "for m in range(0, M, BM):",
    ]  # fmt: skip


def test_loops_whose_bounds_depend_on_each_other_stay_in_order() -> None:
    text = """sketch lower {
    tensors: X[64, 64]: f32; Y[64]: f32 out;

    @llm_hint("parallel", "coreidx")
    for i in range(64):
        total = cast(0.0, f32)
        for j in range(8):
            for k in range(j, 8):
                load(X[i, j * 8 + k] -> x)
                total = total + x
        store(total -> Y[i])
}
"""
    assert not _made(text, CPU, "interchange")["interchange"]
    free = text.replace("range(j, 8)", "range(8)")
    assert len(_made(free, CPU, "interchange")["interchange"]) == 1


def test_precision_never_becomes_less_exact() -> None:
    kept = _made(MATMUL, GPU, "precision")["precision"]
    assert sorted(t.partition('precision="')[2].partition('"')[0] for t in kept) == ["bf16x6", "ieee"]
    coarse = _made(MATMUL.replace("tf32x3", "tf32"), GPU, "precision")["precision"]
    assert not any('precision="bf16"' in t for t in coarse) and len(coarse) == 4


@pytest.mark.parametrize("name", ["pipeline", "swizzle", "precision", "warps"])
def test_hints_that_a_dsl_does_not_read_make_no_variant(name: str) -> None:
    assert _made(MATMUL, GPU, name)[name]
    assert not _made(MATMUL, CPU, name)[name]
    assert REWRITES[name].suits(GPU) and not REWRITES[name].suits(CPU)


def test_a_pinned_line_and_a_constraint_are_kept_by_every_variant() -> None:
    pinned = MATMUL.replace('gemm(a, b, acc, precision="tf32x3")', 'gemm(a, b, acc, precision="tf32x3")  #: pin')
    pinned = pinned.replace("BK = 32 in {32, 64};", "BK = 32 in {32, 64};\n    require: BM >= 64;")
    found = rewrites(pinned, GPU)
    assert found
    for variant in found:
        assert not check_pins(pinned, variant.text, Author.MODEL)
        assert len(pinned_lines(variant.text)) == 1
        assert "BM = 32 in" not in variant.text
    assert len(found) < len(rewrites(MATMUL, GPU))


def test_a_library_call_is_left_alone() -> None:
    found = rewrites(LIBRARY, GPU)
    assert found
    call = LIBRARY[: LIBRARY.index("sketch activation")]
    for variant in found:
        assert variant.text.startswith(call), variant.why


def test_a_sketch_with_errors_has_no_variants_and_an_unreadable_one_says_why() -> None:
    assert rewrites(MATMUL.replace("gemm(a, b", "gemm(a, c"), GPU) == []
    with pytest.raises(SketchError):
        rewrites("sketch {", GPU)


def test_an_unknown_rewrite_is_named_with_the_nearest_one() -> None:
    with pytest.raises(KernellabError, match="interchang") as caught:
        rewrites(MATMUL, GPU, ["interchang"])
    assert "interchange" in caught.value.remedy


def test_the_page_lists_every_rewrite() -> None:
    page = (content("knowledge") / "language" / "rewrites.md").read_text(encoding="utf-8")
    assert [f"| `{r.name}` | {r.doc} |" for r in REWRITES.values()] == [
        line for line in page.splitlines() if line.startswith("| `")
    ]


def test_names_limit_the_rewrites() -> None:
    assert {v.rewrite for v in rewrites(MATMUL, GPU, ["tile", "split"])} == {"tile", "split"}


def test_lanes_are_the_first_axis_of_every_tile_that_differs() -> None:
    text = """sketch norm {
    symbols: M;
    tensors: X[M, 64]: f32; W[64]: f32; Y[M, 64]: f32 out;

    @llm_hint("parallel", "coreidx")
    for m in range(M):
        load(X[m, 0:64] -> x)
        load(W[0:64] -> w)
        total = reduce_sum(x * x, axis=0)
        store(x * rsqrt(total / 64.0 + m) * w -> Y[m, 0:64])
}
"""
    (found,) = _made(text, CPU, "vectorise")["vectorise"]
    for line in (
        "for m in range(0, M, LANES):",
        "m_lanes = m + arange(LANES)",
        "load(X[m:m+LANES, 0:64] -> x)",
        "load(W[0:64] -> w)",
        "total = reduce_sum(x * x, axis=1)",
        "wide = rsqrt(total / 64.0 + m_lanes)",
        "store(x * wide[:, None] * w -> Y[m:m+LANES, 0:64])",
    ):
        assert line in found


def test_lanes_divide_an_extent_that_is_not_all_of_a_dimension() -> None:
    text = """sketch part {
    tensors: X[12, 8]: f32; Y[24, 8]: f32 out; Z[24, 8]: f32 out;

    @llm_hint("parallel", "coreidx")
    for m in range(12):
        load(X[m, 0:8] -> x)
        store(x -> Y[m, 0:8])
        store(x -> Y[m + 12, 0:8])
        store(x -> Z[m * 2, 0:8])
        store(x -> Z[m * 2 + 1, 0:8])
}
"""
    (found,) = _made(text, CPU, "vectorise")["vectorise"]
    assert "LANES = 4 in {2, 4};" in found
    assert "store(x -> Z[m*2:m*2+LANES*2:2, 0:8])" in found
    assert not _made(text.replace("12", "13").replace("24", "26"), CPU, "vectorise")["vectorise"]


def test_split_k_sums_parts_in_a_second_launch() -> None:
    (found,) = _made(MATMUL, CPU, "split_k")["split_k"]
    first, second = found.split("\n\nsketch ")
    assert "for part in range(PARTS):" in first and "store(acc -> acc_kept[part, m:m+BM, n:n+BN])" in first
    assert "acc = acc + acc_part" in second and "gemm" not in second and "store(acc -> C" in second


def test_a_sum_that_starts_from_something_is_not_split() -> None:
    text = MATMUL.replace('acc = alloc([BM, BN], f32, llm_hint=["fastest", "accumulator", "init_zero"])',
                          "acc = full([BM, BN], 1.0, f32)")  # fmt: skip
    assert check(text).program is not None
    assert not _made(text, CPU, "split_k")["split_k"]


@pytest.mark.parametrize("place", ["normalisation/layer_norm", "softmax/softmax"])
def test_a_launch_that_is_cut_and_fused_again_means_the_same(place: str) -> None:
    design = next(designs(place, most=1))
    cuts = rewrites(design.text, design.target, ["cut"])
    assert cuts
    joined = [f for c in cuts for f in rewrites(c.text, design.target, ["fuse"])]
    assert joined
    for found in (*cuts, *joined):
        assert gate(found.text, design.task, seconds=0.1).state is GateState.RIGHT, found.why
    assert all(f.text.count("\nsketch ") < c.text.count("\nsketch ") + 1 for c in cuts for f in joined)


ONLINE = """sketch softmax {
    symbols: M, N;
    tensors: x[M, N]: f32; y[M, N]: f32 out;
    constexpr: BLOCK = 64;

    @llm_hint("parallel", "coreidx")
    for m in range(M):
        top = cast(-inf, f32)
        for n in range(0, N, BLOCK):
            load(x[m, n:n+BLOCK] -> seen, pad=-inf)
            top = max(top, reduce_max(seen, axis=0))
        total = cast(0.0, f32)
        for n in range(0, N, BLOCK):
            load(x[m, n:n+BLOCK] -> seen2, pad=-inf)
            total = total + reduce_sum(exp(seen2 - top), axis=0)
        for n in range(0, N, BLOCK):
            load(x[m, n:n+BLOCK] -> seen3)
            store(exp(seen3 - top) / total -> y[m, n:n+BLOCK])
}
"""


def test_two_passes_become_one_that_rescales_and_two_again() -> None:
    (one,) = _made(ONLINE, CPU, "online")["online"]
    assert one.count("for n in") == 2 and "total = total * keep + reduce_sum(exp(seen - base), axis=0)" in one
    (two,) = _made(one, CPU, "online")["online"]
    assert two.count("for n in") == 3 and "keep" not in two and "base = where(top == -inf, 0, top)" in two
    design = next(designs("softmax/softmax", most=1))
    for text in (one, two):
        assert gate(text, design.task, seconds=0.2).state is GateState.RIGHT


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("exp(seen2 - top)", "exp(seen2 - top) + top"),
        ("exp(seen2 - top)", "exp(seen2 * top)"),
        ("exp(seen2 - top)", "tanh(seen2 - top)"),
        ("top = max(top, reduce_max(seen, axis=0))", "top = max(top, reduce_max(seen, axis=0)) + 1.0"),
    ],
)
def test_a_sum_that_is_not_scaled_by_the_maximum_alone_stays_in_two_passes(was: str, now: str) -> None:
    text = ONLINE.replace(was, now)
    assert check(text).program is not None
    assert not _made(text, CPU, "online")["online"]


def test_a_row_is_cut_into_blocks_with_a_pass_for_each_reduction() -> None:
    text = """sketch norm {
    symbols: M;
    tensors: x[M, 1024]: f32; y[M, 1024]: f32 out;

    @llm_hint("parallel", "coreidx")
    for m in range(M):
        load(x[m, 0:1024] -> row)
        top = reduce_max(row, axis=0)
        exps = exp(row - top)
        total = reduce_sum(exps, axis=0)
        store(exps / total -> y[m, 0:1024])
}
"""
    (found,) = _made(text, CPU, "tile")["tile"]
    assert "ROW_BLOCK = 256 in {64, 128, 256, 512};" in found
    assert found.count("for col in range(0, 1024, ROW_BLOCK):") == 3
    assert "top = max(top, reduce_max(row, axis=0))" in found and "total = total + reduce_sum(exps, axis=0)" in found
    assert not _made(text.replace("reduce_sum(exps", "reduce_sum(cumsum(exps, axis=0)"), CPU, "tile")["tile"]
