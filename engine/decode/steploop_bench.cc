// SPDX-License-Identifier: Apache-2.0
#include "engine/decode/steploop_bench.h"

#include <algorithm>
#include <array>
#include <memory>

#include "base/stdx/check.h"
#include "base/stdx/units.h"
#include "engine/decode/decode_core.h"
#include "engine/model/null_model.h"

namespace weir::engine {
namespace {

constexpr InstanceId kPrefill{2};
constexpr uint32_t kBlockTokens = 64;

class Bench {
 public:
  explicit Bench(const StepLoopBenchOptions& options)
      : options_(options),
        answer_tokens_((options.warmup_steps + options.steps + 12) * options.rows),
        loaded_(MakeNullModel({.block_tokens = kBlockTokens, .draft_max = options.rows - 1})),
        model_(loaded_->Instantiate(KvMemory())),
        core_(MakeConfig()) {
    Give(PeerUp{.instance = kPrefill, .role = Role::kPrefill});
    for (uint32_t i = 0; i < options.sequences; ++i) Fill(i + 1);
    WEIR_CHECK(plan_ != nullptr && core_.state().slots_used == options.sequences);
    Step();  // the first sequence alone: it started before the others were filled in
  }

  void Step() {
    rows_ += plan_->tokens.size();
    model_->Launch(*plan_);
    model_->Collect(plan_->step, /*wait=*/true, &result_);
    actions_.Clear();
    core_.On(now_, StepDone{.result = result_}, &actions_);
    tokens_ += actions_.ids.size();
    plan_ = actions_.launch;
    WEIR_CHECK(plan_ != nullptr);
  }

  uint64_t rows() const { return rows_; }
  uint64_t tokens() const { return tokens_; }

 private:
  DecodeCore::Config MakeConfig() const {
    DecodeCore::Config config;
    config.model = loaded_->info();
    config.slots = options_.sequences;
    const auto blocks = static_cast<PageId>(
        CeilDiv(options_.context_tokens + answer_tokens_ + options_.rows, kBlockTokens) + 1);
    const auto sequences = static_cast<PageId>(options_.sequences);
    // One block more for each sequence: what an engine keeps free for sequences that may grow.
    config.kv.pages[1] = {.first = 0, .count = (blocks + 1) * sequences};
    config.kv.arena_pages[1] = (blocks + 1) * sequences;
    config.kv.states = {.first = 0, .count = sequences};
    config.kv.arena_states = sequences;
    return config;
  }

  template <class E>
  void Give(const E& event) {
    actions_.Clear();
    core_.On(now_, event, &actions_);
    if (actions_.launch != nullptr) plan_ = actions_.launch;
  }
  void Deliver(InstanceId from, const pb::Envelope& envelope) {
    Give(Received{.from = from, .message = envelope});
    fetches_.clear();
    for (const Fetch& fetch : actions_.fetches) fetches_.push_back(fetch.id);
    for (const FetchId fetch : fetches_) Give(FetchDone{.fetch = fetch});
  }

  // A sequence whose prompt was handed over and read.
  void Fill(uint64_t request) {
    pb::RequestKey key;
    key.set_router(1);
    key.set_request(request);
    key.set_attempt(1);
    pb::Envelope envelope;
    pb::Reserve& reserve = *envelope.mutable_reserve();
    *reserve.mutable_key() = key;
    reserve.set_token_count(options_.context_tokens);
    reserve.set_prompt_tokens(options_.context_tokens);
    reserve.set_new_tokens_max(answer_tokens_);
    Deliver(InstanceId(1), envelope);
    const uint32_t blocks = CeilDiv(options_.context_tokens, kBlockTokens);
    pb::ChunkDone& chunk = *envelope.mutable_chunk_done();
    *chunk.mutable_key() = key;
    for (uint32_t i = 0; i < blocks; ++i) chunk.add_decoder_pages(static_cast<PageId>(i));
    Deliver(kPrefill, envelope);
    pb::PrefillDone& done = *envelope.mutable_prefill_done();
    *done.mutable_key() = key;
    done.set_token_count(options_.context_tokens);
    done.set_block_count(blocks);
    done.set_first_token(1);
    for (uint32_t i = 1; i < options_.rows; ++i) done.add_drafts(1);
    Deliver(kPrefill, envelope);
  }

  const StepLoopBenchOptions options_;
  const uint32_t answer_tokens_;
  const std::shared_ptr<const LoadedModel> loaded_;
  const std::unique_ptr<Model> model_;
  DecodeCore core_;
  Instant now_{Millis(1)};
  EngineActions actions_;
  StepResult result_;
  std::vector<FetchId> fetches_;
  const StepPlan* plan_ = nullptr;
  uint64_t rows_ = 0;
  uint64_t tokens_ = 0;
};

}  // namespace

StepLoopBenchFigures RunStepLoopBench(const StepLoopBenchOptions& options,
                                      const StepLoopBenchHooks& hooks) {
  WEIR_CHECK(options.sequences > 0 && options.rows > 0 && options.steps > 0);
  // A first run pays for the pages of a new heap, which a server pays for once.
  {
    Bench cold(options);
    for (uint32_t i = 0; i < options.warmup_steps + options.steps; ++i) cold.Step();
  }
  Bench bench(options);
  for (uint32_t i = 0; i < options.warmup_steps; ++i) bench.Step();
  const auto allocations = [&hooks] { return hooks.allocations ? hooks.allocations() : 0; };
  const uint64_t rows = bench.rows(), tokens = bench.tokens(), allocated = allocations();
  // The median of ten stretches: on a shared machine one of them may meet a cold cache.
  std::array<double, 10> micros{};
  const uint32_t each = CeilDiv(options.steps, static_cast<uint32_t>(micros.size()));
  for (double& stretch : micros) {
    const int64_t start = hooks.cpu_nanos();
    for (uint32_t i = 0; i < each; ++i) bench.Step();
    stretch = static_cast<double>(hooks.cpu_nanos() - start) / 1000 / each;
  }
  std::sort(micros.begin(), micros.end());
  const double steps = each * static_cast<double>(micros.size());
  StepLoopBenchFigures figures;
  figures.cpu_micros_per_step = micros[micros.size() / 2];
  figures.allocations_per_step = static_cast<double>(allocations() - allocated) / steps;
  figures.rows_per_step = static_cast<double>(bench.rows() - rows) / steps;
  figures.tokens_per_step = static_cast<double>(bench.tokens() - tokens) / steps;
  return figures;
}

}  // namespace weir::engine
