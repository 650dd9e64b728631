// SPDX-License-Identifier: Apache-2.0
#include "codec/token/char_class.h"

#include <array>
#include <cstddef>
#include <memory>

namespace weir::codec {
namespace {

constexpr uint32_t kCodePoints = 0x110000;

struct Run {
  uint32_t first;
  uint8_t classes;
};
constexpr Run kRuns[] = {
#include "codec/token/char_class_runs.inc"
};

// A flat table: 1.1 MB of address space, of which text touches a few pages.
const uint8_t* ClassTable() {
  static const std::unique_ptr<uint8_t[]> table = [] {
    auto bytes = std::make_unique<uint8_t[]>(kCodePoints);
    size_t run = 0;
    for (uint32_t code = 0; code < kCodePoints; ++code) {
      while (run + 1 < std::size(kRuns) && kRuns[run + 1].first <= code) ++run;
      bytes[code] = kRuns[run].classes;
    }
    return bytes;
  }();
  return table.get();
}

bool IsTail(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

}  // namespace

int Utf8SizeAt(const char* p, const char* end) {
  const auto lead = static_cast<uint8_t>(*p);
  const std::ptrdiff_t left = end - p;
  if (lead < 0x80) return 1;
  if (lead < 0xC2) return 0;
  if (lead < 0xE0) return left >= 2 && IsTail(p[1]) ? 2 : 0;
  if (lead < 0xF0) {
    if (left < 3 || !IsTail(p[1]) || !IsTail(p[2])) return 0;
    const auto second = static_cast<uint8_t>(p[1]);
    if (lead == 0xE0 && second < 0xA0) return 0;  // overlong
    if (lead == 0xED && second > 0x9F) return 0;  // surrogate
    return 3;
  }
  if (lead > 0xF4 || left < 4 || !IsTail(p[1]) || !IsTail(p[2]) || !IsTail(p[3])) return 0;
  const auto second = static_cast<uint8_t>(p[1]);
  if (lead == 0xF0 && second < 0x90) return 0;  // overlong
  if (lead == 0xF4 && second > 0x8F) return 0;  // past U+10FFFF
  return 4;
}

Char CharAt(const char* p, const char* end) {
  static const uint8_t* const table = ClassTable();
  const auto byte = [p](int i) { return static_cast<uint32_t>(static_cast<uint8_t>(p[i])); };
  Char c;
  switch (Utf8SizeAt(p, end)) {
    case 1:
      c.code = byte(0);
      break;
    case 2:
      c.size = 2;
      c.code = (byte(0) & 0x1F) << 6 | (byte(1) & 0x3F);
      break;
    case 3:
      c.size = 3;
      c.code = (byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
      break;
    case 4:
      c.size = 4;
      c.code = (byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 |
               (byte(3) & 0x3F);
      break;
    default:
      c.code = 0xFFFFFFFF;
      return c;
  }
  c.classes = table[c.code];
  return c;
}

}  // namespace weir::codec
