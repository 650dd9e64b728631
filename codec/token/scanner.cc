// SPDX-License-Identifier: Apache-2.0
#include "codec/token/scanner.h"

#include "codec/token/char_class.h"

namespace weir::codec {
namespace {

using Take = absl::FunctionRef<void(std::string_view)>;

std::string_view Between(const char* begin, const char* end) {
  return {begin, static_cast<size_t>(end - begin)};
}
bool IsAsciiLetter(char c) {
  return static_cast<uint8_t>((static_cast<uint8_t>(c) | 0x20) - 'a') < 26;
}
bool IsNewline(uint32_t code) { return code == '\r' || code == '\n'; }

const char* SkipWhile(const char* p, const char* end, uint8_t mask) {
  while (p < end) {
    const Char c = CharAt(p, end);
    if (!c.Is(mask)) break;
    p += c.size;
  }
  return p;
}

// Whitespace from `p`: up to its last newline if it has one; all of it at the end of the text; else
// all but the last character, which belongs to what follows.
const char* EndOfSpaces(const char* p, const char* end) {
  const char* after_newline = nullptr;
  const char* last = p;
  const char* at = p;
  while (at < end) {
    const Char c = CharAt(at, end);
    if (!c.Is(kSpaceChar)) break;
    last = at;
    at += c.size;
    if (IsNewline(c.code)) after_newline = at;
  }
  if (after_newline != nullptr) return after_newline;
  if (at == end || last == p) return at;
  return last;
}

// The end of the match that starts at `p`, or null if none of the third expression's alternatives
// does. They are tried in the expression's order.
const char* MatchAt(const char* p, const char* end, const Char& c) {
  if (c.code < 0x80 && c.Is(kMarkChar) && p + 1 < end && IsAsciiLetter(p[1])) {
    const char* at = p + 2;
    while (at < end && IsAsciiLetter(*at)) ++at;
    return at;
  }
  if (c.Is(kWordChar)) return SkipWhile(p + c.size, end, kWordChar);
  const char* next = p + c.size;
  if (!IsNewline(c.code) && !c.Is(kMarkChar) && next < end && CharAt(next, end).Is(kWordChar)) {
    return SkipWhile(next, end, kWordChar);
  }
  const bool led_by_space = c.code == ' ' && next < end && CharAt(next, end).Is(kMarkChar);
  if (c.Is(kMarkChar) || led_by_space) {
    const char* at = SkipWhile(led_by_space ? next : p, end, kMarkChar);
    while (at < end && IsNewline(static_cast<uint8_t>(*at))) ++at;
    return at;
  }
  if (c.Is(kSpaceChar)) return EndOfSpaces(p, end);
  return nullptr;
}

// A stretch without numbers and CJK characters, whose end acts as the end of the text. What nothing
// matches stays together as a piece of its own.
void ScanStretch(std::string_view text, Take take) {
  const char* p = text.data();
  const char* const end = p + text.size();
  const char* unmatched = nullptr;
  while (p < end) {
    const Char c = CharAt(p, end);
    const char* match = MatchAt(p, end, c);
    if (match == nullptr) {
      if (unmatched == nullptr) unmatched = p;
      p += c.size;
      continue;
    }
    if (unmatched != nullptr) take(Between(unmatched, p));
    unmatched = nullptr;
    take(Between(p, match));
    p = match;
  }
  if (unmatched != nullptr) take(Between(unmatched, end));
}

}  // namespace

void ScanPieces(std::string_view text, Take take) {
  const char* p = text.data();
  const char* const end = p + text.size();
  while (p < end) {
    const Char c = CharAt(p, end);
    const char* at = p;
    if (c.Is(kNumberChar)) {
      for (int count = 0; count < 3 && at < end; ++count) {
        const Char digit = CharAt(at, end);
        if (!digit.Is(kNumberChar)) break;
        at += digit.size;
      }
      take(Between(p, at));
    } else if (c.Is(kCjkChar)) {
      at = SkipWhile(p, end, kCjkChar);
      take(Between(p, at));
    } else {
      while (at < end) {
        const Char other = CharAt(at, end);
        if (other.Is(kNumberChar | kCjkChar)) break;
        at += other.size;
      }
      ScanStretch(Between(p, at), take);
    }
    p = at;
  }
}

}  // namespace weir::codec
