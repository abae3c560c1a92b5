// What kernels lowered from sketches need beside arithmetic: products and scans of tiles, memory, and the call itself.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <tvm/ffi/c_api.h>

#include "kl_math.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

// NaN-propagating max and min as reductions of a vector loop
#pragma omp declare reduction(kl_max : float, double, int64_t, int32_t, int16_t, int8_t, uint8_t : \
                                  omp_out = kl::max(omp_out, omp_in)) initializer(omp_priv = omp_orig)
#pragma omp declare reduction(kl_min : float, double, int64_t, int32_t, int16_t, int8_t, uint8_t : \
                                  omp_out = kl::min(omp_out, omp_in)) initializer(omp_priv = omp_orig)

namespace kl {

template <class T>
KL_INLINE void atomic_add(T* place, T value) {
#pragma omp atomic
  *place += value;
}
template <class Narrow>
inline void atomic_add_narrow(Narrow* place, float value) {
  using Raw = std::conditional_t<sizeof(Narrow) == 2, uint16_t, uint8_t>;
  Raw* raw = reinterpret_cast<Raw*>(place);
  Raw seen = __atomic_load_n(raw, __ATOMIC_RELAXED), next;
  do {
    next = bits<Raw>(Narrow(float(bits<Narrow>(seen)) + value));
  } while (!__atomic_compare_exchange_n(raw, &seen, next, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}
KL_INLINE void atomic_add(f16* place, float value) { atomic_add_narrow(place, value); }
KL_INLINE void atomic_add(bf16* place, float value) { atomic_add_narrow(place, value); }
KL_INLINE void atomic_add(f8e4m3* place, float value) { atomic_add_narrow(place, value); }
KL_INLINE void atomic_add(f8e5m2* place, float value) { atomic_add_narrow(place, value); }

// -- memory --------------------------------------------------------------------------------------------------------

// A tile too large for the stack: this thread's own, kept between calls. SLOT tells a kernel's tiles apart.
template <class T, int SLOT>
inline T* scratch(int64_t count) {
  struct Buffer {
    void* data = nullptr;
    size_t bytes = 0;
    ~Buffer() { std::free(data); }
  };
  static thread_local Buffer buffer;
  const size_t wanted = (size_t(count < 1 ? 1 : count) * sizeof(T) + 63) / 64 * 64;
  if (wanted > buffer.bytes) {
    std::free(buffer.data);
    buffer.data = std::aligned_alloc(64, wanted);
    if (!buffer.data) throw std::bad_alloc();
    buffer.bytes = wanted;
  }
  return static_cast<T*>(buffer.data);
}

// Asks for huge pages for a large new buffer: the first touch of a small page costs as much as filling it.
inline void advise_fresh(void* data, int64_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  constexpr uintptr_t huge = uintptr_t(1) << 21;
  const uintptr_t first = (uintptr_t(data) + huge - 1) & ~(huge - 1), last = (uintptr_t(data) + bytes) & ~(huge - 1);
  if (last > first) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#else
  (void)data, (void)bytes;
#endif
}

// -- strips --------------------------------------------------------------------------------------------------------

//: elements of a row that a loop computes at a time where a strip stands for them: a few strips stay in L1; and where
//: they are then written past the caches, which goes on while the next ones are computed
constexpr int64_t STRIP = 512, BURST = 128;

// A strip written past the caches: a store into a large result would first read what it overwrites. The atomics by which
// threads meet order such stores with what is done after them.
KL_INLINE void stream(float* to, const float* from, int64_t count) {
  int64_t i = 0;
#if defined(__AVX__) && defined(__GNUC__) && !defined(__clang__)
  typedef float Part __attribute__((vector_size(32), aligned(4), may_alias));
  typedef float Whole __attribute__((vector_size(32)));
  const int64_t first = imin(count, int64_t((64 - (uintptr_t(to) & 63)) & 63) / int64_t(sizeof(float)));
  for (; i < first; ++i) to[i] = from[i];
  for (; i + 16 <= count; i += 16) {
    __builtin_ia32_movntps256(to + i, Whole(*reinterpret_cast<const Part*>(from + i)));
    __builtin_ia32_movntps256(to + i + 8, Whole(*reinterpret_cast<const Part*>(from + i + 8)));
  }
#endif
#pragma omp simd
  for (int64_t l = i; l < count; ++l) to[l] = from[l];
}

// -- reductions ----------------------------------------------------------------------------------------------------

struct Sum {
  template <class T>
  static constexpr T start(T) { return T(0); }
  template <class T>
  KL_INLINE static T join(T a, T b) { return T(a + b); }
};
struct Prod {
  template <class T>
  static constexpr T start(T) { return T(1); }
  template <class T>
  KL_INLINE static T join(T a, T b) { return T(a * b); }
};
struct Any {
  template <class T>
  static constexpr T start(T) { return T(0); }
  template <class T>
  KL_INLINE static T join(T a, T b) { return T(a | b); }
};
struct Max {
  template <class T>
  KL_INLINE static T start(T initial) { return initial; }
  template <class T>
  KL_INLINE static T join(T a, T b) { return max(a, b); }
};
struct Min {
  template <class T>
  KL_INLINE static T start(T initial) { return initial; }
  template <class T>
  KL_INLINE static T join(T a, T b) { return min(a, b); }
};

//: bytes of a row that is read at several places at once, and at how many
constexpr int64_t LONG_ROW = 16 << 10;
constexpr int PLACES = 4;
//: elements, where their number is known, that are joined one after the other
constexpr int FEW = 8;

// Joins f(first) ... f(last - 1) to ``initial``, in any order: several vectors collect, so that the latency of the
// operation is hidden, and a tree joins them. A long row is read at several places at once, of which memory brings more
// in the same time than of one.
template <class Op, class T, class F>
KL_INLINE T fold(T initial, int64_t first, int64_t last, F&& f) {
  constexpr int W = 256 / int(sizeof(T)), EACH = W / PLACES;
  if (__builtin_constant_p(last - first) && last - first <= FEW) {
#pragma GCC unroll 8
    for (int64_t n = first; n < last; ++n) initial = Op::join(initial, T(f(n)));
    return initial;
  }
  T sums[W];
#pragma omp simd
  for (int l = 0; l < W; ++l) sums[l] = Op::start(initial);
  int64_t i = first;
  if (last - first >= LONG_ROW / int64_t(sizeof(T))) {
    const int64_t part = (last - first) / W * EACH, end = first + part;
    for (; i < end; i += EACH)
#pragma GCC unroll 4
      for (int n = 0; n < PLACES; ++n)
#pragma omp simd
        for (int l = 0; l < EACH; ++l) sums[n * EACH + l] = Op::join(sums[n * EACH + l], T(f(i + n * part + l)));
    i = first + PLACES * part;
  }
  for (; i + W <= last; i += W) {
#pragma omp simd
    for (int l = 0; l < W; ++l) sums[l] = Op::join(sums[l], T(f(i + l)));
  }
  const int left = int(last - i);
#pragma omp simd
  for (int l = 0; l < left; ++l) sums[l] = Op::join(sums[l], T(f(i + l)));
#pragma GCC unroll 8
  for (int half = W / 2; half > 0; half /= 2) {
#pragma omp simd
    for (int l = 0; l < half; ++l) sums[l] = Op::join(sums[l], sums[l + half]);
  }
  return Op::join(initial, sums[0]);
}

// The first position of the best f(i), i in [first, last), a NaN being better than everything: the best of blocks by
// vectors, then a search in the block that has it. ``best`` and ``at`` (-1: nothing yet) carry over calls in order.
template <class Op, class T, class F>
KL_INLINE void find_best(T& best, int64_t& at, int64_t first, int64_t last, int64_t offset, F&& f) {
  constexpr int64_t BLOCK = 1024;
  for (int64_t from = first; from < last; from += BLOCK) {
    const int64_t to = imin(from + BLOCK, last);
    const T top = fold<Op>(T(f(from)), from, to, f);
    const bool better = at < 0 || (best == best && (top != top || Op::join(best, top) != best));
    if (!better) continue;
    best = top;
    int64_t i = from;
    for (;; ++i) {
      const T value = f(i);
      if (value == top || value != value) break;
    }
    at = offset + i;
  }
}

// -- products of tiles ---------------------------------------------------------------------------------------------

#if defined(__AVX512F__)
constexpr int VECTOR_BYTES = 64, ROWS = 14, VECTORS = 2;
#elif defined(__AVX__)
constexpr int VECTOR_BYTES = 32, ROWS = 6, VECTORS = 2;
#else
constexpr int VECTOR_BYTES = 16, ROWS = 6, VECTORS = 4;
#endif

template <class T>
struct Vector {
  typedef T type __attribute__((vector_size(VECTOR_BYTES), aligned(alignof(T)), may_alias));
  static constexpr int lanes = VECTOR_BYTES / int(sizeof(T));
};

// An operand of a product: ``rows`` by ``cols`` elements, neighbours ``down`` and ``right`` elements apart.
template <class T>
struct Matrix {
  const T* data;
  int64_t down, right, rows, cols;
};
template <class T>
KL_INLINE Matrix<T> matrix(const T* data, int64_t down, int64_t right, int64_t rows, int64_t cols) {
  return {data, down, right, rows, cols};
}

template <int BLOCK, int LANES, class V, size_t... I>
KL_INLINE void interleave(const V* from, V* to, std::index_sequence<I...>) {
#pragma GCC unroll 32
  for (int r = 0; r < LANES / 2; ++r) {
    const V a = from[r], b = from[r + LANES / 2];
    to[2 * r] = __builtin_shufflevector(a, b, (int(I / 2) + int(I % 2) * LANES)...);
    to[2 * r + 1] = __builtin_shufflevector(a, b, (LANES / 2 + int(I / 2) + int(I % 2) * LANES)...);
  }
  if constexpr (BLOCK > 2) {
    V next[LANES];
    interleave<BLOCK / 2, LANES>(to, next, std::make_index_sequence<LANES>{});
#pragma GCC unroll 32
    for (int r = 0; r < LANES; ++r) to[r] = next[r];
  }
}
// to[c][r] = from[r][c] for a square of as many rows as a vector has lanes
template <class T>
KL_INLINE void turn(const T* from, int64_t from_pitch, T* to, int64_t to_pitch) {
  using Lane = typename Vector<T>::type;
  constexpr int L = Vector<T>::lanes;
  Lane rows[L], cols[L];
#pragma GCC unroll 32
  for (int r = 0; r < L; ++r) rows[r] = *reinterpret_cast<const Lane*>(from + r * from_pitch);
  interleave<L, L>(rows, cols, std::make_index_sequence<L>{});
#pragma GCC unroll 32
  for (int r = 0; r < L; ++r) *reinterpret_cast<Lane*>(to + r * to_pitch) = cols[r];
}

// to[r][c] = from[r][c], rows of ``to`` APART apart
template <int64_t APART, class T, class From>
inline void pack(T* to, const Matrix<From>& from) {
  constexpr int64_t EDGE = Vector<T>::lanes;
  if (from.right == 1 && from.cols == APART) {
    // a panel's whole width; the next panel's part of the row lies behind it
    for (int64_t r = 0; r < from.rows; ++r) {
      const From* const row = from.data + r * from.down;
      __builtin_prefetch(row + APART, 0, 2);
#pragma GCC unroll 1
      for (int64_t c = 0; c < APART; c += EDGE)
#pragma omp simd
        for (int64_t l = 0; l < EDGE; ++l) to[r * APART + c + l] = T(row[c + l]);
    }
    return;
  }
  if (from.right == 1 && from.cols < EDGE) {
    for (int64_t r = 0; r < from.rows; ++r)
#pragma GCC unroll 1
      for (int64_t c = 0; c < from.cols; ++c) to[r * APART + c] = T(from.data[r * from.down + c]);
    return;
  }
  if (from.right == 1) {
    for (int64_t r = 0; r < from.rows; ++r)
#pragma omp simd
      for (int64_t c = 0; c < from.cols; ++c) to[r * APART + c] = T(from.data[r * from.down + c]);
    return;
  }
  for (int64_t i = 0; i < from.rows; i += EDGE)
    for (int64_t j = 0; j < from.cols; j += EDGE) {
      const From* corner = from.data + i * from.down + j * from.right;
      const int64_t rows = imin(EDGE, from.rows - i), cols = imin(EDGE, from.cols - j);
      if constexpr (std::is_same_v<T, From>) {
        if (from.down == 1 && rows == EDGE && cols == EDGE) {
          turn(corner, from.right, to + i * APART + j, APART);
          continue;
        }
      }
      for (int64_t c = 0; c < cols; ++c)
        for (int64_t r = 0; r < rows; ++r)
          to[(i + r) * APART + j + c] = T(corner[r * from.down + c * from.right]);
    }
}

//: columns of a and rows of b that one step of a product takes: a panel of b stays in L1
constexpr int64_t DEEP = 256;
//: elements from one packed row of a to the next: a line more, so that rows do not fall on the same lines of the cache
constexpr int64_t PITCH = DEEP + 16;

// Where a block of a product finds its factors: ``at(p)`` is what step p of the sum reads, of a the elements DOWN apart,
// of b as many vectors as the block is wide. Rows are a packed as above; a Panel holds WIDE columns of b side by side.
template <class T>
struct Rows {
  static constexpr int64_t DOWN = PITCH;
  const T* data;
  KL_INLINE const T* at(int64_t p) const { return data + p; }
  KL_INLINE Rows below(int64_t i) const { return {data + i * DOWN}; }
};
template <int WIDE, class T>
struct Panel {
  const T* data;
  KL_INLINE const T* at(int64_t p) const { return data + p * WIDE; }
};

// c[R][V vectors] += a[R][k] b[k][V vectors], all of it summed in registers; c is asked for while they sum. Never inlined:
// each is wanted in two places of every product, and they are most of what a product takes to compile.
template <int R, int V, class T, class A, class B>
KL_APART void block(T* c, int64_t pitch, A a, B b, int64_t k) {
  using Lane = typename Vector<T>::type;
  constexpr int L = Vector<T>::lanes, LINE = 64 / int(sizeof(T));
  Lane sum[R][V];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int l = 0; l < V * L; l += LINE) __builtin_prefetch(c + r * pitch + l, 1, 3);
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sum[r][v] = Lane{};
  }
#pragma GCC unroll 1
  for (int64_t p = 0; p < k; ++p) {
    const T *const left = a.at(p), *const row = b.at(p);
    Lane right[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) right[v] = *reinterpret_cast<const Lane*>(row + v * L);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sum[r][v] += left[r * A::DOWN] * right[v];
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) *reinterpret_cast<Lane*>(c + r * pitch + v * L) += sum[r][v];
}
// A block of ``rows`` <= R rows
template <int R, int V, class T, class A, class B>
KL_INLINE void block_of(int64_t rows, T* c, int64_t pitch, const A& a, const B& b, int64_t k) {
  if constexpr (R > 1) {
    if (rows < R) return block_of<R - 1, V>(rows, c, pitch, a, b, k);
  }
  block<R, V>(c, pitch, a, b, k);
}
//: rows of a block that is V vectors wide, so that its sums fill the registers: VECTORS or one
template <int V>
constexpr int rows_of() { return V == VECTORS ? ROWS : 12; }

// All m rows of c against V vectors of columns of b. What is left for the last two blocks is shared out evenly: a block
// of few rows waits for its own sums.
template <int V, class T, class A, class B>
inline void block_rows(T* c, int64_t pitch, const A& a, const B& b, int64_t m, int64_t k) {
  constexpr int MOST = rows_of<V>();
  int64_t i = 0;
  for (; m - i == MOST || m - i >= 2 * MOST; i += MOST) block<MOST, V>(c + i * pitch, pitch, a.below(i), b, k);
  for (const int64_t half = (m - i + 1) / 2; i < m;) {
    const int64_t rows = m - i > MOST ? half : m - i;
    block_of<MOST, V>(rows, c + i * pitch, pitch, a.below(i), b, k);
    i += rows;
  }
}

// ``f(V, first column)`` for panels of V vectors, which cover ``vectors``: VECTORS while there are as many, then one
template <class T, class F>
KL_INLINE void panels(int64_t vectors, F&& f) {
  constexpr int L = Vector<T>::lanes;
  int64_t at = 0;
  for (; vectors - at >= VECTORS; at += VECTORS) f(std::integral_constant<int, VECTORS>{}, at * L);
  for (; at < vectors; ++at) f(std::integral_constant<int, 1>{}, at * L);
}

// How m rows are shared out to blocks of at most ROWS: ``f(first row, rows)``. The last two are about as high as each
// other: a block of few rows waits for its own sums.
template <class F>
KL_INLINE void blocks_of(int64_t m, F&& f) {
  int64_t i = 0;
  for (; m - i == ROWS || m - i >= 2 * ROWS; i += ROWS) f(i, int64_t(ROWS));
  for (const int64_t half = (m - i + 1) / 2; i < m;) {
    const int64_t rows = m - i > ROWS ? half : m - i;
    f(i, rows);
    i += rows;
  }
}
// A block's rows of a, packed column by column: what a step of the sum reads lies side by side
template <class T>
struct Upright {
  static constexpr int64_t DOWN = 1;
  const T* data;
  KL_INLINE const T* at(int64_t p) const { return data + p * ROWS; }
};
// Rows of b where they lie in memory, those of later steps asked for: few, as rows a page apart share lines of the cache
template <class T>
struct Afar {
  static constexpr int64_t AHEAD = 2;
  const T* data;
  int64_t pitch;
  KL_INLINE const T* at(int64_t p) const {
    __builtin_prefetch(data + (p + AHEAD) * pitch, 0, 3);
    return data + p * pitch;
  }
};

//: elements from one packed block of a to the next, of ``k`` steps: whole vectors are stored, which run over its end
template <class T>
KL_INLINE constexpr int64_t upright(int64_t k) {
  constexpr int L = Vector<T>::lanes;
  return k * ROWS + (ROWS + L - 1) / L * L;
}

// The blocks of a, one behind the other. What a vector runs over into within a block is written next.
template <class T, class A>
inline void pack_upright(T* to, const Matrix<A>& a) {
  using Lane = typename Vector<T>::type;
  constexpr int L = Vector<T>::lanes, PARTS = (ROWS + L - 1) / L;
  const int64_t apart = upright<T>(a.cols);
  if constexpr (!std::is_same_v<T, A>) {
    alignas(64) T lines[ROWS * PITCH];
    blocks_of(a.rows, [&](int64_t first, int64_t rows) {
      pack<PITCH>(lines, matrix(a.data + first * a.down, a.down, a.right, rows, a.cols));
      pack_upright(to, matrix<T>(lines, PITCH, 1, rows, a.cols));
      to += apart;
    });
  } else {
    blocks_of(a.rows, [&](int64_t first, int64_t rows) {
      const T* const from = a.data + first * a.down;
      int64_t p = 0;
      for (; a.right == 1 && p + L <= a.cols; p += L) {
        Lane lines[PARTS][L], turned[PARTS][L];
#pragma GCC unroll 4
        for (int n = 0; n < PARTS; ++n) {
#pragma GCC unroll 32
          for (int r = 0; r < L; ++r)
            lines[n][r] = *reinterpret_cast<const Lane*>(from + imin(n * L + r, rows - 1) * a.down + p);
          interleave<L, L>(lines[n], turned[n], std::make_index_sequence<L>{});
        }
#pragma GCC unroll 32
        for (int l = 0; l < L; ++l)
#pragma GCC unroll 4
          for (int n = 0; n < PARTS; ++n) *reinterpret_cast<Lane*>(to + (p + l) * ROWS + n * L) = turned[n][l];
      }
      for (; a.down == 1 && first + PARTS * L <= a.rows && p < a.cols; ++p)
#pragma GCC unroll 4
        for (int n = 0; n < PARTS; ++n)
          *reinterpret_cast<Lane*>(to + p * ROWS + n * L) = *reinterpret_cast<const Lane*>(from + p * a.right + n * L);
      for (; p < a.cols; ++p)
        for (int64_t r = 0; r < rows; ++r) to[p * ROWS + r] = from[r * a.down + p * a.right];
      to += apart;
    });
  }
}

//: rows of a that are packed at a time, so that they stay in half of an L2, and columns of b
constexpr int64_t HIGH = 252, BROAD = 2048;
//: elements from one packed panel of b to the next: a line more, for a row's parts are written one after the other
template <class T>
constexpr int64_t PANEL = DEEP * VECTORS * Vector<T>::lanes + 64 / int64_t(sizeof(T));

// b in panels of VECTORS vectors, the last one filled up with zeros, and one vector wide if that is enough
template <class T, class B>
inline void pack_panels(T* to, const Matrix<B>& b) {
  using Lane = typename Vector<T>::type;
  constexpr int64_t L = Vector<T>::lanes, WIDE = VECTORS * L, AHEAD = 1;
  const int64_t whole = b.cols / WIDE * WIDE, left = b.cols - whole;
  if (std::is_same_v<T, B> && b.right == 1) {
    for (int64_t p = 0; p < b.rows; ++p) {
      const B *const row = b.data + p * b.down, *const later = row + imin(AHEAD, b.rows - 1 - p) * b.down;
      T* panel = to + p * WIDE;
      for (int64_t j = 0; j < whole; j += WIDE, panel += PANEL<T>) {
        __builtin_prefetch(later + j, 0, 3);
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; ++v)
          *reinterpret_cast<Lane*>(panel + v * L) = *reinterpret_cast<const Lane*>(row + j + v * L);
      }
    }
  } else {
    for (int64_t j = 0; j < whole; j += WIDE)
      pack<WIDE>(to + j / WIDE * PANEL<T>, matrix(b.data + j * b.right, b.down, b.right, b.rows, WIDE));
  }
  if (left == 0) return;
  const auto fill = [&](auto wide) {
    constexpr int64_t W = decltype(wide)::value;
    T* const panel = to + whole / WIDE * PANEL<T>;
    for (int64_t p = 0; p < b.rows; ++p)
      for (int64_t l = left; l < W; ++l) panel[p * W + l] = T(0);
    pack<W>(panel, matrix(b.data + whole * b.right, b.down, b.right, b.rows, left));
  };
  if (left > L) fill(std::integral_constant<int64_t, WIDE>{});
  else fill(std::integral_constant<int64_t, L>{});
}

