// Scalar functions that few kernels need, included where one is used: the rest of the elementary functions, and bits.
//
// As in kl_math.h: no branches, so that a loop over them becomes vector code, but for lgamma and those in double that
// call the C library. Errors in float are at most 3 ulp, of sinh and cosh 6, of erfc 8; polynomials after Cephes.
#pragma once

#include "kl_math.h"

namespace kl {

// -- bits of integers: a count outside the width shifts everything out, as in torch ---------------------------------

template <class T>
KL_INLINE T shift_left(T x, T n) {
  using U = std::make_unsigned_t<T>;
  const bool inside = n >= T(0) && n < T(8 * sizeof(T));
  return inside ? T(U(x) << (inside ? n : T(0))) : T(0);
}
template <class T>
KL_INLINE T shift_right(T x, T n) {
  constexpr T most = T(8 * sizeof(T) - 1);
  const bool inside = n >= T(0) && n <= most;
  return inside || std::is_signed_v<T> ? T(x >> (inside ? n : most)) : T(0);
}

/// Euclid's algorithm, at most 92 steps of 64 bits; a loop over it is no vector code.
template <class T>
KL_INLINE T gcd(T a, T b) {
  a = a < T(0) ? T(T(0) - a) : a;
  b = b < T(0) ? T(T(0) - b) : b;
  while (b != T(0)) {
    const T rest = T(a % b);
    a = b;
    b = rest;
  }
  return a;
}

// -- tangent and its inverses --------------------------------------------------------------------------------------

namespace detail {
constexpr double PI = 3.14159265358979323846;
KL_INLINE double slope(double x, double rest) {
  int64_t q;
  const double r = quarter(x, rest, q), s = sin_core(r), c = cos_core(r);
  return (q & 1) ? -c / s : s / c;
}
}  // namespace detail

KL_INLINE double tan(double x) { const double y = detail::slope(x, 0.0); return x == 0.0 ? x : y; }
KL_INLINE float tan(float x) {
  double rest;
  const double few = detail::few_circles(double(x), rest);
  const float y = float(detail::slope(few, rest));
  return x == 0.0f ? x : y;
}
KL_INLINE float atan(float x) {
  const float a = abs(x);
  const bool far = a > 2.414213562373095f, near = a <= 0.4142135623730950f;
  const float start = far ? 1.5707963267948966f : near ? 0.0f : 0.7853981633974483f;
  const float t = far ? -1.0f / a : near ? a : (a - 1.0f) / (a + 1.0f);
  const float z = t * t;
  float p = 8.05374449538e-2f;
  p = fma(p, z, -1.38776856032e-1f);
  p = fma(p, z, 1.99777106478e-1f);
  p = fma(p, z, -3.33329491539e-1f);
  return copysign(start + fma(p * z, t, t), x);
}
KL_INLINE double atan(double x) {
  const double a = abs(x);
  const bool far = a > 2.41421356237309504880, near = a <= 0.66;
  const double start = far ? 1.57079632679489661923 : near ? 0.0 : 0.78539816339744830962;
  const double rest = far ? 6.123233995736765886130e-17 : near ? 0.0 : 3.061616997868382943065e-17;
  const double t = far ? -1.0 / a : near ? a : (a - 1.0) / (a + 1.0);
  const double z = t * t;
  double p = -8.750608600031904122785e-1;
  p = fma(p, z, -1.615753718733365076637e1);
  p = fma(p, z, -7.500855792314704667340e1);
  p = fma(p, z, -1.228866684490136173410e2);
  p = fma(p, z, -6.485021904942025371773e1);
  double q = z + 2.485846490142306297962e1;
  q = fma(q, z, 1.650270098316988542046e2);
  q = fma(q, z, 4.328810604912902668951e2);
  q = fma(q, z, 4.853903996359136964868e2);
  q = fma(q, z, 1.945506571482613964425e2);
  return copysign(start + (fma(z * (p / q), t, t) + rest), x);
}
template <class T>
KL_INLINE T atan2(T y, T x) {
  const T a = abs(y), b = abs(x), inf = std::numeric_limits<T>::infinity();
  const T most = a > b ? a : b, least = a > b ? b : a;
  T ratio = most == T(0) ? T(0) : least / most;
  ratio = (a == inf) & (b == inf) ? T(1) : ratio;
  T angle = atan(ratio);
  angle = a > b ? T(detail::PI / 2) - angle : angle;
  angle = copysign(T(1), x) < T(0) ? T(detail::PI) - angle : angle;
  return x != x || y != y ? std::numeric_limits<T>::quiet_NaN() : copysign(angle, y);
}
KL_INLINE float asin(float x) {
  const float a = abs(x);
  const bool far = a > 0.5f;
  const float z = far ? 0.5f * (1.0f - a) : a * a, t = far ? sqrt(z) : a;
  float p = 4.2163199048e-2f;
  p = fma(p, z, 2.4181311049e-2f);
  p = fma(p, z, 4.5470025998e-2f);
  p = fma(p, z, 7.4953002686e-2f);
  p = fma(p, z, 1.6666752422e-1f);
  const float y = fma(p * z, t, t);
  return copysign(far ? 1.5707963267948966f - 2.0f * y : y, x);
}
KL_INLINE double asin(double x) { return atan2(x, sqrt((1.0 - x) * (1.0 + x))); }
KL_INLINE double acos(double x) { return 2.0 * atan2(sqrt(1.0 - x), sqrt(1.0 + x)); }
KL_INLINE float acos(float x) {
  const float a = abs(x);
  const float near = 2.0f * asin(sqrt(0.5f * (1.0f - a)));
  const float outer = x < 0.0f ? 3.14159265358979324f - near : near;
  return a > 0.5f ? outer : 1.5707963267948966f - asin(x);
}

// -- hyperbolic functions ------------------------------------------------------------------------------------------

template <class T>
KL_INLINE T sinh(T x) {
  const T a = abs(x), t = expm1(a), half = exp(T(0.5) * a);
  return copysign(a > T(20) ? T(0.5) * half * half : T(0.5) * (t + t / (t + T(1))), x);
}
template <class T>
KL_INLINE T cosh(T x) {
  const T half = exp(T(0.5) * abs(x)), one = half * half;
  return T(0.5) * half * half + T(0.5) / one;
}
template <class T>
KL_INLINE T asinh(T x) {
  const T a = abs(x), square = a * a;
  const T near = log1p(a + square / (T(1) + sqrt(square + T(1))));
  return copysign(a > T(1e9) ? log(a) + T(0.69314718055994530942) : near, x);
}
template <class T>
KL_INLINE T acosh(T x) {
  const T t = x - T(1), near = log1p(t + sqrt(t * (x + T(1))));
  const T y = x > T(1e9) ? log(x) + T(0.69314718055994530942) : near;
  return x < T(1) ? std::numeric_limits<T>::quiet_NaN() : y;
}
template <class T>
KL_INLINE T atanh(T x) {
  const T a = abs(x);
  return copysign(T(0.5) * log1p(T(2) * a / (T(1) - a)), x);
}

// -- others --------------------------------------------------------------------------------------------------------

// to the nearest of TF32's 10 bits of mantissa, halves away from zero; NaN stays
KL_INLINE float round_tf32(float x) {
  const float near = bits<float>((bits<uint32_t>(x) + 0x1000u) & 0xffffe000u);
  return x == x ? near : x;
}
KL_INLINE double round_tf32(double x) { return x; }
template <class T>
KL_INLINE T hypot(T x, T y) {
  const T a = abs(x), b = abs(y), inf = std::numeric_limits<T>::infinity();
  const T most = a > b ? a : b, ratio = most == T(0) ? T(0) : (a > b ? b : a) / most;
  const T length = most * sqrt(fma(ratio, ratio, T(1)));
  const T whole = x != x || y != y ? std::numeric_limits<T>::quiet_NaN() : length;
  return (a == inf) | (b == inf) ? inf : whole;
}
template <class T>
KL_INLINE T nextafter(T x, T y) {
  using U = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
  // the bits of a float grow with its size
  const U raw = bits<U>(x), step = (y > x) == (x > T(0)) ? U(1) : U(-1);
  const T moved = x == T(0) ? copysign(bits<T>(U(1)), y) : bits<T>(U(raw + step));
  const T other = x == y ? y : moved;
  return x != x || y != y ? std::numeric_limits<T>::quiet_NaN() : other;
}
// erfc(z) = t exp(p(t) - z * z), t = 1 / (1 + z / 2) for z < 10; z * z is kept in double, where it decides the exponent
KL_INLINE float erfc(float x) {
  const float a = abs(x), z = a > 10.5f ? 10.5f : a, t = 1.0f / fma(0.5f, z, 1.0f);
  float p = fma(0.0863460843f, t, -0.591264414f);
  p = fma(p, t, 1.54626181f);
  p = fma(p, t, -1.85884014f);
  p = fma(p, t, 0.902057760f);
  p = fma(p, t, -0.255569154f);
  p = fma(p, t, 0.443751748f);
  p = fma(p, t, 0.992420115f);
  p = fma(p, t, -1.26516393f);
  const float y = float(double(t) * exp(double(p) - double(z) * double(z)));
  const float whole = x < 0.0f ? 2.0f - y : y;
  return x != x ? x : whole;
}
inline double erfc(double x) { return std::erfc(x); }
inline float lgamma(float x) { return float(std::lgamma(double(x))); }
inline double lgamma(double x) { return std::lgamma(x); }

}  // namespace kl
