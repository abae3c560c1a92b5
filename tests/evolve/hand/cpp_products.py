"""Products, few bits, segments, attention and a convolution: C++ by hand."""

from __future__ import annotations

from tests.evolve.hand import Hand, in_cpp, task

PRODUCTS = {
    "linear_gelu": Hand(
        task(
            "def reference(x, w, b):\n    return F.gelu(F.linear(x, w, b), approximate='tanh')",
            "return torch.randn(256, 512), torch.randn(1024, 512) * 0.05, torch.randn(1024)",
        ),
        in_cpp(
            r"""
// 64 columns of w are laid out k by k once; then blocks of 6 x 64 sums in registers, and the epilogue on them
template <int R> static inline void block(const float* x, const float* packed, const float* b, float* y) {
  v16 sum[R][4];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) sum[r][j] = load(b + 16 * j);
  for (int64_t k = 0; k < 512; ++k)
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const float a = x[r * 512 + k];
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) sum[r][j] += a * load(packed + k * 64 + 16 * j);
    }
  for (int r = 0; r < R; ++r) {
    alignas(64) float row[64];
    for (int j = 0; j < 4; ++j) *reinterpret_cast<v16*>(row + 16 * j) = sum[r][j];
#pragma omp simd
    for (int j = 0; j < 64; ++j) {
      const float v = row[j], t = 1.59576912f * (v + 0.044715f * v * v * v);
      y[r * 1024 + j] = v / (1.0f + fexp(-t));
    }
  }
}

void linear_gelu(View x, View w, View b, View y) {
  const float *X = at(x), *W = at(w), *B = at(b); float* Y = at(y);
#pragma omp parallel for schedule(static)
  for (int64_t n = 0; n < 1024; n += 64) {
    alignas(64) float packed[512 * 64];
    for (int64_t k = 0; k < 512; k += 16)
      for (int64_t j = 0; j < 64; ++j)
        for (int64_t i = 0; i < 16; ++i) packed[(k + i) * 64 + j] = W[(n + j) * 512 + k + i];
    int64_t m = 0;
    for (; m + 6 <= 256; m += 6) block<6>(X + m * 512, packed, B + n, Y + m * 1024 + n);
    block<4>(X + m * 512, packed, B + n, Y + m * 1024 + n);
  }
}
""",
            "linear_gelu",
            """
def kernel(x, w, b):
    y = torch.empty(256, 1024)
    module.linear_gelu(x.contiguous(), w.contiguous(), b.contiguous(), y)
    return y
""",
        ),
    ),
    "bytes_by_vector": Hand(
        task(
            "def reference(w, s, x):\n    return (w.float() @ x) * s",
            "return torch.randint(-127, 128, (4096, 2048), dtype=torch.int8), torch.rand(4096), torch.randn(2048)",
        ),
        in_cpp(
            r"""
// four rows share each part of x
void matvec(View w, View s, View x, View y) {
  const int8_t* W = at<int8_t>(w); const float *S = at(s), *X = at(x); float* Y = at(y);
  constexpr int64_t K = 2048;
#pragma omp parallel for schedule(static)
  for (int64_t n = 0; n < 4096; n += 4) {
    const int8_t* a = W + n * K;
    float s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
    for (int64_t k = 0; k < K; ++k) {
      s0 += a[k] * X[k]; s1 += a[K + k] * X[k]; s2 += a[2 * K + k] * X[k]; s3 += a[3 * K + k] * X[k];
    }
    Y[n] = s0 * S[n]; Y[n + 1] = s1 * S[n + 1]; Y[n + 2] = s2 * S[n + 2]; Y[n + 3] = s3 * S[n + 3];
  }
}
""",
            "matvec",
            """
def kernel(w, s, x):
    y = torch.empty(4096)
    module.matvec(w.contiguous(), s.contiguous(), x.contiguous(), y)
    return y
""",
        ),
    ),
    "nibbles_by_vector": Hand(
        task(
            "def reference(w, s, x):\n    low, high = (w & 15).float() - 8, (w >> 4).float() - 8\n"
            "    v = torch.stack((low, high), -1).reshape(2048, 16, 128) * s[:, :, None]\n"
            "    return v.reshape(2048, 2048) @ x",
            "return torch.randint(0, 256, (2048, 1024), dtype=torch.uint8), torch.rand(2048, 16), torch.randn(2048)",
        ),
        in_cpp(
            r"""
// x is split into its even and its odd places once: then the low and the high halves of 64 bytes are plain lanes
void nibbles(View w, View s, View x, View y) {
  const uint8_t* W = at<uint8_t>(w); const float *S = at(s), *X = at(x); float* Y = at(y);
  float even[1024], odd[1024], eights[16] = {};
  for (int64_t k = 0; k < 1024; ++k) {
    even[k] = X[2 * k]; odd[k] = X[2 * k + 1];
    eights[k / 64] += 8.0f * (even[k] + odd[k]);
  }
#pragma omp parallel for schedule(static)
  for (int64_t n = 0; n < 2048; ++n) {
    float sum = 0.0f;
    for (int64_t g = 0; g < 16; ++g) {
      const uint8_t* a = W + n * 1024 + g * 64;
      float part = 0.0f;
#pragma omp simd reduction(+ : part)
      for (int64_t k = 0; k < 64; ++k) {
        const int32_t b = a[k];
        part += float(b & 15) * even[g * 64 + k] + float(b >> 4) * odd[g * 64 + k];
      }
      sum += (part - eights[g]) * S[n * 16 + g];
    }
    Y[n] = sum;
  }
}
""",
            "nibbles",
            """
def kernel(w, s, x):
    y = torch.empty(2048)
    module.nibbles(w.contiguous(), s.contiguous(), x.contiguous(), y)
    return y
""",
        ),
    ),
    "segment_means": Hand(
        task(
            "def reference(x, at):\n    total = torch.zeros(512, 64).index_add(0, at, x)\n"
            "    count = torch.zeros(512).index_add(0, at, torch.ones(16384))\n"
            "    return total / count.clamp(min=1)[:, None]",
            "return torch.randn(16384, 64), torch.randint(0, 512, (16384,))",
        ),
        in_cpp(
            r"""
// rows in the order of their segments by a counting sort; then each segment is summed in registers
void means(View x, View at_, View y) {
  const float* X = at(x); const int64_t* A = at<int64_t>(at_); float* Y = at(y);
  int32_t start[513] = {}, next[512], order[16384];
  for (int64_t r = 0; r < 16384; ++r) ++start[A[r] + 1];
  for (int64_t s = 0; s < 512; ++s) { start[s + 1] += start[s]; next[s] = start[s]; }
  for (int64_t r = 0; r < 16384; ++r) order[next[A[r]]++] = int32_t(r);
#pragma omp parallel for schedule(static)
  for (int64_t s = 0; s < 512; ++s) {
    float sum[64] = {};
    for (int32_t k = start[s]; k < start[s + 1]; ++k) {
      const float* row = X + int64_t(order[k]) * 64;
#pragma omp simd
      for (int j = 0; j < 64; ++j) sum[j] += row[j];
    }
    const float scale = 1.0f / std::max(1, start[s + 1] - start[s]);
#pragma omp simd
    for (int j = 0; j < 64; ++j) Y[s * 64 + j] = sum[j] * scale;
  }
}
""",
            "means",
            """
def kernel(x, at):
    y = torch.empty(512, 64)
    module.means(x.contiguous(), at.contiguous(), y)
    return y
""",
        ),
    ),
    "one_query": Hand(
        task(
            "def reference(q, k, v):\n    q = q.view(4, 4, 64)\n"
            "    p = torch.softmax(q @ k.transpose(-1, -2) * 0.125, -1)\n    return (p @ v).reshape(16, 64)",
            "return torch.randn(16, 64), torch.randn(4, 2048, 64), torch.randn(4, 2048, 64)",
        ),
        in_cpp(
            r"""
// the four queries of a group share each key and each value; 64 keys at a time, so that the scores stay in the cache
void decode(View q, View k, View v, View y) {
  const float *Q = at(q), *K = at(k), *V = at(v); float* Y = at(y);
#pragma omp parallel for schedule(static)
  for (int64_t g = 0; g < 4; ++g) {
    float score[4][2048];
    float sum[4] = {}, out[4][64] = {};
    for (int64_t t = 0; t < 2048; ++t) {
      const float *key = K + (g * 2048 + t) * 64, *q0 = Q + g * 256;
      float a = 0, b = 0, c = 0, d = 0;
#pragma omp simd reduction(+ : a, b, c, d)
      for (int j = 0; j < 64; ++j) {
        a += q0[j] * key[j]; b += q0[64 + j] * key[j]; c += q0[128 + j] * key[j]; d += q0[192 + j] * key[j];
      }
      score[0][t] = a * 0.125f; score[1][t] = b * 0.125f; score[2][t] = c * 0.125f; score[3][t] = d * 0.125f;
    }
    for (int h = 0; h < 4; ++h) {
      v16 tops = load(score[h]);
      for (int64_t t = 16; t < 2048; t += 16) tops = larger(tops, load(score[h] + t));
      const float most = top_of(tops);
      float total = 0.0f;
#pragma omp simd reduction(+ : total)
      for (int64_t t = 0; t < 2048; ++t) { score[h][t] = fexp(score[h][t] - most); total += score[h][t]; }
      sum[h] = 1.0f / total;
    }
    for (int64_t t = 0; t < 2048; ++t) {
      const float* value = V + (g * 2048 + t) * 64;
      for (int h = 0; h < 4; ++h)
#pragma omp simd
        for (int j = 0; j < 64; ++j) out[h][j] += score[h][t] * value[j];
    }
    for (int h = 0; h < 4; ++h)
      for (int j = 0; j < 64; ++j) Y[(g * 4 + h) * 64 + j] = out[h][j] * sum[h];
  }
}
""",
            "decode",
            """
def kernel(q, k, v):
    y = torch.empty(16, 64)
    module.decode(q.contiguous(), k.contiguous(), v.contiguous(), y)
    return y
""",
        ),
    ),
    "causal_conv_silu": Hand(
        task(
            "def reference(x, w):\n    return F.silu(F.conv1d(F.pad(x, (3, 0)), w, groups=512))",
            "return torch.randn(4, 512, 1024), torch.randn(512, 1, 4)",
        ),
        in_cpp(
            r"""
void conv(View x, View w, View y) {
  const float *X = at(x), *W = at(w); float* Y = at(y);
  fresh(Y, 4 * 512 * 1024 * 4);
  constexpr int64_t N = 1024;
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < 4 * 512; ++r) {
    const float *in = X + r * N, *f = W + (r % 512) * 4;
    alignas(64) float out[N];
    const float a = f[0], b = f[1], c = f[2], d = f[3];
    const float head[3] = {d * in[0], c * in[0] + d * in[1], b * in[0] + c * in[1] + d * in[2]};
    for (int i = 0; i < 3; ++i) out[i] = head[i] / (1.0f + fexp(-head[i]));
#pragma omp simd
    for (int64_t i = 3; i < N; ++i) {
      const float v = a * in[i - 3] + b * in[i - 2] + c * in[i - 1] + d * in[i];
      out[i] = v / (1.0f + fexp(-v));
    }
    stream(Y + r * N, out, N);
  }
}
""",
            "conv",
            """
def kernel(x, w):
    y = torch.empty(4, 512, 1024)
    module.conv(x.contiguous(), w.contiguous(), y)
    return y
""",
        ),
    ),
}
