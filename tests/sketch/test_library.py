"""Library calls: what each means, costs and refuses, and what becomes of the hint that they replace."""

from __future__ import annotations

import random

import pytest
import torch
import torch.nn.functional as F

from kernellab.errors import SketchError
from kernellab.sketch.check import check, load_program
from kernellab.sketch.cost import cost
from kernellab.sketch.program.library import LIBRARY, library_call
from kernellab.sketch.program.program import Program
from kernellab.sketch.run import run
from kernellab.sketch.run.tracer import trace
from kernellab.sketch.syntax import docs
from kernellab.sketch.syntax.printer import format
from kernellab.target import Chip

Shapes = dict[str, tuple[int, ...]]


def text(statement: str, shapes: Shapes, dtype: str = "f32") -> str:
    """A sketch of one call: the last of ``shapes`` is the output."""
    *given, out = shapes
    declared = [f"{n}[{', '.join(map(str, s))}]: {dtype};" for n, s in shapes.items() if n in given]
    declared.append(f"{out}[{', '.join(map(str, shapes[out]))}]: {dtype} out;")
    return f"sketch call {{\n    tensors: {' '.join(declared)}\n\n    {statement}\n}}\n"


def sizes(rng: random.Random, names: str) -> dict[str, int]:
    return {name: rng.randint(1, 6) for name in names}


def _mm(n: dict[str, int]) -> tuple[str, Shapes]:
    return "y = library.mm(a, b)", {"a": (n["m"], n["k"]), "b": (n["k"], n["n"]), "y": (n["m"], n["n"])}


def _turned(n: dict[str, int]) -> tuple[str, Shapes]:
    shapes = {"a": (n["k"], n["m"], n["b"]), "c": (n["b"], n["n"], n["k"]), "y": (n["b"], n["m"], n["n"])}
    return "y = library.bmm(transpose(a, [2, 1, 0]), transpose(c))", shapes


def _addmm(n: dict[str, int]) -> tuple[str, Shapes]:
    shapes = {"c": (n["n"],), "a": (n["m"], n["k"]), "b": (n["k"], n["n"]), "y": (n["m"], n["n"])}
    return "y = library.addmm(c, a, b)", shapes


def _linear(n: dict[str, int]) -> tuple[str, Shapes]:
    shapes = {"x": (n["b"], n["m"], n["k"]), "w": (n["n"], n["k"]), "c": (n["n"],), "y": (n["b"], n["m"], n["n"])}
    return "y = library.linear(x, w, bias=c)", shapes


