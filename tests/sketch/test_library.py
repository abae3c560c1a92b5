"""Which sketches a library call does whole, and what is said of the others."""

from __future__ import annotations

import pytest

from kernellab.sketch import check
from kernellab.sketch.library import Convolution, Product, library_call

PRODUCT = """sketch product {
    symbols: M, N, K;
    tensors: X[M, K]: f32; W[N, K]: f32; Y[M, N]: f32 out;
    constexpr: T = 64 in {32, 64};
    @llm_hint("library", "parallel")
    for m in range(0, M, T):
        @llm_hint("parallel")
        for n in range(0, N, T):
            acc = alloc([T, T], f32, llm_hint=["accumulator", "init_zero"])
            for k in range(0, K, T):
                load(X[m:m+T, k:k+T] -> x)
                load(W[n:n+T, k:k+T] -> w)
                gemm(x, transpose(w), acc)
            store(acc -> Y[m:m+T, n:n+T])
}
"""
BATCHED = """sketch batched {
    symbols: B, M, N, K;
    tensors: X[B, K, M]: f16; W[K, B, N]: f16; Y[B, N, M]: f16 out;
    @llm_hint("library", "parallel")
    for b in range(B):
        @llm_hint("parallel")
        for m in range(0, M, 16):
            @llm_hint("parallel")
            for n in range(0, N, 32):
                acc = alloc([32, 16], f32, llm_hint=["init_zero"])
                for k in range(0, K, 8):
                    load(X[b, k:k+8, m:m+16] -> x)
                    load(W[k:k+8, b, n:n+32] -> w)
                    turned = transpose(w)
                    gemm(turned, x, acc)
                store(acc -> Y[b, n:n+32, m:m+16])
}
"""
CONV = """sketch conv {
    symbols: B, H;
    tensors: X[B, 2, 4, H, 33]: f32; W[2, 8, 4, 3, 5]: f32; Y[B, 2, 8, (H - 1) // 2 + 1, 29]: f32 out;
    @llm_hint("library", "parallel")
    for b in range(B):
      @llm_hint("parallel")
      for g in range(2):
        @llm_hint("parallel")
        for h in range((H - 1) // 2 + 1):
          @llm_hint("parallel")
          for w in range(0, 29, 32):
            acc = alloc([8, 32], f32, llm_hint=["init_zero"])
            for kh in range(3):
              for kw in range(5):
                load(X[b, g, 0:4, h*2 - 1 + kh, w + kw:w + kw + 32] -> x)
                load(W[g, 0:8, 0:4, kh, kw] -> f)
                gemm(f, x, acc)
            store(acc -> Y[b, g, 0:8, h, w:w+32])
}
"""
TURNED = """sketch turned {
    symbols: B;
    tensors: X[B, 8, 15, 16]: f32; W[8, 16, 3, 4]: f32; Y[B, 16, 30, 32]: f32 out;
    @llm_hint("library", "parallel")
    for b in range(0, B, 4):
      @llm_hint("parallel")
      for h in range(30):
        @llm_hint("parallel")
        for w in range(32):
          acc = alloc([4, 16], f32, llm_hint=["init_zero"])
          for kh in range(3):
            for kw in range(4):
              if (h + 1 - kh) % 2 == 0:
                if (w + 1 - kw) % 2 == 0:
                  load(X[b:b+4, 0:8, (h + 1 - kh) // 2, (w + 1 - kw) // 2] -> x)
                  load(W[0:8, 0:16, kh, kw] -> f)
                  gemm(x, f, acc)
          store(acc -> Y[b:b+4, 0:16, h, w])
}
"""


def call(text: str) -> Product | Convolution:
    found = check(text)
    assert found.program is not None, found.errors
    values = {c.name: c.value for c in found.program.constexprs if c.value is not None}
    return library_call(found.program.kernels[0], values)


def test_a_product_takes_its_factors_as_they_lie() -> None:
    found = call(PRODUCT)
    assert isinstance(found, Product)
    assert (found.left.order, found.right.order, found.batched) == ((0, 1), (1, 0), False)


def test_a_result_that_lies_turned_changes_the_factors_places() -> None:
    found = call(BATCHED)
    assert isinstance(found, Product)
    assert [t.name for t in found.tensors] == ["W", "X", "Y"]
    assert (found.left.order, found.right.order, found.batched) == ((1, 2, 0), (0, 1, 2), True)


def test_a_convolution_gives_its_numbers() -> None:
    found = call(CONV)
    assert isinstance(found, Convolution)
    assert (found.stride, found.padding, found.dilation, found.groups) == ((2, 1), (1, 0), (1, 1), 2)
    assert not found.transposed


def test_a_transposed_convolution_knows_its_output_padding() -> None:
    found = call(TURNED)
    assert isinstance(found, Convolution)
    assert found.transposed
    assert (found.stride, found.padding, found.output_padding) == ((2, 2), (1, 1), (1, 0))


REFUSED = {
    "work on the product": (PRODUCT, "store(acc ->", "store(relu(acc) ->", "works on the product in line 14"),
    "work on a factor": (PRODUCT, "gemm(x,", "gemm(x * 2,", "works on a factor"),
    "a second statement": (
        PRODUCT,
        "gemm(x,",
        "z = x * 2\n                gemm(z,",
        "does more than multiply in line 13",
    ),
    "the inner loop": (PRODUCT, '@llm_hint("library", "parallel")', '@llm_hint("parallel")', None),
    "a part of the sum": (PRODUCT, "range(0, K, T)", "range(0, K - 1, T)", "takes"),
    "a sum that starts late": (PRODUCT, "range(0, K, T)", "range(T, K, T)", "does not start at 0"),
    "several parts": (PRODUCT, "acc)\n            st", 'acc, precision="bf16x6")\n            st', '"bf16x6"'),
    "other dtypes": (PRODUCT, "Y[M, N]: f32", "Y[M, N]: f16", "multiplies f16, f32"),
    "a sum taken twice": (PRODUCT, "for k in", "for again in range(2):\n              for k in", "for each 'again'"),
    "another output": (CONV, "33]: f32; W", "34]: f32; W", "another size than torch's"),
    "a window no convolution has": (CONV, "h*2 - 1 + kh", "h*2 + 1 + kh", "a window that torch has not"),
    "an index without its test": (TURNED, "if (h + 1 - kh) % 2", "if (h + 2 - kh) % 2", "without testing"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_call_does_is_refused_with_a_sentence(name: str) -> None:
    text, old, new, words = REFUSED[name]
    assert old in text
    changed = text.replace(old, new)
    if name == "a sum taken twice":
        lines = changed.split("\n")
        at = next(n for n, line in enumerate(lines) if "for k in" in line)
        changed = "\n".join([*lines[: at + 1], *("  " + line for line in lines[at + 1 : at + 4]), *lines[at + 4 :]])
    errors = [d for d in check(changed).diagnostics if d.rule == "library"]
    if words is None:
        assert not errors  # without the hint it is any sketch
        return
    assert len(errors) == 1, check(changed).diagnostics
    assert words in errors[0].message
    assert errors[0].remedy.endswith(".")


def test_the_hint_belongs_on_the_outermost_loop() -> None:
    inner = PRODUCT.replace('"library", "parallel"', '"parallel"').replace(
        '@llm_hint("parallel")\n        for n', '@llm_hint("parallel", "library")\n        for n'
    )
    (error,) = (d for d in check(inner).diagnostics if d.rule == "library")
    assert "inner loop" in error.message
