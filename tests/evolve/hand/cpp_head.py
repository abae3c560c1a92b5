"""What the C++ kernels of the set share: pointers, lanes, an exponential, large pages for fresh outputs."""

HEAD = r"""
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <immintrin.h>
#include <limits>
#include <sys/mman.h>

using View = tvm::ffi::TensorView;
template <class T = float> static T* at(View t) { return static_cast<T*>(t.data_ptr()); }

typedef float v16 __attribute__((vector_size(64), aligned(4)));
constexpr float NONE = -std::numeric_limits<float>::infinity();

// fresh memory in pages of 2 MB: a fault each, not 512
static inline void fresh(void* p, int64_t bytes) {
  const uintptr_t page = 1 << 21, end = uintptr_t(p) + bytes;
  const uintptr_t from = (uintptr_t(p) + page - 1) & ~(page - 1), to = end & ~(page - 1);
  if (from < to) madvise(reinterpret_cast<void*>(from), to - from, MADV_HUGEPAGE);
}

static inline v16 load(const float* p) { return *reinterpret_cast<const v16*>(p); }

// past the caches: a large output is not read before it is written
static inline void stream(float* to, v16 v) {
#ifdef __AVX512F__
  __m512 a;
  std::memcpy(&a, &v, 64);
  _mm512_stream_ps(to, a);
#else
  std::memcpy(to, &v, 64);
#endif
}
static inline void stream(float* to, const float* from, int64_t n) {
  for (int64_t i = 0; i < n; i += 16) stream(to + i, load(from + i));
}

static inline float top_of(v16 v) {
  float top = v[0];
  for (int j = 1; j < 16; ++j) top = top < v[j] ? v[j] : top;
  return top;
}
static inline v16 larger(v16 a, v16 b) { return a < b ? b : a; }

// exp(x) = 2^n * p(r), |r| <= ln 2 / 2; a NaN stays one
static inline float fexp(float x) {
  x = std::min(std::max(x, -87.3f), 88.37f);
  const float n = std::nearbyint(x * 1.44269504f);
  const float r = (x - n * 0.693145752f) - n * 1.42860677e-6f;
  float p = 1.9875691e-4f;
  p = p * r + 1.3981999e-3f;
  p = p * r + 8.3334519e-3f;
  p = p * r + 4.1665796e-2f;
  p = p * r + 1.6666665e-1f;
  p = p * r + 5.0000001e-1f;
  p = p * r * r + r + 1.0f;
  const int32_t bits = (static_cast<int32_t>(n) + 127) << 23;
  float scale;
  std::memcpy(&scale, &bits, 4);
  return p * scale;
}
"""
