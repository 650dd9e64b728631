// SPDX-License-Identifier: Apache-2.0
//
// ModelRig drives a model the way an engine core does, without one: it owns pages, state pages,
// block tables in a scrambled order, and slots, and runs one plan per call. It keeps every logits
// row and every tapped tensor's rows by position. Single thread; any failure is a test failure.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/deepseek_v3.h"
#include "engine/model/model.h"
#include "engine/model/text_model_options.h"

namespace weir::engine {

using Row = std::vector<float>;
using Loader = absl::StatusOr<std::shared_ptr<const LoadedModel>> (*)(const std::string& directory,
                                                                      const std::string& config,
                                                                      const LoadOptions& options,
                                                                      TextModelOptions more);

class ModelRig {
 public:
  struct Options {
    std::string directory;
    std::string numerics = "fp32";
    // Empty: ref. Else the level of instructions of the cpu backend, "best" for the machine's.
    std::string isa;
    int threads = 2;
    int rows_per_pass = 128;
    bool guarded = false;
    ExpertMap experts;
    uint64_t page_seed = 1;
    Loader load = &LoadDeepseekV3With;
    uint32_t block_tokens = 0;
  };
  explicit ModelRig(const Options& options);

  const ModelInfo& info() const { return loaded_->info(); }
  SamplingParams& sampling(int slot) { return sampling_[static_cast<size_t>(slot)]; }
  SlotView& view(int slot) { return slots_[static_cast<size_t>(slot)]; }
  // The pages of the decoder part.
  const std::vector<std::byte>& kv() const { return arena_[static_cast<int>(Part::kDecoder)]; }
  const std::vector<std::byte>& kv(Part part) const { return arena_[static_cast<int>(part)]; }

  struct Group {
    int slot = 0;
    RowKind kind = RowKind::kPrefill;
    Position first = 0;
    std::vector<TokenId> tokens;
    bool sample = true;
    Position write_floor = 0;
    Position visible_from = 0;
  };
  // Runs one step of these row groups.
  const StepResult& Run(const std::vector<Group>& parts);
  // Prefills `tokens` from position 0 in chunks, sampling after each that ends in the tail; returns
  // the last token.
  TokenId Prefill(int slot, const std::vector<TokenId>& tokens, size_t chunk);
  // Feeds `token` at `position`; returns the next one.
  TokenId Decode(int slot, Position position, TokenId token);

  const Row& logits(int slot, Position position) const { return logits_.at({slot, position}); }
  bool has_logits(int slot, Position position) const { return logits_.count({slot, position}) > 0; }
  // Of the latest run of each position, whichever slot it was: [what][layer][position].
  std::map<std::string, std::map<int, std::map<int, std::vector<int32_t>>>> lists;
  std::map<int, std::map<int, Row>> layers;

 private:
  void TakePages(uint64_t seed);
  void OnTensor(std::string_view what, int layer, kernels::Stream& stream,
                const kernels::Tensor& tensor, int rows);

  static constexpr int kSlots = 8;

  std::shared_ptr<const LoadedModel> loaded_;
  std::vector<std::byte> arena_[kPartCount];
  std::vector<std::byte> states_;
  std::vector<std::vector<PageId>> tables_[kPartCount];
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
