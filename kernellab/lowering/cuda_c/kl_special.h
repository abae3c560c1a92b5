// Appended to kl_cuda.h where a kernel uses one of these: the rest of the elementary functions, and bits of integers.

namespace kl {

#define KL_FLOAT(name, single, twice)                 \
  KL_INLINE float name(float x) { return single(x); } \
  KL_INLINE double name(double x) { return twice(x); }
KL_FLOAT(tan, tanf, ::tan)
KL_FLOAT(asin, asinf, ::asin)
KL_FLOAT(acos, acosf, ::acos)
KL_FLOAT(atan, atanf, ::atan)
KL_FLOAT(sinh, sinhf, ::sinh)
KL_FLOAT(cosh, coshf, ::cosh)
KL_FLOAT(asinh, asinhf, ::asinh)
KL_FLOAT(acosh, acoshf, ::acosh)
KL_FLOAT(atanh, atanhf, ::atanh)
KL_FLOAT(lgamma, lgammaf, ::lgamma)
#undef KL_FLOAT
#define KL_PAIR(name, single, twice)                              \
  KL_INLINE float name(float x, float y) { return single(x, y); } \
  KL_INLINE double name(double x, double y) { return twice(x, y); }
KL_PAIR(atan2, atan2f, ::atan2)
KL_PAIR(hypot, hypotf, ::hypot)
KL_PAIR(copysign, copysignf, ::copysign)
KL_PAIR(nextafter, nextafterf, ::nextafter)
#undef KL_PAIR
template <class To, class From> KL_INLINE To bits(From x) { return __builtin_bit_cast(To, x); }
// to the nearest of TF32's 10 bits of mantissa, halves away from zero; NaN stays
KL_INLINE float round_tf32(float x) {
  const float near = __uint_as_float((__float_as_uint(x) + 0x1000u) & 0xffffe000u);
  return x == x ? near : x;
}
KL_INLINE double round_tf32(double x) { return x; }
template <class T> KL_INLINE T gcd(T a, T b) {
  a = a < T(0) ? T(-a) : a;
  b = b < T(0) ? T(-b) : b;
  while (b != T(0)) {
    const T rest = T(a % b);
    a = b;
    b = rest;
  }
  return a;
}
// a count outside the width shifts everything out, as in torch
template <class T> KL_INLINE T shift_left(T x, T n) {
  return n >= T(0) && n < T(8 * sizeof(T)) ? T(uint64_t(x) << int(n)) : T(0);
}
template <class T> KL_INLINE T shift_right(T x, T n) {
  const bool inside = n >= T(0) && n < T(8 * sizeof(T));
  return inside || is_signed<T> ? T(x >> (inside ? int(n) : int(8 * sizeof(T) - 1))) : T(0);
}

}  // namespace kl
