// SPDX-License-Identifier: Apache-2.0
//
// Views and little-endian loads. Debian's abseil has its own string_view; AbslView and StdView are
// the only bridge.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

#include "absl/strings/string_view.h"

namespace weir {

static_assert(std::endian::native == std::endian::little, "formats on disk and wire are little-endian");

inline absl::string_view AbslView(std::string_view view) { return {view.data(), view.size()}; }
inline std::string_view StdView(absl::string_view view) { return {view.data(), view.size()}; }

inline std::span<const std::byte> BytesOf(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// Reads a T at `from`, which need not be aligned.
template <class T>
T LoadAs(const void* from) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <class T>
void StoreAs(void* to, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::memcpy(to, &value, sizeof(T));
}

}  // namespace weir
