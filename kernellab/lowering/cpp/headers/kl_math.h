// Scalar functions that a compiler can vectorise, and narrow number formats, for kernels lowered from sketches.
//
// The elementary functions have no branches and call no library, so a loop over them becomes vector code. Errors are
// at most 4 ulp (float) over the whole range, NaN and infinities are as in IEC 60559. sin and cos of a double are exact
// to that for |x| < 2^52.
#pragma once

#include <cstdint>
// half of what an elementwise kernel takes to compile would be libstdc++'s Bessel functions and their like
#undef _GLIBCXX_USE_STD_SPEC_FUNCS
#include <cmath>
#include <limits>
#include <type_traits>

#define KL_INLINE inline __attribute__((always_inline))
#define KL_APART inline __attribute__((noinline))

namespace kl {

constexpr float INF = std::numeric_limits<float>::infinity();
constexpr float NAN_ = std::numeric_limits<float>::quiet_NaN();

template <class To, class From>
KL_INLINE To bits(From x) {
  static_assert(sizeof(To) == sizeof(From), "bits() keeps the size");
  To y;
  __builtin_memcpy(&y, &x, sizeof y);
  return y;
}

// -- narrow floats: stored narrow, computed in float ---------------------------------------------------------------

struct bf16 {
  uint16_t raw;
  bf16() = default;
  KL_INLINE explicit bf16(float x) : raw(encode(x)) {}
  // no temporary: copying a struct keeps a loop from becoming vector code
  KL_INLINE bf16& operator=(float x) { raw = encode(x); return *this; }
  KL_INLINE static uint16_t encode(float x) {
    const uint32_t u = bits<uint32_t>(x);
    const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    return uint16_t(x != x ? 0x7fc0u : rounded);
  }
  KL_INLINE operator float() const { return bits<float>(uint32_t(raw) << 16); }
};

#if defined(__FLT16_MAX__)
struct f16 {
  _Float16 raw;
  f16() = default;
  KL_INLINE explicit f16(float x) : raw(static_cast<_Float16>(x)) {}
  KL_INLINE f16& operator=(float x) { raw = static_cast<_Float16>(x); return *this; }
  KL_INLINE operator float() const { return static_cast<float>(raw); }
};
#else
struct f16 {
  uint16_t raw;
  f16() = default;
  KL_INLINE explicit f16(float x) : raw(encode(x)) {}
  KL_INLINE f16& operator=(float x) { raw = encode(x); return *this; }
  KL_INLINE static uint16_t encode(float x) {
    const uint32_t u = bits<uint32_t>(x), sign = (u >> 16) & 0x8000u, mag = u & 0x7fffffffu;
    // adding 0.5 (scaled) to a subnormal's magnitude lets the float unit do its rounding
    const uint32_t small = bits<uint32_t>(bits<float>(mag) + 0.5f) - 0x3f000000u;
    const uint32_t normal = (mag - 0x38000000u + 0xfffu + ((mag >> 13) & 1u)) >> 13;
    const uint32_t finite = mag < 0x38800000u ? small : (normal > 0x7c00u ? 0x7c00u : normal);
    return uint16_t(sign | (mag > 0x7f800000u ? 0x7e00u : finite));
  }
  KL_INLINE operator float() const {
    const uint32_t sign = uint32_t(raw & 0x8000u) << 16, mag = raw & 0x7fffu;
    const float normal = bits<float>((mag << 13) + 0x38000000u);
    const float small = float(int32_t(mag)) * 5.9604644775390625e-8f;
    const float special = bits<float>((mag << 13) | 0x7f800000u);
    const float value = mag < 0x400u ? small : (mag >= 0x7c00u ? special : normal);
    return bits<float>(bits<uint32_t>(value) | sign);
  }
};
#endif

// 8-bit floats as torch has them: e4m3 has no infinity and saturates to NaN, e5m2 has both.
template <int MANTISSA, int BIAS, bool HAS_INF>
struct f8 {
  uint8_t raw;
  f8() = default;
  KL_INLINE explicit f8(float x) : raw(encode(x)) {}
  KL_INLINE f8& operator=(float x) { raw = encode(x); return *this; }
  KL_INLINE static uint8_t encode(float x) {
    const uint32_t u = bits<uint32_t>(x), sign = (u >> 24) & 0x80u, mag = u & 0x7fffffffu;
    constexpr int shift = 23 - MANTISSA;
    constexpr uint32_t rebias = uint32_t(127 - BIAS) << 23;
    constexpr uint32_t least_normal = uint32_t(128 - BIAS) << 23;
    constexpr uint32_t quiet = HAS_INF ? 0x7eu : 0x7fu, top = HAS_INF ? 0x7cu : 0x7fu;
    const float unit = bits<float>(uint32_t(127 - BIAS + 1 - MANTISSA + 23) << 23);
    const uint32_t small = bits<uint32_t>(bits<float>(mag) + unit) - bits<uint32_t>(unit);
    const uint32_t normal = (mag - rebias + ((1u << (shift - 1)) - 1u) + ((mag >> shift) & 1u)) >> shift;
    const uint32_t finite = mag < least_normal ? small : (normal > top ? top : normal);
    const uint32_t limited = mag >= 0x7f800000u ? top : finite;
    return uint8_t(sign | (mag > 0x7f800000u ? quiet : limited));
  }
  KL_INLINE operator float() const {
    const uint32_t sign = uint32_t(raw & 0x80u) << 24, mag = raw & 0x7fu;
    constexpr int shift = 23 - MANTISSA;
    constexpr uint32_t rebias = uint32_t(127 - BIAS) << 23;
    const float scale = bits<float>(uint32_t(127 - BIAS + 1 - MANTISSA) << 23);
    const float small = float(int32_t(mag)) * scale;
    const float normal = bits<float>((mag << shift) + rebias);
    constexpr uint32_t first_special = HAS_INF ? 0x7cu : 0x7fu;
    const float special = HAS_INF && mag == 0x7cu ? INF : NAN_;
    const float value = mag < (1u << MANTISSA) ? small : (mag >= first_special ? special : normal);
    return bits<float>(bits<uint32_t>(value) | sign);
  }
};
using f8e4m3 = f8<3, 7, false>;
using f8e5m2 = f8<2, 15, true>;

// The value that a write into a narrower tile leaves (tiles of narrow floats are kept as float).
template <class Narrow>
KL_INLINE float rounded(float x) {
  return float(Narrow(x));
}

// -- integers ------------------------------------------------------------------------------------------------------

KL_INLINE int64_t cdiv(int64_t a, int64_t b) { return a / b + (a % b != 0 && (a < 0) == (b < 0)); }
KL_INLINE int64_t fdiv(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }
KL_INLINE int64_t fmod_(int64_t a, int64_t b) { return a - fdiv(a, b) * b; }
KL_INLINE int64_t imin(int64_t a, int64_t b) { return a < b ? a : b; }
KL_INLINE int64_t imax(int64_t a, int64_t b) { return a > b ? a : b; }
// How many of ``extent`` elements from ``start``, ``step`` apart, lie before ``size``; and how many lie before 0.
KL_INLINE int64_t inside(int64_t size, int64_t start, int64_t extent, int64_t step = 1) {
  const int64_t left = size - start;
  return left <= 0 ? 0 : imin(extent, step == 1 ? left : (left + step - 1) / step);
}
KL_INLINE int64_t before(int64_t start, int64_t extent, int64_t step = 1) {
  return start >= 0 ? 0 : imin(extent, step == 1 ? -start : (-start + step - 1) / step);
}
KL_INLINE bool within(int64_t i, int64_t size) { return uint64_t(i) < uint64_t(size); }
// The element at a place that was looked up. A vector gathers such elements in more time than they take one by one, so
// the compiler is kept from making vectors of them.
template <class T>
KL_INLINE T lone(const T* data, int64_t at) {
#if defined(__GNUC__)
  __asm__("" : "+r"(at));
#endif
  return data[at];
}

// -- arithmetic ----------------------------------------------------------------------------------------------------

template <class T>
KL_INLINE T abs(T x) {
  if constexpr (std::is_same_v<T, float>) return bits<float>(bits<uint32_t>(x) & 0x7fffffffu);
  else if constexpr (std::is_same_v<T, double>) return bits<double>(bits<uint64_t>(x) & 0x7fffffffffffffffull);
  else return x < 0 ? T(-x) : x;
}
template <class T>
KL_INLINE T sign(T x) { return T(x > 0) - T(x < 0); }
// NaN on either side gives NaN, as torch.minimum and torch.maximum do
template <class T>
KL_INLINE T min(T a, T b) {
  const T least = b < a ? b : a;
  return b != b ? b : least;
}
template <class T>
KL_INLINE T max(T a, T b) {
  const T most = b > a ? b : a;
  return b != b ? b : most;
}
template <class T>
KL_INLINE T clamp(T x, T low, T high) { return max(min(x, high), low); }
template <class T>
KL_INLINE T relu(T x) { return x < T(0) ? T(0) : x; }

KL_INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
KL_INLINE double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
template <class T, class = std::enable_if_t<std::is_integral_v<T>>>
KL_INLINE T fma(T a, T b, T c) { return T(a * b + c); }
KL_INLINE float sqrt(float x) { return __builtin_sqrtf(x); }
KL_INLINE double sqrt(double x) { return __builtin_sqrt(x); }
KL_INLINE float rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
KL_INLINE double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }
KL_INLINE float floor(float x) { return __builtin_floorf(x); }
KL_INLINE double floor(double x) { return __builtin_floor(x); }
KL_INLINE float ceil(float x) { return __builtin_ceilf(x); }
KL_INLINE double ceil(double x) { return __builtin_ceil(x); }
KL_INLINE float trunc(float x) { return __builtin_truncf(x); }
KL_INLINE double trunc(double x) { return __builtin_trunc(x); }
KL_INLINE float round(float x) { return __builtin_rintf(x); }  // half to even
KL_INLINE double round(double x) { return __builtin_rint(x); }
template <class T, class = std::enable_if_t<std::is_integral_v<T>>> KL_INLINE T floor(T x) { return x; }
template <class T, class = std::enable_if_t<std::is_integral_v<T>>> KL_INLINE T ceil(T x) { return x; }
template <class T, class = std::enable_if_t<std::is_integral_v<T>>> KL_INLINE T trunc(T x) { return x; }
template <class T, class = std::enable_if_t<std::is_integral_v<T>>> KL_INLINE T round(T x) { return x; }