// All packed rows of a against V vectors of columns of b; past the last of ``cols`` columns a copy of c takes the results
template <int V, class T, class B>
inline void gemm_panel(T* c, int64_t pitch, const T* a, const B& b, int64_t m, int64_t k, int64_t cols) {
  constexpr int64_t WIDE = V * Vector<T>::lanes;
  blocks_of(m, [&](int64_t first, int64_t rows) {
    T* const to = c + first * pitch;
    if (cols >= WIDE) {
      block_of<ROWS, V>(rows, to, pitch, Upright<T>{a}, b, k);
    } else {
      alignas(64) T part[ROWS * WIDE];
      for (int64_t n = 0; n < rows * WIDE; ++n) part[n] = T(0);
      block_of<ROWS, V>(rows, part, WIDE, Upright<T>{a}, b, k);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t l = 0; l < cols; ++l) to[r * pitch + l] += part[r * WIDE + l];
    }
    a += upright<T>(k);
  });
}

// c += a b, rows of c ``pitch`` apart: what a step takes of b is packed once, then of a what stays in L2, and blocks of
// c are summed in registers. Few rows read b where it lies. What the operands lack of c's rows and columns is zero.
// Source: K. Goto, R. van de Geijn, "Anatomy of high-performance matrix multiplication", 2008.
template <class T, class A, class B>
inline void gemm(T* c, int64_t pitch, const Matrix<A>& a, const Matrix<B>& b) {
  const int64_t m = a.rows, n = b.cols, k = imin(a.cols, b.rows);
  if constexpr (std::is_floating_point_v<T>) {
    constexpr int64_t L = Vector<T>::lanes, WIDE = VECTORS * L;
    // blocks may be lower than ROWS: of the last two each
    T* const rows = scratch<T, -1>((imin(m, HIGH) / ROWS + 2) * upright<T>(DEEP));
    const bool few = std::is_same_v<T, B> && b.right == 1 && m <= 2 * ROWS;
    T* const columns = scratch<T, -6>((few ? 1 : (imin(n, BROAD) + WIDE - 1) / WIDE) * PANEL<T>);
    for (int64_t j = 0; j < n; j += BROAD)
      for (int64_t p = 0; p < k; p += DEEP) {
        const int64_t deep = imin(DEEP, k - p), broad = imin(BROAD, n - j);
        const B* const corner = b.data + p * b.down + j * b.right;
        const int64_t lying = few ? broad / WIDE * WIDE : 0;
        pack_panels(columns, matrix(corner + lying * b.right, b.down, b.right, deep, broad - lying));
        for (int64_t i = 0; i < m; i += HIGH) {
          const int64_t high = imin(HIGH, m - i);
          pack_upright(rows, matrix(a.data + i * a.down + p * a.right, a.down, a.right, high, deep));
          T* const to = c + i * pitch + j;
          if constexpr (std::is_same_v<T, B>)
            for (int64_t at = 0; at < lying; at += WIDE)
              gemm_panel<VECTORS>(to + at, pitch, rows, Afar<T>{corner + at, b.down}, high, deep, WIDE);
          for (int64_t at = lying; at < broad; at += WIDE) {
            const int64_t cols = imin(WIDE, broad - at);
            const T* const panel = columns + (at - lying) / WIDE * PANEL<T>;
            if (cols > L) gemm_panel<VECTORS>(to + at, pitch, rows, Panel<WIDE, T>{panel}, high, deep, cols);
            else gemm_panel<1>(to + at, pitch, rows, Panel<L, T>{panel}, high, deep, cols);
          }
        }
      }
  } else {
    for (int64_t i = 0; i < m; ++i)
      for (int64_t p = 0; p < k; ++p) {
        const T left = T(a.data[i * a.down + p * a.right]);
#pragma omp simd
        for (int64_t j = 0; j < n; ++j)
          c[i * pitch + j] = T(c[i * pitch + j] + left * T(b.data[p * b.down + j * b.right]));
      }
  }
}

