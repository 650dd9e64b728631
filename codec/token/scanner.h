// SPDX-License-Identifier: Apache-2.0
//
// The DeepSeek pre-tokenizer as one pass without backtracking: it cuts text into the pieces that the
// tokenizer's three Split expressions would give, within which BPE may merge. Values on one thread's
// stack; the text must outlive the scanner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace weir::codec {

class PieceScanner {
 public:
  explicit PieceScanner(std::string_view text);

  // Fills `ends` with where the next pieces end, each starting where the one before it ended, and
  // returns how many; 0 when the text is used up. Joined, the pieces are the text.
  size_t Next(std::span<const char*> ends);

 private:
  const uint8_t* const table_;
  const char* at_;
  const char* const end_;
  const int digits_max_;
};

// Whether both sides of `at` may be scanned apart: the pieces of the text are those of the text
// before `at` followed by those of the text from `at` on, and stay so when whole characters are
// appended.
bool IsSafeCut(std::string_view text, size_t at);

// The first safe cut at or after `from` (at least 1), or the size of the text. In prose there is
// one every few bytes; looking for it costs as much as scanning that far.
size_t NextSafeCut(std::string_view text, size_t from);

}  // namespace weir::codec