// fmod, which the C library computes bit by bit: below 2^22 (2^51) wholes the quotient is off by at most one, and both
// remainders are multiples of the divisor's last place, so that fma gives them exactly.
template <class T>
KL_INLINE T whole_remainder(T a, T b) {
  const T q = trunc(a / b), most = sizeof(T) == 4 ? T(1 << 22) : T(int64_t(1) << 51);
  if (__builtin_expect(!(std::fabs(q) < most && std::fabs(b) <= std::numeric_limits<T>::max()), 0)) return std::fmod(a, b);
  T m = std::fma(-q, b, a);
  // chosen without a branch, which signs at random would mislead; -0 leaves a zero's sign as it is
  m += (m != T(0)) & ((m < T(0)) != (a < T(0))) ? std::copysign(b, a) : -T(0);
  return std::copysign(m, a);
}

// Remainder with the divisor's sign, and the floored quotient that goes with it (torch.remainder, floor_divide).
// An integer divisor of 0 gives 0: torch raises there, and a vector loop cannot.
template <class T>
KL_INLINE T mod(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    const T m = whole_remainder(a, b);
    return m + ((m != T(0)) & ((b < T(0)) != (m < T(0))) ? b : -T(0));
  } else {
    if (b == T(0) || (std::is_signed_v<T> && b == T(-1))) return T(0);
    const T m = T(a % b);
    return m != T(0) && (b < T(0)) != (m < T(0)) ? T(m + b) : m;
  }
}
// The remainder that a floored quotient needs, without a branch, so that loops become vectors: two steps are exact below
// 2^26 (2^55) wholes. Beyond that no remainder changes the rounded quotient, and 0 (NaN where a is infinite) does.
template <class T>
KL_INLINE T remainder_below(T a, T b, T ratio) {
  const T most = sizeof(T) == 4 ? T(1 << 26) : T(int64_t(1) << 55);
  const T once = std::fma(-trunc(ratio), b, a);
  T m = std::fma(-trunc(once / b), b, once);
  m += (m != T(0)) & ((m < T(0)) != (a < T(0))) ? std::copysign(b, a) : -T(0);
  m = std::fabs(b) <= std::numeric_limits<T>::max() ? m : a;
  return std::copysign(std::fabs(ratio) < most ? m : a - a, a);
}
template <class T>
KL_INLINE T floordiv(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    const T ratio = a / b, m = remainder_below(a, b, ratio);
    const T q = (a - m) / b - ((m != T(0)) & ((b < T(0)) != (m < T(0))) ? T(1) : T(0));
    const T f = floor(q);
    const T near = f + (q - f > T(0.5) ? T(1) : -T(0));
    return b == T(0) ? ratio : q == T(0) ? std::copysign(T(0), ratio) : near;
  } else {
    if (b == T(0)) return T(0);
    if (std::is_signed_v<T> && b == T(-1)) return T(T(0) - a);
    const T q = T(a / b);
    return a % b != T(0) && (a < T(0)) != (b < T(0)) ? T(q - 1) : q;
  }
}
// -- exp and its family --------------------------------------------------------------------------------------------
// A number is limited from both sides by comparing it twice: where the second comparison is with what the first one made,
// GCC joins their paths, and vectors pay for it with seven instructions more.