// -- scans of tiles ------------------------------------------------------------------------------------------------

struct Add {
  template <class T>
  static constexpr T neutral() { return T(0); }
  template <class T>
  KL_INLINE T operator()(T a, T b) const { return T(a + b); }
};
struct Mul {
  template <class T>
  static constexpr T neutral() { return T(1); }
  template <class T>
  KL_INLINE T operator()(T a, T b) const { return T(a * b); }
};
struct Most {
  template <class T>
  static constexpr T neutral() { return -std::numeric_limits<T>::infinity(); }
  template <class T>
  KL_INLINE T operator()(T a, T b) const { return max(a, b); }
};
struct Least {
  template <class T>
  static constexpr T neutral() { return std::numeric_limits<T>::infinity(); }
  template <class T>
  KL_INLINE T operator()(T a, T b) const { return min(a, b); }
};

// In a step of width W every other group of W lanes joins the lane that ends the group before it (BACK: that starts the
// group behind it); log2(lanes) steps scan a vector, and each but the last ones stays within 16 bytes.
// Source: J. Sklansky, "Conditional-sum addition logic", 1960.
template <int W, int LANES, bool BACK>
constexpr int lane_before(int lane) {
  const bool joins = bool(lane & W) != BACK;
  const int start = lane & ~(2 * W - 1);
  return !joins ? LANES + lane : BACK ? start + W : start + W - 1;
}
template <int W, bool BACK, class V, size_t... I>
KL_INLINE V lanes_before(V v, V fill, std::index_sequence<I...>) {
  return __builtin_shufflevector(v, fill, lane_before<W, int(sizeof...(I)), BACK>(int(I))...);
}
template <int W, int LANES, class Op, bool BACK, class V>
KL_INLINE V scan_lanes(V v, V fill) {
  if constexpr (W >= LANES) {
    return v;
  } else {
    const V joined = Op{}(lanes_before<W, BACK>(v, fill, std::make_index_sequence<LANES>{}), v);
    return scan_lanes<W * 2, LANES, Op, BACK>(joined, fill);
  }
}
template <int LANE, class V, size_t... I>
KL_INLINE V all_lanes(V v, std::index_sequence<I...>) {
  return __builtin_shufflevector(v, v, ((void)I, LANE)...);
}
// A row, a vector at a time: each is scanned by itself, and what all before it come to joins its lanes. From vector to
// vector one operation has to wait for the last.
template <class Op, bool BACK, class T>
inline void scan_row(T* y, const T* x, int64_t count) {
  using Lane = typename Vector<T>::type;
  constexpr int L = Vector<T>::lanes;
  const Op op{};
  const Lane fill = Lane{} + op.template neutral<T>();
  Lane before = fill;
  int64_t t = 0;
  for (; t + L <= count; t += L) {
    const int64_t at = BACK ? count - L - t : t;
    const Lane scanned = scan_lanes<1, L, Op, BACK>(*reinterpret_cast<const Lane*>(x + at), fill);
    *reinterpret_cast<Lane*>(y + at) = op(before, scanned);
    before = op(before, all_lanes<BACK ? 0 : L - 1>(scanned, std::make_index_sequence<L>{}));
  }
  T state = before[0];
  for (; t < count; ++t) {
    const int64_t at = BACK ? count - 1 - t : t;
    y[at] = state = op(state, x[at]);
  }
}

