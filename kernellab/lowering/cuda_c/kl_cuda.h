// What kernels lowered from sketches use: how a tile lies over the threads of a block, wide loads and stores,
// reductions and scans across threads, products of tiles, scalar functions with torch's meaning, narrow numbers.
//
// NVRTC compiles this without any other header. A block has one dimension of threads.
#define KL_INLINE __device__ __forceinline__

using int8_t = signed char;
using uint8_t = unsigned char;
using int16_t = short;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned int;
using int64_t = long long;
using uint64_t = unsigned long long;
#define INT64_C(x) x##ll
#define INT8_MIN (-128)
#define INT8_MAX 127
#define INT16_MIN (-32768)
#define INT16_MAX 32767
#define INT32_MIN (-2147483647 - 1)
#define INT32_MAX 2147483647
#define INT64_MIN (-9223372036854775807ll - 1)
#define INT64_MAX 9223372036854775807ll

namespace kl {

constexpr float INF = __builtin_bit_cast(float, 0x7f800000);
constexpr float NAN_ = __builtin_bit_cast(float, 0x7fc00000);

template <class A, class B> constexpr bool same = false;
template <class A> constexpr bool same<A, A> = true;
template <class T> constexpr bool is_float = same<T, float> || same<T, double>;
template <class T> constexpr bool is_signed = T(-1) < T(0);

// -- narrow floats: stored narrow, computed in float ---------------------------------------------------------------

// two at a time, for a conversion of one alone takes a slower unit
KL_INLINE uint16_t half_bits(float x) { uint32_t h; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(h) : "f"(0.0f), "f"(x)); return uint16_t(h); }
KL_INLINE uint16_t brain_bits(float x) { uint32_t b; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(b) : "f"(0.0f), "f"(x)); return uint16_t(b); }
KL_INLINE float half_value(uint16_t h) { float x; asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h)); return x; }

struct bf16 {
  uint16_t raw;
  bf16() = default;
  KL_INLINE bf16(float x) : raw(brain_bits(x)) {}
  KL_INLINE operator float() const { return __uint_as_float(uint32_t(raw) << 16); }
};

struct f16 {
  uint16_t raw;
  f16() = default;
  KL_INLINE f16(float x) : raw(half_bits(x)) {}
  KL_INLINE operator float() const { return half_value(raw); }
};

// 8-bit floats as torch has them: e4m3 has no infinity and saturates to NaN, e5m2 has both.
template <int MANTISSA, int BIAS, bool HAS_INF>
struct f8 {
  uint8_t raw;
  f8() = default;
  KL_INLINE f8(float x) {
    const uint32_t u = __float_as_uint(x), sign = (u >> 24) & 0x80u, mag = u & 0x7fffffffu;
    constexpr int shift = 23 - MANTISSA;
    constexpr uint32_t rebias = uint32_t(127 - BIAS) << 23, least_normal = uint32_t(128 - BIAS) << 23;
    constexpr uint32_t quiet = HAS_INF ? 0x7eu : 0x7fu, top = HAS_INF ? 0x7cu : 0x7fu;
    // adding a power of two lets the float unit round a subnormal
    const float unit = __uint_as_float(uint32_t(127 - BIAS + 1 - MANTISSA + 23) << 23);
    const uint32_t small = __float_as_uint(__uint_as_float(mag) + unit) - __float_as_uint(unit);
    const uint32_t normal = (mag - rebias + ((1u << (shift - 1)) - 1u) + ((mag >> shift) & 1u)) >> shift;
    const uint32_t finite = mag < least_normal ? small : (normal > top ? top : normal);
    const uint32_t limited = mag >= 0x7f800000u ? top : finite;
    raw = uint8_t(sign | (mag > 0x7f800000u ? quiet : limited));
  }
  KL_INLINE operator float() const {
    const uint32_t sign = uint32_t(raw & 0x80u) << 24, mag = raw & 0x7fu;
    constexpr uint32_t first_special = HAS_INF ? 0x7cu : 0x7fu;
    const float small = float(int32_t(mag)) * __uint_as_float(uint32_t(127 - BIAS + 1 - MANTISSA) << 23);
    const float normal = __uint_as_float((mag << (23 - MANTISSA)) + (uint32_t(127 - BIAS) << 23));
    const float special = HAS_INF && mag == 0x7cu ? INF : NAN_;
    const float value = mag < (1u << MANTISSA) ? small : (mag >= first_special ? special : normal);
    return __uint_as_float(__float_as_uint(value) | sign);
  }
};
using f8e4m3 = f8<3, 7, false>;
using f8e5m2 = f8<2, 15, true>;

