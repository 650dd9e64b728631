// SPDX-License-Identifier: Apache-2.0
#include "codec/prompt/attribution.h"

#include <string_view>
#include <variant>

namespace weir::codec {
namespace {

constexpr std::string_view kHead = "x-anthropic-billing-header:";

}  // namespace

std::optional<Message> WithoutAttribution(const Conversation& conversation) {
  if (conversation.messages.empty()) return std::nullopt;
  const Message& first = conversation.messages.front();
  if (first.author != Author::kSystem || first.parts.empty()) return std::nullopt;
  const auto* head = std::get_if<TextPart>(&first.parts.front());
  if (head == nullptr || head->text.compare(0, kHead.size(), kHead) != 0) return std::nullopt;

  Message plain = first;
  std::vector<Part>& parts = plain.parts;
  std::string& text = std::get<TextPart>(parts.front()).text;
  const size_t line = text.find_first_of("\r\n");
  const size_t rest = line == std::string::npos ? line : text.find_first_not_of("\r\n", line);
  if (rest != std::string::npos) {
    text.erase(0, rest);
    return plain;
  }
  parts.erase(parts.begin());
  return plain;
}

}  // namespace weir::codec
