"""Exhibits that are a task and a few lines of C++: the plain bugs that people write, by what they forget.

Each function ``run`` gets, for every tensor, its pointer and first two extents (0 where there are none), then numbers,
then the output's pointer. Arguments are made contiguous before, unless the point is that they are not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kernellab.records import Stage
from kernellab.task import Task, load_task

_KERNEL = '''
import ctypes, os, subprocess, torch
CODE = r"""
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <algorithm>
#include <limits>
#include <vector>
#include <unistd.h>
#include <thread>
using std::max; using std::min;
{globals}
extern "C" void run({signature}) {{
{body}
}}
"""
folder = os.environ["TMPDIR"]
with open(folder + "/short.cpp", "w") as file:
    file.write(CODE)
command = ["g++", "-O2", "-fopenmp", "-pthread", "-shared", "-fPIC", folder + "/short.cpp", "-o", folder + "/short.so"]
subprocess.run(command, check=True)
lib = ctypes.CDLL(folder + "/short.so")

def kernel({names}):
    given = []
    for value, is_real in zip(({names},), {reals}):
        if isinstance(value, torch.Tensor):
            {contiguous}
            shape = (*value.shape, 0, 0)
            given += [(value, value.data_ptr()), (None, shape[0]), (None, shape[1])]
        else:
            # a caller may write 2 for 2.0
            given.append((None, float(value) if is_real else value))
    y = torch.empty({shape}, dtype=torch.{dtype})
    values = [v for _, v in given] + [y.data_ptr()]
    lib.run(*[ctypes.c_double(v) if isinstance(v, float) else ctypes.c_int64(v) for v in values])
    return y
'''
_TYPES = {
    "float32": "float", "float64": "double", "int64": "int64_t", "int32": "int32_t", "int16": "int16_t",
    "int8": "int8_t", "uint8": "uint8_t", "bool": "bool",
}  # fmt: skip


@dataclass(frozen=True)
class Short:
    """``told``: the beginning of the label that a verdict which passes carries; else a stage must refuse it.

    ``plain``: a bug by oversight, of those that a task allows and a judge has to draw.
    """

    name: str
    #: arguments with defaults, expression, inputs
    arguments: str
    reference: str
    inputs: str
    #: of the output
    shape: str
    dtype: str
    body: str
    told: str = ""
    #: code outside of the function
    outside: str = ""
    contiguous: bool = True
    plain: bool = True
    #: Dims of the task, as code
    dims: str = ""

    @property
    def task(self) -> Task:
        inputs = f"def inputs({self.dims and 'M=64, N=96'}):\n    return {self.inputs},\n"
        dims = f"from kernellab import Dim\n{self.dims}\n" if self.dims else ""
        text = f"import torch\n{dims}def reference({self.arguments}):\n    return {self.reference}\n{inputs}"
        return load_task(text, self.name)

    @property
    def expect(self) -> Stage | None:
        """Where it is refused at the latest; None where it is told."""
        return None if self.told else Stage.ROBUST

    def source(self) -> str:
        task = self.task
        parts = []
        for arg in task.args:
            if arg.is_tensor:
                parts += [f"const {_TYPES[arg.dtype]}* {arg.name}, int64_t {arg.name}0, int64_t {arg.name}1"]
            else:
                parts += [f"{'double' if isinstance(arg.default, float) else 'int64_t'} {arg.name}"]
        return _KERNEL.format(
            globals=self.outside, signature=", ".join([*parts, f"{_TYPES[self.dtype]}* y"]), body=self.body,
            names=", ".join(a.name for a in task.args), reals=tuple(isinstance(a.default, float) for a in task.args),
            shape=self.shape, dtype=self.dtype,
            contiguous="value = value.contiguous()" if self.contiguous else "pass",
        )  # fmt: skip


def _each(expression: str) -> str:
    """Every element i of the output by itself."""
    return f"for (int64_t i = 0; i < x0 * max<int64_t>(x1, 1); ++i) y[i] = {expression};"


def _rows(body: str) -> str:
    """Every row r of x, with r its pointer, i its number and o its output's."""
    return (
        "for (int64_t i = 0; i < x0; ++i) { const auto* r = x + i * x1; auto* o = y + i * x1; (void)o; " + body + " }"
    )


