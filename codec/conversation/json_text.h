// SPDX-License-Identifier: Apache-2.0
//
// JSON text inside a conversation: tool schemas and call arguments, which prompts quote verbatim and
// which therefore must be written the way the model was trained on. Pure functions, any thread.
// Nesting is limited, so hostile text is an error and never a deep recursion.
//
// Normal form: ", " between items, ": " after keys, keys in the order received (a repeated key keeps
// its first place and its last value), text not ASCII-escaped, integers as written, other numbers
// as the shortest digits that read back, in Python's notation (1.0, 1e-05, 1e+16).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace weir::codec {

inline constexpr int kJsonDepthMax = 127;

// `text` in normal form. Fails with kBadField if it is not one JSON value or is too deep.
absl::StatusOr<std::string> NormalJson(std::string_view text);

struct JsonMember {
  std::string key;
  bool is_string = false;
  std::string value;  // the string itself, or other JSON in normal form
};

// The members of a JSON object, in order. Fails if `text` is not an object.
absl::StatusOr<std::vector<JsonMember>> JsonMembers(std::string_view text);

// What the bytes at the start of `text` (not empty) are: one character, the maximal ill-formed part
// that U+FFFD stands for, or the beginning of a character that the text's end cuts off.
enum class Utf8Kind : uint8_t { kWhole, kIllFormed, kCutOff };
struct Utf8Part {
  size_t size = 0;
  Utf8Kind kind = Utf8Kind::kWhole;
};
Utf8Part Utf8PartAt(std::string_view text);

// Appends `text` as the inside of a JSON string: quote, backslash and controls are escaped; bytes
// that are not UTF-8 become U+FFFD, one per maximal ill-formed part.
void AppendJsonEscaped(std::string_view text, std::string* out);
// The same with the quotes around it.
void AppendJsonString(std::string_view text, std::string* out);
// The shortest digits that read back, in Python's notation; null for NaN and infinities.
void AppendJsonNumber(double value, std::string* out);
void AppendJsonNumber(int64_t value, std::string* out);

}  // namespace weir::codec