KL_INLINE float copysign(float x, float s) {
  return bits<float>((bits<uint32_t>(x) & 0x7fffffffu) | (bits<uint32_t>(s) & 0x80000000u));
}
KL_INLINE double copysign(double x, double s) {
  return bits<double>((bits<uint64_t>(x) & 0x7fffffffffffffffull) | (bits<uint64_t>(s) & 0x8000000000000000ull));
}

namespace detail {
// 2^n as a product of two floats, so that results in the subnormal range and at the top are reached
KL_INLINE float scale2(float y, int32_t n) {
  const int32_t half = n >> 1;
  return y * bits<float>((half + 127) << 23) * bits<float>((n - half + 127) << 23);
}
KL_INLINE double scale2(double y, int64_t n) {
  const int64_t half = n >> 1;
  return y * bits<double>((half + 1023) << 52) * bits<double>((n - half + 1023) << 52);
}
// e^r for |r| <= ln(2)/2 (Cephes expf)
KL_INLINE float exp_core(float r) {
  float p = 1.9875691500e-4f;
  p = fma(p, r, 1.3981999507e-3f);
  p = fma(p, r, 8.3334519073e-3f);
  p = fma(p, r, 4.1665795894e-2f);
  p = fma(p, r, 1.6666665459e-1f);
  p = fma(p, r, 5.0000001201e-1f);
  return fma(p, r * r, r) + 1.0f;
}
// e^r - 1 - r - r^2/2 over r^3 for |r| <= ln(2)/2, Taylor to r^13
KL_INLINE double exp_tail(double r) {
  double p = 1.0 / 6227020800.0;
  p = fma(p, r, 1.0 / 479001600.0);
  p = fma(p, r, 1.0 / 39916800.0);
  p = fma(p, r, 1.0 / 3628800.0);
  p = fma(p, r, 1.0 / 362880.0);
  p = fma(p, r, 1.0 / 40320.0);
  p = fma(p, r, 1.0 / 5040.0);
  p = fma(p, r, 1.0 / 720.0);
  p = fma(p, r, 1.0 / 120.0);
  p = fma(p, r, 1.0 / 24.0);
  return fma(p, r, 1.0 / 6.0);
}
// rounding by a large addend: the low bits of the sum are the integer
constexpr float BIG_F = 12582912.0f;         // 1.5 * 2^23
constexpr double BIG_D = 6755399441055744.0;  // 1.5 * 2^52
KL_INLINE int32_t low_int(float shifted) { return bits<int32_t>(shifted) - 0x4b400000; }
KL_INLINE int64_t low_int(double shifted) { return bits<int64_t>(shifted) - 0x4338000000000000ll; }
}  // namespace detail

