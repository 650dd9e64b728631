// SPDX-License-Identifier: Apache-2.0
//
// Integer arithmetic that says what it means. Pure, callable from any thread; all are total for
// non-negative arguments, and what cannot be exact is a failed check.
#pragma once

#include <cstdint>

#include "base/stdx/check.h"

namespace weir {

template <class T>
constexpr T CeilDiv(T value, T by) {
  return (value + by - 1) / by;
}

template <class T>
constexpr T AlignUp(T value, T to) {
  return CeilDiv(value, to) * to;
}

template <class T>
constexpr T AlignDown(T value, T to) {
  return value / to * to;
}

// Division that must leave no remainder.
template <class T>
constexpr T ExactDiv(T value, T by) {
  WEIR_CHECK(by != 0 && value % by == 0);
  return value / by;
}

inline constexpr uint64_t kKiB = 1024;
inline constexpr uint64_t kMiB = 1024 * kKiB;
inline constexpr uint64_t kGiB = 1024 * kMiB;

}  // namespace weir
