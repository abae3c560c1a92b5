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

// Rows of b that lie ``pitch`` apart, and elements of an operand that lie where the offset of each step says.
template <class T>
struct Spaced {
  const T* data;
  int64_t pitch;
  KL_INLINE const T* at(int64_t p) const { return data + p * pitch; }
};
template <class T, int STEP>
struct Placed {
  static constexpr int64_t DOWN = STEP;
  const T* data;
  const int64_t* offset;
  KL_INLINE const T* at(int64_t p) const { return data + offset[p]; }
  KL_INLINE Placed below(int64_t i) const { return {data + i * DOWN, offset}; }
};

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
    panels<T>(n_ / L, [&](auto wide, int64_t at) {
      block_rows<decltype(wide)::value>(c_ + at, n_, Rows<T>{a_}, Spaced<T>{b_ + at, pitch_}, rows_, k_);
    });
    const int64_t whole = n_ / L * L, left = n_ - whole;
    if (left > 0) {
      constexpr int64_t HIGH = rows_of<1>();
      alignas(64) T part[HIGH * L];
      for (int64_t i = 0; i < rows_; i += HIGH) {
        const int64_t rows = imin(HIGH, rows_ - i);
        T* const c = c_ + i * n_ + whole;
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t l = 0; l < L; ++l) part[r * L + l] = l < left ? c[r * n_ + l] : T(0);
        block_rows<1>(part, L, Rows<T>{a_ + i * PITCH}, Spaced<T>{b_ + whole, pitch_}, rows, k_);
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t l = 0; l < left; ++l) c[r * n_ + l] = part[r * L + l];
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

// Rows of a, packed once for all the boxes that one thread multiplies in one launch: most have the same factors.
template <class T>
struct Kept {
  static constexpr int64_t MOST = 1 << 20;
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
// Dimension DEPTH is summed over; ROWS_AT (-1: none) and the last one, in steps of STEP, are the positions. The rows of
// ``a`` lie across the vectors, so that no position is computed in vain, and the elements of the box are read one by one,
// wherever they are.
template <class T, int D, int DEPTH, int ROWS_AT, int STEP = 1>
class Slab {
  static constexpr int ROW = ROWS_AT >= 0 ? ROWS_AT : 0;
  static constexpr int64_t NOWHERE = std::numeric_limits<int64_t>::min() / 2;
  // steps of the sum up to ``end`` whose first row has this coordinate
  struct Run {
    int64_t end, row;
  };

 public:
  static constexpr int L = Vector<T>::lanes, WIDE = VECTORS * L;

  // ``deep``: the length of the whole sum, 0 where the factors are to be packed each time
  Slab(int64_t launch, int64_t deep, T* c, int64_t m, int64_t rows, int64_t row_step, int64_t columns, const T* data,
       const Held (&held)[D])
      : kept_(Kept<T>::mine()), parts_(0), c_(c), rows_(rows), columns_(columns), n_(rows * columns), k_(0), used_(0),
        high_((m + L - 1) / L * L), row_step_(row_step), runs_(0) {
    const int64_t steps = (deep + DEEP - 1) / DEEP;
    keeps_ = deep > 0 && steps * high_ * DEEP <= Kept<T>::MOST;
    a_ = scratch<T, -5>((keeps_ ? steps : 1) * high_ * DEEP);
    kept_.start(launch, m, a_);
    constexpr int64_t LINE = 64 / int64_t(sizeof(T));
    int64_t pitch = 1, stride = 1, strides[D];
    for (int d = D - 1; d >= 0; --d) {
      low_[d] = held[d].low;
      size_[d] = held[d].size;
      pitch_[d] = pitch;
      strides[d] = stride;
      stride *= held[d].size;
      pitch *= held[d].count;
      // an odd number of lines: neighbours along the sum do not fall on the same lines of the cache
      if (d == DEPTH + 1) pitch = ((pitch + LINE - 1) / LINE | 1) * LINE;
    }
    data_ = scratch<T, -3>(pitch);
    copy<0>(data_, data, true, held, strides);
    step_ = ROWS_AT >= 0 ? row_step * pitch_[ROW] : 0;
    sums_ = scratch<T, -4>(high_ * n_);
    for (int64_t i = 0; i < high_ * n_; ++i) sums_[i] = T(0);
  }