// By exp(x/2)^2: half the exponent fits one scale factor, and squaring reaches subnormals and infinity
KL_INLINE float exp(float x) {
  constexpr float big = detail::BIG_F + 127.0f;  // the biased exponent comes out in the low bits
  const float shifted = fma(x, 0.72134752044448170f, big);
  const float n = shifted - big;
  float r = fma(n, -1.38671875f, x);
  r = fma(n, 4.24388880e-4f, r);
  float p = 1.5527883984e-06f;
  p = fma(p, r, 2.1846874230e-05f);
  p = fma(p, r, 2.6042037210e-04f);
  p = fma(p, r, 2.6041122434e-03f);
  p = fma(p, r, 2.0833331824e-02f);
  p = fma(p, r, 1.2500000300e-01f);
  p = fma(p, r, 0.5f);
  p = fma(p, r, 1.0f);
  const float half = p * bits<float>(bits<uint32_t>(shifted) << 23);
  float y = half * half;
  y = x > 89.0f ? INF : y;
  return x < -104.0f ? 0.0f : y;
}
KL_INLINE double exp(double x) {
  double c = x > 710.0 ? 710.0 : x;
  c = x < -746.0 ? -746.0 : c;
  const double shifted = fma(c, 1.4426950408889634, detail::BIG_D);
  const double n = shifted - detail::BIG_D;
  double r = fma(n, -6.93147180369123816490e-01, c);
  r = fma(n, -1.90821492927058770002e-10, r);
  const double y = fma(fma(detail::exp_tail(r), r, 0.5), r * r, r) + 1.0;
  return detail::scale2(y, detail::low_int(shifted));
}
KL_INLINE float exp2(float x) {
  float c = x > 129.0f ? 129.0f : x;
  c = c < -151.0f ? -151.0f : c;
  const float shifted = c + detail::BIG_F;
  const float r = (c - (shifted - detail::BIG_F)) * 0.693147180559945309f;
  return detail::scale2(detail::exp_core(r), detail::low_int(shifted));
}
KL_INLINE double exp2(double x) {
  double c = x > 1025.0 ? 1025.0 : x;
  c = c < -1076.0 ? -1076.0 : c;
  const double shifted = c + detail::BIG_D;
  const double r = (c - (shifted - detail::BIG_D)) * 0.69314718055994530942;
  const double y = fma(fma(detail::exp_tail(r), r, 0.5), r * r, r) + 1.0;
  return detail::scale2(y, detail::low_int(shifted));
}
KL_INLINE float expm1(float x) {
  float c = x > 89.0f ? 89.0f : x;
  c = x < -18.0f ? -18.0f : c;
  const float shifted = fma(c, 1.44269504088896341f, detail::BIG_F);
  const float n = shifted - detail::BIG_F;
  float r = fma(n, -0.693359375f, c);
  r = fma(n, 2.12194440e-4f, r);
  float p = 1.9875691500e-4f;
  p = fma(p, r, 1.3981999507e-3f);
  p = fma(p, r, 8.3334519073e-3f);
  p = fma(p, r, 4.1665795894e-2f);
  p = fma(p, r, 1.6666665459e-1f);
  p = fma(p, r, 5.0000001201e-1f);
  const float q = fma(p, r * r, r);
  const float half = bits<float>((detail::low_int(shifted) + 126) << 23);  // 2^(n-1): 2^n may overflow
  return 2.0f * fma(half, q, half - 0.5f);
}
KL_INLINE double expm1(double x) {
  double c = x > 710.0 ? 710.0 : x;
  c = x < -38.0 ? -38.0 : c;
  const double shifted = fma(c, 1.4426950408889634, detail::BIG_D);
  const double n = shifted - detail::BIG_D;
  double r = fma(n, -6.93147180369123816490e-01, c);
  r = fma(n, -1.90821492927058770002e-10, r);
  const double q = fma(fma(detail::exp_tail(r), r, 0.5), r * r, r);
  const double half = bits<double>((detail::low_int(shifted) + 1022) << 52);
  return 2.0 * fma(half, q, half - 0.5);
}

