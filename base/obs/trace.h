// SPDX-License-Identifier: Apache-2.0
//
// Where a request stands in a distributed trace, in the W3C form. Values; any thread; parsing trusts
// nothing and says no rather than guess.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace weir {

struct TraceContext {
  uint64_t trace_hi = 0;
  uint64_t trace_lo = 0;
  uint64_t span = 0;
  bool sampled = false;

  bool operator==(const TraceContext&) const = default;
};

// A new trace with fresh random ids.
TraceContext NewTrace(bool sampled);
// A fresh span of the same trace.
TraceContext ChildOf(const TraceContext& parent);

// The value of a `traceparent` header; nothing where it is malformed or its ids are zero.
std::optional<TraceContext> ParseTraceparent(std::string_view text);
std::string FormatTraceparent(const TraceContext& context);

}  // namespace weir
