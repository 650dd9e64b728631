// SPDX-License-Identifier: Apache-2.0
//
// Character classes as the DeepSeek pre-tokenizer's regular expressions see them (Unicode 16.0,
// whatever the system's ICU has), and tolerant UTF-8 decoding. Pure functions, any thread; the table
// is built on first use. Inline, since the scanner lives on them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace weir::codec {

// A character has at most one of these, but for kNewlineChar: the expressions are tried in an order
// that makes a number win over a CJK character and that over the rest. The third expression sees
// runs of CJK characters too, and parts the words, marks and unassigned characters in them.
enum CharClass : uint8_t {
  kWordChar = 1,       // \p{L} or \p{M}
  kNumberChar = 2,     // \p{N}
  kMarkChar = 4,       // \p{P} or \p{S}
  kSpaceChar = 8,      // \s
  kCjkWordChar = 16,   // of U+4E00..9FA5, U+3040..30FF: \p{L} or \p{M}
  kNewlineChar = 32,   // CR or LF, beside kSpaceChar
  kCjkMarkChar = 64,   // of the same: \p{P} or \p{S}
  kCjkOtherChar = 128  // of the same: unassigned
};
constexpr uint8_t kCjkChar = kCjkWordChar | kCjkMarkChar | kCjkOtherChar;

// One character of UTF-8 and its classes. A byte that starts no well-formed character stands alone
// and has no class.
struct Char {
  uint32_t code = 0;
  uint8_t size = 1;
  uint8_t classes = 0;

  bool Is(uint8_t mask) const { return (classes & mask) != 0; }
};

// Classes by code point, U+0000..10FFFF. Look it up once, not per character.
const uint8_t* CharClassTable();

inline bool IsTailByte(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

// Length in bytes of the well-formed UTF-8 character at `p`, or 0. `end` bounds it.
inline int Utf8SizeAt(const char* p, const char* end) {
  const auto lead = static_cast<uint8_t>(*p);
  const std::ptrdiff_t left = end - p;
  if (lead < 0x80) return 1;
  if (lead < 0xC2) return 0;
  if (lead < 0xE0) return left >= 2 && IsTailByte(p[1]) ? 2 : 0;
  if (lead < 0xF0) {
    if (left < 3 || !IsTailByte(p[1]) || !IsTailByte(p[2])) return 0;
    const auto second = static_cast<uint8_t>(p[1]);
    if (lead == 0xE0 && second < 0xA0) return 0;  // overlong
    if (lead == 0xED && second > 0x9F) return 0;  // surrogate
    return 3;
  }
  if (lead > 0xF4 || left < 4 || !IsTailByte(p[1]) || !IsTailByte(p[2]) || !IsTailByte(p[3])) {
    return 0;
  }
  const auto second = static_cast<uint8_t>(p[1]);
  if (lead == 0xF0 && second < 0x90) return 0;  // overlong
  if (lead == 0xF4 && second > 0x8F) return 0;  // past U+10FFFF
  return 4;
}

// Decodes at `p`, which lies before `end`.
inline Char CharAt(const char* p, const char* end, const uint8_t* table) {
  const auto byte = [p](int i) { return static_cast<uint32_t>(static_cast<uint8_t>(p[i])); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1, table[lead]};
  uint32_t code = 0;
  const int size = Utf8SizeAt(p, end);
  switch (size) {
    case 2:
      code = (lead & 0x1F) << 6 | (byte(1) & 0x3F);
      break;
    case 3:
      code = (lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
      break;
    case 4:
      code = (lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 |
             (byte(3) & 0x3F);
      break;
    default:
      return {0xFFFFFFFF, 1, 0};
  }
  return {code, static_cast<uint8_t>(size), table[code]};
}

// The character before `at`, which lies after `begin` and between two characters; `end` bounds the
// text. Decoding forward from `begin` gives the same character, since it never steps over a byte
// that can start one.
Char CharBefore(const char* begin, const char* at, const char* end, const uint8_t* table);

// Whether decoding forward from `begin` steps on `at`.
bool IsCharBoundary(const char* begin, const char* at, const char* end);

}  // namespace weir::codec