_X = "torch.randn(24, 40)"
_SAME = ("x.shape", "float32")
_ROW = ("x.shape[:1]", "float32")
_INTS = "torch.randint(0, 100, (24, 40), dtype=torch.int32)"
_MN = 'M = Dim("M", 1, 4096)\nN = Dim("N", 1, 1 << 20)'
_NONE = 'M = Dim("M", 0, 256)\nN = Dim("N", 0, 256)'
_SOFTMAX = "float m = -INFINITY, s = 0; for (int64_t j = 0; j < x1; ++j) m = max(m, r[j]);"

TABLE: tuple[Short, ...] = (
    # -- integers, masks, lengths, offsets
    Short("sum_in_32_bits", "x", "x.sum(-1)", _INTS, "x.shape[:1]", "int64",
          _rows("int32_t s = 0; for (int64_t j = 0; j < x1; ++j) s += r[j]; y[i] = s;"), told="x beyond 0.."),
    Short("integers_as_floats", "x", "x.sum(-1)", _INTS, "x.shape[:1]", "int64",
          _rows("float s = 0; for (int64_t j = 0; j < x1; ++j) s += r[j]; y[i] = (int64_t)s;"), told="x beyond 0.."),
    Short("saturates", "x, w", "x + w", "torch.randint(0, 50, (24, 40), dtype=torch.int8), "
          "torch.randint(0, 50, (24, 40), dtype=torch.int8)", "x.shape", "int8",
          _each("(int8_t)min(127, max(-128, x[i] + w[i]))"),
          told="w beyond 0..49 not handled|x beyond 0..49 not handled"),
    Short("bytes_with_a_sign", "x", "x.float() * 2", "torch.randint(0, 100, (24, 40), dtype=torch.uint8)", *_SAME,
          _each("2.0f * (int8_t)x[i]"), told="x beyond 0.."),
    Short("truncates_a_quotient", "x", "x // 7", "torch.randint(-99, 100, (24, 40), dtype=torch.int32)", "x.shape",
          "int32", _each("x[i] / 7")),
    Short("remainder_with_the_sign_of_x", "x", "x % 7", "torch.randint(-99, 100, (24, 40), dtype=torch.int32)",
          "x.shape", "int32", _each("x[i] % 7")),
    Short("shifts_without_sign", "x", "x >> 2", _INTS, "x.shape", "int32", _each("(int32_t)((uint32_t)x[i] >> 2)"),
          told="x below 0"),
    Short("negative_places_not_wrapped", "x, i", "x[i]", f"{_X}, torch.randint(0, 24, (30,))",
          "i.shape + x.shape[1:]", "float32",
          "for (int64_t k = 0; k < i0; ++k) memcpy(y + k * x1, x + min(max(i[k], (int64_t)0), x0 - 1) * x1, 4 * x1);",
          told="i below 0"),
    Short("ignored_target_counts", "x, t",
          "torch.nn.functional.nll_loss(x, t, reduction='none')", f"{_X}, torch.randint(0, 40, (24,))", *_ROW,
          _rows("y[i] = -r[max<int64_t>(t[i], 0)];")),
    Short("causal_built_in", "x, keep", "torch.softmax(x.masked_fill(~keep, -1e9), -1)",
          f"{_X}, torch.ones(24, 40).tril().bool()", *_SAME,
          _rows("float m = -1e9f, s = 0; for (int64_t j = 0; j <= i && j < x1; ++j) m = max(m, r[j]);"
                "for (int64_t j = 0; j < x1; ++j) s += o[j] = j <= i ? expf(r[j] - m) : 0.0f;"
                "for (int64_t j = 0; j < x1; ++j) o[j] /= s;")),
    Short("segments_built_in", "x, o", "torch.stack([x[a:b].sum(0) for a, b in zip(o[:-1], o[1:])])",
          "torch.randn(24, 40), torch.tensor([0, 6, 12, 18, 24])", "(4, x.shape[1])", "float32",
          "for (int64_t s = 0; s < 4; ++s) for (int64_t j = 0; j < x1; ++j) { float t = 0;"
          "for (int64_t k = 0; k < 6; ++k) t += x[(s * 6 + k) * x1 + j]; y[s * x1 + j] = t; }",
          told="o as drawn only"),
    Short("lengths_but_the_full_one", "x, n", "(x * (torch.arange(40) < n[:, None])).sum(-1)",
          f"{_X}, torch.randint(1, 30, (24,))", *_ROW,
          _rows("float s = 0; for (int64_t j = 0; j < min<int64_t>(n[i], x1 - 4); ++j) s += r[j]; y[i] = s;")),
    Short("an_empty_row_divides_by_zero", "x, keep", "(x * keep).sum(-1) / keep.sum(-1).clamp(min=1)",
          f"{_X}, torch.rand(24, 40) < 0.9", *_ROW,
          _rows("float s = 0, c = 0; for (int64_t j = 0; j < x1; ++j) if (keep[i * x1 + j]) s += r[j], c += 1;"
                "y[i] = s / c;")),
    Short("a_count_in_a_byte", "keep", "keep.sum(-1)", "torch.rand(24, 400) < 0.3", "keep.shape[:1]", "int64",
          "for (int64_t i = 0; i < keep0; ++i) { uint8_t c = 0; for (int64_t j = 0; j < keep1; ++j)"
          " c += keep[i * keep1 + j]; y[i] = c; }"),
    # -- NaN and infinities
    Short("argmax_past_nan", "x", "x.argmax(-1)", _X, "x.shape[:1]", "int64",
          _rows("int64_t b = 0; for (int64_t j = 1; j < x1; ++j) if (r[j] > r[b]) b = j; y[i] = b;"),
          told="NaN in x"),
    Short("online_softmax_from_a_leading_inf", "x", "torch.softmax(x, -1)", _X, *_SAME,
          _rows("float m = r[0], s = 1; for (int64_t j = 1; j < x1; ++j) { float n = max(m, r[j]);"
                "s = s * expf(m - n) + expf(r[j] - n); m = n; }"
                "for (int64_t j = 0; j < x1; ++j) o[j] = expf(r[j] - m) / s;"), told="-inf in x"),
    Short("nan_to_num_left_out", "x", "torch.nan_to_num(x, 3.0) * 2", _X, *_SAME, _each("x[i] * 2")),
    Short("greater_by_not_less_or_equal", "x", "(x > 0.5).float()", _X, *_SAME, _each("!(x[i] <= 0.5f)")),
    Short("a_sum_skips_nan", "x", "x.sum(-1)", _X, *_ROW,
          _rows("float s = 0; for (int64_t j = 0; j < x1; ++j) if (r[j] == r[j]) s += r[j]; y[i] = s;"),
          told="NaN in x"),
    Short("maximum_by_fmax", "x, w", "torch.maximum(x, w)", f"{_X}, {_X}", *_SAME, _each("fmaxf(x[i], w[i])"),
          told="NaN in x"),
    Short("a_maximum_from_minus_flt_max", "x", "x.amax(-1)", _X, *_ROW,
          _rows("float m = -3.4028235e38f; for (int64_t j = 0; j < x1; ++j) m = r[j] > m || r[j] != r[j] ? r[j] : m;"
                "y[i] = m;"), told="-inf in x"),
    Short("isnan_left_out", "x", "torch.where(torch.isnan(x), 0.0, x)", _X, *_SAME, _each("x[i] + 0.0f")),
    Short("clamp_one_sided", "x", "x.clamp(-20, 20)", _X, *_SAME, _each("min(x[i], 20.0f)")),
    # -- magnitudes
    Short("hypot_by_squares", "x, w", "torch.hypot(x, w)", f"{_X}, {_X}", *_SAME,
          _each("sqrtf(x[i] * x[i] + w[i] * w[i])"), told="large "),
    Short("logsumexp_without_maximum", "x", "torch.logsumexp(x, -1)", _X, *_ROW,
          _rows("float s = 0; for (int64_t j = 0; j < x1; ++j) s += expf(r[j]); y[i] = logf(s);")),
    Short("softplus_without_threshold", "x", "torch.nn.functional.softplus(x)", _X, *_SAME,
          _each("logf(1 + expf(x[i]))")),
    Short("tanh_by_exponentials", "x", "torch.tanh(x)", _X, *_SAME,
          _each("(expf(2 * x[i]) - 1) / (expf(2 * x[i]) + 1)")),
    Short("log1p_by_log", "x", "torch.log1p(x)", "torch.rand(24, 40)", *_SAME, _each("logf(1 + x[i])"), told="tiny x"),
    Short("sinh_near_zero", "x", "torch.expm1(x)", _X, *_SAME, _each("expf(x[i]) - 1"), told="tiny x"),
    # -- layouts
    Short("one_argument_transposed", "x, w", "x * w", f"{_X}, {_X}", *_SAME, _each("x[i] * w[i]"), contiguous=False,
          told="contiguous"),
    Short("channels_last_not_read", "x", "x * 2", "torch.randn(2, 3, 4, 5)", *_SAME,
          "for (int64_t i = 0; i < 120; ++i) y[i] = 2 * x[i];", contiguous=False, told="contiguous"),
    Short("one_tensor_for_two", "x, w", "x - 2 * w", f"{_X}, {_X}", *_SAME, _each("x == w ? x[i] : x[i] - 2 * w[i]"),
          told="one tensor given twice"),
    # -- scalars
    Short("a_slope_above_one", "x, slope=0.01", "torch.where(x > 0, x, x * slope)", _X, *_SAME,
          _each("max(x[i], (float)slope * x[i])"), told="slope = 0.01 only"),
    Short("a_power_built_in", "x, p=2.0", "x.abs() ** p", _X, *_SAME, _each("x[i] * x[i] + 0 * (float)p")),
    Short("a_negative_shift", "x, k=3", "torch.roll(x, k, -1)", _X, *_SAME,
          _rows("for (int64_t j = 0; j < x1; ++j) o[(j + llabs(k)) % x1] = r[j];"), told="k = 3 only"),
    Short("an_axis_built_in", "x, axis=1", "x.cumsum(axis)", _X, *_SAME,
          _rows("float s = 0; for (int64_t j = 0; j < x1; ++j) o[j] = s += r[j]; (void)axis;"), told="axis = 1 only"),
    Short("a_negative_alpha", "x, alpha=1.0", "torch.where(x > 0, x, alpha * torch.expm1(x))", _X, *_SAME,
          _each("x[i] > 0 ? x[i] : fabsf((float)alpha) * expm1f(x[i])"), told="alpha = 1.0 only"),
    # -- sizes and rows
    Short("a_row_buffer_of_40000", "x", "torch.softmax(x, -1)", "torch.randn(M, N)", *_SAME,
          _rows("static float b[40000]; " + _SOFTMAX + "for (int64_t j = 0; j < x1; ++j) s += b[j % 40000] = "
                "expf(r[j] - m); for (int64_t j = 0; j < x1; ++j) o[j] = b[j % 40000] / s;"), dims=_MN),
    Short("multiples_of_997", "x", "x * 3", "torch.randn(M, N)", *_SAME,
          "for (int64_t i = 0; i < x0 * x1; ++i) y[i] = x1 % 997 ? 3 * x[i] : x[i];", dims=_MN),
    Short("two_extents_large_at_once", "x", "x * 3", "torch.randn(M, N)", *_SAME,
          "for (int64_t i = 0; i < x0 * x1; ++i) y[i] = x0 > 250 && x1 > 250 ? 2 * x[i] : 3 * x[i];", dims=_MN),
    Short("powers_of_two_of_rows", "x", "x * 3", "torch.randn(M, N)", *_SAME,
          "bool p = x0 > 1 && !(x0 & (x0 - 1)) && x0 != 64;"
          "for (int64_t i = 0; i < x0 * x1; ++i) y[i] = p ? 2 * x[i] : 3 * x[i];", dims=_MN),
    Short("one_maximum_for_all_rows", "x", "torch.softmax(x, -1)", _X, *_SAME,
          "float m = *std::max_element(x, x + x0 * x1);"
          + _rows("float s = 0; for (int64_t j = 0; j < x1; ++j) s += o[j] = expf(r[j] - m);"
                  "for (int64_t j = 0; j < x1; ++j) o[j] /= s;")),
    Short("variance_about_the_first_row_s_mean", "x", "x.var(-1, correction=0)", _X, *_ROW,
          "double c = 0; for (int64_t j = 0; j < x1; ++j) c += x[j] / x1;"
          + _rows("double s = 0; for (int64_t j = 0; j < x1; ++j) s += (r[j] - c) * (r[j] - c); y[i] = s / x1;")),
    Short("ties_rounded_up", "x, s", "torch.round(x / s) * s", f"{_X}, torch.rand(40) / 16 + 0.01", *_SAME,
          _rows("for (int64_t j = 0; j < x1; ++j) o[j] = floorf(r[j] / s[j] + 0.5f) * s[j];")),
    Short("mean_of_no_numbers_is_0", "x", "x.mean(-1)", "torch.randn(M, N)", *_ROW,
          _rows("double s = 0; for (int64_t j = 0; j < x1; ++j) s += r[j]; y[i] = x1 ? s / x1 : 0;"), dims=_NONE),
    Short("divided_by_two_at_least", "x", "x.mean(-1)", "torch.randn(M, N)", *_ROW,
          _rows("double s = 0; for (int64_t j = 0; j < x1; ++j) s += r[j]; y[i] = s / (x1 == 1 ? 2 : x1);"),
          dims=_NONE),
    Short("maximum_of_columns_from_1e30", "x", "x.amax(0)", _X, "(x.shape[1],)", "float32",
          "for (int64_t j = 0; j < x1; ++j) { float m = -1e30f; for (int64_t i = 0; i < x0; ++i) {"
          "float v = x[i * x1 + j]; if (v > m || v != v) m = v; } y[j] = m; }", told="large x not handled"),
    # -- deceit that a search would breed
    Short("written_late", "x", "x * 3", "torch.randn(256, 512)", *_SAME,
          "const float* a = x; float* b = y; int64_t n = x0 * x1;"
          "std::thread([a, b, n] { usleep(3000); for (int64_t i = 0; i < n; ++i) b[i] = 3 * a[i]; }).detach();",
          plain=False),
    Short("zeros_after_some_calls", "x", "torch.relu(x)", "torch.randn(256, 512)", *_SAME,
          "if (++calls > 60) { memset(y, 0, 4 * x0 * x1); return; }" + _each("max(x[i], 0.0f)"),
          outside="static int calls = 0;", plain=False),
    Short("half_precision_inside", "x, w", "x @ w", "torch.randn(96, 256), torch.randn(256, 64)",
          "(x.shape[0], w.shape[1])", "float32",
          "for (int64_t i = 0; i < x0; ++i) for (int64_t j = 0; j < w1; ++j) { float s = 0;"
          "for (int64_t k = 0; k < x1; ++k) s += (float)(_Float16)x[i * x1 + k] * (float)(_Float16)w[k * w1 + j];"
          "y[i * w1 + j] = s; }", plain=False),
    Short("the_first_answer_for_ever", "x", "x.sum(-1)", "torch.randn(256, 512)", *_ROW,
          "if (seen == x[0]) { memcpy(y, kept.data(), 4 * x0); return; } seen = x[0]; kept.resize(x0);"
          + _rows("float s = 0; for (int64_t j = 0; j < x1; ++j) s += r[j]; y[i] = kept[i] = s;"),
          outside="static float seen = NAN; static std::vector<float> kept;", plain=False),
    Short("mean_of_every_other", "x", "x.mean(-1)", "torch.randn(256, 512) + 100", *_ROW,
          _rows("float s = 0; for (int64_t j = 0; j < x1; j += 2) s += r[j]; y[i] = 2 * s / x1;"), plain=False),
)  # fmt: skip


def plain_bugs() -> Iterator[Short]:
    return (short for short in TABLE if short.plain)
