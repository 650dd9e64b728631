// SPDX-License-Identifier: Apache-2.0
#include "engine/run/wire.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/stdx/bytes.h"
#include "base/stdx/planted.h"
#include "engine/limits.h"

namespace weir::engine {
namespace {

// Not a comparison alone, so that NaN is refused too.
bool Within(float value, float low, float high) { return value >= low && value <= high; }

absl::Status CheckRanges(const pb::Sampling& s) {
  if (!Within(s.temperature(), 0, 100)) {
    return Error(Reason::kBadField, "temperature must be between 0 and 100", "temperature");
  }
  if (!Within(s.top_p(), 0, 1)) {
    return Error(Reason::kBadField, "top_p must be between 0 and 1", "top_p");
  }
  if (s.top_k() < 0) return Error(Reason::kBadField, "top_k must not be negative", "top_k");
  if (!Within(s.min_p(), 0, 1)) {
    return Error(Reason::kBadField, "min_p must be between 0 and 1", "min_p");
  }
  if (!Within(s.presence_penalty(), -100, 100) || !Within(s.frequency_penalty(), -100, 100)) {
    return Error(Reason::kBadField, "penalties must be between -100 and 100", "presence_penalty");
  }
  if (!Within(s.repetition_penalty(), 0, 100)) {
    return Error(Reason::kBadField, "repetition_penalty must be between 0 and 100",
                 "repetition_penalty");
  }
  if (s.top_logprobs() > kTopLogprobsMax) {
    return Error(Reason::kBadField, "top_logprobs is too large", "top_logprobs");
  }
  if (s.stop_tokens_size() > static_cast<int>(kStopTokensMax)) {
    return Error(Reason::kBadField, "there are too many stop tokens", "stop_tokens");
  }
  if (s.logit_bias_size() > static_cast<int>(kLogitBiasMax)) {
    return Error(Reason::kBadField, "there are too many logit biases", "logit_bias");
  }
  return absl::OkStatus();
}

bool InVocab(TokenId token, uint32_t vocab) {
  return token >= 0 && static_cast<uint32_t>(token) < vocab;
}

}  // namespace

AttemptKey KeyFrom(const pb::RequestKey& key) {
  return {.request = {.router = InstanceId(key.router()), .request = RequestId(key.request())},
          .attempt = Attempt(key.attempt())};
}

void KeyTo(const AttemptKey& key, pb::RequestKey* out) {
  out->set_router(key.request.router.value);
  out->set_request(key.request.request.value);
  out->set_attempt(key.attempt.value);
}

void FailureTo(Reason reason, std::string_view message, std::string_view param, pb::Failure* out) {
  out->set_reason(static_cast<uint32_t>(reason));
  out->set_message(std::string(message));
  if (!param.empty()) out->set_param(std::string(param));
}

void FailureTo(const absl::Status& status, pb::Failure* out) {
  FailureTo(ReasonOf(status), StdView(status.message()), ParamOf(status), out);
}

Reason ReasonFrom(const pb::Failure& failure) {
  return ReasonFromNumber(failure.reason());
}

absl::StatusOr<SamplingParams> SamplingFrom(const pb::Sampling& s, uint32_t vocab) {
  WEIR_TRY(CheckRanges(s));
  SamplingParams out;
  // Next to nothing is greedy: logits divided by it would be infinite.
  out.temperature = s.temperature() < 1e-5f ? 0 : s.temperature();
  out.top_p = s.top_p() == 0 ? 1 : s.top_p();
  out.top_k = s.top_k();
  out.min_p = s.min_p();
  out.seed = s.seed();
  out.presence_penalty = s.presence_penalty();
  out.frequency_penalty = s.frequency_penalty();
  out.repetition_penalty = s.repetition_penalty() == 0 ? 1 : s.repetition_penalty();
  for (const pb::LogitBias& bias : s.logit_bias()) {
    if (!InVocab(bias.token(), vocab) || !std::isfinite(bias.bias())) {
      return Error(Reason::kBadField, "logit_bias names a token outside of the vocabulary",
                   "logit_bias");
    }
    if (IsPlanted(Planted::kNoLogitBias)) continue;
    out.logit_bias.emplace_back(bias.token(), bias.bias());
  }
  out.stop_tokens.assign(s.stop_tokens().begin(), s.stop_tokens().end());
  if (!std::all_of(out.stop_tokens.begin(), out.stop_tokens.end(),
                   [vocab](TokenId token) { return InVocab(token, vocab); })) {
    return Error(Reason::kBadField, "a stop token is outside of the vocabulary", "stop_tokens");
  }
  out.min_tokens = s.min_tokens();
  out.logprobs = s.logprobs();
  out.top_logprobs = s.top_logprobs();
  return out;
}

TraceContext TraceFrom(const pb::TraceContext& trace) {
  return {.trace_hi = trace.trace_hi(),
          .trace_lo = trace.trace_lo(),
          .span = trace.span(),
          .sampled = trace.span() != 0};
}

TokenScore ScoreFrom(const pb::TokenLogprob& logprob) {
  TokenScore score;
  score.logprob = logprob.logprob();
  const int count = std::min(logprob.top_ids_size(), logprob.top_logprobs_size());
  for (int i = 0; i < count; ++i) {
    score.top.emplace_back(logprob.top_ids(i), logprob.top_logprobs(i));
  }
  return score;
}

void ScoreTo(const TokenScore& score, pb::TokenLogprob* out) {
  out->set_logprob(score.logprob);
  for (const auto& [id, logprob] : score.top) {
    out->add_top_ids(id);
    out->add_top_logprobs(logprob);
  }
}

pb::Envelope& SendTo(InstanceId to, EngineActions* out) {
  out->sends.push_back({.to = to, .message = {}});
  return out->sends.back().message;
}

}  // namespace weir::engine
