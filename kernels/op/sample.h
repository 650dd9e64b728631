// SPDX-License-Identifier: Apache-2.0
//
// From logits to tokens: bias, penalties, temperature, min-p, top-k, top-p, one draw, and the check
// of drafts. The draw is argmax(log p + g) with g a Gumbel vector that depends on (seed, position,
// token) alone, so a seeded stream is the same whatever the batch, the drafts or the attempt
// (decisions, ruling 7). Temperature 0 takes the largest logit, and so does one below kGreedyBelow.
// Ties take the lower token. Where a logit is NaN or the largest is not finite there is nothing to
// choose from: the token is -1, and no draft behind it counts.
#pragma once

#include <cstdint>

#include "kernels/op/tensor.h"

namespace weir::kernels {

inline constexpr int kTopLogprobsMax = 20;
inline constexpr float kGreedyBelow = 1e-5f;  // logits over less leave the range of floats

// Parameters of one row to sample, as they lie in device memory.
struct SampleRow {
  uint64_t seed = 0;
  float temperature = 1;  // 0 is greedy
  float top_p = 1;
  float min_p = 0;
  int32_t top_k = 0;             // 0 is off
  float presence_penalty = 0;    // subtracted once from tokens seen in the answer
  float frequency_penalty = 0;   // subtracted per occurrence in the answer
  float repetition_penalty = 1;  // divides positive and multiplies negative logits of seen tokens
  int32_t position = 0;          // of the token to emit; names the noise
  int32_t bias_begin = 0;        // range of the bias arrays
  int32_t bias_end = 0;
  int32_t history_begin = 0;  // range of `history`: tokens that penalties count
  int32_t history_end = 0;
  int32_t logprobs = 0;  // alternatives wanted, at most kTopLogprobsMax
  int32_t draft = -1;    // token proposed for this place; -1 where there is none
  int32_t group = 0;     // rows of one sequence form a group; consecutive, in position order
};

// What one row came to.
struct SampleOut {
  int32_t token = -1;
  float logprob = 0;  // of the token under the unmodified logits
  int32_t top_count = 0;
  int32_t top_token[kTopLogprobsMax] = {};
  float top_logprob[kTopLogprobsMax] = {};
};

struct SampleArgs {
  int rows = 0;
  int vocab = 0;
  Tensor logits;      // F32 [rows, vocab]; unchanged
  Tensor params;      // SampleRow [rows]
  Tensor bias_token;  // I32
  Tensor bias_value;  // F32
  Tensor history;     // I32
  Tensor adjusted;    // scratch F32 [vocab]
  Tensor order;       // scratch I32 [vocab]
  Tensor counts;      // scratch I32 [vocab]; zero before and after
  Tensor out;         // SampleOut [rows]
};

// Accepts drafts: a group's row j+1 counts only while row j's token equals the draft that row j+1
// was fed. accepted[g] = number of tokens the group emits: its agreed drafts and one more.
struct VerifyArgs {
  int rows = 0;
  int groups = 0;
  Tensor params;    // SampleRow [rows]
  Tensor out;       // SampleOut [rows]
  Tensor accepted;  // out I32 [groups]
};

}  // namespace weir::kernels