// The value that a write into a narrower tile leaves (tiles of narrow floats are kept as float).
template <class Narrow> KL_INLINE float rounded(float x) { return float(Narrow(x)); }

// -- integers ------------------------------------------------------------------------------------------------------

template <class A, class B> KL_INLINE constexpr auto cdiv(A a, B b) { return a / b + (a % b != 0 && (a < 0) == (b < 0)); }
template <class A, class B> KL_INLINE constexpr auto fdiv(A a, B b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }
template <class A, class B> KL_INLINE constexpr auto fmod_(A a, B b) { return a - fdiv(a, b) * b; }
template <class A, class B> KL_INLINE constexpr auto imin(A a, B b) { return a < b ? a : b; }
template <class A, class B> KL_INLINE constexpr auto imax(A a, B b) { return a > b ? a : b; }
template <class A, class B> KL_INLINE bool within(A i, B size) { return i >= 0 && i < size; }

// -- a tile over the threads of a block ----------------------------------------------------------------------------

__device__ constexpr int divisor(int a, int b) { return b == 0 ? a : divisor(b, a % b); }
__device__ constexpr int power(int n) { int p = 1; while (p < n) p *= 2; return p; }
__device__ constexpr int least(int a, int b) { return a < b ? a : b; }
__device__ constexpr int most(int a, int b) { return a > b ? a : b; }

// Rows of columns: LANES threads stand side by side along a row, each with WIDE neighbouring columns, then the same
// further right; the others take the rows below. A thread holds ITEMS elements; ``at`` counts them, WIDE at a time.
// WIDE divides VECTOR and LAST, the innermost extent, so that no group of WIDE elements ends in the middle.
template <int ROWS_, int COLUMNS_, int LAST, int VECTOR, int THREADS_, int SIDE = 32>
struct Layout {
  static constexpr int ROWS = ROWS_, COLUMNS = COLUMNS_, THREADS = THREADS_;
  static constexpr int WIDE = divisor(VECTOR, LAST);
  static constexpr int WANTED = most(1, (COLUMNS + WIDE - 1) / WIDE);
  static constexpr int LANES = least(THREADS, most(least(SIDE, power(WANTED)), THREADS / power(most(ROWS, 1))));
  static constexpr int DOWN = THREADS / LANES;
  static constexpr int R = (ROWS + DOWN - 1) / DOWN;
  static constexpr int C = (COLUMNS + LANES * WIDE - 1) / (LANES * WIDE) * WIDE;
  static constexpr int ITEMS = R * C;
  static KL_INLINE int lane() { return int(threadIdx.x) % LANES; }
  static KL_INLINE int row_at(int r) { return r * DOWN + int(threadIdx.x) / LANES; }
  static KL_INLINE int column_at(int c) { return (c / WIDE * LANES + lane()) * WIDE + c % WIDE; }
  static KL_INLINE int row(int at) { return row_at(at / C); }
  static KL_INLINE int column(int at) { return column_at(at % C); }
  static KL_INLINE bool has(int row, int column) {
    return (ROWS % DOWN == 0 || row < ROWS) && (COLUMNS % (LANES * WIDE) == 0 || column < COLUMNS);
  }
};

// N neighbouring elements, moved by as few instructions as their size allows.
template <class T, int N> struct alignas(least(16, int(sizeof(T)) * N)) Vec {
  T of[N];
  KL_INLINE T& operator[](int i) { return of[i]; }
  KL_INLINE const T& operator[](int i) const { return of[i]; }
};
template <class To, int N, class T> KL_INLINE Vec<To, N> load(const T* from) {
  const Vec<T, N> raw = *reinterpret_cast<const Vec<T, N>*>(from);
  Vec<To, N> value;
#pragma unroll
  for (int i = 0; i < N; ++i) value[i] = To(raw[i]);
  return value;
}
template <class To, int N, class T> KL_INLINE Vec<To, N> load(const T* from, bool inside, To pad) {
  if (inside) return load<To, N>(from);
  Vec<To, N> value;
#pragma unroll
  for (int i = 0; i < N; ++i) value[i] = pad;
  return value;
}
template <int N, class T, class From> KL_INLINE void store(T* to, const Vec<From, N>& value) {
  Vec<T, N> raw;
#pragma unroll
  for (int i = 0; i < N; ++i) raw[i] = T(value[i]);
  *reinterpret_cast<Vec<T, N>*>(to) = raw;
}

