// SPDX-License-Identifier: Apache-2.0
#include "codec/token/char_class.h"

#include <iterator>
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

// The runs say kWordChar or kMarkChar beside this one.
constexpr uint8_t kInCjkRange = 16;

uint8_t Exclusive(uint8_t classes) {
  if ((classes & kNumberChar) != 0) return kNumberChar;
  if ((classes & kInCjkRange) == 0) return classes;
  if ((classes & kWordChar) != 0) return kCjkWordChar;
  return (classes & kMarkChar) != 0 ? kCjkMarkChar : kCjkOtherChar;
}

// The byte at most three before `at` that could start a character holding the byte before `at`.
const char* LeadBefore(const char* begin, const char* at) {
  const char* p = at - 1;
  while (p > begin && at - p < 4 && IsTailByte(*p)) --p;
  return p;
}

}  // namespace

// A flat table: 1.1 MB of address space, of which text touches a few pages.
const uint8_t* CharClassTable() {
  static const std::unique_ptr<uint8_t[]> table = [] {
    auto bytes = std::make_unique<uint8_t[]>(kCodePoints);
    size_t run = 0;
    for (uint32_t code = 0; code < kCodePoints; ++code) {
      while (run + 1 < std::size(kRuns) && kRuns[run + 1].first <= code) ++run;
      bytes[code] = Exclusive(kRuns[run].classes);
    }
    bytes['\r'] |= kNewlineChar;
    bytes['\n'] |= kNewlineChar;
    return bytes;
  }();
  return table.get();
}

Char CharBefore(const char* begin, const char* at, const char* end, const uint8_t* table) {
  const char* const lead = LeadBefore(begin, at);
  const Char c = CharAt(lead, end, table);
  if (lead + c.size == at) return c;
  return {0xFFFFFFFF, 1, 0};  // a stray byte
}

bool IsCharBoundary(const char* begin, const char* at, const char* end) {
  if (at == begin || at == end || !IsTailByte(*at)) return true;
  const char* const lead = LeadBefore(begin, at);
  return lead + Utf8SizeAt(lead, end) <= at;
}

}  // namespace weir::codec
