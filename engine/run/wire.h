// SPDX-License-Identifier: Apache-2.0
//
// Between proto messages and the plain types of the cores. Pure functions, any thread. What a peer
// sent is not trusted: values out of range are refused with the field's name.
#pragma once

#include <string_view>
#include <utility>

#include "base/obs/trace.h"
#include "base/stdx/ids.h"
#include "base/stdx/status.h"
#include "engine/run/engine_io.h"
#include "engine/sched/step_plan.h"
#include "proto/peer.pb.h"

namespace weir::engine {

// One attempt of one request: what nearly every message is about.
struct AttemptKey {
  RequestKey request;
  Attempt attempt;

  constexpr auto operator<=>(const AttemptKey&) const = default;
  template <class H>
  friend H AbslHashValue(H state, const AttemptKey& key) {
    return H::combine(std::move(state), key.request, key.attempt);
  }
};

AttemptKey KeyFrom(const pb::RequestKey& key);
void KeyTo(const AttemptKey& key, pb::RequestKey* out);

void FailureTo(Reason reason, std::string_view message, std::string_view param, pb::Failure* out);
void FailureTo(const absl::Status& status, pb::Failure* out);
// kBug for a value this build does not know.
Reason ReasonFrom(const pb::Failure& failure);

absl::StatusOr<SamplingParams> SamplingFrom(const pb::Sampling& sampling, uint32_t vocab);

// Sampled when the message was there.
TraceContext TraceFrom(const pb::TraceContext& trace);

TokenScore ScoreFrom(const pb::TokenLogprob& logprob);
void ScoreTo(const TokenScore& score, pb::TokenLogprob* out);

// A new message to `to` at the end of `out`; valid until the next one.
pb::Envelope& SendTo(InstanceId to, EngineActions* out);

}  // namespace weir::engine
