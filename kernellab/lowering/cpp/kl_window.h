// Products whose operands are gathered over a nest of loops, one of them from windows of a tensor.
#pragma once
#include "kl_tile.h"

namespace kl {

// One dimension of a window: ``count`` places ``step`` apart from ``start``, in a dimension of ``size`` elements that
// lie ``stride`` apart in memory.
struct Along {
  int64_t start, count, step, size, stride;
  // places before the first that is inside, and before the first that is past the end
  KL_INLINE int64_t first() const { return imin(count, start >= 0 ? 0 : (-start + step - 1) / step); }
  KL_INLINE int64_t last() const {
    return imax(first(), imin(count, size <= start ? 0 : (size - start + step - 1) / step));
  }
};

// depth x rows x columns elements of a tensor; what lies outside is zero
template <class T>
struct Window {
  const T* data;
  bool inside;
  Along depth, rows, columns;
};
template <class T>
KL_INLINE Window<T> window(const T* data, bool inside, Along depth, Along rows, Along columns) {
  return {data, inside, depth, rows, columns};
}

// c[R][V vectors] += a[R][k] b[k][V vectors], rows of b ``b_pitch`` apart
template <int R, int V, class T>
KL_INLINE void gathered_block(T* c, int64_t c_pitch, const T* a, const T* b, int64_t b_pitch, int64_t k) {
  using Lane = typename Vector<T>::type;
  constexpr int L = Vector<T>::lanes;
  Lane sum[R][V];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sum[r][v] = *reinterpret_cast<const Lane*>(c + r * c_pitch + v * L);
#pragma GCC unroll 1
  for (int64_t p = 0; p < k; ++p) {
    Lane right[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) right[v] = *reinterpret_cast<const Lane*>(b + p * b_pitch + v * L);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sum[r][v] += a[r * DEEP + p] * right[v];
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) *reinterpret_cast<Lane*>(c + r * c_pitch + v * L) = sum[r][v];
}
template <int V, class T>
inline void gathered_rows(T* c, int64_t c_pitch, const T* a, const T* b, int64_t b_pitch, int64_t m, int64_t k) {
  int64_t i = 0;
  for (; i + ROWS <= m; i += ROWS) gathered_block<ROWS, V>(c + i * c_pitch, c_pitch, a + i * DEEP, b, b_pitch, k);
  if (ROWS > 8 && i + 8 <= m) gathered_block<8, V>(c + i * c_pitch, c_pitch, a + i * DEEP, b, b_pitch, k), i += 8;
  if (i + 4 <= m) gathered_block<4, V>(c + i * c_pitch, c_pitch, a + i * DEEP, b, b_pitch, k), i += 4;
  if (i + 2 <= m) gathered_block<2, V>(c + i * c_pitch, c_pitch, a + i * DEEP, b, b_pitch, k), i += 2;
  if (i < m) gathered_block<1, V>(c + i * c_pitch, c_pitch, a + i * DEEP, b, b_pitch, k);
}

// Sums a @ b into an m x n accumulator over many calls of ``add``; ``flush`` multiplies what is left.
template <class T>
class Gathered {
 public:
  static constexpr int WIDE = VECTORS * Vector<T>::lanes;

  Gathered(T* c, int64_t m, int64_t n)
      : c_(c), m_(m), n_(n),
        // one vector more than the columns need, so that rows do not fall on the same lines of the cache
        pitch_((n + WIDE - 1) / WIDE * WIDE + WIDE), rows_(0), k_(0),
        a_(scratch<T, -2>(m * DEEP)), b_(scratch<T, -3>(DEEP * pitch_)) {}

  template <class A>
  void add(const Matrix<A>& a, const Window<T>& b) {
    if (!b.inside) return;
    const int64_t first = b.columns.first(), last = b.columns.last();
    const int64_t deep = imin(a.cols, b.depth.last());
    int64_t p = b.depth.first();
    rows_ = a.rows;
    while (p < deep) {
      const int64_t count = imin(DEEP - k_, deep - p);
      pack<DEEP>(a_ + k_, matrix(a.data + p * a.right, a.down, a.right, a.rows, count));
      for (int64_t q = 0; q < count; ++q) {
        const T* plane = b.data + (b.depth.start + (p + q) * b.depth.step) * b.depth.stride;
        T* to = b_ + (k_ + q) * pitch_;
        for (int64_t h = 0; h < b.rows.count; ++h, to += b.columns.count) {
          const int64_t row = b.rows.start + h * b.rows.step;
          if (row < 0 || row >= b.rows.size) {
            for (int64_t w = 0; w < b.columns.count; ++w) to[w] = T(0);
            continue;
          }
          copy_row(to, plane + row * b.rows.stride + b.columns.start * b.columns.stride, b.columns, first, last);
        }
      }
      k_ += count;
      p += count;
      if (k_ == DEEP) flush();
    }
  }

  void flush() {
    if (k_ == 0) return;
    constexpr int L = Vector<T>::lanes;
    int64_t j = 0;
    for (; j + WIDE <= n_; j += WIDE) gathered_rows<VECTORS>(c_ + j, n_, a_, b_ + j, pitch_, rows_, k_);
    for (; j + L <= n_; j += L) gathered_rows<1>(c_ + j, n_, a_, b_ + j, pitch_, rows_, k_);
    if (j < n_) {
      alignas(64) T part[ROWS * L];
      for (int64_t i = 0; i < rows_; i += ROWS) {
        const int64_t rows = imin(ROWS, rows_ - i);
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t l = 0; l < L; ++l) part[r * L + l] = j + l < n_ ? c_[(i + r) * n_ + j + l] : T(0);
        gathered_rows<1>(part, L, a_ + i * DEEP, b_ + j, pitch_, rows, k_);
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t l = 0; j + l < n_; ++l) c_[(i + r) * n_ + j + l] = part[r * L + l];
      }
    }
    k_ = 0;
  }

 private:
  static KL_INLINE void copy_row(T* to, const T* from, const Along& along, int64_t first, int64_t last) {
    const int64_t step = along.step * along.stride;
    for (int64_t w = 0; w < first; ++w) to[w] = T(0);
    if (step == 1) {
#pragma omp simd
      for (int64_t w = first; w < last; ++w) to[w] = from[w];
    } else if (step == 2) {
#pragma omp simd
      for (int64_t w = first; w < last; ++w) to[w] = from[2 * w];
    } else {
      for (int64_t w = first; w < last; ++w) to[w] = from[w * step];
    }
    for (int64_t w = last; w < along.count; ++w) to[w] = T(0);
  }

  T* c_;
  int64_t m_, n_, pitch_, rows_, k_;
  T *a_, *b_;
};

}  // namespace kl