// -- logarithms ----------------------------------------------------------------------------------------------------

namespace detail {
// x = m * 2^e with m in [sqrt(1/2), sqrt(2)); subnormals are scaled up first. Gives m - 1.
KL_INLINE float split(float x, float& e) {
  const bool tiny = x < 1.17549435e-38f;
  const uint32_t u = bits<uint32_t>(tiny ? x * 8388608.0f : x);
  const int32_t k = int32_t(u - 0x3f3504f3u) >> 23;
  e = float(tiny ? k - 23 : k);
  return bits<float>(u - (uint32_t(k) << 23)) - 1.0f;
}
KL_INLINE double split(double x, double& e) {
  const bool tiny = x < 2.2250738585072014e-308;
  const uint64_t u = bits<uint64_t>(tiny ? x * 18014398509481984.0 : x);
  const int64_t k = int64_t(u - 0x3fe6a09e667f3bcdull) >> 52;
  e = double(tiny ? k - 54 : k);
  return bits<double>(u - (uint64_t(k) << 52)) - 1.0;
}
// log(1+f) - f + f^2/2 (Cephes logf)
KL_INLINE float log_tail(float f) {
  float p = 7.0376836292e-2f;
  p = fma(p, f, -1.1514610310e-1f);
  p = fma(p, f, 1.1676998740e-1f);
  p = fma(p, f, -1.2420140846e-1f);
  p = fma(p, f, 1.4249322787e-1f);
  p = fma(p, f, -1.6668057665e-1f);
  p = fma(p, f, 2.0000714765e-1f);
  p = fma(p, f, -2.4999993993e-1f);
  p = fma(p, f, 3.3333331174e-1f);
  return p * f * (f * f);
}
// fdlibm's log: log(1+f) = f - (f^2/2 - s*(f^2/2 + R)), s = f/(2+f); gives the bracket
KL_INLINE double log_bracket(double f) {
  const double s = f / (2.0 + f), z = s * s, half = 0.5 * f * f;
  double p = 1.479819860511658591e-01;
  p = fma(p, z, 1.531383769920937332e-01);
  p = fma(p, z, 1.818357216161805012e-01);
  p = fma(p, z, 2.222219843214978396e-01);
  p = fma(p, z, 2.857142874366239149e-01);
  p = fma(p, z, 3.999999999940941908e-01);
  p = fma(p, z, 6.666666666666735130e-01);
  return half - s * (half + p * z);
}
template <class T>
KL_INLINE T log_special(T x, T y) {
  constexpr T inf = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  const T positive = x == inf ? x : y;
  const T with_zero = x == T(0) ? -inf : positive;
  return x >= T(0) ? with_zero : nan;
}
}  // namespace detail

