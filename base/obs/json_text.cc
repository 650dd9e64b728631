// SPDX-License-Identifier: Apache-2.0
#include "base/obs/json_text.h"

#include <cstdint>
#include <cstdio>

namespace weir {
namespace {

// Length of the valid UTF-8 sequence at the start of `text` and its character; 0 if there is none.
size_t Utf8Length(std::string_view text, uint32_t* character) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  const size_t length = first < 0x80 ? 1 : first >> 5 == 6 ? 2 : first >> 4 == 14 ? 3 : first >> 3 == 30 ? 4 : 0;
  if (length == 0 || length > text.size()) return 0;
  uint32_t code = length == 1 ? first : first & (0xFFu >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if (byte(i) >> 6 != 2) return 0;
    code = code << 6 | (byte(i) & 0x3Fu);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kLeast[length] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return 0;
  *character = code;
  return length;
}

// What a terminal or a reader of lines may obey instead of show.
bool IsControl(uint32_t character) {
  return character < 0x20 || (character >= 0x7F && character <= 0x9F) || character == 0x2028 ||
         character == 0x2029;
}

}  // namespace

std::string JsonString(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    uint32_t character = 0;
    const size_t length = Utf8Length(text, &character);
    const char c = text[0];
    if (length == 0) {
      out += "\xEF\xBF\xBD";
    } else if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (IsControl(character)) {
      char escape[16];
      std::snprintf(escape, sizeof(escape), "\\u%04x", character);
      out += escape;
    } else {
      out.append(text.substr(0, length));
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  out.push_back('"');
  return out;
}

}  // namespace weir
