// Products whose operands are gathered over a nest of loops, one of them from windows of a tensor.
#pragma once
#include <atomic>
#include <vector>

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
      for (int v = 0; v < V; ++v) sum[r][v] += a[r * PITCH + p] * right[v];
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) *reinterpret_cast<Lane*>(c + r * c_pitch + v * L) = sum[r][v];
}
template <int V, class T>
inline void gathered_rows(T* c, int64_t c_pitch, const T* a, const T* b, int64_t b_pitch, int64_t m, int64_t k) {
  int64_t i = 0;
  for (; i + ROWS <= m; i += ROWS) gathered_block<ROWS, V>(c + i * c_pitch, c_pitch, a + i * PITCH, b, b_pitch, k);
  if (ROWS > 8 && i + 8 <= m) gathered_block<8, V>(c + i * c_pitch, c_pitch, a + i * PITCH, b, b_pitch, k), i += 8;
  if (i + 4 <= m) gathered_block<4, V>(c + i * c_pitch, c_pitch, a + i * PITCH, b, b_pitch, k), i += 4;
  if (i + 2 <= m) gathered_block<2, V>(c + i * c_pitch, c_pitch, a + i * PITCH, b, b_pitch, k), i += 2;
  if (i < m) gathered_block<1, V>(c + i * c_pitch, c_pitch, a + i * PITCH, b, b_pitch, k);
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
        a_(scratch<T, -2>(m * PITCH)), b_(scratch<T, -3>(DEEP * pitch_)) {}

  template <class A>
  void add(const Matrix<A>& a, const Window<T>& b) {
    if (!b.inside) return;
    const int64_t first = b.columns.first(), last = b.columns.last();
    const int64_t deep = imin(a.cols, b.depth.last());
    int64_t p = b.depth.first();
    rows_ = a.rows;
    while (p < deep) {
      const int64_t count = imin(DEEP - k_, deep - p);
      pack<PITCH>(a_ + k_, matrix(a.data + p * a.right, a.down, a.right, a.rows, count));
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
        gathered_rows<1>(part, L, a_ + i * PITCH, b_ + j, pitch_, rows, k_);
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

// One dimension of a tensor of ``size``: coordinates ``low`` .. ``low + count - 1`` are held.
struct Held {
  int64_t low, count, size;
};

// c[R][V vectors] += a[R][k] b[off[k]][V vectors]
template <int R, int V, class T>
KL_INLINE void slab_block(T* c, int64_t c_pitch, const T* a, const T* b, const int64_t* off, int64_t k) {
  using Lane = typename Vector<T>::type;
  constexpr int L = Vector<T>::lanes;
  Lane sum[R][V];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sum[r][v] = *reinterpret_cast<const Lane*>(c + r * c_pitch + v * L);
#pragma GCC unroll 1
  for (int64_t p = 0; p < k; ++p) {
    const T* const row = b + off[p];
    Lane right[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) right[v] = *reinterpret_cast<const Lane*>(row + v * L);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sum[r][v] += a[r * PITCH + p] * right[v];
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) *reinterpret_cast<Lane*>(c + r * c_pitch + v * L) = sum[r][v];
}
template <int V, class T>
inline void slab_rows(T* c, int64_t c_pitch, const T* a, const T* b, const int64_t* off, int64_t m, int64_t k) {
  int64_t i = 0;
  for (; i + ROWS <= m; i += ROWS) slab_block<ROWS, V>(c + i * c_pitch, c_pitch, a + i * PITCH, b, off, k);
  if (ROWS > 8 && i + 8 <= m) slab_block<8, V>(c + i * c_pitch, c_pitch, a + i * PITCH, b, off, k), i += 8;
  if (i + 4 <= m) slab_block<4, V>(c + i * c_pitch, c_pitch, a + i * PITCH, b, off, k), i += 4;
  if (i + 2 <= m) slab_block<2, V>(c + i * c_pitch, c_pitch, a + i * PITCH, b, off, k), i += 2;
  if (i < m) slab_block<1, V>(c + i * c_pitch, c_pitch, a + i * PITCH, b, off, k);
}

// Rows of a, packed once for all the boxes that one thread multiplies in one launch: most have the same factors.
template <class T>
struct Kept {
  static constexpr int64_t MOST = 1 << 18;
  struct Part {
    const void* data;
    int64_t down, right, rows, cols;
  };
  int64_t launch = 0, height = 0;
  const T* packed = nullptr;
  std::vector<Part> parts;
  void start(int64_t now, int64_t m, const T* at) {
    if (launch != now || height != m || packed != at) parts.clear();
    launch = now, height = m, packed = at;
  }
  static Kept& mine() {
    static thread_local Kept kept;
    return kept;
  }
  // Is the n-th part that one already? Then it lies packed; else it and those behind it are to be packed anew.
  template <class A>
  bool has(size_t n, const Matrix<A>& a) {
    if (n < parts.size()) {
      const Part& p = parts[n];
      if (p.data == a.data && p.down == a.down && p.right == a.right && p.rows == a.rows && p.cols == a.cols) return true;
      parts.resize(n);
    }
    parts.push_back({a.data, a.down, a.right, a.rows, a.cols});
    return false;
  }
};
// A number that no launch before had: what was kept then may have changed since.
inline int64_t next_launch() {
  static std::atomic<int64_t> count{0};
  return ++count;
}

// Like Gathered, with a box of a D-dimensional tensor copied once, zero outside: each product finds its operand there.
// Dimension DEPTH is summed over; ROWS_AT (-1: none) and the last one are the positions. Positions are summed in runs of
// whole vectors beside ``c``: one run a row, or, where that takes fewer vectors, one run over all rows with what lies
// between them.
template <class T, int D, int DEPTH, int ROWS_AT>
class Slab {
 public:
  static constexpr int L = Vector<T>::lanes, WIDE = VECTORS * L;

  // ``deep``: the length of the whole sum, 0 where the factors are to be packed each time
  Slab(int64_t launch, int64_t deep, T* c, int64_t m, int64_t rows, int64_t row_step, int64_t columns, const T* data,
       const Held (&held)[D])
      : kept_(Kept<T>::mine()), parts_(0), c_(c), m_(m), rows_(rows), columns_(columns), k_(0), used_(0) {
    keeps_ = deep > 0 && (deep + DEEP - 1) / DEEP * m * PITCH <= Kept<T>::MOST;
    a_ = scratch<T, -5>((keeps_ ? (deep + DEEP - 1) / DEEP : 1) * m * PITCH);
    kept_.start(launch, m, a_);
    constexpr int64_t LINE = 64 / int64_t(sizeof(T));
    const auto whole = [](int64_t n, int64_t of) { return (n + of - 1) / of * of; };
    const int64_t between = held[D - 1].count, all = (rows - 1) * between + columns;
    const bool flat = ROWS_AT == D - 2 && row_step == 1 && whole(all, L) < rows * whole(columns, L);
    int64_t pitch = 1, stride = 1, strides[D];
    for (int d = D - 1; d >= 0; --d) {
      low_[d] = held[d].low;
      pitch_[d] = pitch;
      strides[d] = stride;
      stride *= held[d].size;
      pitch *= held[d].count;
      if (d == D - 1 && !flat) pitch = whole(pitch, LINE);
      // an odd number of lines: neighbours along the sum do not fall on the same lines of the cache
      if (d == DEPTH + 1) pitch = (whole(pitch, LINE) / LINE | 1) * LINE;
    }
    // a vector may read past the end of the last row
    data_ = scratch<T, -3>(pitch + WIDE);
    copy<0>(data_, data, true, held, strides);
    runs_ = flat ? 1 : rows;
    run_ = whole(flat ? all : columns, L);
    step_ = ROWS_AT >= 0 ? row_step * pitch_[ROWS_AT >= 0 ? ROWS_AT : 0] : 0;
    row_ = flat ? between : run_;
    n_ = (whole(runs_ * run_, LINE) / LINE | 1) * LINE;
    sums_ = scratch<T, -4>(m * n_);
    for (int64_t i = 0; i < m * n_; ++i) sums_[i] = T(0);
  }

  // a @ what starts ``at`` these coordinates, DEPTH's ending at ``size``
  template <class A>
  void add(const Matrix<A>& a, const int64_t (&at)[D], int64_t size) {
    int64_t start = 0;
    for (int d = 0; d < D; ++d) start += (at[d] - low_[d]) * pitch_[d];
    const int64_t deep = imin(a.cols, size - at[DEPTH]);
    used_ = a.rows;
    for (int64_t p = 0; p < deep;) {
      const int64_t count = imin(DEEP - k_, deep - p);
      const auto part = matrix(a.data + p * a.right, a.down, a.right, a.rows, count);
      if (!keeps_ || !kept_.has(parts_++, part)) pack<PITCH>(a_ + k_, part);
      for (int64_t q = 0; q < count; ++q) off_[k_ + q] = start + (p + q) * pitch_[DEPTH];
      k_ += count;
      p += count;
      if (k_ == DEEP) multiply();
    }
  }

  void flush() {
    multiply();
    for (int64_t i = 0; i < used_; ++i)
      for (int64_t h = 0; h < rows_; ++h) {
        T* const c = c_ + (i * rows_ + h) * columns_;
        const T* const sums = sums_ + i * n_ + h * row_;
#pragma omp simd
        for (int64_t w = 0; w < columns_; ++w) c[w] += sums[w];
      }
  }

 private:
  void multiply() {
    if (k_ == 0) return;
    for (int64_t h = 0; h < runs_; ++h) {
      T* const c = sums_ + h * run_;
      const T* const b = data_ + h * step_;
      int64_t j = 0;
      for (; j + WIDE <= run_; j += WIDE) slab_rows<VECTORS>(c + j, n_, a_, b + j, off_, used_, k_);
      for (; j < run_; j += L) slab_rows<1>(c + j, n_, a_, b + j, off_, used_, k_);
    }
    if (keeps_) a_ += m_ * PITCH;
    k_ = 0;
  }

  template <int AT>
  void copy(T* to, const T* from, bool inside, const Held (&held)[D], const int64_t (&strides)[D]) {
    const Held& mine = held[AT];
    if constexpr (AT == D - 1) {
      const int64_t first = inside ? imin(mine.count, imax(0, -mine.low)) : mine.count;
      const int64_t last = inside ? imax(first, imin(mine.count, mine.size - mine.low)) : mine.count;
      for (int64_t w = 0; w < first; ++w) to[w] = T(0);
#pragma omp simd
      for (int64_t w = first; w < last; ++w) to[w] = from[mine.low + w];
      for (int64_t w = last; w < mine.count; ++w) to[w] = T(0);
    } else {
      for (int64_t n = 0; n < mine.count; ++n) {
        const int64_t at = mine.low + n;
        const bool within = inside && at >= 0 && at < mine.size;
        copy<AT + 1>(to + n * pitch_[AT], within ? from + at * strides[AT] : from, within, held, strides);
      }
    }
  }

  Kept<T>& kept_;
  size_t parts_;
  bool keeps_;
  T* c_;
  int64_t m_, rows_, columns_, k_, used_, runs_, run_, step_, row_, n_, low_[D], pitch_[D], off_[DEEP];
  T *a_, *data_, *sums_;
};

}  // namespace kl