  // a @ what starts ``at`` these coordinates, DEPTH's ending at ``size``
  template <class A>
  void add(const Matrix<A>& a, const int64_t (&at)[D], int64_t size) {
    int64_t start = 0;
    for (int d = 0; d < D; ++d) start += (at[d] - low_[d]) * pitch_[d];
    const int64_t deep = imin(a.cols, size - at[DEPTH]);
    bool inside = true;
    for (int d = 0; d < D - 1; ++d) inside &= d == DEPTH || d == ROWS_AT || within(at[d], size_[d]);
    const int64_t row = !inside ? NOWHERE : ROWS_AT >= 0 ? at[ROW] : 0;
    used_ = a.rows;
    for (int64_t p = 0; p < deep;) {
      const int64_t count = imin(DEEP - k_, deep - p);
      const auto part = matrix(a.data + p * a.right, a.down, a.right, a.rows, count);
      if (!keeps_ || !kept_.has(parts_++, part)) pack_across(part);
      if (runs_ > 0 && run_[runs_ - 1].row == row) run_[runs_ - 1].end += count;
      else run_[runs_++] = {k_ + count, row};
      for (int64_t q = 0; q < count; ++q) off_[k_ + q] = start + (p + q) * pitch_[DEPTH];
      k_ += count;
      p += count;
      if (k_ == DEEP) multiply();
    }
  }

  // what was summed, turned back
  void flush() {
    multiply();
    panels<T>((used_ + L - 1) / L, [&](auto wide, int64_t first) {
      constexpr int64_t W = decltype(wide)::value * L;
      alignas(64) T square[L * L];
      for (int64_t v = first; v < imin(first + W, used_); v += L) {
        const T* const from = sums_ + first * n_ + v - first;
        const int64_t rows = imin(L, used_ - v);
        for (int64_t n = 0; n < n_; n += L) {
          const int64_t count = imin(L, n_ - n);
          if (count == L) turn(from + n * W, W, square, L);
          else
            for (int64_t l = 0; l < count; ++l)
              for (int64_t r = 0; r < rows; ++r) square[r * L + l] = from[(n + l) * W + r];
          for (int64_t r = 0; r < rows; ++r) {
            T* const c = c_ + (v + r) * n_ + n;
            for (int64_t l = 0; l < count; ++l) c[l] += square[r * L + l];
          }
        }
      }
    });
  }

 private:
  // columns of the part become rows of panels
  template <class A>
  void pack_across(const Matrix<A>& part) {
    panels<T>((part.rows + L - 1) / L, [&](auto wide, int64_t first) {
      constexpr int64_t W = decltype(wide)::value * L;
      T* const to = a_ + first * DEEP + k_ * W;
      const int64_t rows = imin(W, part.rows - first);
      for (int64_t p = 0; rows < W && p < part.cols; ++p)
        for (int64_t l = rows; l < W; ++l) to[p * W + l] = T(0);
      pack<W>(to, matrix(part.data + first * part.down, part.right, part.down, part.cols, rows));
    });
  }

  // the first step at or behind ``p`` whose elements row ``h`` has, or has not: outside the tensor they are zero
  int64_t next(int64_t p, int64_t h, bool has) const {
    for (int64_t n = 0; n < runs_; ++n)
      if (run_[n].end > p) {
        const int64_t row = run_[n].row + h * row_step_;
        if (within(row, ROWS_AT >= 0 ? size_[ROW] : 1) == has) return p;
        p = run_[n].end;
      }
    return k_;
  }

  void multiply() {
    if (k_ == 0) return;
    panels<T>((used_ + L - 1) / L, [&](auto wide, int64_t first) {
      constexpr int V = decltype(wide)::value, W = V * L;
      for (int64_t h = 0; h < rows_; ++h)
        for (int64_t p = next(0, h, true), end; p < k_; p = next(end, h, true)) {
          end = next(p, h, false);
          block_rows<V>(sums_ + first * n_ + h * columns_ * W, W, Placed<T, STEP>{data_ + h * step_, off_ + p},
                        Panel<W, T>{a_ + first * DEEP + p * W}, columns_, end - p);
        }
    });
    if (keeps_) a_ += high_ * DEEP;
    k_ = runs_ = 0;
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
  int64_t rows_, columns_, n_, k_, used_, high_, step_, row_step_, runs_, low_[D], size_[D], pitch_[D], off_[DEEP];
  Run run_[DEEP];
  T *a_, *data_, *sums_;
};

}  // namespace kl
