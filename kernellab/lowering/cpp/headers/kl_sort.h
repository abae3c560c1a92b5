// Rows put in order, or the first K of that order: stable, NaN greater than every number, -0 equal to 0.
#pragma once
#include <algorithm>
#include <utility>

#include "kl_tile.h"

namespace kl {

// An unsigned number that grows with x
KL_INLINE uint32_t order_key(float x) {
  if (x != x) return UINT32_MAX;
  const uint32_t raw = bits<uint32_t>(x == 0 ? 0.0f : x);
  return raw ^ (raw >> 31 ? UINT32_MAX : UINT32_C(1) << 31);
}
KL_INLINE uint64_t order_key(double x) {
  if (x != x) return UINT64_MAX;
  const uint64_t raw = bits<uint64_t>(x == 0 ? 0.0 : x);
  return raw ^ (raw >> 63 ? UINT64_MAX : UINT64_C(1) << 63);
}
KL_INLINE uint64_t order_key(int64_t x) { return uint64_t(x) ^ UINT64_C(1) << 63; }
KL_INLINE uint32_t order_key(int32_t x) { return uint32_t(x) ^ UINT32_C(1) << 31; }
KL_INLINE uint32_t order_key(int16_t x) { return order_key(int32_t(x)); }
KL_INLINE uint32_t order_key(int8_t x) { return order_key(int32_t(x)); }
KL_INLINE uint32_t order_key(uint8_t x) { return x; }
KL_INLINE uint32_t order_key(bool x) { return x; }

// Sorts by the upper half alone, keeping the order of equal ones: three passes over digits of 11 bits
inline void radix_sort(uint64_t* items, uint64_t* other, int64_t n) {
  uint32_t counts[3][2048] = {};
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t key = items[i] >> 32;
    ++counts[0][key & 2047], ++counts[1][key >> 11 & 2047], ++counts[2][key >> 22];
  }
  for (int pass = 0; pass < 3; ++pass) {
    uint32_t total = 0;
    for (uint32_t& count : counts[pass]) total += std::exchange(count, total);
    for (int64_t i = 0; i < n; ++i) other[counts[pass][items[i] >> (32 + 11 * pass) & 2047]++] = items[i];
    std::swap(items, other);
  }
  std::copy(items, items + n, other);
}

// A key with its place, in the order of both: one number where the key has 32 bits.
template <class Key>
using Item = std::conditional_t<sizeof(Key) == 4, uint64_t, std::pair<uint64_t, int64_t>>;

KL_INLINE uint64_t item(uint32_t key, int64_t at) { return uint64_t(key) << 32 | uint64_t(at); }
KL_INLINE std::pair<uint64_t, int64_t> item(uint64_t key, int64_t at) { return {key, at}; }
KL_INLINE uint32_t key_of(uint64_t item) { return uint32_t(item >> 32); }
KL_INLINE uint64_t key_of(const std::pair<uint64_t, int64_t>& item) { return item.first; }
KL_INLINE int64_t place_of(uint64_t item) { return int64_t(item & UINT32_MAX); }
KL_INLINE int64_t place_of(const std::pair<uint64_t, int64_t>& item) { return item.second; }

// The first k of n items in order, by key and then by place.
template <class Any>
inline void first_in_order(Any* items, int64_t n, int64_t k) {
  if (k < n) {
    std::nth_element(items, items + k, items + n);
    std::sort(items, items + k);
  } else if (n < 512 || !std::is_same_v<Any, uint64_t>) {
    std::sort(items, items + n);
  } else if constexpr (std::is_same_v<Any, uint64_t>) {
    radix_sort(items, scratch<uint64_t, -7>(n), n);
  }
}

