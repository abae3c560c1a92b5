"""Right kernels of many kinds, a line or a few each: none may be refused.

Of C++ in the table's own form, of C++ with a few lines of Python around it (several outputs, results written into an
argument, half precision, complex numbers, views), of the framework's operators, and of Triton.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kernellab.task import Task, load_task

from .short import _INTS, _MN, _ROW, _SAME, _X, Short, _each, _rows

_F = "torch.nn.functional"
_SUM = "double s = 0; for (int64_t j = 0; j < x1; ++j) s += r[j];"
_MAX = "float m = -INFINITY; for (int64_t j = 0; j < x1; ++j) m = r[j] > m || r[j] != r[j] ? r[j] : m;"
_BYTES = "torch.randint(0, 256, (24, 40), dtype=torch.uint8)"
_LONGS = "torch.randint(-1000, 1000, (24, 40))"

SHORT: tuple[Short, ...] = (
    # -- element by element
    Short("sound_relu", "x", "torch.relu(x)", _X, *_SAME, _each("x[i] > 0 || x[i] != x[i] ? x[i] : 0")),
    Short("sound_gelu", "x", f"{_F}.gelu(x)", _X, *_SAME, _each("0.5f * x[i] * erfcf(-x[i] * 0.70710678f)")),
    Short("sound_silu", "x", f"{_F}.silu(x)", _X, *_SAME, _each("x[i] / (1 + expf(-x[i]))")),
    Short("sound_softplus", "x", f"{_F}.softplus(x)", _X, *_SAME,
          _each("x[i] > 20 ? x[i] : log1pf(expf(x[i]))")),
    Short("sound_hardswish", "x", f"{_F}.hardswish(x)", _X, *_SAME,
          _each("x[i] != x[i] ? x[i] : x[i] * min(max(x[i] + 3, 0.0f), 6.0f) / 6")),
    Short("sound_elu", "x", f"{_F}.elu(x)", _X, *_SAME, _each("x[i] > 0 ? x[i] : expm1f(x[i])")),
    Short("sound_log1p", "x", "torch.log1p(x)", "torch.rand(24, 40)", *_SAME, _each("log1pf(x[i])")),
    Short("sound_tanh", "x", "torch.tanh(x)", _X, *_SAME, _each("tanhf(x[i])")),
    Short("sound_clamp", "x", "x.clamp(-1, 2)", _X, *_SAME, _each("x[i] < -1 ? -1 : x[i] > 2 ? 2 : x[i]")),
    Short("sound_sign", "x", "torch.sign(x)", _X, *_SAME, _each("(float)((x[i] > 0) - (x[i] < 0))")),
    Short("sound_round", "x", "torch.round(x)", "torch.randn(24, 40) * 5", *_SAME, _each("nearbyintf(x[i])")),
    Short("sound_trunc", "x", "torch.trunc(x)", "torch.randn(24, 40) * 5", *_SAME, _each("truncf(x[i])")),
    Short("sound_copysign", "x, w", "torch.copysign(x, w)", f"{_X}, {_X}", *_SAME, _each("copysignf(x[i], w[i])")),
    Short("sound_signbit", "x", "torch.signbit(x)", _X, "x.shape", "bool", _each("std::signbit(x[i])")),
    Short("sound_hypot", "x, w", "torch.hypot(x, w)", f"{_X}, {_X}", *_SAME, _each("hypotf(x[i], w[i])")),
    Short("sound_atan2", "x, w", "torch.atan2(x, w)", f"{_X}, {_X}", *_SAME, _each("atan2f(x[i], w[i])")),
    Short("sound_maximum", "x, w", "torch.maximum(x, w)", f"{_X}, {_X}", *_SAME,
          _each("x[i] != x[i] || w[i] != w[i] ? NAN : max(x[i], w[i])")),
    Short("sound_logaddexp", "x, w", "torch.logaddexp(x, w)", f"{_X}, {_X}", *_SAME,
          _each("x[i] == w[i] && std::isinf(x[i]) ? x[i] : (x[i] > w[i] ? x[i] : w[i]) + log1pf(expf(-fabsf(x[i] - "
                "w[i]))) + 0 * (x[i] != x[i] ? x[i] : 0)")),
    Short("sound_xlogy", "x, w", "torch.xlogy(x, w)", "torch.rand(24, 40), torch.rand(24, 40)", *_SAME,
          _each("w[i] != w[i] ? w[i] : x[i] == 0 ? 0 : x[i] * logf(w[i])")),
    Short("sound_entr", "x", "torch.special.entr(x)", "torch.rand(24, 40)", *_SAME,
          _each("x[i] > 0 ? -x[i] * logf(x[i]) : x[i] == 0 ? 0 : x[i] < 0 ? -INFINITY : x[i]")),
    Short("sound_pow", "x, w", "torch.pow(x, w)", "torch.rand(24, 40) + 0.5, torch.rand(24, 40) * 3", *_SAME,
          _each("powf(x[i], w[i])")),
    Short("sound_where_greater", "x, w", "torch.where(x > w, x, -w)", f"{_X}, {_X}", *_SAME,
          _each("x[i] > w[i] ? x[i] : -w[i]")),
    Short("sound_lerp", "x, w", "torch.lerp(x, w, 0.3)", f"{_X}, {_X}", *_SAME, _each("x[i] + 0.3f * (w[i] - x[i])")),
    Short("sound_isnan_filled", "x", "torch.where(torch.isnan(x), 0.0, x)", _X, *_SAME,
          _each("x[i] != x[i] ? 0 : x[i]")),
    Short("sound_float64_exp", "x", "torch.exp(x)", "torch.randn(24, 40, dtype=torch.float64)", "x.shape", "float64",
          _each("exp(x[i])")),
    # -- integers
    Short("sound_int8_abs", "x", "x.abs()", "torch.randint(-50, 50, (24, 40), dtype=torch.int8)", "x.shape", "int8",
          _each("(int8_t)(x[i] < 0 ? -x[i] : x[i])")),
    Short("sound_bytes_sum", "x", "x.sum(-1)", _BYTES, "x.shape[:1]", "int64",
          _rows("int64_t s = 0; for (int64_t j = 0; j < x1; ++j) s += r[j]; y[i] = s;")),
    Short("sound_floor_division", "x", "x // 7", _LONGS, "x.shape", "int64",
          _each("x[i] / 7 - (x[i] % 7 != 0 && x[i] < 0)")),
    Short("sound_remainder", "x", "x % 7", _LONGS, "x.shape", "int64", _each("(x[i] % 7 + 7) % 7")),
    Short("sound_shift", "x", "x >> 2", _INTS, "x.shape", "int32", _each("x[i] >> 2")),
    Short("sound_wrapping_product", "x, w", "x * w", f"{_INTS}, {_INTS}", "x.shape", "int32",
          _each("(int32_t)((uint32_t)x[i] * (uint32_t)w[i])")),
    Short("sound_mean_of_ints", "x", "x.double().mean(-1)", _INTS, "x.shape[:1]", "float64",
          _rows(_SUM + "y[i] = s / x1;")),
    Short("sound_to_int", "x", "x.to(torch.int32)", "torch.randn(24, 40) * 10", "x.shape", "int32",
          _each("(int32_t)x[i]")),
    Short("sound_quantise", "x", "torch.clamp(torch.round(x * 20), -128, 127).to(torch.int8)", _X, "x.shape", "int8",
          _each("(int8_t)(x[i] != x[i] ? 0 : min(max(nearbyintf(x[i] * 20), -128.0f), 127.0f))")),
    Short("sound_gather", "x, i", "x[i]", f"{_X}, torch.randint(0, 24, (30,))", "i.shape + x.shape[1:]", "float32",
          "for (int64_t k = 0; k < i0; ++k) memcpy(y + k * x1, x + (i[k] < 0 ? i[k] + x0 : i[k]) * x1, 4 * x1);"),
    Short("sound_bincount", "x", "torch.bincount(x, minlength=16)[:16]", "torch.randint(0, 16, (200,))", "(16,)",
          "int64",
          "memset(y, 0, 128); for (int64_t i = 0; i < x0; ++i) if (x[i] < 16) ++y[x[i]];"),
    Short("sound_count", "keep", "keep.sum(-1)", "torch.rand(M, N) < 0.1", "keep.shape[:1]", "int64",
          "for (int64_t i = 0; i < keep0; ++i) { int64_t c = 0; for (int64_t j = 0; j < keep1; ++j) "
          "c += keep[i * keep1 + j]; y[i] = c; }", dims='M = Dim("M", 1, 64)\nN = Dim("N", 1, 100000)'),
    # -- rows
    Short("sound_row_sum", "x", "x.sum(-1)", "torch.randn(M, N)", *_ROW, _rows(_SUM + "y[i] = s;"), dims=_MN),
    Short("sound_row_sum_of_none", "x", "x.sum(-1)", "torch.randn(M, N)", *_ROW, _rows(_SUM + "y[i] = s;"),
          dims='M = Dim("M", 1, 64)\nN = Dim("N", 0, 300)'),
    Short("sound_openmp_mean", "x", "x.mean(-1)", "torch.randn(M, N)", *_ROW,
          "\n#pragma omp parallel for\n" + _rows(_SUM + "y[i] = s / x1;"),
          dims='M = Dim("M", 1, 600)\nN = Dim("N", 1, 4000)'),
    Short("sound_variance", "x", "x.var(-1)", _X, *_ROW,
          _rows(_SUM + "s /= x1; double v = 0; for (int64_t j = 0; j < x1; ++j) v += (r[j] - s) * (r[j] - s);"
                "y[i] = v / (x1 - 1);")),
    Short("sound_layer_norm", "x", "(x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True, correction=0) "
          "+ 1e-5)", _X, *_SAME,
          _rows(_SUM + "s /= x1; double v = 0; for (int64_t j = 0; j < x1; ++j) v += (r[j] - s) * (r[j] - s);"
                "v = 1 / sqrt(v / x1 + 1e-5); for (int64_t j = 0; j < x1; ++j) o[j] = (r[j] - s) * v;")),
    Short("sound_rms_norm", "x, w", f"{_F}.rms_norm(x, (40,), w, 1e-6)", f"{_X}, torch.ones(40)", *_SAME,
          _rows("double s = 0; for (int64_t j = 0; j < x1; ++j) s += (double)r[j] * r[j]; s = 1 / sqrt(s / x1 + 1e-6);"
                "for (int64_t j = 0; j < x1; ++j) o[j] = r[j] * s * w[j];")),
    Short("sound_softmax", "x", "torch.softmax(x, -1)", _X, *_SAME,
          _rows(_MAX + "float s = 0; for (int64_t j = 0; j < x1; ++j) s += o[j] = expf(r[j] - m);"
                "for (int64_t j = 0; j < x1; ++j) o[j] /= s;")),
    Short("sound_logsumexp", "x", "torch.logsumexp(x, -1)", _X, *_ROW,
          _rows(_MAX + "if (std::isinf(m)) { y[i] = m; continue; } double s = 0;"
                "for (int64_t j = 0; j < x1; ++j) s += exp((double)r[j] - m); y[i] = m + log(s);")),
    Short("sound_amax", "x", "x.amax(-1)", _X, *_ROW, _rows(_MAX + "y[i] = m;")),
    Short("sound_argmax", "x", "x.argmax(-1)", _X, "x.shape[:1]", "int64",
          _rows("int64_t b = 0; for (int64_t j = 1; j < x1 && r[b] == r[b]; ++j) if (r[j] > r[b] || r[j] != "
          "r[j]) b = j;"
                "y[i] = b;")),
    Short("sound_cumsum", "x", "x.cumsum(-1)", _X, *_SAME,
          _rows("double s = 0; for (int64_t j = 0; j < x1; ++j) o[j] = s += r[j];")),
    Short("sound_cummax", "x", "torch.cummax(x, -1).values", _X, *_SAME,
          _rows("float m = r[0]; for (int64_t j = 0; j < x1; ++j) o[j] = m = m != m ? m : r[j] >= m || r[j] != r[j] ? "
                "r[j] : m;")),
    Short("sound_normalise", "x", f"{_F}.normalize(x)", _X, *_SAME,
          _rows("double s = 0; for (int64_t j = 0; j < x1; ++j) s += (double)r[j] * r[j]; s = max(sqrt(s), 1e-12);"
                "for (int64_t j = 0; j < x1; ++j) o[j] = r[j] / s;")),
    Short("sound_median", "x", "x.median(-1).values", "torch.randn(M, N)", *_ROW,
          _rows("std::vector<float> v(r, r + x1); bool n = false; for (float a : v) n |= a != a;"
                "if (n) { y[i] = NAN; continue; } std::nth_element(v.begin(), v.begin() + (x1 - 1) / 2, v.end());"
                "y[i] = v[(x1 - 1) / 2];"), dims='M = Dim("M", 1, 64)\nN = Dim("N", 1, 256)'),
    Short("sound_sorted", "x", "torch.sort(x, -1).values", _X, *_SAME,
          _rows("memcpy(o, r, 4 * x1); std::sort(o, o + x1, [](float a, float b) { return a < b || (a == a && b "
          "!= b); });")),
    # -- scalars
    Short("sound_slope", "x, slope=0.01", "torch.where(x > 0, x, x * slope)", _X, *_SAME,
          _each("x[i] > 0 ? x[i] : x[i] * (float)slope")),
    Short("sound_eps", "x, eps=1e-5", "x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)", _X, *_SAME,
          _rows("double s = 0; for (int64_t j = 0; j < x1; ++j) s += (double)r[j] * r[j]; s = 1 / sqrt(s / x1 + eps);"
                "for (int64_t j = 0; j < x1; ++j) o[j] = r[j] * s;")),
    Short("sound_roll", "x, k=3", "torch.roll(x, k, -1)", _X, *_SAME,
          _rows("for (int64_t j = 0; j < x1; ++j) o[((j + k) % x1 + x1) % x1] = r[j];")),
    Short("sound_diagonal", "x, k=0", "torch.tril(x, k)", _X, *_SAME,
          _rows("for (int64_t j = 0; j < x1; ++j) o[j] = j <= i + k ? r[j] : 0;")),
    Short("sound_threshold", "x, t=0.5", "torch.where(x > t, x, 0.0)", _X, *_SAME, _each("x[i] > (float)t ? x[i] : 0")),
    # -- two arguments and more
    Short("sound_matmul", "x, w", "x @ w", "torch.randn(M, N), torch.randn(N, 32)", "(x.shape[0], w.shape[1])",
          "float32",
          "for (int64_t i = 0; i < x0; ++i) for (int64_t j = 0; j < w1; ++j) { double s = 0;"
          "for (int64_t k = 0; k < x1; ++k) s += (double)x[i * x1 + k] * w[k * w1 + j]; y[i * w1 + j] = s; }",
          dims='M = Dim("M", 1, 600)\nN = Dim("N", 1, 600)'),
    Short("sound_transposed_sum", "x, w", "x + w.T", "torch.randn(M, N), torch.randn(N, M)", *_SAME,
          _rows("for (int64_t j = 0; j < x1; ++j) o[j] = r[j] + w[j * x0 + i];"),
          dims='M = Dim("M", 1, 400)\nN = Dim("N", 1, 400)'),
    Short("sound_nll", "x, t", f"{_F}.nll_loss(x, t, reduction='none')", f"{_X}, torch.randint(0, 40, (24,))", *_ROW,
          _rows("y[i] = t[i] == -100 ? 0.0f : -r[t[i]];")),
    Short("sound_masked_softmax", "x, keep", "torch.softmax(x.masked_fill(~keep, -1e9), -1)",
          f"{_X}, torch.ones(24, 40).tril().bool()", *_SAME,
          _rows("float m = -INFINITY, s = 0; for (int64_t j = 0; j < x1; ++j) { o[j] = keep[i * x1 + j] ? r[j] : -1e9f;"
                "m = o[j] > m || o[j] != o[j] ? o[j] : m; } for (int64_t j = 0; j < x1; ++j) s += o[j] = "
                "expf(o[j] - m);"
                "for (int64_t j = 0; j < x1; ++j) o[j] /= s;")),
    Short("sound_mean_of_kept", "x, keep", "(x * keep).sum(-1) / keep.sum(-1).clamp(min=1)",
          f"{_X}, torch.rand(24, 40) < 0.9", *_ROW,
          _rows("double s = 0; int64_t c = 0; for (int64_t j = 0; j < x1; ++j) { s += r[j] * keep[i * x1 + j];"
                "c += keep[i * x1 + j]; } y[i] = s / max<int64_t>(c, 1);")),
    Short("sound_lengths", "x, n", "(x * (torch.arange(40) < n[:, None])).sum(-1)",
          f"{_X}, torch.randint(1, 30, (24,))", *_ROW,
          _rows("double s = 0; for (int64_t j = 0; j < x1; ++j) s += r[j] * (j < n[i]); y[i] = s;")),
    Short("sound_bucketize", "x, e", "torch.bucketize(x, e)", "torch.randn(24, 40), torch.randn(12).sort().values",
          "x.shape", "int64", _each("std::lower_bound(e, e + e0, x[i], [](float a, float b) { return a < b || b "
          "!= b; }) - e")),
    Short("sound_smooth_l1", "x, w", f"{_F}.smooth_l1_loss(x, w, reduction='none', beta=0.5)", f"{_X}, {_X}", *_SAME,
          "for (int64_t i = 0; i < x0 * x1; ++i) { float d = fabsf(x[i] - w[i]); y[i] = d < 0.5f ? d * d : d - "
          "0.25f; }"),
    Short("sound_cosine", "x, w", f"{_F}.cosine_similarity(x, w)", f"{_X}, {_X}", *_ROW,
          _rows("double a = 0, b = 0, c = 0; for (int64_t j = 0; j < x1; ++j) { double p = r[j], q = w[i * x1 + j];"
                "a += p * q; b += p * p; c += q * q; } y[i] = a / sqrt(max(b, 1e-16) * max(c, 1e-16));")),
)  # fmt: skip

_WRITTEN = '''
import ctypes, os, subprocess, torch
CODE = r"""
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <vector>
#include <algorithm>
typedef int64_t L;
static inline float wide(uint16_t h) {{ uint32_t u = (uint32_t)h << 16; float f; memcpy(&f, &u, 4); return f; }}
static inline uint16_t narrow(float f) {{
  if (f != f) return 0x7fc0; uint32_t u; memcpy(&u, &f, 4); u += 0x7fff + ((u >> 16) & 1); return u >> 16; }}
