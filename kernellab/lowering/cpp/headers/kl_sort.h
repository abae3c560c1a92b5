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

// The first k of n items in order, by key and then by place. A key of 32 bits and the place are one number.
inline void first_in_order(uint64_t* items, int64_t n, int64_t k) {
  if (k < n) {
    std::nth_element(items, items + k, items + n);
    std::sort(items, items + k);
  } else if (n < 512) {
    std::sort(items, items + n);
  } else {
    radix_sort(items, scratch<uint64_t, -7>(n), n);
  }
}

template <class T, bool DOWN>
inline void row_in_order(T* values, int64_t* order, const T* x, int64_t n, int64_t k, int64_t stride) {
  if (k < 1) return;
  using Key = decltype(order_key(x[0]));
  if constexpr (sizeof(Key) == 4) {
    uint64_t* const items = scratch<uint64_t, -8>(n);
    const auto packed = [&](int64_t i) {
      const uint32_t key = order_key(x[i * stride]);
      return uint64_t(DOWN ? ~key : key) << 32 | uint64_t(i);
    };
    int64_t count = 0;
    if (4 * k < n) {
      // once 2 k candidates are there, what comes behind the k-th of them is out of the running
      uint64_t limit = UINT64_MAX;
      for (int64_t i = 0; i < n; ++i) {
        const uint64_t item = packed(i);
        if (item >= limit) continue;
        items[count++] = item;
        if (count == 2 * k) {
          std::nth_element(items, items + k - 1, items + count);
          limit = items[k - 1];
          count = k;
        }
      }
    } else {
      for (int64_t i = 0; i < n; ++i) items[i] = packed(i);
      count = n;
    }
    first_in_order(items, count, k);
    for (int64_t i = 0; i < k; ++i) {
      const int64_t at = items[i] & UINT32_MAX;
      values[i * stride] = x[at * stride], order[i * stride] = at;
    }
  } else {
    using Item = std::pair<Key, int64_t>;
    Item* const items = scratch<Item, -9>(n);
    for (int64_t i = 0; i < n; ++i) {
      const Key key = order_key(x[i * stride]);
      items[i] = Item(DOWN ? Key(~key) : key, i);
    }
    if (k < n) std::nth_element(items, items + k, items + n);
    std::sort(items, items + k);
    for (int64_t i = 0; i < k; ++i) {
      values[i * stride] = x[items[i].second * stride], order[i * stride] = items[i].second;
    }
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