// Puts what may be among the first k of a row into ``items``, which has room for 2 k, and says how many they are. Once
// 2 k are there, what does not precede the k-th of them is out of the running; of a block that has nothing else, one
// comparison of vectors is all that is seen. Items come in the order of their places, so that keys alone decide.
template <class T, bool DOWN, class Any>
inline int64_t candidates(Any* items, const T* x, int64_t n, int64_t k, int64_t stride) {
  using Key = decltype(order_key(x[0]));
  constexpr int64_t BLOCK = 64;
  alignas(64) Key keys[BLOCK];
  Key limit = 0;
  int64_t count = 0;
  bool limited = false;
  for (int64_t from = 0; from < n; from += BLOCK) {
    const int64_t some = imin(BLOCK, n - from);
    uint32_t precedes = 0;
    if (some == BLOCK && stride == 1) {
#pragma omp simd reduction(|:precedes)
      for (int64_t i = 0; i < BLOCK; ++i) {
        const Key key = order_key(x[from + i]);
        keys[i] = DOWN ? Key(~key) : key;
        precedes |= uint32_t(keys[i] < limit);
      }
    } else {
      for (int64_t i = 0; i < some; ++i) {
        const Key key = order_key(x[(from + i) * stride]);
        keys[i] = DOWN ? Key(~key) : key;
        precedes |= uint32_t(keys[i] < limit);
      }
    }
    if (limited && !precedes) continue;
    for (int64_t i = 0; i < some; ++i) {
      if (limited && keys[i] >= limit) continue;
      items[count++] = item(keys[i], from + i);
      if (count < 2 * k) continue;
      std::nth_element(items, items + k - 1, items + count);
      limit = key_of(items[k - 1]), count = k, limited = true;
    }
  }
  return count;
}

//: first places, and elements of a row, up to which a pass over the row for each place is the fastest
constexpr int64_t FEW_PLACES = 4, SHORT_ROW = 2048;

KL_INLINE uint64_t least_of(const uint64_t* items, int64_t n) {
  constexpr int W = 32;
  uint64_t least[W];
#pragma omp simd
  for (int l = 0; l < W; ++l) least[l] = UINT64_MAX;
  int64_t i = 0;
  for (; i + W <= n; i += W)
#pragma omp simd
    for (int l = 0; l < W; ++l) least[l] = items[i + l] < least[l] ? items[i + l] : least[l];
  for (; i < n; ++i) least[0] = items[i] < least[0] ? items[i] : least[0];
#pragma GCC unroll 5
  for (int half = W / 2; half > 0; half /= 2)
#pragma omp simd
    for (int l = 0; l < half; ++l) least[l] = least[l + half] < least[l] ? least[l + half] : least[l];
  return least[0];
}

// The first k of a short row: the least item, k times. An item that was found gives way to one that is never least.
template <class T, bool DOWN>
inline void first_few(T* values, int64_t* order, const T* x, int64_t n, int64_t k, uint64_t* items) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t key = order_key(x[i]);
    items[i] = item(DOWN ? ~key : key, i);
  }
  for (int64_t place = 0; place < k; ++place) {
    const int64_t at = place_of(least_of(items, n));
    values[place] = x[at], order[place] = at, items[at] = UINT64_MAX;
  }
}

template <class T, bool DOWN>
inline void row_in_order(T* values, int64_t* order, const T* x, int64_t n, int64_t k, int64_t stride) {
  if (k < 1) return;
  using Key = decltype(order_key(x[0]));
  Item<Key>* const items = scratch<Item<Key>, -8>(n);
  if constexpr (sizeof(Key) == 4)
    if (stride == 1 && k <= FEW_PLACES && n <= SHORT_ROW) return first_few<T, DOWN>(values, order, x, n, k, items);
  int64_t count = n;
  if (4 * k < n) {
    count = candidates<T, DOWN>(items, x, n, k, stride);
  } else {
    for (int64_t i = 0; i < n; ++i) {
      const Key key = order_key(x[i * stride]);
      items[i] = item(DOWN ? Key(~key) : key, i);
    }
  }
  first_in_order(items, count, k);
  for (int64_t i = 0; i < k; ++i) {
    const int64_t at = place_of(items[i]);
    values[i * stride] = x[at * stride], order[i * stride] = at;
  }
}

// Along the middle dimension of outer x n x inner: the first k, and where they were
template <bool DOWN, class T>
inline void in_order(T* values, int64_t* order, const T* x, int64_t outer, int64_t n, int64_t inner, int64_t k) {
  for (int64_t row = 0; row < outer; ++row)
    for (int64_t i = 0; i < inner; ++i)
      row_in_order<T, DOWN>(values + row * k * inner + i, order + row * k * inner + i, x + row * n * inner + i, n, k, inner);
}

}  // namespace kl
