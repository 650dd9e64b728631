// SPDX-License-Identifier: Apache-2.0
#include "codec/token/scanner.h"

#include <bit>

#include "base/stdx/bytes.h"
#include "base/stdx/planted.h"
#include "codec/token/char_class.h"

namespace weir::codec {
namespace {

constexpr int kDigitsMax = 3;

bool IsAsciiLetter(char c) {
  return static_cast<uint8_t>((static_cast<uint8_t>(c) | 0x20) - 'a') < 26;
}

const char* SkipAsciiLetters(const char* p, const char* end) {
  constexpr uint64_t kOnes = 0x0101010101010101ULL;
  constexpr uint64_t kHigh = 0x80 * kOnes;
  while (end - p >= 8) {
    // Eight bytes at once: adding to seven bits carries into the eighth above a bound.
    const auto word = LoadAs<uint64_t>(p);
    const uint64_t low = (word | 0x20 * kOnes) & ~kHigh;
    const uint64_t from_a = low + (0x80 - 'a') * kOnes;
    const uint64_t past_z = low + (0x7F - 'z') * kOnes;
    const uint64_t others = ~(from_a & ~past_z & ~word) & kHigh;
    if (others != 0) return p + std::countr_zero(others) / 8;
    p += 8;
  }
  while (p < end && IsAsciiLetter(*p)) ++p;
  return p;
}

// The text from a point on; every function answers where what starts at `p` ends.
struct View {
  const char* end;
  const uint8_t* table;

  Char At(const char* p) const { return CharAt(p, end, table); }

  const char* SkipWhile(const char* p, uint8_t mask) const {
    while (p < end) {
      const Char c = At(p);
      if (!c.Is(mask)) break;
      p += c.size;
    }
    return p;
  }

  const char* SkipWord(const char* p) const {
    p = SkipAsciiLetters(p, end);
    if (p < end && static_cast<uint8_t>(*p) >= 0x80) return SkipWhile(p, kWordChar);
    return p;
  }

  const char* SkipMarks(const char* p) const {
    p = SkipWhile(p, kMarkChar);
    while (p < end && (*p == '\r' || *p == '\n')) ++p;
    return p;
  }

  // White space: up to its last newline if it has one; all of it before a number, a CJK character
  // or the end of the text, since the earlier expressions end a text there; else all but the last
  // character, which belongs to what follows.
  const char* SkipSpaces(const char* p) const {
    const char* after_newline = nullptr;
    const char* last = p;
    const char* at = p;
    bool ends = true;
    while (at < end) {
      const Char c = At(at);
      if (!c.Is(kSpaceChar)) {
        ends = c.Is(kNumberChar | kCjkChar);
        break;
      }
      last = at;
      at += c.size;
      if (c.Is(kNewlineChar)) after_newline = at;
    }
    if (after_newline != nullptr) return after_newline;
    return ends || last == p ? at : last;
  }

  // What the third expression matches at `p`, whose character is neither a number nor CJK; null if
  // none of its alternatives does. They are tried in the expression's order.
  const char* Match(const char* p, const Char& c) const {
    const char* const next = p + c.size;
    if (c.Is(kWordChar)) return SkipWord(next);
    if (c.Is(kMarkChar)) {
      if (c.size == 1 && next < end && IsAsciiLetter(*next)) return SkipAsciiLetters(next, end);
      return SkipMarks(next);
    }
    if (!c.Is(kNewlineChar) && next < end) {
      const Char then = At(next);
      if (then.Is(kWordChar)) return SkipWord(next + then.size);
      if (c.code == ' ' && then.Is(kMarkChar)) return SkipMarks(next + then.size);
    }
    return c.Is(kSpaceChar) ? SkipSpaces(p) : nullptr;
  }

  // What nothing matches stays together, up to the next match.
  const char* SkipUnmatched(const char* p) const {
    while (p < end) {
      const Char c = At(p);
      if (c.Is(kNumberChar | kCjkChar) || Match(p, c) != nullptr) break;
      p += c.size;
    }
    return p;
  }