KL_INLINE float log(float x) {
  float e;
  const float f = detail::split(x, e);
  float y = fma(e, -2.12194440e-4f, detail::log_tail(f));
  y = fma(-0.5f * f, f, y);
  return detail::log_special(x, fma(e, 0.693359375f, f + y));
}
KL_INLINE double log(double x) {
  double e;
  const double f = detail::split(x, e);
  const double y = fma(e, 1.90821492927058770002e-10, -detail::log_bracket(f)) + f;
  return detail::log_special(x, fma(e, 6.93147180369123816490e-01, y));
}
KL_INLINE float log2(float x) {
  float e;
  const float f = detail::split(x, e);
  const float y = fma(-0.5f * f, f, detail::log_tail(f));
  // log2(e) = 1 + 0.4426950408889634
  float z = y * 0.44269504088896341f;
  z = fma(f, 0.44269504088896341f, z);
  return detail::log_special(x, e + (f + (y + z)));
}
KL_INLINE double log2(double x) {
  double e;
  const double f = detail::split(x, e);
  const double y = -detail::log_bracket(f);
  double z = y * 0.44269504088896340736;
  z = fma(f, 0.44269504088896340736, z);
  return detail::log_special(x, e + (f + (y + z)));
}
template <class T>
KL_INLINE T log1p(T x) {
  constexpr T inf = std::numeric_limits<T>::infinity();
  const T u = T(1) + x;
  // what rounding 1 + x lost, carried into the logarithm to first order
  const T lost = x > T(1) ? T(1) - (u - x) : x - (u - T(1));
  const T y = log(u) + lost / u;
  const T regular = u == T(1) ? x : y;
  const T with_pole = u == T(0) ? -inf : regular;
  return x == inf ? x : with_pole;
}

// -- tanh, sigmoid, erf and what activations need ------------------------------------------------------------------

