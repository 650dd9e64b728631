// SPDX-License-Identifier: Apache-2.0
//
// Spans: what a request did where and for how long, one plain value each, handed to a sink when it
// is over. Cores make them from the times they are given and have no entropy, so the id of a child
// follows from its parent's. Names and keys are literals; values, any thread. A sink is for any
// thread, never blocks, and drops what it cannot take.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "base/obs/trace.h"
#include "base/runtime/time.h"
#include "base/stdx/random.h"
#include "base/stdx/status.h"

namespace weir {

enum class SpanKind : uint8_t { kInternal = 1, kServer = 2, kClient = 3 };  // OpenTelemetry's numbers

struct Span {
  struct Attribute {
    const char* key = nullptr;  // null: none
    int64_t value = 0;
  };

  TraceContext context;  // `span` is this span's own id
  uint64_t parent = 0;   // 0: the root of its trace
  const char* name = "";
  SpanKind kind = SpanKind::kInternal;
  Instant begin{};
  Instant end{};
  Instant first_token{};  // an event within; Instant{}: none
  Reason reason = Reason::kOk;
  std::string request_id;  // empty: none
  std::array<Attribute, 4> attributes{};
  // Whose it is; the shell knows.
  const char* service = "";
  uint64_t instance = 0;
};

class SpanSink {
 public:
  virtual ~SpanSink() = default;
  virtual void Record(Span span) = 0;
};

// Hands spans that a core made to `sink`, which may be null; whose they are is added.
inline void RecordAll(std::span<Span> spans, const char* service, uint64_t instance,
                      SpanSink* sink) {
  if (sink == nullptr) return;
  for (Span& span : spans) {
    span.service = service;
    span.instance = instance;
    sink->Record(std::move(span));
  }
}

constexpr int64_t Micros(Duration duration) { return duration.count() / 1000; }

// Salts of a request's spans below the router's; unique among the children of one span.
inline constexpr uint64_t kPrefillSpan = 1;
inline constexpr uint64_t kHandoverSpan = 2;
inline constexpr uint64_t kDecodeSpan = 3;

// A span of the same trace, the same one for the same salt.
inline TraceContext DerivedFrom(const TraceContext& parent, uint64_t salt) {
  TraceContext child = parent;
  child.span = MixInto(parent.span, salt);
  if (child.span == 0) child.span = 1;  // zero means "none" on the wire
  return child;
}

}  // namespace weir
