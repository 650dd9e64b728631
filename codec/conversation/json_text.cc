// SPDX-License-Identifier: Apache-2.0
#include "codec/conversation/json_text.h"

#include <simdjson.h>

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <unordered_map>

#include "base/stdx/status.h"
#include "codec/conversation/conversation.h"

namespace weir::codec {
namespace {

using simdjson::dom::element;
using simdjson::dom::element_type;
using simdjson::dom::object;

// Members in order of first appearance, each with its last value.
std::vector<std::pair<std::string_view, element>> UniqueMembers(const object& value) {
  std::vector<std::pair<std::string_view, element>> members;
  std::unordered_map<std::string_view, size_t> place;
  for (auto field : value) {
    const auto [at, fresh] = place.emplace(field.key, members.size());
    if (fresh) {
      members.emplace_back(field.key, field.value);
    } else {
      members[at->second].second = field.value;
    }
  }
  return members;
}

// The depth is bounded by the parser, hence so is the recursion.
void AppendNormal(const element& value, std::string* out) {
  switch (value.type()) {
    case element_type::OBJECT: {
      out->push_back('{');
      bool first = true;
      for (const auto& [key, member] : UniqueMembers(object(value))) {
        if (!first) *out += ", ";
        first = false;
        AppendJsonString(key, out);
        *out += ": ";
        AppendNormal(member, out);
      }
      out->push_back('}');
      return;
    }
    case element_type::ARRAY: {
      out->push_back('[');
      bool first = true;
      for (const element item : simdjson::dom::array(value)) {
        if (!first) *out += ", ";
        first = false;
        AppendNormal(item, out);
      }
      out->push_back(']');
      return;
    }
    case element_type::STRING:
      AppendJsonString(std::string_view(value), out);
      return;
    case element_type::INT64:
      AppendJsonNumber(int64_t(value), out);
      return;
    case element_type::UINT64:
      *out += std::to_string(uint64_t(value));
      return;
    case element_type::DOUBLE:
      AppendJsonNumber(double(value), out);
      return;
    case element_type::BOOL:
      *out += bool(value) ? "true" : "false";
      return;
    case element_type::NULL_VALUE:
      *out += "null";
      return;
  }
}

absl::StatusOr<element> Parse(std::string_view text, simdjson::dom::parser* parser) {
  if (parser->allocate(text.size(), kJsonDepthMax) != simdjson::SUCCESS) {
    return Error(Reason::kTooLarge, "the JSON text is too large");
  }
  element root;
  const auto problem = parser->parse(text.data(), text.size()).get(root);
  if (problem != simdjson::SUCCESS) {
    return Error(Reason::kBadField,
                 std::string("not valid JSON: ") + simdjson::error_message(problem));
  }
  return root;
}

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

bool NeedsCare(unsigned char c) { return c < 0x20 || c == '"' || c == '\\' || c >= 0x80; }

void AppendControl(unsigned char c, std::string* out) {
  switch (c) {
    case '\n':
      *out += "\\n";
      return;
    case '\r':
      *out += "\\r";
      return;
    case '\t':
      *out += "\\t";
      return;
    case '\b':
      *out += "\\b";
      return;
    case '\f':
      *out += "\\f";
      return;
    default: {
      constexpr char kHex[] = "0123456789abcdef";
      *out += "\\u00";
      out->push_back(kHex[c >> 4]);
      out->push_back(kHex[c & 15]);
    }
  }
}

}  // namespace

Utf8Part Utf8PartAt(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {1, Utf8Kind::kWhole};
  size_t size = 0;
  unsigned char low = 0x80;  // range of the second byte, which excludes overlong forms,
  unsigned char high = 0xBF;  // surrogates and codes past U+10FFFF
  if (lead >= 0xC2 && lead <= 0xDF) {
    size = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    size = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    size = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {1, Utf8Kind::kIllFormed};
  }
  for (size_t i = 1; i < size; ++i) {
    if (i == text.size()) return {i, Utf8Kind::kCutOff};
    const unsigned char c = byte(i);
    if (i == 1 ? c < low || c > high : c < 0x80 || c > 0xBF) return {i, Utf8Kind::kIllFormed};
  }
  return {size, Utf8Kind::kWhole};
}

absl::StatusOr<std::string> NormalJson(std::string_view text) {
  simdjson::dom::parser parser;
  WEIR_ASSIGN(const element root, Parse(text, &parser));
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  AppendNormal(root, &out);
  return out;
}

absl::StatusOr<std::vector<JsonMember>> JsonMembers(std::string_view text) {
  simdjson::dom::parser parser;
  WEIR_ASSIGN(const element root, Parse(text, &parser));
  object value;
  if (root.get(value) != simdjson::SUCCESS) {
    return Error(Reason::kBadField, "the JSON text is not an object");
  }
  std::vector<JsonMember> members;
  for (const auto& [key, member] : UniqueMembers(value)) {
    JsonMember& one = members.emplace_back();
    one.key = key;
    one.is_string = member.is_string();
    if (one.is_string) {
      one.value = std::string_view(member);
    } else {
      AppendNormal(member, &one.value);
    }
  }
  return members;
}

void AppendJsonEscaped(std::string_view text, std::string* out) {
  size_t plain = 0;  // start of the stretch not yet copied
  size_t at = 0;
  while (at < text.size()) {
    const auto c = static_cast<unsigned char>(text[at]);
    if (!NeedsCare(c)) {
      ++at;
      continue;
    }
    if (c >= 0x80) {
      const Utf8Part part = Utf8PartAt(text.substr(at));
      if (part.kind != Utf8Kind::kWhole) {
        out->append(text, plain, at - plain);
        *out += kReplacement;
        plain = at + part.size;
      }
      at += part.size;
      continue;
    }
    out->append(text, plain, at - plain);
    if (c == '"' || c == '\\') {
      out->push_back('\\');
      out->push_back(static_cast<char>(c));
    } else {
      AppendControl(c, out);
    }
    plain = ++at;
  }
  out->append(text, plain, text.size() - plain);
}

void AppendJsonString(std::string_view text, std::string* out) {
  out->push_back('"');
  AppendJsonEscaped(text, out);
  out->push_back('"');
}

void AppendJsonNumber(int64_t value, std::string* out) {
  char buffer[24];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value).ptr;
  out->append(buffer, end);
}

void AppendJsonNumber(double value, std::string* out) {
  if (!std::isfinite(value)) {
    *out += "null";
    return;
  }
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value,
                                 std::chars_format::scientific).ptr;
  // d[.ddd]e±xx with the shortest digits; Python writes exponents below -4 and from 16 that way
  // and everything else in full, always with a fraction.
  const std::string_view text(buffer, static_cast<size_t>(end - buffer));
  const size_t e = text.find('e');
  const int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  if (exponent < -4 || exponent >= 16) {
    *out += text;
    return;
  }
  const auto full = std::to_chars(buffer, buffer + sizeof(buffer), value,
                                  std::chars_format::fixed).ptr;
  out->append(buffer, full);
  if (std::memchr(buffer, '.', static_cast<size_t>(full - buffer)) == nullptr) *out += ".0";
}

std::string TextOf(const Message& message) {
  std::string text;
  bool first = true;
  for (const Part& part : message.parts) {
    const auto* piece = std::get_if<TextPart>(&part);
    if (piece == nullptr) continue;
    if (!first) text += "\n\n";
    first = false;
    text += piece->text;
  }
  return text;
}

}  // namespace weir::codec
