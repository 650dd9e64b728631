// SPDX-License-Identifier: Apache-2.0
#include "base/obs/trace.h"

#include <atomic>
#include <cstdio>
#include <random>

#include "base/stdx/random.h"

namespace weir {
namespace {

uint64_t FreshId() {
  static const uint64_t seed = [] {
    std::random_device device;
    return static_cast<uint64_t>(device()) << 32 | device();
  }();
  static std::atomic<uint64_t> count{0};
  const uint64_t id = RandomBits(seed, 2, count.fetch_add(1, std::memory_order_relaxed));
  return id == 0 ? 1 : id;  // zero means "none" on the wire
}

// Exactly text.size() lower-case hex digits.
std::optional<uint64_t> ParseHex(std::string_view text) {
  uint64_t value = 0;
  for (const char c : text) {
    if (c >= '0' && c <= '9') {
      value = value << 4 | static_cast<uint64_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      value = value << 4 | static_cast<uint64_t>(c - 'a' + 10);
    } else {
      return std::nullopt;
    }
  }
  return value;
}

}  // namespace

TraceContext NewTrace(bool sampled) { return {FreshId(), FreshId(), FreshId(), sampled}; }

TraceContext ChildOf(const TraceContext& parent) {
  TraceContext child = parent;
  child.span = FreshId();
  return child;
}

std::optional<TraceContext> ParseTraceparent(std::string_view text) {
  // version "-" trace(32) "-" span(16) "-" flags(2); later versions may append "-...".
  constexpr size_t kLength = 55;
  if (text.size() < kLength || text[2] != '-' || text[35] != '-' || text[52] != '-') {
    return std::nullopt;
  }
  const auto version = ParseHex(text.substr(0, 2));
  const auto hi = ParseHex(text.substr(3, 16)), lo = ParseHex(text.substr(19, 16));
  const auto span = ParseHex(text.substr(36, 16)), flags = ParseHex(text.substr(53, 2));
  if (!version || !hi || !lo || !span || !flags || *version == 0xff) return std::nullopt;
  if (text.size() > kLength && (*version == 0 || text[kLength] != '-')) return std::nullopt;
  if ((*hi == 0 && *lo == 0) || *span == 0) return std::nullopt;
  return TraceContext{*hi, *lo, *span, (*flags & 1) != 0};
}

std::string FormatTraceparent(const TraceContext& context) {
  char text[64];
  std::snprintf(text, sizeof(text), "00-%016llx%016llx-%016llx-%02x",
                static_cast<unsigned long long>(context.trace_hi),
                static_cast<unsigned long long>(context.trace_lo),
                static_cast<unsigned long long>(context.span), context.sampled ? 1 : 0);
  return text;
}

}  // namespace weir
