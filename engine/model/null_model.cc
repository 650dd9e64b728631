// SPDX-License-Identifier: Apache-2.0
#include "engine/model/null_model.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/stdx/bytes.h"
#include "base/stdx/check.h"
#include "base/stdx/hash.h"
#include "engine/model/stand_in_config.h"

namespace weir::engine {
namespace {

class NullModel : public Model {
 public:
  explicit NullModel(const NullOptions& options) : options_(options) {}

  void Launch(const StepPlan& plan) override { plan_ = &plan; }

  bool Collect(StepId id, bool, StepResult* out) override {
    WEIR_CHECK(plan_ != nullptr && plan_->step == id);
    out->Clear();
    out->step = id;
    // One run of the constant serves as tokens and drafts of every group.
    out->drafts.assign(options_.draft_max, options_.token);
    for (const StepRow& row : plan_->rows) {
      if (!row.sample) continue;
      const bool verify = row.kind == RowKind::kVerify;
      const uint16_t count = verify && options_.accept_all ? row.count : uint16_t{1};
      if (out->tokens.size() < count) out->tokens.resize(count, options_.token);
      out->accepted.push_back({.slot = row.slot,
                               .count = count,
                               .draft_count = static_cast<uint16_t>(options_.draft_max)});
    }
    plan_ = nullptr;
    return true;
  }

 private:
  const NullOptions options_;
  const StepPlan* plan_ = nullptr;
};

class LoadedNullModel : public LoadedModel {
 public:
  explicit LoadedNullModel(const NullOptions& options) : options_(options) {
    info_.family = "weir_null";
    info_.vocab = options.vocab;
    info_.positions_max = options.positions_max;
    info_.draft_max = options.draft_max;
    info_.layout = CacheLayout(options.block_tokens, {{.name = "kv", .row_bytes = 1},
                                                      {.name = "carry",
                                                       .kind = StoreKind::kCarry,
                                                       .row_bytes = 8,
                                                       .rows = 2 * (options.draft_max + 1)}});
    const Sha256Digest digest = Sha256(BytesOf(
        absl::StrCat("weir_null ", options.vocab, " ", options.token, " ", options.accept_all)));
    info_.digest = std::string(digest.begin(), digest.end());
  }

  const ModelInfo& info() const override { return info_; }
  std::unique_ptr<Model> Instantiate(const KvMemory&) const override {
    return std::make_unique<NullModel>(options_);
  }

 private:
  const NullOptions options_;
  ModelInfo info_;
};

}  // namespace

std::shared_ptr<const LoadedModel> MakeNullModel(const NullOptions& options) {
  return std::make_shared<LoadedNullModel>(options);
}

absl::StatusOr<std::shared_ptr<const LoadedModel>> LoadNullModel(const std::string& directory,
                                                                 const std::string& config_json,
                                                                 const LoadOptions& load) {
  NullOptions options;
  WEIR_ASSIGN(StandInConfig json, StandInConfig::Parse(directory + "/config.json", config_json));
  std::string model_type;
  uint32_t accept_all = 1;
  json.Read("model_type", &model_type);
  json.Read("vocab_size", 1, 1 << 24, &options.vocab);
  json.Read("block_tokens", 1, 4096, &options.block_tokens);
  json.Read("draft_max", 0, 16, &options.draft_max);
  json.Read("positions_max", 2, 1u << 30, &options.positions_max);
  json.Read("token", &options.token);
  json.Read("accept_all", 0, 1, &accept_all);
  WEIR_TRY(json.Finish());
  options.accept_all = accept_all == 1;
  if (load.block_tokens != 0) options.block_tokens = load.block_tokens;
  if (options.token < 0 || static_cast<uint32_t>(options.token) >= options.vocab) {
    return Error(Reason::kBadField, "token must be in the vocabulary", "token");
  }
  return MakeNullModel(options);
}

}  // namespace weir::engine
