// SPDX-License-Identifier: Apache-2.0
#include "engine/model/deepseek_v3.h"

#include <utility>

#include "base/stdx/bytes.h"
#include "base/stdx/hash.h"
#include "engine/model/choose_backend.h"
#include "engine/model/deepseek_v3_pass.h"
#include "engine/model/step_runner.h"

namespace weir::engine {
namespace {

using kernels::RowFormat;

constexpr uint32_t kBlockTokens = 64;  // decisions, ruling 3

struct LoadedV3 final : TextModel {
  std::unique_ptr<ForwardPass> NewPass(const PassContext& context) const override {
    return std::make_unique<V3Pass>(config, *weights, context);
  }

  DeepseekV3Config config;
  std::unique_ptr<const DeepseekV3Weights> weights;  // destroyed before options.backend
};

Store RowsOfLayers(std::string name, const DeepseekV3Config& c, RowFormat format, int width) {
  Store store;
  store.name = std::move(name);
  store.kind = StoreKind::kBlock;
  store.part = Part::kDecoder;
  store.layers = static_cast<uint16_t>(c.layers);
  store.row_bytes = static_cast<uint32_t>(kernels::RowBytes(format, static_cast<size_t>(width)));
  return store;
}

absl::Status Describe(const std::string& config_json, const LoadOptions& options,
                      const Weights& checkpoint, LoadedV3* model) {
  const DeepseekV3Config& c = model->config;
  std::vector<Store> stores = {
      RowsOfLayers("mla.latent", c, model->formats[0], c.kv_rank + c.rope_dim)};
  if (c.index_heads > 0) {
    stores.push_back(RowsOfLayers("index.key", c, model->formats[1], c.index_dim));
  }
  ModelInfo& info = model->info;
  info.family = c.model_type;
  info.vocab = static_cast<uint32_t>(c.vocab);
  info.positions_max = static_cast<Position>(c.positions_max);
  const uint32_t block = options.block_tokens != 0 ? options.block_tokens : kBlockTokens;
  info.layout = CacheLayout(block, std::move(stores));
  info.stop_tokens = c.stop_tokens;
  const Sha256Digest weights = checkpoint.Digest();
  info.digest = HexOf(Sha256(BytesOf(config_json + HexOf(weights))));
  return info.layout.Validate();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const LoadedModel>> LoadDeepseekV3(const std::string& directory,
                                                                  const std::string& config_json,
                                                                  const LoadOptions& options) {
  return LoadDeepseekV3With(directory, config_json, options, {});
}

absl::StatusOr<std::shared_ptr<const LoadedModel>> LoadDeepseekV3With(
    const std::string& directory, const std::string& config_json, const LoadOptions& options,
    TextModelOptions more) {
  auto model = std::make_shared<LoadedV3>();
  WEIR_ASSIGN(model->config, ParseDeepseekV3Config(config_json));
  WEIR_ASSIGN(const kernels::Numerics numerics, NumericsOf(options));
  const DeepseekV3Config& c = model->config;
  if (numerics == kernels::Numerics::kVendor && c.model_type != "deepseek_v3") {
    return Error(Reason::kBadField,
                 "numerics vendor is there for deepseek_v3 and deepseek_v41 alone", "numerics");
  }
  const bool quantised = numerics != kernels::Numerics::kFp32;
  model->formats = {quantised ? RowFormat::kBf16 : RowFormat::kF32};
  if (c.index_heads > 0) {
    model->formats.push_back(quantised ? RowFormat::kFp8Block128 : RowFormat::kF32);
  }
  model->experts = c.experts;
  model->experts_per_token = c.experts_per_token;
  if (more.backend == nullptr) {
    WEIR_ASSIGN(more.backend, ChooseBackend(options));
  }
  if (more.experts.slot_of.empty()) {
    more.experts = ExpertMap::Identity(c.layers - c.dense_layers, c.experts);
  }
  model->options = std::move(more);
  WEIR_ASSIGN(const std::unique_ptr<Weights> checkpoint, Weights::Open(directory));
  WEIR_ASSIGN(model->weights, DeepseekV3Weights::Load(c, *checkpoint, model->options.experts,
                                                      model->options.backend.get()));
  WEIR_TRY(Describe(config_json, options, *checkpoint, model.get()));
  return NewLoadedModel(std::move(model));
}

}  // namespace weir::engine