// y[o][t][i] = y[o][t-1][i] op x[o][t][i]; BACK: y[o][t][i] = y[o][t+1][i] op x[o][t][i]
template <class Op, bool BACK, class T>
inline void scan(T* y, const T* x, int64_t outer, int64_t count, int64_t inner) {
  const Op op{};
  for (int64_t o = 0; o < outer; ++o, y += count * inner, x += count * inner) {
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
      if (inner == 1) {
        scan_row<Op, BACK>(y, x, count);
        continue;
      }
    }
    if (count == 0) continue;
    const int64_t first = (BACK ? count - 1 : 0) * inner, step = BACK ? -inner : inner;
    if (inner == 1) {
      T state = y[first] = x[first];
      for (int64_t t = 1, at = first + step; t < count; ++t, at += step) y[at] = state = op(state, x[at]);
      continue;
    }
    for (int64_t i = 0; i < inner; ++i) y[first + i] = x[first + i];
    for (int64_t t = 1, at = first + step; t < count; ++t, at += step)
#pragma omp simd
      for (int64_t i = 0; i < inner; ++i) y[at + i] = op(y[at - step + i], x[at + i]);
  }
}
// h[t] = a[t] h[t-1] + b[t], h before the first 0; BACK: h[t] = a[t] h[t+1] + b[t], h behind the last 0
template <bool BACK, class T>
inline void linear_scan(T* h, const T* a, const T* b, int64_t outer, int64_t count, int64_t inner) {
  for (int64_t o = 0; o < outer; ++o, h += count * inner, a += count * inner, b += count * inner) {
    if (count == 0) continue;
    const int64_t first = (BACK ? count - 1 : 0) * inner, step = BACK ? -inner : inner;
    for (int64_t i = 0; i < inner; ++i) h[first + i] = b[first + i];
    for (int64_t t = 1, at = first + step; t < count; ++t, at += step)
      for (int64_t i = 0; i < inner; ++i) h[at + i] = T(a[at + i] * h[at - step + i] + b[at + i]);
  }
}

