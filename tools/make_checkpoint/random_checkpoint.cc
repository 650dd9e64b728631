// SPDX-License-Identifier: Apache-2.0
#include "tools/make_checkpoint/random_checkpoint.h"

#include <cmath>
#include <filesystem>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/stdx/bytes.h"
#include "base/stdx/hash.h"
#include "base/stdx/random.h"
#include "engine/checkpoint/deepseek_tensors.h"
#include "engine/checkpoint/mapped_file.h"
#include "tools/make_checkpoint/released_form.h"
#include "tools/make_checkpoint/safetensors_writer.h"

namespace weir::tools {
namespace {

using engine::ExpectedTensor;
using engine::TensorUse;

// Nearly normal: the sum of four uniform numbers of 16 bits, scaled to a deviation of 1.
float Draw(uint64_t seed, uint64_t stream, uint64_t index) {
  constexpr double kMean = 4 * 65535 / 2.0;
  constexpr double kDeviation = 37837.2;
  const uint64_t bits = RandomBits(seed, stream, index);
  const uint64_t sum =
      (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
  return static_cast<float>((static_cast<double>(sum) - kMean) / kDeviation);
}

struct Spread {
  float mean = 0;
  float deviation = 1;
};

Spread SpreadOf(const ExpectedTensor& tensor) {
  const auto ends = [&tensor](std::string_view suffix) {
    return absl::EndsWith(tensor.name, AbslView(suffix));
  };
  switch (tensor.use) {
    case TensorUse::kMatrix:
      return {0, 1.0f / std::sqrt(static_cast<float>(tensor.shape[1]))};
    case TensorUse::kTable:
      if (ends("q_weight") || ends("k_weight")) return {1, 0.3f};
      return {};
    case TensorUse::kPacked:
    case TensorUse::kIndices:
      return {};
    case TensorUse::kVector:
      break;
  }
  if (ends("attn_sink")) return {};
  if (ends("_base")) return {0, 0.3f};
  if (ends("_scale")) return {0.6f, 0.1f};
  if (ends("bias") || ends("bias_vl")) return {0, 0.1f};
  return {1, 0.1f};
}

absl::Status WriteWeights(const std::vector<ExpectedTensor>& tensors, const std::string& out,
                          uint64_t seed) {
  SafetensorsWriter writer;
  for (const ExpectedTensor& tensor : tensors) {
    const auto stream = LoadAs<uint64_t>(Sha256(BytesOf(tensor.name)).data());
    const Spread spread = SpreadOf(tensor);
    std::vector<float> values(static_cast<size_t>(tensor.values()));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = spread.mean + spread.deviation * Draw(seed, stream, i);
    }
    AddReleased(tensor, values, &writer);
  }
  return writer.Write(out + "/model.safetensors");
}

}  // namespace

absl::Status MakeRandomCheckpoint(const std::string& config_file, const std::string& out,
                                  uint64_t seed) {
  WEIR_ASSIGN(const std::string json, engine::ReadTextFile(config_file, engine::kConfigBytesMax));
  WEIR_ASSIGN(const std::string type, engine::ParseModelType(json));
  std::error_code error;
  std::filesystem::create_directories(out, error);
  if (error) return Error(Reason::kBadField, absl::StrCat("cannot make directory ", out), "out");
  if (type == "deepseek_v41") {
    WEIR_ASSIGN(const engine::DeepseekV41Config c, engine::ParseDeepseekV41Config(json));
    WEIR_TRY(WriteWeights(engine::DeepseekV41Tensors(c), out, seed));
  } else {
    WEIR_ASSIGN(const engine::DeepseekV3Config c, engine::ParseDeepseekV3Config(json));
    WEIR_TRY(WriteWeights(engine::DeepseekV3Tensors(c), out, seed));
  }
  return WriteFile(out + "/config.json", json);
}

}  // namespace weir::tools
