// SPDX-License-Identifier: Apache-2.0
//
// ModelRig drives a model the way an engine core does, without one: it owns pages, block tables in
// a scrambled order, and slots, and runs one plan per call. It keeps every logits row that the
// model computed, by (slot, position). Single thread; any failure is a test failure.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/deepseek_v3.h"

namespace weir::engine {

using Row = std::vector<float>;

class ModelRig {
 public:
  struct Options {
    std::string directory;
    std::string numerics = "fp32";
    int rows_per_pass = 128;
    bool guarded = false;
    ExpertMap experts;
    uint64_t page_seed = 1;
  };
  explicit ModelRig(const Options& options);

  const ModelInfo& info() const { return loaded_->info(); }
  SamplingParams& sampling(int slot) { return sampling_[static_cast<size_t>(slot)]; }
  SlotView& view(int slot) { return slots_[static_cast<size_t>(slot)]; }
  const std::vector<std::byte>& kv() const { return arena_; }

  struct Group {
    int slot = 0;
    RowKind kind = RowKind::kPrefill;
    Position first = 0;
    std::vector<TokenId> tokens;
    bool sample = true;
    Position write_floor = 0;
  };
  // Runs one step of these row groups.
  const StepResult& Run(const std::vector<Group>& parts);
  // Prefills `tokens` from position 0 in chunks, sampling after each; returns the last token.
  TokenId Prefill(int slot, const std::vector<TokenId>& tokens, size_t chunk);
  // Feeds `token` at `position`; returns the next one.
  TokenId Decode(int slot, Position position, TokenId token);

  const Row& logits(int slot, Position position) const { return logits_.at({slot, position}); }
  bool has_logits(int slot, Position position) const { return logits_.count({slot, position}) > 0; }
  // Of the latest run of each position, whichever slot it was: [layer][position].
  std::map<int, std::map<int, std::vector<int32_t>>> experts;
  std::map<int, std::map<int, Row>> layers;

 private:
  void OnTensor(std::string_view what, int layer, kernels::Stream& stream,
                const kernels::Tensor& tensor, int rows);

  static constexpr int kSlots = 8;

  std::shared_ptr<const LoadedModel> loaded_;
  std::vector<std::byte> arena_;
  std::vector<std::vector<PageId>> tables_;
  std::vector<SamplingParams> sampling_;
  std::vector<SlotView> slots_;
  std::unique_ptr<Model> model_;
  StepPlan plan_;
  StepResult result_;
  std::vector<int32_t> positions_;
  std::vector<std::pair<int, Position>> sampled_;  // where logits rows of this step belong
  size_t sampled_seen_ = 0;
  std::map<std::pair<int, Position>, Row> logits_;
};

}  // namespace weir::engine