// -- the call ------------------------------------------------------------------------------------------------------

// Arguments of a call through tvm-ffi's C ABI: addresses and sizes as integers, numbers as doubles.
struct Args {
  const TVMFFIAny* values;
  int32_t count;
  const TVMFFIAny& at(int n) const {
    if (n >= count)
      throw std::out_of_range("the kernel reads its argument " + std::to_string(n) + " (from 0) and is called with " +
                              std::to_string(count) + ": kernel.py and this file do not belong together");
    return values[n];
  }
  template <class T>
  T* pointer(int n) const { return reinterpret_cast<T*>(at(n).v_int64); }
  int64_t integer(int n) const { return at(n).v_int64; }
  double number(int n) const { return at(n).type_index == kTVMFFIFloat ? at(n).v_float64 : double(at(n).v_int64); }
};

}  // namespace kl

// Exports a function to Python under ``name``; its body sees ``args``.
#define KL_EXPORT(name)                                                                                            \
  static void name##_body(const kl::Args& args);                                                                   \
  extern "C" __attribute__((visibility("default"))) int __tvm_ffi_##name(void*, const TVMFFIAny* values,           \
                                                                         int32_t count, TVMFFIAny* result) {       \
    result->type_index = kTVMFFINone;                                                                              \
    result->v_int64 = 0;                                                                                           \
    try {                                                                                                          \
      name##_body(kl::Args{values, count});                                                                        \
    } catch (const std::exception& error) {                                                                        \
      TVMFFIErrorSetRaisedFromCStr("RuntimeError", error.what());                                                  \
      return -1;                                                                                                   \
    }                                                                                                              \
    return 0;                                                                                                      \
  }                                                                                                                \
  static void name##_body(const kl::Args& args)