  const char* SkipDigits(const char* p, int count) const {
    for (; count > 0 && p < end; --count) {
      const Char c = At(p);
      if (!c.Is(kNumberChar)) break;
      p += c.size;
    }
    return p;
  }

  // A word, with an unassigned character before it or without; a run of marks; or what is left.
  const char* SkipCjk(const char* p, const Char& c) const {
    if (c.Is(kCjkWordChar)) return SkipWhile(p + c.size, kCjkWordChar);
    if (c.Is(kCjkMarkChar)) return SkipWhile(p + c.size, kCjkMarkChar);
    for (const char* at = p; At(at).Is(kCjkOtherChar);) {
      const char* const next = at + At(at).size;
      if (next == end) return next;
      if (At(next).Is(kCjkWordChar)) return at == p ? SkipWhile(next, kCjkWordChar) : at;
      at = next;
    }
    return SkipWhile(p, kCjkOtherChar);
  }

  const char* SkipPiece(const char* p, int digits_max) const {
    const Char c = At(p);
    if (c.Is(kCjkChar)) return SkipCjk(p, c);
    if (c.Is(kNumberChar)) return SkipDigits(p + c.size, digits_max - 1);
    const char* const match = Match(p, c);
    return match != nullptr ? match : SkipUnmatched(p + c.size);
  }
};

// Which expression a character belongs to; pieces never span two of different kind but for a
// leading character of a word.
enum class Kind : uint8_t { kNumber, kCjk, kWord, kOther };

Kind KindOf(const Char& c) {
  if (c.Is(kNumberChar)) return Kind::kNumber;
  if (c.Is(kCjkChar)) return Kind::kCjk;
  return c.Is(kWordChar) ? Kind::kWord : Kind::kOther;
}

// After the last newline of a run of white space that something ends. An open run may still get
// another newline.
bool IsAfterNewlines(const View& view, const char* at, const Char& before) {
  if (!before.Is(kNewlineChar)) return false;
  while (at < view.end) {
    const Char c = view.At(at);
    if (!c.Is(kSpaceChar)) return true;
    if (c.Is(kNewlineChar)) return false;
    at += c.size;
  }
  return false;
}

bool IsCut(const View& view, const char* at, const Char& before, const Char& after) {
  const Kind left = KindOf(before);
  const Kind right = KindOf(after);
  if (left != right && !(left == Kind::kOther && right == Kind::kWord)) return true;
  return IsAfterNewlines(view, at, before);
}

}  // namespace

PieceScanner::PieceScanner(std::string_view text)
    : table_(CharClassTable()),
      at_(text.data()),
      end_(text.data() + text.size()),
      digits_max_(IsPlanted(Planted::kTwoDigitPieces) ? kDigitsMax - 1 : kDigitsMax) {}

size_t PieceScanner::Next(std::span<const char*> ends) {
  const View view{end_, table_};
  const char* p = at_;
  size_t count = 0;
  while (p < end_ && count < ends.size()) {
    p = view.SkipPiece(p, digits_max_);
    ends[count++] = p;
  }
  at_ = p;
  return count;
}

bool IsSafeCut(std::string_view text, size_t at) {
  if (at == 0 || at >= text.size()) return true;
  const char* const begin = text.data();
  const View view{begin + text.size(), CharClassTable()};
  const char* const p = begin + at;
  if (!IsCharBoundary(begin, p, view.end)) return false;
  return IsCut(view, p, CharBefore(begin, p, view.end, view.table), view.At(p));
}

size_t NextSafeCut(std::string_view text, size_t from) {
  if (from == 0) from = 1;
  if (from >= text.size()) return text.size();
  const char* const begin = text.data();
  const View view{begin + text.size(), CharClassTable()};
  const char* p = begin + from;
  while (!IsCharBoundary(begin, p, view.end)) ++p;
  if (p == view.end) return text.size();
  Char before = CharBefore(begin, p, view.end, view.table);
  while (p < view.end) {
    const Char after = view.At(p);
    if (IsCut(view, p, before, after)) break;
    before = after;
    p += after.size;
  }
  return static_cast<size_t>(p - begin);
}

}  // namespace weir::codec