def _conv(rank: int, n: dict[str, int]) -> tuple[str, Shapes]:
    source = [n[name] + 6 for name in "mkn"[:rank]]
    space = [(s + 2 * 1 - 2 * (3 - 1) - 1) // 2 + 1 for s in source]
    shapes = {"x": (n["b"], 4, *source), "w": (6, 2, *[3] * rank), "c": (6,), "y": (n["b"], 6, *space)}
    return f"y = library.conv{rank}d(x, w, bias=c, stride=2, padding=1, dilation=2, groups=2)", shapes


def _conv_transpose(rank: int, n: dict[str, int]) -> tuple[str, Shapes]:
    source = [n[name] + 1 for name in "mkn"[:rank]]
    space = [(s - 1) * 2 - 2 * 1 + 2 + 1 + 1 for s in source]
    shapes = {"x": (n["b"], 4, *source), "w": (4, 3, *[3] * rank), "y": (n["b"], 6, *space)}
    return f"y = library.conv_transpose{rank}d(x, w, stride=2, padding=1, output_padding=1, groups=2)", shapes


def _sdpa(n: dict[str, int]) -> tuple[str, Shapes]:
    q, k, v = (n["b"], 2, n["m"], n["k"]), (n["b"], 2, n["m"], n["k"]), (n["b"], 2, n["m"], n["n"])
    return "y = library.sdpa(q, k, v, is_causal=true, scale=0.5)", {"q": q, "k": k, "v": v, "y": (*q[:3], n["n"])}


def _aten(n: dict[str, int]) -> tuple[str, Shapes]:
    rows, k = n["m"], n["k"] + 2
    call = "add.Tensor(kthvalue.default(x0, 2, -1)[0], x1, alpha=2)"
    return f'y = library.aten(a, b, call="{call}")', {"a": (rows, k), "b": (rows,), "y": (rows,)}


CASES = {
    "aten": (_aten, lambda a, b: a.sort(-1).values[:, 1] + 2 * b),
    "mm": (_mm, lambda a, b: a @ b),
    "bmm": (_turned, lambda a, c: a.permute(2, 1, 0) @ c.transpose(1, 2)),
    "addmm": (_addmm, lambda c, a, b: c + a @ b),
    "linear": (_linear, lambda x, w, c: x @ w.T + c),
    **{
        f"conv{r}d": (
            lambda n, r=r: _conv(r, n),
            lambda x, w, c, r=r: getattr(F, f"conv{r}d")(x, w, c, stride=2, padding=1, dilation=2, groups=2),
        )
        for r in (1, 2, 3)
    },
    **{
        f"conv_transpose{r}d": (
            lambda n, r=r: _conv_transpose(r, n),
            lambda x, w, r=r: getattr(F, f"conv_transpose{r}d")(x, w, None, 2, 1, 1, 2),
        )
        for r in (1, 2, 3)
    },
    "sdpa": (
        _sdpa,
        lambda q, k, v: (
            torch.softmax(
                (q @ k.transpose(-1, -2) * 0.5).masked_fill(
                    torch.ones(q.shape[-2], q.shape[-2]).triu(1).bool(), float("-inf")
                ),
                -1,
            )
            @ v
        ),
    ),
}


def test_every_operation_has_a_case() -> None:
    assert set(CASES) == set(LIBRARY)


@pytest.mark.parametrize("name", CASES)
def test_an_operation_means_what_torch_computes(name: str) -> None:
    shapes_of, reference = CASES[name]
    rng = random.Random(name)
    for seed in range(3):
        statement, shapes = shapes_of(sizes(rng, "bmnk"))
        written = text(statement, shapes)
        assert format(written) == written
        torch.manual_seed(seed)
        given = {n: torch.randn(s, dtype=torch.float64) for n, s in list(shapes.items())[:-1]}
        program = load_program(written)
        exact = run(program, given, f64=True)["y"]
        assert exact.dtype is torch.float64
        torch.testing.assert_close(exact, reference(*given.values()), rtol=1e-12, atol=1e-12)
        declared = run(program, {n: x.float() for n, x in given.items()})["y"]
        assert declared.dtype is torch.float32
        torch.testing.assert_close(declared.double(), exact, rtol=1e-4, atol=1e-4)


def test_a_result_of_narrow_floats_is_rounded_once() -> None:
    program = load_program(text("y = library.mm(a, b)", {"a": (3, 65), "b": (65, 2), "y": (3, 2)}, "bf16"))
    a, b = torch.randn(3, 65).bfloat16(), torch.randn(65, 2).bfloat16()
    assert torch.equal(run(program, {"a": a, "b": b})["y"], (a.float() @ b.float()).bfloat16())


def test_symbols_and_views_go_through_a_call() -> None:
    program = load_program(
        "sketch first {\n    symbols: B, T, D, N;\n"
        "    tensors: X[B*T, D]: f32; W[N, D]: f32; Z[B*T, N]: f32 temp;\n"
        "    Z = library.mm(X, transpose(W))\n}\n\n"
        "sketch second {\n    symbols: B, T, N;\n    tensors: Z[B, T*N]: f32 temp; Y[B, T*N]: f32 out;\n"
        '    @llm_hint("parallel")\n    for b in range(B):\n'
        "        load(Z[b, 0:T*N] -> z)\n        store(relu(z) -> Y[b, 0:T*N])\n}\n"
    )
    x, w = torch.randn(2, 3, 5), torch.randn(4, 5)
    found = run(program, {"X": x, "W": w}, symbols={"B": 2, "T": 3})["Y"]
    torch.testing.assert_close(found.reshape(2, 3, 4), torch.relu(x @ w.T))


def test_a_declared_extent_of_another_size_is_found_when_it_runs() -> None:
    shapes = {"x": (1, 2, 9), "w": (3, 2, 3), "y": (1, 3, 7)}
    wrong = text("y = library.conv1d(x, w)", shapes).replace("y[1, 3, 7]", "y[1, 3, N]").replace(
        "    tensors:", "    symbols: N = 6;\n    tensors:"
    )  # fmt: skip
    result = check(wrong)
    assert result.program is None and "makes [1, 3, 7] here" in result.errors[0].message


def test_a_call_costs_its_products_and_each_tensor_once() -> None:
    program = load_program(text("y = library.mm(a, b)", {"a": (64, 32), "b": (32, 16), "y": (64, 16)}))
    found = cost(program, {})
    assert found.flops == {"f32": 2 * 64 * 32 * 16}
    assert found.bytes_slow == 4 * (64 * 32 + 32 * 16 + 64 * 16)
    assert cost(_with_precision(program, "tf32"), {}).flops == {"tf32": 2 * 64 * 32 * 16}


def _with_precision(program: Program, precision: str) -> Program:
    return load_program(program.text.replace("(a, b)", f'(a, b, precision="{precision}")'))


@pytest.mark.parametrize(
    ("statement", "shapes", "flops"),
    [
        ("y = library.conv2d(x, w, groups=2)", {"x": (2, 4, 5, 5), "w": (6, 2, 3, 3), "y": (2, 6, 3, 3)}, 108 * 36),
        ("y = library.conv_transpose1d(x, w)", {"x": (2, 4, 5), "w": (4, 6, 3), "y": (2, 6, 7)}, 2 * 40 * 18),
    ],
)
def test_a_convolution_costs_each_tap_of_each_place(statement: str, shapes: Shapes, flops: int) -> None:
    found = cost(load_program(text(statement, shapes)), {}).flops
    assert found == {"f32": flops}


def test_a_call_takes_the_library_s_rate_and_every_core() -> None:
    chip = Chip("c", "cpu", 8, peak_flops={"f32": 1e12}, bandwidth=1e11)
    n = 1024
    program = load_program(text("y = library.mm(a, b)", {"a": (n, n), "b": (n, n), "y": (n, n)}))
    assert cost(program, {}, chip=chip).time_ms == pytest.approx(1e3 * 2 * n**3 / 0.75e12)


def test_a_trace_shows_what_a_call_reads_and_writes() -> None:
    program = load_program(text("y = library.mm(a, b)", {"a": (2, 3), "b": (3, 2), "y": (2, 2)}))
    found = trace(program, {"a": torch.ones(2, 3), "b": torch.ones(3, 2)})
    assert found.count("a", False) == [1] * 6 and found.count("b", False) == [1] * 6
    assert found.count("y", True) == [1] * 4


MM = text("y = library.mm(a, b)", {"a": (4, 5), "b": (5, 6), "y": (4, 6)})
CONV = text("y = library.conv2d(x, w, stride=2)", {"x": (1, 4, 9, 9), "w": (8, 4, 3, 3), "y": (1, 8, 4, 4)})

REFUSED = {
    "an operation that is none": (MM, "library.mm", "library.matmul", "unknown-operation", "'library.mm'"),
    "another module": (MM, "library.mm", "torch.mm", "unknown-operation", "Did you mean 'library.mm'?"),
    "nothing near": (MM, "library.mm", "library.wobble", "unknown-operation", "Known: library.mm, library.bmm"),
    "summed extents that differ": (MM, "b[5, 6]", "b[7, 6]", "shape-mismatch", "'a' has 5 columns and 'b' has 7 rows."),
    "another output": (MM, "y[4, 6]", "y[6, 4]", "shape-mismatch", "library.mm makes [4, 6] here"),
    "a batch where none is taken": (MM, "a[4, 5]", "a[1, 4, 5]", "shape-mismatch", "3 dimensions and 2 are wanted"),
    "two dtypes": (MM, "]: f32 out", "]: f16 out", "dtype", "takes and gives one dtype, and these are f32, f16."),
    "integers": (MM, "f32", "i32", "dtype", "one of f64, f32, f16, bf16"),
    "a missing operand": (MM, "(a, b)", "(a)", "arguments", "has no b"),
    "a parameter that is none": (MM, "(a, b)", "(a, b, alpha=2)", "arguments", "has no parameter 'alpha'"),
    "a split precision": (MM, "(a, b)", '(a, b, precision="bf16x6")', "arguments", "precision of a library call"),
    "a value of a tile": (MM, "(a, b)", "(a * 2, b)", "library", "A library call takes whole tensors."),
    "a call in an expression": (MM, "library.mm(a, b)", "relu(library.mm(a, b))", "library", "not a value"),
    "no target": (MM, "y = library.mm(a, b)", "library.mm(a, b)", "library", "is not assigned to one"),
    "a target that is no tensor": (MM, "y = library", "z = library", "library", "'z' is not a tensor"),
    "an input written": (MM, "y = library", "a = library", "role", "Tensor 'a' is declared in, and is written here."),
    "the caller's tensor": (MM, "f32 out", "f32 inout", "library", "would write into the caller's tensor"),
    "a dimension twice": (MM, "(a, b)", "(transpose(a, [0, 0]), b)", "axis", "is not an order of 2 dimensions"),
    "another statement": (MM, "(a, b)\n", "(a, b)\n    c = 1\n", "library", "stands alone in its sketch"),
    "a call in a loop": (
        MM, "y = library", "for i in range(2):\n        y = library", "library", "stands alone in its sketch",
    ),
    "channels that differ": (CONV, "w[8, 4", "w[8, 3", "shape-mismatch", "'x' has 4 channels and 'w' takes 3."),
    "another place of the output": (CONV, "y[1, 8, 4, 4]", "y[1, 8, 4, 5]", "shape-mismatch", "[1, 8, 4, 4]"),
    "a stride of nothing": (CONV, "stride=2", "stride=0", "arguments", "is 0, and is 1 or more"),
    "too many strides": (CONV, "stride=2", "stride=[2, 1, 1]", "shape-mismatch", "3 numbers for 2 dimensions"),
    "a setting that is a symbol": (
        CONV.replace("    tens", "    symbols: S;\n    tens"), "stride=2", "stride=S", "arguments", "plain number",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_call_is_refused_with_a_sentence_and_a_remedy(name: str) -> None:
    given, old, new, rule, words = REFUSED[name]
    assert old in given and check(given).ok, check(given).diagnostics
    found = check(given.replace(old, new))
    error = next((d for d in found.errors if d.rule == rule), None)
    assert error is not None, found.diagnostics
    assert words in f"{error.message} {error.remedy}"
    assert error.message.endswith((".", "?")) and error.remedy.endswith((".", "?"))


def test_an_output_padding_below_no_stride_is_refused() -> None:
    shapes = {"x": (1, 4, 9), "w": (4, 6, 3), "y": (1, 6, 12)}
    (error,) = check(text("y = library.conv_transpose1d(x, w, output_padding=1)", shapes)).errors
    assert "An output_padding of 1 is not below stride" in error.message


HINTED = """sketch product {
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


def test_a_sketch_with_the_hint_of_before_runs_as_its_loops_with_a_warning() -> None:
    found = check(HINTED)
    assert found.program is not None
    (warning,) = found.diagnostics
    assert warning.severity == "warning" and "y = library.mm(x, w)" in warning.remedy
    assert library_call(found.program.kernels[0]) is None
    x, w = torch.randn(3, 70), torch.randn(65, 70)
    torch.testing.assert_close(run(found.program, {"X": x, "W": w})["Y"], x @ w.T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("rand_like.default(x0)", "draws numbers"),
        ("nonzero.default(x0)", "a size that values decide"),
        ("relu_.default(x0)", "changes its operands"),
        ("no_such.default(x0)", "has no operation no_such.default"),
        ("__import__('os').system('x')", "neither an operand"),
        ("relu.default(x1)", "is given 1 operand(s), and its text names x1"),
        ("relu.default(x0) + 1", "not a call"),
        ("full_like.default(x0, LEN)", "LEN"),
        ("split.Tensor(x0, 1)", "several results"),
        ("sort.default(x0)", "several results"),
        ("add.Tensor(x0, from_file.default('made', True, 3))", "from_file.default does not compute tensors"),
        ("to_dense.default(_sparse_coo_tensor_unsafe.default(x0, x0, [8]))", "_unsafe.default does not check its op"),
        (
            "max_pool2d_with_indices_backward.default(x0, x0, [2], [2], [0], [1], False, x0)",
            "does not check its operands",
        ),
        ("add.Tensor(x0, x0, alpha=1, alpha=2)", "has an argument twice"),
        ("relu.default(**x0)", "has an argument twice, or one without"),
        ("empty_like.default(x0)", "empty_like.default does not check its operands"),
        ("add.Tensor(x0, save.default(x0, 'made'))", "save.default does not compute tensors"),
        ("relu.default(_assert_async.default(x0))", "_assert_async.default does not compute tensors"),
        ("__class__.mro(x0)", "has no operation __class__.mro"),
        ("_to_copy.default(x0, dtype='torch.float32 if print() else 0')", "is no dtype of torch"),
        ("_to_copy.default(x0, dtype='torch.load')", "is no dtype of torch"),
    ],
)
def test_a_call_of_aten_that_cannot_stand_is_refused(call: str, said: str) -> None:
    found = check(text(f'y = library.aten(a, call="{call}")', {"a": (3,), "y": (3,)}))
    assert found.program is None
    assert said in found.diagnostics[0].message, found.diagnostics[0]


def test_a_call_of_aten_takes_any_dtype_and_the_files_sizes() -> None:
    written = (
        "sketch pick {\n    symbols: N;\n    tensors: x[N, 4]: f32; i[N]: i64; y[2*N]: i64 out;\n\n"
        '    y = library.aten(x, i, call="repeat.default(add.Tensor(argmax.default(x0, 1), x1), [N // N + 1])")\n}\n'
    )
    x, i = torch.randn(5, 4), torch.arange(5)
    assert torch.equal(run(load_program(written), {"x": x, "i": i})["y"], (x.argmax(1) + i).repeat(2))
    with pytest.raises(SketchError, match=r"makes torch\.int64 and 'y' is f32"):
        run(load_program(written.replace("y[2*N]: i64", "y[2*N]: f32")), {"x": x, "i": i})


def test_every_operation_says_how_it_is_written_and_what_it_does() -> None:
    for name, op in LIBRARY.items():
        assert docs.signature(f"library.{name}").startswith(f"y = library.{name}(")
        assert docs.sentence(f"library.{name}").startswith(op.doc) and op.doc.endswith(".")
