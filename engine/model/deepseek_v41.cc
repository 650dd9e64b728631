// SPDX-License-Identifier: Apache-2.0
#include "engine/model/deepseek_v41.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/stdx/bytes.h"
#include "base/stdx/hash.h"
#include "engine/checkpoint/deepseek_v41_config.h"
#include "engine/checkpoint/engram_token_map.h"
#include "engine/model/choose_backend.h"
#include "engine/model/deepseek_v41_pass.h"
#include "engine/model/step_runner.h"

namespace weir::engine {
namespace {

constexpr uint32_t kBlockTokens = 128;  // decisions, ruling 3

struct LoadedV41 final : TextModel {
  std::unique_ptr<ForwardPass> NewPass(const PassContext& context) const override;

  DeepseekV41Config config;
  V41Stores stores;
  std::vector<int32_t> token_map;
  std::unique_ptr<const DeepseekV41Weights> weights;  // destroyed before options.backend
};

std::unique_ptr<ForwardPass> LoadedV41::NewPass(const PassContext& context) const {
  const auto pad = static_cast<size_t>(config.engram.pad_token);
  const int32_t pad_id = pad < token_map.size() ? token_map[pad] : 0;
  return std::make_unique<V41Pass>(V41Setting{config, stores, *weights, pad_id}, context);
}

absl::Status Describe(const std::string& config_json, LoadedV41* model) {
  const DeepseekV41Config& c = model->config;
  ModelInfo& info = model->info;
  info.family = "deepseek_v41";
  info.vocab = static_cast<uint32_t>(c.vocab);
  info.positions_max = static_cast<Position>(c.positions_max);
  info.window = static_cast<uint32_t>(c.window);
  info.window_layers = static_cast<uint32_t>(model->stores.encoder_layers);
  info.history = c.engram.empty() ? 0 : static_cast<uint32_t>(c.engram.orders);
  info.decoder_tail_rows = info.window;  // decisions, ruling 4
  info.layout = model->stores.layout;
  info.stop_tokens = c.stop_tokens;
  const std::string map(reinterpret_cast<const char*>(model->token_map.data()),
                        model->token_map.size() * sizeof(int32_t));
  const Sha256Digest weights = model->weights->checkpoint().Digest();
  info.digest = HexOf(Sha256(BytesOf(config_json + HexOf(weights) + map)));
  return info.layout.Validate();
}

// What the forward pass takes for granted beyond what every V4.1 configuration must say.
absl::Status CheckShape(const DeepseekV41Config& c) {
  const int encoder = c.kv_sources.empty() ? 0 : c.kv_sources.back() + 1;
  for (const int layer : c.engram.layers) {
    if (layer >= encoder) {
      return Error(Reason::kBadField, "engram_layer_ids must lie in the encoder",
                   "engram_layer_ids");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const LoadedModel>> LoadDeepseekV41(const std::string& directory,
                                                                   const std::string& config_json,
                                                                   const LoadOptions& options) {
  return LoadDeepseekV41With(directory, config_json, options, {});
}

absl::StatusOr<std::shared_ptr<const LoadedModel>> LoadDeepseekV41With(
    const std::string& directory, const std::string& config_json, const LoadOptions& options,
    TextModelOptions more) {
  auto model = std::make_shared<LoadedV41>();
  WEIR_ASSIGN(model->config, ParseDeepseekV41Config(config_json));
  const DeepseekV41Config& c = model->config;
  WEIR_TRY(CheckShape(c));
  WEIR_ASSIGN(const kernels::Numerics numerics, NumericsOf(options));
  if (more.backend == nullptr) {
    WEIR_ASSIGN(more.backend, ChooseBackend(options));
  }
  if (more.experts.slot_of.empty()) more.experts = ExpertMap::Identity(c.layers, c.experts);
  model->options = std::move(more);
  model->stores = MakeV41Stores(c, options.block_tokens != 0 ? options.block_tokens : kBlockTokens,
                                numerics != kernels::Numerics::kFp32);
  WEIR_TRY(model->stores.layout.Validate());
  model->formats = model->stores.formats;
  model->experts = c.experts;
  model->experts_per_token = c.experts_per_token;
  if (!c.engram.empty()) {
    WEIR_ASSIGN(model->token_map, ReadEngramTokenMap(directory, c));
  }
  WEIR_ASSIGN(std::unique_ptr<Weights> checkpoint, Weights::Open(directory));
  WEIR_ASSIGN(model->weights,
              DeepseekV41Weights::Load(c, std::move(checkpoint), model->token_map,
                                       model->options.experts, model->options.backend.get()));
  WEIR_TRY(Describe(config_json, model.get()));
  return NewLoadedModel(std::move(model));
}

}  // namespace weir::engine
