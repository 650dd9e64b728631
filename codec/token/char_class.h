// SPDX-License-Identifier: Apache-2.0
//
// Character classes as the DeepSeek pre-tokenizer's regular expressions see them (Unicode 16.0,
// whatever the system's ICU has), and tolerant UTF-8 decoding. Pure functions, any thread; the table
// is built on first use.
#pragma once

#include <cstdint>
#include <string_view>

namespace weir::codec {

enum CharClass : uint8_t {
  kWordChar = 1,    // \p{L} or \p{M}
  kNumberChar = 2,  // \p{N}
  kMarkChar = 4,    // \p{P} or \p{S}
  kSpaceChar = 8,   // \s
  kCjkChar = 16,    // U+4E00..9FA5, U+3040..30FF, unless a number
};

// One character of UTF-8 and its classes. A byte that starts no well-formed character stands alone
// and has no class.
struct Char {
  uint32_t code = 0;
  uint8_t size = 1;
  uint8_t classes = 0;

  bool Is(uint8_t mask) const { return (classes & mask) != 0; }
};

// Decodes at `p`, which lies before `end`.
Char CharAt(const char* p, const char* end);

// Length in bytes of the well-formed UTF-8 character at `p`, or 0. `end` bounds it.
int Utf8SizeAt(const char* p, const char* end);

}  // namespace weir::codec