template <class T>
KL_INLINE T tanh(T x) {
  const T a = abs(x);
  const T t = expm1(T(2) * (a > T(20) ? T(20) : a));
  return copysign(t / (t + T(2)), x);
}
template <class T>
KL_INLINE T sigmoid(T x) { return T(1) / (T(1) + exp(-x)); }
template <class T>
KL_INLINE T silu(T x) { return x / (T(1) + exp(-x)); }

namespace detail {
// erf(a) for |a| <= 0.93, and erfc(t) for t > 0.93, after N. Juffa's erff
KL_INLINE float erf_small(float a) {
  const float s = a * a;
  float r = -5.96761703e-4f;
  r = fma(r, s, 4.99119423e-3f);
  r = fma(r, s, -2.67681349e-2f);
  r = fma(r, s, 1.12819925e-1f);
  r = fma(r, s, -3.76125336e-1f);
  r = fma(r, s, 1.28379166e-1f);
  return fma(r, a, a);
}
KL_INLINE float erfc_large(float t) {
  const float s = t * t;
  float r = fma(-1.72853470e-5f, t, 3.83197126e-4f);
  const float u = fma(-3.88396438e-3f, t, 2.42546219e-2f);
  r = fma(r, s, u);
  r = fma(r, t, -1.06777877e-1f);
  r = fma(r, t, -6.34846687e-1f);
  r = fma(r, t, -1.28717512e-1f);
  return exp(fma(r, t, -t));
}
constexpr float ERF_SPLIT = 0.927734375f;
}  // namespace detail

KL_INLINE float erf(float x) {
  const float a = abs(x), t = a > 4.0f ? 4.0f : a;
  return a > detail::ERF_SPLIT ? copysign(1.0f - detail::erfc_large(t), x) : detail::erf_small(x);
}
inline double erf(double x) { return std::erf(x); }
// a rational function of the clamped argument (Eigen's erf), enough where 1 + erf is wanted
KL_INLINE float erf_rational(float x) {
  float c = x > 4.0f ? 4.0f : x;
  c = x < -4.0f ? -4.0f : c;
  const float s = c * c;
  float p = -2.72614225801306e-10f;
  p = fma(p, s, 2.77068142495902e-08f);
  p = fma(p, s, -2.10102402082508e-06f);
  p = fma(p, s, -5.69250639462346e-05f);
  p = fma(p, s, -7.34990630326855e-04f);
  p = fma(p, s, -2.95459980854025e-03f);
  p = fma(p, s, -1.60960333262415e-02f);
  float q = -1.45660718464996e-05f;
  q = fma(q, s, -2.13374055278905e-04f);
  q = fma(q, s, -1.68282697438203e-03f);
  q = fma(q, s, -7.37332916720468e-03f);
  q = fma(q, s, -1.42647390514189e-02f);
  return c * p / q;
}
KL_INLINE float gelu(float x) {
  const float half = 0.5f * x;
  return fma(half, erf_rational(x * 0.70710678118654752f), half);
}
inline double gelu(double x) { return 0.5 * x * std::erfc(-0.70710678118654752440 * x); }
template <class T>
KL_INLINE T gelu_tanh(T x) {
  // 0.5 (1 + tanh(u)) = sigmoid(2u)
  const T u = T(1.5957691216057307) * fma(T(0.044715) * x * x, x, x);
  return x * sigmoid(u);
}
KL_INLINE double softplus(double x) { return relu(x) + log1p(exp(-abs(x))); }
KL_INLINE float softplus(float x) {
  const float y = exp(-abs(x)), u = 1.0f + y, lost = y - (u - 1.0f);
  float e;
  const float f = detail::split(u, e);
  float z = fma(e, -2.12194440e-4f, detail::log_tail(f));
  z = fma(-0.5f * f, f, z);
  // log1p(y) = log(u) + lost / u; 1 - y/2 is near enough to 1/u for what rounding lost
  return relu(x) + fma(lost, fma(-0.5f, y, 1.0f), fma(e, 0.693359375f, f + z));
}

// -- sin, cos, pow -------------------------------------------------------------------------------------------------

