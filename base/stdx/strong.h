// SPDX-License-Identifier: Apache-2.0
//
// Strong<Tag, T>: an integer that does not mix with other integers. Values compare, hash and print,
// nothing else; arithmetic is written out where it means something. Trivially copyable.
#pragma once

#include <compare>
#include <cstddef>
#include <ostream>
#include <utility>

namespace weir {

template <class Tag, class T>
struct Strong {
  T value{};

  constexpr Strong() = default;
  constexpr explicit Strong(T v) : value(v) {}

  constexpr auto operator<=>(const Strong&) const = default;

  template <class H>
  friend H AbslHashValue(H state, const Strong& strong) {
    return H::combine(std::move(state), strong.value);
  }
  friend std::ostream& operator<<(std::ostream& out, const Strong& strong) {
    return out << +strong.value;
  }
};

}  // namespace weir
