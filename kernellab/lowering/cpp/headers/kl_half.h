// Rows of halves: f16 and bf16 converted a vector at a time.
//
// GCC converts a _Float16 one by one unless the machine computes with it (AVX-512 FP16), and a loop with such a
// conversion in it stays scalar as a whole. So rows of halves are widened to a strip of floats, loops compute with
// these, and what they make is narrowed behind them. The instructions of F16C are reached as builtins: <immintrin.h>
// would take longer to compile than the kernel.
#pragma once

#include "kl_tile.h"

namespace kl {

#if defined(__F16C__)
#define KL_F16C 1
typedef float Floats __attribute__((vector_size(32), aligned(4), may_alias));
typedef short Halves __attribute__((vector_size(16), aligned(2), may_alias));
typedef float FloatLanes __attribute__((vector_size(32)));
typedef short HalfLanes __attribute__((vector_size(16)));
#endif

KL_INLINE void widen(float* to, const f16* from, int64_t count) {
  int64_t i = 0;
#if defined(KL_F16C)
#pragma GCC unroll 4
  for (; i + 8 <= count; i += 8)
    *reinterpret_cast<Floats*>(to + i) =
        __builtin_ia32_vcvtph2ps256(HalfLanes(*reinterpret_cast<const Halves*>(from + i)));
#endif
#pragma omp simd
  for (int64_t l = i; l < count; ++l) to[l] = float(from[l]);
}
KL_INLINE void narrow(f16* to, const float* from, int64_t count) {
  int64_t i = 0;
#if defined(KL_F16C)
#pragma GCC unroll 4
  for (; i + 8 <= count; i += 8)
    *reinterpret_cast<Halves*>(to + i) =
        __builtin_ia32_vcvtps2ph256(FloatLanes(*reinterpret_cast<const Floats*>(from + i)), 0);
#endif
#pragma omp simd
  for (int64_t l = i; l < count; ++l) to[l] = from[l];
}
KL_INLINE void widen(float* to, const bf16* from, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) to[i] = float(from[i]);
}
KL_INLINE void narrow(bf16* to, const float* from, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) to[i] = from[i];
}

// In 32-bit lanes throughout: a value that goes through 16 bits makes the compiler pack and unpack vectors.
template <>
KL_INLINE float rounded<bf16>(float x) {
  const uint32_t u = bits<uint32_t>(x);
  const float y = bits<float>((u + 0x7fffu + ((u >> 16) & 1u)) & 0xffff0000u);
  return x != x ? x : y;
}
#if defined(KL_F16C)
// Adding a number of the same exponent plus 13, and taking it away, leaves the ten bits of mantissa that an f16 has,
// the last one rounded to even; below 2^-14 the steps stay those of the subnormals. What passes 65504 becomes infinite.
template <>
KL_INLINE float rounded<f16>(float x) {
  const uint32_t u = bits<uint32_t>(x), exponent = u & 0x7f800000u;
  const uint32_t least = exponent > 0x38800000u ? exponent : 0x38800000u;
  const float big = bits<float>((least < 0x47800000u ? least : 0x47800000u) + 0x06c00000u);
  const float y = ((x + big) - big) * 0x1p112f * 0x1p-112f;
  return bits<float>(bits<uint32_t>(y) | (u & 0x80000000u));
}
#endif

// -- factors of products -------------------------------------------------------------------------------------------

template <int64_t APART, class Half>
inline void pack_halves(float* to, const Matrix<Half>& from) {
  constexpr int64_t EDGE = Vector<float>::lanes;
  if (from.right == 1) {
    for (int64_t r = 0; r < from.rows; ++r) widen(to + r * APART, from.data + r * from.down, from.cols);
    return;
  }
  alignas(64) float square[EDGE * EDGE];
  for (int64_t i = 0; i < from.rows; i += EDGE)
    for (int64_t j = 0; j < from.cols; j += EDGE) {
      const Half* corner = from.data + i * from.down + j * from.right;
      const int64_t rows = imin(EDGE, from.rows - i), cols = imin(EDGE, from.cols - j);
      if (from.down == 1 && rows == EDGE && cols == EDGE) {
        for (int64_t c = 0; c < EDGE; ++c) widen(square + c * EDGE, corner + c * from.right, EDGE);
        turn(square, EDGE, to + i * APART + j, APART);
        continue;
      }
      for (int64_t c = 0; c < cols; ++c)
        for (int64_t r = 0; r < rows; ++r)
          to[(i + r) * APART + j + c] = float(corner[r * from.down + c * from.right]);
    }
}
// preferred to the pack of any element
template <int64_t APART>
inline void pack(float* to, const Matrix<f16>& from) {
  pack_halves<APART>(to, from);
}
template <int64_t APART>
inline void pack(float* to, const Matrix<bf16>& from) {
  pack_halves<APART>(to, from);
}

}  // namespace kl