namespace detail {
// A float less whole circles, below 2^41, and a small rest to add. Each divisor is an exact double next to a multiple
// of 2 pi, which a continued fraction gives; no step rounds but the rest's.
KL_INLINE double few_circles(double x, double& rest) {
  double n = __builtin_rint(x * (1.0 / 0x1.782b7a20df6d4p+75));
  x = fma(n, -0x1.782b7a20df6d4p+75, x);
  rest = n * -0x1.7a6500ca6d83bp-50;
  n = __builtin_rint(x * (1.0 / 0x1.065c829d68730p+41));
  rest = fma(n, -0x1.14e87fd83e16cp-54, rest);
  return fma(n, -0x1.065c829d68730p+41, x);
}
// x + rest - n * pi/2 in double, and n mod 4
KL_INLINE double quarter(double x, double rest, int64_t& quadrant) {
  const double n = __builtin_rint((x + rest) * 0.63661977236758134308);
  const double below = n - 4.0 * __builtin_floor(n * 0.25);
  quadrant = bits<int64_t>(below + BIG_D) & 3;
  double r = fma(n, -1.57079632679489655800, x);
  return fma(n, -6.12323399573676603587e-17, r) + rest;
}
KL_INLINE double sin_core(double r) {
  const double s = r * r;
  double p = 1.58962301576546568060e-10;
  p = fma(p, s, -2.50507477628578072866e-8);
  p = fma(p, s, 2.75573136213857245213e-6);
  p = fma(p, s, -1.98412698295895385996e-4);
  p = fma(p, s, 8.33333333332211858878e-3);
  p = fma(p, s, -1.66666666666666307295e-1);
  return fma(p * s, r, r);
}
KL_INLINE double cos_core(double r) {
  const double s = r * r;
  double p = -1.13585365213876817300e-11;
  p = fma(p, s, 2.08757008419747316778e-9);
  p = fma(p, s, -2.75573141792967388112e-7);
  p = fma(p, s, 2.48015872888517045348e-5);
  p = fma(p, s, -1.38888888888730564116e-3);
  p = fma(p, s, 4.16666666666665929218e-2);
  return fma(p * s, s, fma(-0.5, s, 1.0));
}
KL_INLINE double circle(double x, double rest, int64_t shift) {
  int64_t q;
  const double r = quarter(x, rest, q);
  q += shift;
  const double y = (q & 1) ? cos_core(r) : sin_core(r);
  return (q & 2) ? -y : y;
}
KL_INLINE float circle(float x, int64_t shift) {
  double rest;
  const double few = few_circles(double(x), rest);
  return float(circle(few, rest, shift));
}
}  // namespace detail

// a sum of products has lost the sign of zero
KL_INLINE double sin(double x) { const double y = detail::circle(x, 0.0, 0); return x == 0.0 ? x : y; }
KL_INLINE double cos(double x) { return detail::circle(x, 0.0, 1); }
KL_INLINE float sin(float x) { const float y = detail::circle(x, 0); return x == 0.0f ? x : y; }
KL_INLINE float cos(float x) { return detail::circle(x, 1); }

inline double pow(double x, double y) { return std::pow(x, y); }
KL_INLINE float pow(float x, float y) {
  const float a = abs(x);
  const float magnitude = float(exp(double(y) * log(double(a))));
  const bool whole = __builtin_floorf(y) == y;
  const bool odd = whole & (__builtin_floorf(0.5f * y) * 2.0f != y);
  const bool negative = (bits<uint32_t>(x) >> 31) != 0;
  float r = odd & negative ? -magnitude : magnitude;
  r = (x < 0.0f) & (a < INF) & !whole ? NAN_ : r;
  r = x != x ? x : r;
  return (y == 0.0f) | (x == 1.0f) | ((a == 1.0f) & (abs(y) == INF)) ? 1.0f : r;
}
template <class T, class = std::enable_if_t<std::is_integral_v<T>>>
KL_INLINE T pow(T x, T y) {
  T r = 1;
  if (y < 0) return x == 1 ? T(1) : (x == T(-1) ? T(y & 1 ? -1 : 1) : T(0));
  for (; y > 0; y = T(y >> 1), x = T(x * x)) r = (y & 1) ? T(r * x) : r;
  return r;
}

}  // namespace kl