// N elements to shared memory, zeros where they do not lie inside; done when wait_copies returns in this thread.
template <int BYTES> KL_INLINE void copy_bytes(uint32_t to, const void* from, int bytes) { asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(BYTES), "r"(bytes)); }
KL_INLINE void wait_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
template <int N, class T> KL_INLINE void copy(T* to, const T* from, bool inside) {
  constexpr int BYTES = int(sizeof(T)) * N;
  if constexpr (BYTES == 4 || BYTES == 8 || BYTES == 16) {
    copy_bytes<BYTES>(uint32_t(__cvta_generic_to_shared(to)), from, inside ? BYTES : 0);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) to[i] = inside ? from[i] : T(0);
  }
}

// -- arithmetic ----------------------------------------------------------------------------------------------------

KL_INLINE float abs(float x) { return fabsf(x); }
KL_INLINE double abs(double x) { return fabs(x); }
template <class T> KL_INLINE T abs(T x) { return x < 0 ? T(-x) : x; }
template <class T> KL_INLINE T sign(T x) { return T(x > 0) - T(x < 0); }
// NaN on either side gives NaN, as torch.minimum and torch.maximum do
template <class T> KL_INLINE T min(T a, T b) { const T least = b < a ? b : a; return b != b ? b : least; }
template <class T> KL_INLINE T max(T a, T b) { const T most = b > a ? b : a; return b != b ? b : most; }
template <class T> KL_INLINE T clamp(T x, T low, T high) { return max(min(x, high), low); }
template <class T> KL_INLINE T relu(T x) { return x < T(0) ? T(0) : x; }
template <class T> KL_INLINE T fma(T a, T b, T c) {
  if constexpr (same<T, float>) return fmaf(a, b, c);
  else if constexpr (same<T, double>) return ::fma(a, b, c);
  else return T(a * b + c);
}
#define KL_FLOAT(name, single, twice)                 \
  KL_INLINE float name(float x) { return single(x); } \
  KL_INLINE double name(double x) { return twice(x); }
KL_FLOAT(sqrt, sqrtf, ::sqrt)
KL_FLOAT(rsqrt, rsqrtf, ::rsqrt)
KL_FLOAT(floor, floorf, ::floor)
KL_FLOAT(ceil, ceilf, ::ceil)
KL_FLOAT(trunc, truncf, ::trunc)
KL_FLOAT(round, rintf, ::rint)  // half to even
KL_FLOAT(exp, expf, ::exp)
KL_FLOAT(exp2, exp2f, ::exp2)
KL_FLOAT(log, logf, ::log)
KL_FLOAT(log2, log2f, ::log2)
KL_FLOAT(log1p, log1pf, ::log1p)
KL_FLOAT(expm1, expm1f, ::expm1)
KL_FLOAT(sin, sinf, ::sin)
KL_FLOAT(cos, cosf, ::cos)
KL_FLOAT(tanh, tanhf, ::tanh)
KL_FLOAT(erf, erff, ::erf)
KL_FLOAT(erfc, erfcf, ::erfc)
#undef KL_FLOAT
#define KL_WHOLE(name) \
  template <class T> KL_INLINE T name(T x) { return x; }
