"""Gates, scans, norms and a stencil: C++ by hand, one row after another."""

from __future__ import annotations

from tests.evolve.hand import Hand, in_cpp, task

ROWS = {
    "top2_gate": Hand(
        task(
            "def reference(x):\n    v, i = torch.topk(x, 2, dim=-1)\n    return torch.softmax(v, -1), i",
            "return (torch.randn(16384, 64),)",
        ),
        in_cpp(
            r"""
// one pass over a row for its maximum, one for the next; places by comparison, so that all of it is lanes
static inline void best(const float* row, int skip, float& value, int& place) {
  float top = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : top)
  for (int j = 0; j < 64; ++j) top = std::max(top, j == skip ? -std::numeric_limits<float>::infinity() : row[j]);
  int first = 64;
#pragma omp simd reduction(min : first)
  for (int j = 0; j < 64; ++j) first = std::min(first, row[j] == top && j != skip ? j : 64);
  value = top; place = first;
}

void top2(View x, View y, View at_) {
  const float* X = at(x); float* Y = at(y); int64_t* I = at<int64_t>(at_);
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < 16384; ++r) {
    float a, b; int i, j;
    best(X + r * 64, -1, a, i);
    best(X + r * 64, i, b, j);
    const float e = std::exp(b - a), s = 1.0f / (1.0f + e);
    Y[2 * r] = s; Y[2 * r + 1] = e * s;
    I[2 * r] = i; I[2 * r + 1] = j;
  }
}
""",
            "top2",
            """
def kernel(x):
    y, i = torch.empty(16384, 2), torch.empty(16384, 2, dtype=torch.int64)
    module.top2(x.contiguous(), y, i)
    return y, i
""",
        ),
    ),
    "swiglu_halves": Hand(
        task(
            "def reference(x):\n    a, b = x.chunk(2, -1)\n    return F.silu(a) * b",
            "return (torch.randn(1024, 4096),)",
        ),
        in_cpp(
            r"""
void swiglu(View x, View y) {
  const float* X = at(x); float* Y = at(y);
  fresh(Y, 1024 * 2048 * 4);
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < 1024; ++r) {
    const float *a = X + r * 4096, *b = a + 2048;
    for (int64_t j = 0; j < 2048; j += 512) {
      alignas(64) float out[512];
#pragma omp simd
      for (int64_t i = 0; i < 512; ++i) out[i] = a[j + i] / (1.0f + fexp(-a[j + i])) * b[j + i];
      stream(Y + r * 2048 + j, out, 512);
    }
  }
}
""",
            "swiglu",
            """
def kernel(x):
    y = torch.empty(1024, 2048)
    module.swiglu(x.contiguous(), y)
    return y
""",
        ),
    ),
    "running_sums": Hand(
        task("def reference(x):\n    return torch.cumsum(x, -1)", "return (torch.randn(2048, 1024),)"),
        in_cpp(
            r"""
// sixteen columns in registers by four shifts; only what is carried on waits, and that is exact
typedef int32_t places __attribute__((vector_size(64)));
template <int S> static inline v16 shifted(v16 v) {
  places from;
  for (int j = 0; j < 16; ++j) from[j] = j < S ? 0 : 16 + j - S;
  return __builtin_shuffle(v16{}, v, from);
}

void scan(View x, View y) {
  const float* X = at(x); float* Y = at(y);
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < 2048; ++r) {
    double carried = 0.0;
    for (int64_t j = r * 1024; j < r * 1024 + 1024; j += 16) {
      v16 v = load(X + j);
      v += shifted<1>(v);
      v += shifted<2>(v);
      v += shifted<4>(v);
      v += shifted<8>(v);
      stream(Y + j, v + float(carried));
      carried += v[15];
    }
  }
}
""",
            "scan",
            """
def kernel(x):
    y = torch.empty(2048, 1024)
    module.scan(x.contiguous(), y)
    return y
""",
        ),
    ),
    "five_points": Hand(
        task(
            "def reference(x):\n    p = F.pad(x, (1, 1, 1, 1))\n"
            "    return 0.5 * x + 0.125 * (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:])",
            "return (torch.randn(2048, 2048),)",
        ),
        in_cpp(
            r"""
void stencil(View x, View y) {
  const float* X = at(x); float* Y = at(y);
  fresh(Y, 2048 * 2048 * 4);
  constexpr int64_t N = 2048;
  static const float zero[N] = {};
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < N; ++i) {
    const float *m = X + i * N, *u = i ? m - N : zero, *d = i + 1 < N ? m + N : zero;
    alignas(64) float out[N];
    out[0] = 0.5f * m[0] + 0.125f * (u[0] + d[0] + m[1]);
#pragma omp simd
    for (int64_t j = 1; j < N - 1; ++j) out[j] = 0.5f * m[j] + 0.125f * (u[j] + d[j] + m[j - 1] + m[j + 1]);
    out[N - 1] = 0.5f * m[N - 1] + 0.125f * (u[N - 1] + d[N - 1] + m[N - 2]);
    stream(Y + i * N, out, N);
  }
}
""",
            "stencil",
            """
def kernel(x):
    y = torch.empty(2048, 2048)
    module.stencil(x.contiguous(), y)
    return y
""",
        ),
    ),
    "rows_to_softmax": Hand(
        task("def reference(x):\n    return torch.softmax(x, -1)", "return (torch.randn(1024, 2048),)"),
        in_cpp(
            r"""
void rows(View x, View y) {
  const float* X = at(x); float* Y = at(y);
  fresh(Y, 1024 * 2048 * 4);
  constexpr int64_t N = 2048;
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < 1024; ++r) {
    const float* in = X + r * N;
    alignas(64) float out[N];
    v16 tops = load(in);
    for (int64_t i = 16; i < N; i += 16) tops = larger(tops, load(in + i));
    const float top = top_of(tops);
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < N; ++i) { const float e = fexp(in[i] - top); out[i] = e; sum += e; }
    const float scale = 1.0f / sum;
    for (int64_t i = 0; i < N; i += 16) stream(Y + r * N + i, load(out + i) * scale);
  }
}
""",
            "rows",
            """
def kernel(x):
    y = torch.empty(1024, 2048)
    module.rows(x.contiguous(), y)
    return y
""",
        ),
    ),
    "norm_to_bytes": Hand(
        task(
            "def reference(x, w):\n    y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w\n"
            "    s = y.abs().amax(-1, keepdim=True).clamp(min=1e-8) / 127\n"
            "    return (y / s).round().clamp(-127, 127).to(torch.int8), s",
            "return torch.randn(1024, 2048), torch.rand(2048) + 0.5",
        ),
        in_cpp(
            r"""
void bytes(View x, View w, View q, View s) {
  const float *X = at(x), *W = at(w); int8_t* Q = at<int8_t>(q); float* S = at(s);
  constexpr int64_t N = 2048;
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < 1024; ++r) {
    const float* in = X + r * N;
    alignas(64) float y[N];
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < N; ++i) sum += in[i] * in[i];
    const float scale = 1.0f / std::sqrt(sum / N + 1e-6f);
    v16 tops = {};
    for (int64_t i = 0; i < N; i += 16) {
      const v16 v = load(in + i) * scale * load(W + i);
      *reinterpret_cast<v16*>(y + i) = v;
      tops = larger(tops, larger(v, -v));
    }
    const float step = std::max(top_of(tops), 1e-8f) / 127.0f;
    S[r] = step;
    int8_t* out = Q + r * N;
#pragma omp simd
    for (int64_t i = 0; i < N; ++i)
      out[i] = static_cast<int8_t>(static_cast<int32_t>(std::nearbyint(y[i] / step)));
  }
}
""",
            "bytes",
            """
def kernel(x, w):
    q, s = torch.empty(1024, 2048, dtype=torch.int8), torch.empty(1024, 1)
    module.bytes(x.contiguous(), w.contiguous(), q, s)
    return q, s
""",
        ),
    ),
}
