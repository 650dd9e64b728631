// SPDX-License-Identifier: Apache-2.0
//
// StepPlan and StepResult: everything a model step needs and everything it answers, as plain data.
// The core owns and reuses both; a model reads the plan between Launch and Collect and the core does
// not change a planned slot in between. No pointer in them outlives the step.
//
// Rows. A StepRow is a group of consecutive positions of one sequence. Nothing assumes one group per
// sequence, groups in order of position, or groups that start at 0. Groups of one sequence in one
// plan are in order of position.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/stdx/ids.h"
#include "engine/cache/cache_layout.h"

namespace weir::engine {

// How a sequence's next tokens are chosen (proto Sampling, validated).
struct SamplingParams {
  float temperature = 0;  // 0 = greedy
  float top_p = 1;
  int32_t top_k = 0;  // 0 = off
  float min_p = 0;
  uint64_t seed = 0;  // coupled noise: a draw is a function of (seed, position)
  float presence_penalty = 0;
  float frequency_penalty = 0;
  float repetition_penalty = 1;
  std::vector<std::pair<TokenId, float>> logit_bias;
  std::vector<TokenId> stop_tokens;
  uint32_t min_tokens = 0;  // stop tokens are masked while fewer were emitted
  bool logprobs = false;
  uint32_t top_logprobs = 0;
};

// What the model may look up about a slot during a step. The spans belong to the core.
struct SlotView {
  std::span<const PageId> pages[kPartCount];  // block i of the sequence lies in pages[part][i]
  PageId state = kNoPage;
  const SamplingParams* sampling = nullptr;
  std::span<const TokenId> emitted;  // answer tokens so far, all attempts; for penalties
  Position prompt_tokens = 0;        // the client's prompt; position - prompt_tokens = answer index
  Position tail_start = 0;           // decoder layers run for positions >= this
};

enum class RowKind : uint8_t {
  kPrefill = 0,  // compute KV of known tokens
  kReplay = 1,   // recompute windows only: block rows below write_floor are read, never written
  kVerify = 2,   // first token is accepted but not computed; the rest are drafts to check
};

struct StepRow {
  SlotId slot;
  RowKind kind = RowKind::kPrefill;
  Position first = 0;
  uint16_t count = 0;
  uint32_t token_offset = 0;  // into StepPlan::tokens; `count` inputs
  Position write_floor = 0;   // block stores are written at positions >= this only
  Position visible_from = 0;  // window rows below this position do not exist
  // Prefill and replay: sample one token after the last row. Verify groups always sample.
  bool sample = false;
};

// Copy a page before the step: a sequence begins with its own copy of what it will write on.
struct PageCopy {
  enum class Kind : uint8_t { kPage, kState };
  Kind kind = Kind::kPage;
  Part part = Part::kDecoder;
  PageId from = kNoPage;
  PageId to = kNoPage;
};

struct StepPlan {
  StepId step;
  Epoch epoch;          // expert map and group membership; checked at commit
  uint16_t bucket = 0;  // captured shape; 0 = eager
  std::vector<StepRow> rows;
  std::vector<TokenId> tokens;
  std::vector<PageCopy> copies;
  std::span<const SlotView> slots;  // indexed by SlotId

  void Clear() {
    rows.clear();
    tokens.clear();
    copies.clear();
  }
};

enum class StepHealth : uint8_t {
  kOk = 0,
  kVoid = 1,      // nothing of this step may be committed; run it again
  kPoisoned = 2,  // the device is lost; the process must leave
};

struct TokenScore {
  float logprob = 0;
  std::vector<std::pair<TokenId, float>> top;  // best first
};

// The answer for one row group that samples: `count` tokens are right, 1 ... row.count for verify
// groups (accepted drafts plus one), 1 for prefill with sample. The tokens follow the group's first
// position: with k accepted drafts the cursor moves from first to first + k + 1. The last of them is
// -1 where the model's logits were no numbers: the sequence cannot go on.
struct Accepted {
  SlotId slot;
  uint16_t count = 0;
  uint32_t token_offset = 0;  // into StepResult::tokens
  uint16_t draft_count = 0;   // proposals for the positions after the accepted tokens
  uint32_t draft_offset = 0;  // into StepResult::drafts
  int32_t score_offset = -1;  // into StepResult::scores, `count` entries; -1 = not asked for
};

struct StepResult {
  StepId step;
  StepHealth health = StepHealth::kOk;
  std::vector<Accepted> accepted;  // in the order of the plan's sampling groups
  std::vector<TokenId> tokens;
  std::vector<TokenId> drafts;
  std::vector<float> confidence;  // one per draft, may be empty
  std::vector<TokenScore> scores;

  void Clear() {
    health = StepHealth::kOk;
    accepted.clear();
    tokens.clear();
    drafts.clear();
    confidence.clear();
    scores.clear();
  }
};

}  // namespace weir::engine