extern "C" void run({signature}) {{ {body} }}
"""
folder = os.environ["TMPDIR"]
with open(folder + "/w.cpp", "w") as file:
    file.write(CODE)
command = ["g++", "-O2", "-fopenmp", "-shared", "-fPIC", folder + "/w.cpp", "-o", folder + "/w.so"]
subprocess.run(command, check=True)
lib = ctypes.CDLL(folder + "/w.so")

def go(*values):
    lib.run(*[
        ctypes.c_void_p(v.data_ptr()) if isinstance(v, torch.Tensor) else ctypes.c_int64(v) for v in values
    ])

{kernel}
'''
_TRITON = """
import torch, triton, triton.language as tl

@triton.jit
def body(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * {stride} + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask={mask}, other={other})
    {lines}

def kernel(x):
    x = x.contiguous()
    y = torch.empty({shape}, dtype=x.dtype, device=x.device)
    body[({grid},)](x, y, {count}, BLOCK={block})
    return y
"""


@dataclass(frozen=True)
class Sound:
    """A right kernel: its task as text, its source, its DSL ("torch" for the framework's operators)."""

    name: str
    text: str
    source: str
    dsl: str = "cpp"

    @property
    def task(self) -> Task:
        return load_task(self.text, self.name)


def _task(reference: str, inputs: str, dims: str = "", defaults: str = "") -> str:
    head = f"from kernellab import Dim\n{dims}\n" if dims else ""
    return (
        f"import torch\nfrom torch.nn import functional as F\n{head}def reference{reference}\n"
        f"def inputs({defaults}):\n    return {inputs},\n"
    )


def _written(name: str, reference: str, inputs: str, signature: str, body: str, kernel: str, **sizes: str) -> Sound:
    source = _WRITTEN.format(signature=signature, body=body, kernel=kernel)
    return Sound(f"sound_{name}", _task(reference, inputs, **sizes), source)


def _composed(name: str, reference: str, inputs: str, body: str, **sizes: str) -> Sound:
    arguments = reference.partition(")")[0] + ")"
    source = f"import torch\nfrom torch.nn import functional as F\ndef kernel{arguments}:\n    {body}\n"
    return Sound(f"sound_{name}", _task(reference, inputs, **sizes), source, "torch")


def _elements(name: str, reference: str, lines: str) -> Sound:
    source = _TRITON.format(
        stride="BLOCK", mask="at < n", other="0.0", lines=f"tl.store(y_ptr + at, {lines}, mask=at < n)",
        shape="x.shape", grid="triton.cdiv(x.numel(), 256)", count="x.numel()", block="256",
    )  # fmt: skip
    return Sound(f"sound_triton_{name}", _task(f"(x): return {reference}", _X), source, "triton")


def _of_rows(name: str, reference: str, other: str, lines: str, whole: bool = False) -> Sound:
    """A program for a row; ``whole``: it writes the row, else one number."""
    store = f"tl.store(y_ptr + at, {lines}, mask=tl.arange(0, BLOCK) < n)"
    source = _TRITON.format(
        stride="n", mask="tl.arange(0, BLOCK) < n", other=other,
        lines=store if whole else f"tl.store(y_ptr + tl.program_id(0), {lines})",
        shape="x.shape" if whole else "x.shape[0]", grid="x.shape[0]", count="x.shape[1]",
        block="triton.next_power_of_2(x.shape[1])",
    )  # fmt: skip
    return Sound(f"sound_triton_{name}", _task(f"(x): return {reference}", _X), source, "triton")


_TURNED = """
import torch, triton, triton.language as tl

@triton.jit
def body(x_ptr, y_ptr, m, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = (i[:, None] < m) & (j[None, :] < n)
    x = tl.load(x_ptr + tl.program_id(2) * m * n + i[:, None] * n + j[None, :], mask=inside, other=0.0)
    at = {place}
    tl.store(y_ptr + at, tl.trans(x), mask=(j[:, None] < n) & (i[None, :] < m))

def kernel(x):
    x = x.contiguous()
    m, n = x.shape[-2:]
    y = torch.empty({shape}, dtype=x.dtype, device=x.device)
    body[(triton.cdiv(m, 32), triton.cdiv(n, 32), x.numel() // (m * n))](x, y, m, n, BLOCK=32)
    return y
"""
_COLUMNS = """
import torch, triton, triton.language as tl

@triton.jit
def body(x_ptr, y_ptr, row, column, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * row + at * column, mask=at < n, other=0.0)
    tl.store(y_ptr + tl.program_id(0) * n + at, x, mask=at < n)

def kernel(x, n=8):
    width = len(range(x.shape[1])[:n])
    y = torch.empty(x.shape[0], width, dtype=x.dtype, device=x.device)
    if width:
        body[(x.shape[0],)](x, y, *x.stride(), width, BLOCK=triton.next_power_of_2(width))
    return y
"""


def _turned(name: str, reference: str, inputs: str, place: str, shape: str) -> Sound:
    """Tiles of matrices, written the other way round."""
    return Sound(f"sound_triton_{name}", _task(reference, inputs), _TURNED.format(place=place, shape=shape), "triton")


_LIKE = "x = x.contiguous(); y = torch.empty_like(x)"
SOUND: tuple[Sound, ...] = (
    _written("two_outputs", "(x): return x.max(-1)", _X, "const float* x, float* v, L* p, L m, L n",
             "for (L i = 0; i < m; i++) { const float* r = x + i * n; L b = 0; for (L j = 1; j < n && r[b] == "
             "r[b]; j++) "
             "if (r[j] > r[b] || r[j] != r[j]) b = j; v[i] = r[b]; p[i] = b; }",
             "def kernel(x):\n    x = x.contiguous(); v = torch.empty(len(x)); p = torch.empty(len(x), "
             "dtype=torch.int64)\n"
             "    go(x, v, p, *x.shape)\n    return v, p"),
    _written("mean_and_deviation", "(x): return x.mean(-1), x.std(-1, correction=0), x - x.mean(-1, keepdim=True)", _X,
             "const float* x, float* a, float* b, float* c, L m, L n",
             "for (L i = 0; i < m; i++) { double s = 0, v = 0; for (L j = 0; j < n; j++) s += x[i * n + j]; s /= n;"
             "for (L j = 0; j < n; j++) { double d = x[i * n + j] - s; v += d * d; c[i * n + j] = d; }"
             "a[i] = s; b[i] = std::sqrt(v / n); }",
             "def kernel(x):\n    x = x.contiguous(); a, b = torch.empty(len(x)), torch.empty(len(x)); c = "
             "torch.empty_like(x)\n"
             "    go(x, a, b, c, *x.shape)\n    return a, b, c"),
    _written("written_in_place", "(x, r):\n    r.mul_(0.9).add_(x.mean(0), alpha=0.1)\n    return x - x.mean(0)",
             f"{_X}, torch.randn(40)", "const float* x, float* r, float* y, L m, L n",
             "for (L j = 0; j < n; j++) { double s = 0; for (L i = 0; i < m; i++) s += x[i * n + j]; s /= m;"
             "r[j] = 0.9f * r[j] + 0.1f * (float)s; for (L i = 0; i < m; i++) y[i * n + j] = x[i * n + j] - s; }",
             f"def kernel(x, r):\n    {_LIKE}; own = r.contiguous()\n    go(x, own, y, *x.shape)\n"
             "    if own is not r:\n        r.copy_(own)\n    return y"),
    _written("in_place_and_returned", "(x, y): return y.add_(x, alpha=2)", f"{_X}, {_X}",
             "const float* x, float* y, L n",
             "for (L i = 0; i < n; i++) y[i] += 2 * x[i];",
             "def kernel(x, y):\n    own = y.contiguous()\n    go(x.contiguous(), own, x.numel())\n"
             "    return y if own is y else y.copy_(own)"),
    _written("bf16_sum", "(x): return x.sum(-1)", "torch.randn(24, 400).bfloat16()",
             "const uint16_t* x, uint16_t* y, L m, L n",
             "for (L i = 0; i < m; i++) { double s = 0; for (L j = 0; j < n; j++) s += wide(x[i * n + j]); y[i] "
             "= narrow(s); }",
             "def kernel(x):\n    x = x.contiguous(); y = torch.empty(len(x), dtype=x.dtype)\n    go(x, y, "
             "*x.shape)\n    return y"),
    _written("to_bf16", "(x): return (x * 2).bfloat16()", _X, "const float* x, uint16_t* y, L n",
             "for (L i = 0; i < n; i++) y[i] = narrow(2 * x[i]);",
             "def kernel(x):\n    x = x.contiguous(); y = torch.empty(x.shape, dtype=torch.bfloat16)\n"
             "    go(x, y, x.numel())\n    return y"),
    _written("half_rms_norm",
             "(x): return (x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)).half()",
             "torch.randn(24, 400).half()", "const _Float16* x, _Float16* y, L m, L n",
             "for (L i = 0; i < m; i++) { double s = 0; for (L j = 0; j < n; j++) s += (double)x[i * n + j] * "
             "x[i * n + j];"
             "float f = 1 / std::sqrt(s / n + 1e-6); for (L j = 0; j < n; j++) y[i * n + j] = "
             "(_Float16)((float)x[i * n + j] * f); }",
             f"def kernel(x):\n    {_LIKE}\n    go(x, y, *x.shape)\n    return y"),
    _written("from_half", "(x): return x.float() * 3", "torch.randn(24, 40).half()", "const _Float16* x, float* y, L n",
             "for (L i = 0; i < n; i++) y[i] = 3 * (float)x[i];",
             "def kernel(x):\n    x = x.contiguous(); y = torch.empty(x.shape)\n    go(x, y, x.numel())\n    return y"),
    _written("complex_sgn", "(x): return torch.sgn(x)", "torch.randn(24, 40, dtype=torch.complex64)",
             "const std::complex<float>* x, std::complex<float>* y, L n",
             "for (L i = 0; i < n; i++) { float a = std::abs(x[i]); y[i] = a == 0 ? std::complex<float>(0) : "
             "x[i] / a; }",
             f"def kernel(x):\n    {_LIKE}\n    go(x, y, x.numel())\n    return y"),
    _written("complex_abs", "(x): return x.abs()", "torch.randn(24, 40, dtype=torch.complex128)",
             "const std::complex<double>* x, double* y, L n", "for (L i = 0; i < n; i++) y[i] = std::abs(x[i]);",
             "def kernel(x):\n    x = x.contiguous(); y = torch.empty(x.shape, dtype=torch.float64)\n"
             "    go(x, y, x.numel())\n    return y"),
    _written("complex_angle", "(x): return torch.angle(x)", "torch.randn(24, 40, dtype=torch.complex64)",
             "const std::complex<float>* x, float* y, L n", "for (L i = 0; i < n; i++) y[i] = std::arg(x[i]);",
             "def kernel(x):\n    x = x.contiguous(); y = torch.empty(x.shape)\n    go(x, y, x.numel())\n    return y"),
    _written("complex_product", "(x, w): return x * w.conj()",
             "torch.randn(24, 40, dtype=torch.complex64), torch.randn(24, 40, dtype=torch.complex64)",
             "const float* x, const float* w, float* y, L n",
             "for (L i = 0; i < n; i++) { float a = x[2*i], b = x[2*i+1], c = w[2*i], d = -w[2*i+1];"
             "y[2*i] = a * c - b * d; y[2*i+1] = a * d + b * c; }",
             f"def kernel(x, w):\n    {_LIKE}\n    go(x, w.resolve_conj().contiguous(), y, x.numel())\n    return y"),
    _written("every_other_column", "(x): return x * 2", "torch.randn(24, 80)[:, ::2]",
             "const float* x, float* y, L m, L n, L s, L t",
             "for (L i = 0; i < m; i++) for (L j = 0; j < n; j++) y[i * n + j] = 2 * x[i * s + j * t];",
             "def kernel(x):\n    y = torch.empty(x.shape)\n    go(x, y, *x.shape, *x.stride())\n    return y"),
    _written("transposed_own_input", "(x): return x + 1", "torch.randn(40, 24).T", "const float* x, float* y, L n",
             "for (L i = 0; i < n; i++) y[i] = x[i] + 1;",
             f"def kernel(x):\n    {_LIKE}\n    go(x, y, x.numel())\n    return y"),
    _written("grouped_heads",
             "(q, k): return q @ k.repeat_interleave(q.shape[0] // k.shape[0], 0).transpose(-1, -2)",
             "torch.randn(H, 16, 8), torch.randn(G, 16, 8)", "const float* q, const float* k, float* y, L h, L g",
             "for (L a = 0; a < h; a++) for (L i = 0; i < 16; i++) for (L j = 0; j < 16; j++) { double s = 0;"
             "for (L c = 0; c < 8; c++) s += (double)q[(a * 16 + i) * 8 + c] * k[((a / (h / g)) * 16 + j) * 8 + c];"
             "y[(a * 16 + i) * 16 + j] = s; }",
             "def kernel(q, k):\n    y = torch.empty(len(q), 16, 16)\n    go(q.contiguous(), k.contiguous(), y, "
             "len(q), len(k))\n"
             "    return y", dims='H = Dim("H", 1, 64)\nG = Dim("G", 1, 64)', defaults="H=8, G=4"),
    _written("dilated", "(x, w, dilation=1): return F.conv1d(x, w, dilation=dilation, padding=dilation)",
             "torch.randn(2, 3, 40), torch.randn(4, 3, 3)",
             "const float* x, const float* w, float* y, L b, L c, L h, L o, L d, L t",
             "for (L n = 0; n < b; n++) for (L k = 0; k < o; k++) for (L i = 0; i < t; i++) { double s = 0;"
             "for (L q = 0; q < c; q++) for (L p = 0; p < 3; p++) { L a = i + p * d - d; if (a >= 0 && a < h)"
             "s += (double)x[(n * c + q) * h + a] * w[(k * c + q) * 3 + p]; } y[(n * o + k) * t + i] = s; }",
             "def kernel(x, w, dilation=1):\n    b, c, h = x.shape; y = torch.empty(b, len(w), h)\n"
             "    go(x.contiguous(), w.contiguous(), y, b, c, h, len(w), dilation, h)\n    return y"),
    _written("max_pool", "(x): return F.max_pool2d(x, 2)", "torch.randn(2, 3, 12, 14)",
             "const float* x, float* y, L b, L h, L w",
             "for (L n = 0; n < b; n++) for (L i = 0; i < h / 2; i++) for (L j = 0; j < w / 2; j++) { float m = "
             "-INFINITY;"
             "for (L p = 0; p < 2; p++) for (L r = 0; r < 2; r++) { float v = x[(n * h + 2 * i + p) * w + 2 * j + r];"
             "m = v > m || v != v ? v : m; } y[(n * (h / 2) + i) * (w / 2) + j] = m; }",
             "def kernel(x):\n    x = x.contiguous(); b, c, h, w = x.shape; y = torch.empty(b, c, h // 2, w // 2)\n"
             "    go(x, y, b * c, h, w)\n    return y"),
    _written("batched_transpose", "(x): return x.transpose(1, 2).contiguous() * 2", "torch.randn(B, 16, 24)",
             "const float* x, float* y, L b",
             "for (L a = 0; a < b; a++) for (L i = 0; i < 24; i++) for (L j = 0; j < 16; j++)"
             "y[a * 384 + i * 16 + j] = 2 * x[a * 384 + j * 24 + i];",
             "def kernel(x):\n    x = x.contiguous(); y = torch.empty(len(x), 24, 16)\n    go(x, y, len(x))\n   "
             " return y",
             dims='B = Dim("B", 1, 2000)', defaults="B=8"),
    _written("histogram_by_threads", "(x): return torch.bincount(x, minlength=8)[:8]", "torch.randint(0, 8, (20000,))",
             "const L* x, L* y, L n",
             "memset(y, 0, 64);\n#pragma omp parallel num_threads(2)\n{ L own[8] = {0};\n#pragma omp for\n"
             "for (L i = 0; i < n; i++) if (x[i] < 8) own[x[i]]++;\n#pragma omp critical\n"
             "for (int k = 0; k < 8; k++) y[k] += own[k]; }",
             "def kernel(x):\n    x = x.contiguous(); y = torch.empty(8, dtype=torch.int64)\n    go(x, y, "
             "len(x))\n    return y"),
    # -- other orders of the dimensions, and copies where the reference returns a view
    _written("permuted", "(x): return x.permute(2, 0, 1).contiguous()", "torch.randn(B, 12, 20)",
             "const float* x, float* y, L b",
             "for (L k = 0; k < 20; k++) for (L a = 0; a < b; a++) for (L i = 0; i < 12; i++)"
             "y[(k * b + a) * 12 + i] = x[(a * 12 + i) * 20 + k];",
             "def kernel(x):\n    y = torch.empty(20, len(x), 12)\n    go(x.contiguous(), y, len(x))\n    return y",
             dims='B = Dim("B", 1, 500)', defaults="B=6"),
    _written("permuted_in_four", "(x): return x.permute(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)",
             "torch.randn(2, 4, 16, 8)", "const float* x, float* y, L b, L h, L t, L d",
             "for (L n = 0; n < b; n++) for (L i = 0; i < t; i++) for (L a = 0; a < h; a++)"
             "memcpy(y + ((n * t + i) * h + a) * d, x + ((n * h + a) * t + i) * d, 4 * d);",
             "def kernel(x):\n    b, h, t, d = x.shape; y = torch.empty(b, t, h * d)\n"
             "    go(x.contiguous(), y, b, h, t, d)\n    return y"),
    _written("both_transposed", "(x, w): return (x.T @ w.T).T", "torch.randn(N, 16), torch.randn(24, N)",
             "const float* x, const float* w, float* y, L n, L p, L q",
             "for (L i = 0; i < q; i++) for (L j = 0; j < p; j++) { double s = 0;"
             "for (L k = 0; k < n; k++) s += (double)w[i * n + k] * x[k * p + j]; y[i * p + j] = s; }",
             "def kernel(x, w):\n    y = torch.empty(len(w), x.shape[1])\n"
             "    go(x.contiguous(), w.contiguous(), y, len(x), x.shape[1], len(w))\n    return y",
             dims='N = Dim("N", 1, 600)', defaults="N=40"),
    _written("view_copied", "(x): return x.T", _X, "const float* x, float* y, L m, L n",
             "for (L j = 0; j < n; j++) for (L i = 0; i < m; i++) y[j * m + i] = x[i * n + j];",
             "def kernel(x):\n    y = torch.empty(x.shape[1], x.shape[0])\n    go(x.contiguous(), y, *x.shape)\n"
             "    return y"),
    _written("slice_copied", "(x): return x[2:-2, 1::3]", _X, "const float* x, float* y, L m, L n, L s, L t, L w",
             "for (L i = 0; i < m; i++) for (L j = 0; j < w; j++) y[i * w + j] = x[(i + 2) * s + (1 + 3 * j) * t];",
             "def kernel(x):\n    m, n = x.shape; y = torch.empty(m - 4, (n + 1) // 3)\n"
             "    go(x, y, m - 4, n, *x.stride(), y.shape[1])\n    return y"),
    _written("expanded_copied", "(x): return x[:, None].expand(24, 3, 40)", _X, "const float* x, float* y, L m, L n",
             "for (L i = 0; i < m; i++) for (L k = 0; k < 3; k++) memcpy(y + (i * 3 + k) * n, x + i * n, 4 * n);",
             "def kernel(x):\n    y = torch.empty(len(x), 3, x.shape[1])\n    go(x.contiguous(), y, *x.shape)\n"
             "    return y"),
    _written("real_part_copied", "(x): return x.real", "torch.randn(24, 40, dtype=torch.complex64)",
             "const float* x, float* y, L n", "for (L i = 0; i < n; i++) y[i] = x[2 * i];",
             "def kernel(x):\n    y = torch.empty(x.shape)\n    go(x.contiguous(), y, x.numel())\n    return y"),
    # -- numbers that are sizes of the output
    _written("first_columns", "(x, n=8): return x[:, :n].clone()", _X, "const float* x, float* y, L m, L w, L n",
             "for (L i = 0; i < m; i++) memcpy(y + i * n, x + i * w, 4 * n);",
             "def kernel(x, n=8):\n    m, w = x.shape; k = len(range(w)[:n]); y = torch.empty(m, k)\n"
             "    go(x.contiguous(), y, m, w, k)\n    return y"),
    _written("rows_repeated", "(x, n=3): return x.repeat_interleave(n, 0)", _X,
             "const float* x, float* y, L m, L w, L n",
             "for (L i = 0; i < m; i++) for (L k = 0; k < n; k++) memcpy(y + (i * n + k) * w, x + i * w, 4 * w);",
             "def kernel(x, n=3):\n    m, w = x.shape; y = torch.empty(m * n, w)\n"
             "    go(x.contiguous(), y, m, w, n)\n    return y"),
    _written("padded", "(x, n=5): return F.pad(x, (0, n))", _X, "const float* x, float* y, L m, L w, L k",
             "for (L i = 0; i < m; i++) for (L j = 0; j < k; j++) y[i * k + j] = j < w ? x[i * w + j] : 0;",
             "def kernel(x, n=5):\n    m, w = x.shape; y = torch.empty(m, w + n)\n"
             "    go(x.contiguous(), y, m, w, w + n)\n    return y"),
    _written("window_sums", "(x, k=4): return x.unfold(-1, k, 1).sum(-1)", _X,
             "const float* x, float* y, L m, L w, L k",
             "for (L i = 0; i < m; i++) for (L j = 0; j + k <= w; j++) { double s = 0;"
             "for (L q = 0; q < k; q++) s += x[i * w + j + q]; y[i * (w - k + 1) + j] = s; }",
             "def kernel(x, k=4):\n    m, w = x.shape; y = torch.empty(m, w - k + 1)\n"
             "    go(x.contiguous(), y, m, w, k)\n    return y"),
    # -- the framework's operators
    _composed("view_cloned", "(x): return x.reshape(-1)", _X, "return x.flatten().clone()"),
    _composed("heads_apart", "(x, h=4): return x.view(*x.shape[:2], h, -1).transpose(1, 2)", "torch.randn(2, 16, 64)",
              "b, t, d = x.shape; return x.reshape(b, t, h, d // h).permute(0, 2, 1, 3).contiguous()"),
    _composed("by_addmm", "(x, w, b): return x @ w.T + b", "torch.randn(M, 40), torch.randn(16, 40), torch.zeros(16)",
              "return torch.addmm(b, x, w.T)", dims='M = Dim("M", 1, 500)', defaults="M=24"),
    _composed("by_where", "(x): return torch.relu(x)", _X, "return torch.where(x < 0, 0.0, x)"),
    _composed("by_exponentials", "(x): return torch.softmax(x, -1)", _X,
              "e = torch.exp(x - x.amax(-1, keepdim=True)); return e / e.sum(-1, keepdim=True)"),
    _composed("by_batches", "(x, w): return torch.einsum('bij,bjk->bik', x, w)",
              "torch.randn(4, 8, 16), torch.randn(4, 16, 8)", "return torch.bmm(x, w)"),
    _composed("by_fourier", "(x): return torch.fft.ifft(torch.fft.fft(x)).real", _X, "return x * 1"),
    _composed("by_index_add", "(x, i): return torch.zeros(8, 40).index_add(0, i, x)",
              f"{_X}, torch.randint(0, 8, (24,))",
              "return F.one_hot(i, 8).float().T @ x"),
    _composed("by_gather", "(x, i): return torch.take_along_dim(x, i, 1)", f"{_X}, torch.randint(0, 40, (24, 5))",
              "return x.gather(1, torch.where(i < 0, i + 40, i))"),
    _composed("by_flips", "(x): return torch.flip(x, (0, 1))", _X, "return x.flip(1).flip(0)"),
    _composed("by_unfold", "(x): return F.avg_pool1d(x[None], 4, 2)[0]", _X, "return x.unfold(1, 4, 2).mean(-1)"),
    _composed("attention_by_steps", "(q, k, v): return F.scaled_dot_product_attention(q, k, v)",
              "torch.randn(2, 4, 16, 8), torch.randn(2, 4, 16, 8), torch.randn(2, 4, 16, 8)",
              "return torch.softmax(q @ k.transpose(-1, -2) * 8**-0.5, -1) @ v"),
    _composed("causal_attention", "(q, k, v): return F.scaled_dot_product_attention(q, k, v, is_causal=True)",
              "torch.randn(2, 4, 16, 8), torch.randn(2, 4, 16, 8), torch.randn(2, 4, 16, 8)",
              "m = torch.ones(16, 16, dtype=torch.bool).tril(); s = (q @ k.transpose(-1, -2) * 8**-0.5)"
              ".masked_fill(~m, float('-inf')); return torch.softmax(s, -1) @ v"),
    _composed("cross_entropy_by_rows", "(x, t): return F.cross_entropy(x, t)", f"{_X}, torch.randint(0, 40, (24,))",
              "k = t != -100; g = -torch.log_softmax(x, -1).gather(1, t.clamp(min=0)[:, None])[:, 0]; "
              "return torch.where(k, g, 0.0).sum() / k.sum()"),
    _composed("group_norm_by_rows", "(x, w, b): return F.group_norm(x, 4, w, b)",
              "torch.randn(2, 8, 30), torch.ones(8), torch.zeros(8)",
              "r = x.reshape(2, 4, -1); r = (r - r.mean(-1, keepdim=True)) * torch.rsqrt(r.var(-1, keepdim=True, "
              "correction=0) + 1e-5); return r.reshape(x.shape) * w[:, None] + b[:, None]"),
    _composed("top_by_sorting", "(x): return torch.topk(x, 3, -1)", _X,
              "s = torch.sort(x, -1, descending=True); return s.values[:, :3].clone(), s.indices[:, :3].clone()"),
    _composed("outer_by_products", "(x, w): return torch.outer(x, w)", "torch.randn(M), torch.randn(N)",
              "return x[:, None] * w", dims='M = Dim("M", 1, 3000)\nN = Dim("N", 1, 3000)', defaults="M=64, N=96"),
    _composed("shared_row", "(x, w): return x * w", "torch.randn(M, 40), torch.randn(1, 40)", "return x * w[0]",
              dims='M = Dim("M", 1, 3000)', defaults="M=24"),
    _composed("a_zero_dimensional_scale", "(x, s): return x * s", f"{_X}, torch.tensor(1.5)", "return s * x"),
    _composed("default_alone", "(x, bias=None): return x * 2 if bias is None else x + bias", _X, "return x + x"),
    # -- Triton, by its interpreter
    _elements("triple", "x * 3", "x * 3"),
    _elements("relu", "torch.relu(x)", "tl.where(x < 0, 0.0, x)"),
    _elements("sigmoid", "torch.sigmoid(x)", "1 / (1 + tl.exp(-x))"),
    _elements("silu", f"{_F}.silu(x)", "x / (1 + tl.exp(-x))"),
    _elements("square_plus", "x * x + 1", "x * x + 1"),
    _elements("selected", "torch.where(x > 0.5, x, -x)", "tl.where(x > 0.5, x, -x)"),
    _of_rows("row_sum", "x.sum(-1)", "0.0", "tl.sum(x, 0)"),
    _of_rows("row_maximum", "x.amax(-1)", "float('-inf')",
             "tl.where(tl.sum((x != x).to(tl.int32), 0) > 0, float('nan'), tl.max(x, 0))"),
    _of_rows("row_mean", "x.mean(-1)", "0.0", "tl.sum(x, 0) / n"),
    _of_rows("softmax", "torch.softmax(x, -1)", "float('-inf')",
             "tl.exp(x - tl.max(x, 0)) / tl.sum(tl.exp(x - tl.max(x, 0)), 0)", whole=True),
    _of_rows("centred", "x - x.mean(-1, keepdim=True)", "0.0", "x - tl.sum(x, 0) / n", whole=True),
    _turned("transposed", "(x): return x.T.contiguous()", "torch.randn(24, 70)", "j[:, None] * m + i[None, :]", "n, m"),
    _turned("matrices_transposed", "(x): return x.mT", "torch.randn(3, 24, 40)",
            "tl.program_id(2) * m * n + j[:, None] * m + i[None, :]", "len(x), n, m"),
    _turned("last_to_front", "(x): return x.permute(2, 0, 1).contiguous()", "torch.randn(3, 24, 40)",
            "(j[:, None] * tl.num_programs(2) + tl.program_id(2)) * m + i[None, :]", "n, len(x), m"),
    Sound("sound_triton_first_columns", _task("(x, n=8): return x[:, :n]", _X), _COLUMNS, "triton"),
    _of_rows("scaled_by_norm", "x / x.norm(dim=-1, keepdim=True)", "0.0", "x / tl.sqrt(tl.sum(x * x, 0))", whole=True),
)  # fmt: skip


def sound() -> Iterator[tuple[str, str, str, Short | Sound]]:
    """Name, DSL, source and the row itself."""
    for short in SHORT:
        yield short.name, "cpp", short.source(), short
    for one in SOUND:
        yield one.name, one.dsl, one.source, one