KL_WHOLE(floor)
KL_WHOLE(ceil)
KL_WHOLE(trunc)
KL_WHOLE(round)
#undef KL_WHOLE
template <class T> KL_INLINE T pow(T a, T b) {
  if constexpr (same<T, float>) {
    if (b == 2.0f) return a * a;
    return powf(a, b);
  } else if constexpr (same<T, double>) {
    return ::pow(a, b);
  } else {
    T result = 1;
    if (b < 0) return a == 1 ? T(1) : (a == T(-1) ? (b % 2 != 0 ? T(-1) : T(1)) : T(0));
    for (; b > 0; b /= 2, a *= a) result = b % 2 != 0 ? T(result * a) : result;
    return result;
  }
}
// Remainder with the divisor's sign, and the floored quotient that goes with it. An integer divisor of 0 gives 0.
template <class T> KL_INLINE T mod(T a, T b) {
  if constexpr (is_float<T>) {
    const T m = T(fmod(a, b));
    return m != T(0) && (b < T(0)) != (m < T(0)) ? m + b : m;
  } else {
    if (b == T(0) || (is_signed<T> && b == T(-1))) return T(0);
    const T m = T(a % b);
    return m != T(0) && (b < T(0)) != (m < T(0)) ? T(m + b) : m;
  }
}
template <class T> KL_INLINE T floordiv(T a, T b) {
  if constexpr (is_float<T>) {
    const T m = T(fmod(a, b));
    T q = (a - m) / b;
    if (m != T(0) && (b < T(0)) != (m < T(0))) q -= T(1);
    T f = floor(q);
    if (q - f > T(0.5)) f += T(1);
    if (q == T(0)) f = T(copysign(T(0), a / b));
    return b == T(0) ? a / b : f;
  } else {
    if (b == T(0)) return T(0);
    if (is_signed<T> && b == T(-1)) return T(T(0) - a);
    const T q = T(a / b);
    return a % b != T(0) && (a < T(0)) != (b < T(0)) ? T(q - 1) : q;
  }
}
template <class T> KL_INLINE T sigmoid(T x) { return T(1) / (T(1) + exp(-x)); }
template <class T> KL_INLINE T silu(T x) { return x / (T(1) + exp(-x)); }
// 0.5 * x * (1 + erf(x / sqrt(2))), by erfc, where the sum would cancel on the left: in float erfc(z) = t exp(p(t) - z * z),
// t = 1 / (1 + z / 2), z = |x| / sqrt(2). Off by at most 6e-7 relatively above -1 and by 5e-6 below.
KL_INLINE double gelu(double x) { return 0.5 * x * erfc(-x * 0.70710678118654752440); }
KL_INLINE float gelu(float x) {
  const float t = __fdividef(1.0f, 1.0f + 0.35355339f * fabsf(x));
  float p = 0.0863460843f * t - 0.591264414f;
  p = ((p * t + 1.54626181f) * t - 1.85884014f) * t + 0.902057760f;
  p = (((p * t - 0.255569154f) * t + 0.443751748f) * t + 0.992420115f) * t - 1.26516393f;
  const float rest = 0.5f * t * __expf(p - 0.5f * x * x);
  return x * (x < 0.0f ? rest : 1.0f - rest);
}
template <class T> KL_INLINE T gelu_tanh(T x) {
  return T(0.5) * x * (T(1) + tanh(T(0.79788456080286535588) * (x + T(0.044715) * x * x * x)));
}
template <class T> KL_INLINE T softplus(T x) { return max(x, T(0)) + log1p(exp(-abs(x))); }

// -- across threads ------------------------------------------------------------------------------------------------

// The best value so far and where it was; at < 0 before the first.
template <class T> struct Best {
  T value;
  int64_t at;
};
struct Sum { template <class T> KL_INLINE T operator()(T a, T b) const { return T(a + b); } };
struct Prod { template <class T> KL_INLINE T operator()(T a, T b) const { return T(a * b); } };
struct Any { template <class T> KL_INLINE T operator()(T a, T b) const { return T(a | b); } };
struct Max { template <class T> KL_INLINE T operator()(T a, T b) const { return max(a, b); } };
struct Min { template <class T> KL_INLINE T operator()(T a, T b) const { return min(a, b); } };
// The first NaN wins, else the first of the best.
template <bool GREATEST> struct Which {
  template <class T> KL_INLINE Best<T> operator()(Best<T> a, Best<T> b) const {
    if (a.at < 0 || b.at < 0) return a.at < 0 ? b : a;
    const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    if (a_nan || b_nan) return a_nan && b_nan ? (a.at < b.at ? a : b) : (a_nan ? a : b);
    if (a.value == b.value) return a.at < b.at ? a : b;
    return (GREATEST ? a.value > b.value : a.value < b.value) ? a : b;
  }
};
using ArgMax = Which<true>;
using ArgMin = Which<false>;

