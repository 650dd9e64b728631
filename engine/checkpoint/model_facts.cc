// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/model_facts.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/stdx/units.h"
#include "engine/checkpoint/deepseek_tensors.h"

namespace weir::engine {
namespace {

constexpr int64_t kBf16 = 2;
constexpr int64_t kF32 = 4;

// Everything but KV, states and roles.
ModelFacts FactsOf(const TextShape& c, std::vector<ExpectedTensor> tensors) {
  ModelFacts facts;
  facts.vocab = c.vocab;
  facts.layers = c.layers;
  facts.positions_max = c.positions_max;
  facts.tensors = std::move(tensors);
  for (const ExpectedTensor& tensor : facts.tensors) {
    PartFacts& part = facts.parts[static_cast<size_t>(tensor.part)];
    part.tensors += tensor.stored_tensors();
    part.parameters += tensor.values();
    part.bytes += tensor.bytes();
  }
  double active = static_cast<double>(facts.BackboneParameters());
  active -= static_cast<double>(facts.part(ModelPart::kEmbedding).parameters) / 2;
  if (c.experts > 0) {
    active -= static_cast<double>(facts.part(ModelPart::kExperts).parameters) *
              (c.experts - c.experts_per_token) / c.experts;
  }
  facts.active_parameters = active;
  return facts;
}

// Drafting is the decode role's, and prefill leaves it the rows to start from.
void AddRoles(ModelFacts* facts, int64_t state, int64_t draft_state) {
  const int64_t tables = facts->part(ModelPart::kEngramTable).bytes;
  const int64_t draft = facts->part(ModelPart::kDraft).bytes;
  const int64_t vision = facts->part(ModelPart::kVision).bytes;
  const int64_t all = facts->Total().bytes - facts->part(ModelPart::kDraftCopy).bytes;
  const int64_t text = all - draft - vision;
  facts->roles = {{"serve", all, tables, state + draft_state, true},
                  {"prefill", text, tables, state, true},
                  {"decode", text + draft, tables, state + draft_state, true}};
  if (vision > 0) facts->roles.push_back({"vision", vision, 0, 0, false});
}

// Bytes of a sequence's state, of the model's layers and the drafter's.
struct WindowedState {
  int64_t windows = 0;
  int64_t carry = 0;    // rows of groups that are not full
  int64_t history = 0;  // 0: the family has none
  int64_t draft_windows = 0;
};

void AddStatesAndRoles(const WindowedState& s, ModelFacts* facts) {
  facts->states = {{"windows", s.windows}, {"groups that are not full", s.carry}};
  if (s.history > 0) facts->states.push_back({"n-gram history", s.history});
  facts->states.push_back({"drafter's windows", s.draft_windows});
  AddRoles(facts, s.windows + s.carry + s.history, s.draft_windows);
}

absl::StatusOr<ModelFacts> DescribeMla(std::string_view json, bool bf16_release) {
  WEIR_ASSIGN(const DeepseekV3Config c, ParseDeepseekV3Config(json));
  ModelFacts facts = FactsOf(c, DeepseekV3Tensors(c));
  // FP8: values in groups of 128 with an F32 scale each, the rotated part in BF16; an index key is
  // FP8 with one F32 scale.
  const int64_t index = c.index_heads > 0 ? c.index_dim + kF32 : 0;
  const int64_t fp8 = c.kv_rank + CeilDiv(c.kv_rank, 128) * kF32 + c.rope_dim * kBf16 + index;
  const int64_t bf16 = (c.kv_rank + c.rope_dim) * kBf16 + index;
  const KvFacts in_fp8{"FP8 latent, BF16 rotated part", static_cast<double>(c.layers * fp8)};
  const KvFacts in_bf16{"BF16", static_cast<double>(c.layers * bf16)};
  facts.kv = bf16_release ? std::vector{in_bf16, in_fp8} : std::vector{in_fp8, in_bf16};
  AddRoles(&facts, 0, 0);
  return facts;
}

absl::StatusOr<ModelFacts> DescribeV4(std::string_view json) {
  WEIR_ASSIGN(const DeepseekV4Config c, ParseDeepseekV4Config(json));
  ModelFacts facts = FactsOf(c, DeepseekV4Tensors(c));
  // FP8 in groups of 64 with a scale byte each, the rotated part in BF16, padded to 8.
  const int64_t plain = c.head_dim - c.rope_dim;
  const int64_t row = AlignUp<int64_t>(plain + c.rope_dim * kBf16 + CeilDiv<int64_t>(plain, 64), 8);
  const int64_t key = c.index_dim / 2 + c.index_dim / 32;
  double per_token = 0;
  WindowedState state;
  for (int i = 0; i < c.layers; ++i) {
    const int ratio = c.ratios[static_cast<size_t>(i)];
    if (ratio == 0) continue;
    const bool indexed = ratio == DeepseekV4Config::kIndexedRatio;
    per_token += static_cast<double>(row + (indexed ? key : 0)) / ratio;
    // Values and scores in F32 of the rows that wait; overlapping ones wait for two groups, and
    // project twice the width.
    const int64_t width = c.head_dim + (indexed ? c.index_dim : 0);
    state.carry += (indexed ? 4 : 1) * int64_t{ratio} * width * 2 * kF32;
  }
  facts.kv = {{"FP8 rows, FP4 index", per_token}};
  const int64_t window = c.window * row;
  state.windows = c.layers * window;
  state.draft_windows = c.draft_layers * window;
  AddStatesAndRoles(state, &facts);
  return facts;
}

absl::StatusOr<ModelFacts> DescribeV41(std::string_view json) {
  WEIR_ASSIGN(const DeepseekV41Config c, ParseDeepseekV41Config(json));
  ModelFacts facts = FactsOf(c, DeepseekV41Tensors(c));
  // FP4 rows with a scale byte for 16 values, index keys with one for 32, FP8 windows with one
  // for 32.
  const int64_t row = c.head_dim / 2 + c.head_dim / 16;
  const int64_t key = c.index_dim / 2 + c.index_dim / 32;
  double per_token = 0;
  WindowedState state;
  for (const int source : c.kv_sources) {
    const int ratio = c.ratios[static_cast<size_t>(source)];
    per_token += static_cast<double>(row + key) / ratio;
    state.carry += int64_t{ratio - 1} * c.head_dim * 2 * kF32;
  }
  facts.kv = {{"FP4 rows, FP4 index", per_token}};
  const int64_t window = int64_t{c.window} * (c.head_dim + c.head_dim / 32);
  state.windows = c.layers * window;
  state.history = c.engram.empty() ? 0 : int64_t{c.engram.orders} * 4;
  state.draft_windows = c.draft.stages * window;
  AddStatesAndRoles(state, &facts);
  return facts;
}

absl::StatusOr<ModelFacts> Describe(const std::string& type, std::string_view json) {
  if (type == "deepseek_v2") return DescribeMla(json, /*bf16_release=*/true);
  if (type == "deepseek_v3" || type == "deepseek_v32") return DescribeMla(json, false);
  if (type == "deepseek_v4") return DescribeV4(json);
  if (type == "deepseek_v41") return DescribeV41(json);
  return Error(Reason::kUnknownModel,
               absl::StrCat("config.json: model_type \"", type,
                            "\" is none of deepseek_v2, deepseek_v3, deepseek_v32, deepseek_v4 and "
                            "deepseek_v41"),
               "model_type");
}

}  // namespace

PartFacts ModelFacts::Total() const {
  PartFacts total;
  for (const PartFacts& part : parts) {
    total.tensors += part.tensors;
    total.parameters += part.parameters;
    total.bytes += part.bytes;
  }
  return total;
}

int64_t ModelFacts::BackboneParameters() const {
  int64_t others = 0;
  for (const ModelPart which :
       {ModelPart::kEngramTable, ModelPart::kDraft, ModelPart::kDraftCopy, ModelPart::kVision}) {
    others += part(which).parameters;
  }
  return Total().parameters - others;
}

absl::StatusOr<ModelFacts> DescribeModel(std::string_view config_json) {
  WEIR_ASSIGN(const std::string type, ParseModelType(config_json));
  WEIR_ASSIGN(ModelFacts facts, Describe(type, config_json));
  facts.model_type = type;
  return facts;
}

}  // namespace weir::engine