template <class T> KL_INLINE T from_lane(T x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
template <class T> KL_INLINE Best<T> from_lane(Best<T> x, int mask) {
  return {from_lane(x.value, mask), from_lane(x.at, mask)};
}
template <> KL_INLINE int8_t from_lane(int8_t x, int mask) { return int8_t(from_lane(int(x), mask)); }
template <> KL_INLINE uint8_t from_lane(uint8_t x, int mask) { return uint8_t(from_lane(int(x), mask)); }
template <> KL_INLINE int16_t from_lane(int16_t x, int mask) { return int16_t(from_lane(int(x), mask)); }
template <> KL_INLINE bool from_lane(bool x, int mask) { return from_lane(int(x), mask) != 0; }

// Every thread of LANES neighbours gets what they have together. All threads of the block must come here.
template <int LANES, int THREADS, class Op, class T> KL_INLINE T across(T x, Op op) {
#pragma unroll
  for (int mask = least(LANES, 32) / 2; mask > 0; mask /= 2) x = op(x, from_lane(x, mask));
  if constexpr (LANES > 32) {
    constexpr int WARPS = LANES / 32;
    __shared__ T part[THREADS / 32];
    const int warp = int(threadIdx.x) / 32;
    if (threadIdx.x % 32 == 0) part[warp] = x;
    __syncthreads();
    x = part[warp / WARPS * WARPS];
#pragma unroll
    for (int w = 1; w < WARPS; ++w) x = op(x, part[warp / WARPS * WARPS + w]);
    __syncthreads();
  }
  return x;
}

// What a tile gets of a reduction's result.
struct AsIs { template <class T> KL_INLINE T operator()(T x) const { return x; } };
struct NotZero { template <class T> KL_INLINE bool operator()(T x) const { return x != 0; } };
struct Place { template <class T> KL_INLINE int64_t operator()(Best<T> x) const { return x.at; } };
template <class N> struct Over {
  N count;
  template <class T> KL_INLINE T operator()(T x) const { return x / T(count); }
};
template <class N> KL_INLINE Over<N> over(N count) { return {count}; }

// Column by column what the threads above each other have: column j's goes to to[j]. ``mine`` holds L::C columns.
template <class L, class Op, class T, class To, class Finish>
KL_INLINE void down(const T (&mine)[L::C], Op op, To* to, Finish finish) {
  if constexpr (L::DOWN == 1) {
#pragma unroll
    for (int c = 0; c < L::C; ++c) {
      const int j = L::column_at(c);
      if (j < L::COLUMNS) to[j] = finish(mine[c]);
    }
  } else {
    __shared__ T part[L::DOWN * L::COLUMNS];
    const int y = int(threadIdx.x) / L::LANES;
    __syncthreads();
#pragma unroll
    for (int c = 0; c < L::C; ++c) {
      const int j = L::column_at(c);
      if (j < L::COLUMNS) part[y * L::COLUMNS + j] = mine[c];
    }
    __syncthreads();
    for (int j = threadIdx.x; j < L::COLUMNS; j += L::THREADS) {
      T x = part[j];
#pragma unroll
      for (int above = 1; above < L::DOWN; ++above) x = op(x, part[above * L::COLUMNS + j]);
      to[j] = finish(x);
    }
  }
}

// -- scans: lines of ``count`` elements, ``inner`` apart, in shared memory -----------------------------------------

struct Add { template <class T> KL_INLINE T operator()(T a, T b) const { return T(a + b); } };
struct Mul { template <class T> KL_INLINE T operator()(T a, T b) const { return T(a * b); } };
using Most = Max;
using Least = Min;

// The first element of a line where a scan starts; BACK: its last.
template <bool BACK>
KL_INLINE int start_of(int line, int count, int inner) {
  return (line / inner * count + (BACK ? count - 1 : 0)) * inner + line % inner;
}
template <int THREADS, class Op, bool BACK, class T>
KL_INLINE void scan(T* to, const T* from, int outer, int count, int inner) {
  const Op op{};
  const int down = BACK ? -inner : inner;
  if (outer * inner >= THREADS / 4) {
    for (int line = threadIdx.x; line < outer * inner; line += THREADS) {
      const int first = start_of<BACK>(line, count, inner);
      T x = from[first];
      to[first] = x;
      for (int i = 1; i < count; ++i) to[first + i * down] = x = op(x, from[first + i * down]);
    }
    return;
  }
  // a block a line: each thread folds its own stretch, the stretches are joined, each thread goes through it again
  __shared__ T part[THREADS];
  // odd, so that neighbouring threads read other banks
  const int stretch = (count + THREADS - 1) / THREADS | 1;
  const int begin = least(int(threadIdx.x) * stretch, count), end = least(begin + stretch, count);
  for (int line = 0; line < outer * inner; ++line) {
    const int first = start_of<BACK>(line, count, inner);
    T x{};
    for (int i = begin; i < end; ++i) x = i == begin ? from[first + i * down] : op(x, from[first + i * down]);
    part[threadIdx.x] = x;
    __syncthreads();
    const int filled = (count + stretch - 1) / stretch;
    for (int step = 1; step < filled; step *= 2) {
      T left = x;
      const bool joins = int(threadIdx.x) >= step && int(threadIdx.x) < filled;
      if (joins) left = op(part[threadIdx.x - step], x);
      __syncthreads();
      if (joins) part[threadIdx.x] = x = left;
      __syncthreads();
    }
    if (begin < end) {
      const bool starts = threadIdx.x == 0;
      T run = starts ? from[first] : op(part[threadIdx.x - 1], from[first + begin * down]);
      to[first + begin * down] = run;
      for (int i = begin + 1; i < end; ++i) to[first + i * down] = run = op(run, from[first + i * down]);
    }
    __syncthreads();
  }
}
// h[t] = a[t] * h[t - 1] + b[t], or a[t] * h[t + 1] + b[t] BACK from the end: a thread a line.
template <int THREADS, bool BACK, class T>
KL_INLINE void linear_scan(T* to, const T* a, const T* b, int outer, int count, int inner) {
  const int down = BACK ? -inner : inner;
  for (int line = threadIdx.x; line < outer * inner; line += THREADS) {
    const int first = start_of<BACK>(line, count, inner);
    T x{};
    for (int i = 0; i < count; ++i) {
      const int at = first + i * down;
      to[at] = x = i == 0 ? b[at] : T(a[at] * x + b[at]);
    }
  }
}

// -- products ------------------------------------------------------------------------------------------------------

// acc += a @ b, a[ROWS, K] and b[K, COLUMNS] in shared memory (b[COLUMNS, K] with rows PITCH apart if TURNED).
// Each thread keeps its L::R x L::C elements of the product in registers and reads STEP columns of a at a time.
template <class L, int K, class T, class A, class B>
KL_INLINE void gemm(T (&acc)[L::ITEMS], const A* a, const B* b) {
  constexpr int STEP = divisor(4, K);
#pragma unroll 2
  for (int k = 0; k < K; k += STEP) {
    Vec<T, STEP> left[L::R];
#pragma unroll
    for (int r = 0; r < L::R; ++r) left[r] = load<T, STEP>(a + least(L::row_at(r), L::ROWS - 1) * K + k);
#pragma unroll
    for (int s = 0; s < STEP; ++s) {
#pragma unroll
      for (int c = 0; c < L::C; c += L::WIDE) {
        const int j = least(L::column_at(c), L::COLUMNS - L::WIDE);
        const Vec<T, L::WIDE> right = load<T, L::WIDE>(b + (k + s) * L::COLUMNS + j);
#pragma unroll
        for (int r = 0; r < L::R; ++r)
#pragma unroll
          for (int v = 0; v < L::WIDE; ++v) acc[r * L::C + c + v] += left[r][s] * right[v];
      }
    }
  }
}

// A thread's elements of a tile in shared memory, and back.
template <class L, class T, class From> KL_INLINE void held(T (&own)[L::ITEMS], const From* tile) {
#pragma unroll
  for (int at = 0; at < L::ITEMS; ++at) {
    const int i = L::row(at), j = L::column(at);
    own[at] = L::has(i, j) ? T(tile[i * L::COLUMNS + j]) : T(0);
  }
}
template <class L, class T, class To> KL_INLINE void put(To* tile, const T (&own)[L::ITEMS]) {
#pragma unroll
  for (int at = 0; at < L::ITEMS; ++at) {
    const int i = L::row(at), j = L::column(at);
    if (L::has(i, j)) tile[i * L::COLUMNS + j] = To(own[at]);
  }
}

// -- atomics -------------------------------------------------------------------------------------------------------

KL_INLINE void atomic_add(float* to, float x) { ::atomicAdd(to, x); }
KL_INLINE void atomic_add(double* to, double x) { ::atomicAdd(to, x); }
KL_INLINE void atomic_add(int32_t* to, int32_t x) { ::atomicAdd(to, x); }
KL_INLINE void atomic_add(int64_t* to, int64_t x) { ::atomicAdd(reinterpret_cast<uint64_t*>(to), uint64_t(x)); }

}  // namespace kl
