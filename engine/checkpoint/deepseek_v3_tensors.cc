// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/checkpoint/deepseek_tensors.h"
#include "engine/checkpoint/tensor_list.h"

namespace weir::engine {
namespace {

using kernels::DType;

void AddMlp(const std::string& p, int64_t width, int64_t hidden, TensorList* list) {
  list->Fp8(p + "gate_proj", width, hidden);
  list->Fp8(p + "up_proj", width, hidden);
  list->Fp8(p + "down_proj", hidden, width);
}

void AddAttention(const DeepseekV3Config& c, const std::string& p, TensorList* list) {
  const int64_t q_width = int64_t{c.heads} * (c.nope_dim + c.rope_dim);
  list->In(ModelPart::kAttention);
  if (c.q_rank > 0) {
    list->Fp8(p + "q_a_proj", c.q_rank, c.hidden);
    list->Vector(p + "q_a_layernorm.weight", c.q_rank);
    list->Fp8(p + "q_b_proj", q_width, c.q_rank);
  } else {
    list->Fp8(p + "q_proj", q_width, c.hidden);
  }
  list->Fp8(p + "kv_a_proj_with_mqa", c.kv_rank + c.rope_dim, c.hidden);
  list->Vector(p + "kv_a_layernorm.weight", c.kv_rank);
  list->Fp8(p + "kv_b_proj", int64_t{c.heads} * (c.nope_dim + c.value_dim), c.kv_rank);
  list->Fp8(p + "o_proj", c.hidden, int64_t{c.heads} * c.value_dim);
}

// V3.2's selection of the tokens that attention reads.
void AddIndexer(const DeepseekV3Config& c, const std::string& p, TensorList* list) {
  list->In(ModelPart::kIndexer);
  list->Fp8(p + "wq_b", int64_t{c.index_heads} * c.index_dim, c.q_rank);
  list->Fp8(p + "wk", c.index_dim, c.hidden);
  list->Vector(p + "k_norm.weight", c.index_dim, DType::kF32);
  list->Vector(p + "k_norm.bias", c.index_dim, DType::kF32);
  list->Plain(p + "weights_proj", c.index_heads, c.hidden);
}

void AddExperts(const DeepseekV3Config& c, const std::string& p, TensorList* list) {
  list->In(ModelPart::kRouter).Plain(p + "gate", c.experts, c.hidden);
  if (c.router == RouterKind::kSigmoidBias) {
    list->Vector(p + "gate.e_score_correction_bias", c.experts, DType::kF32);
  }
  list->In(ModelPart::kExperts);
  for (int e = 0; e < c.experts; ++e) {
    AddMlp(absl::StrCat(p, "experts.", e, "."), c.expert_width, c.hidden, list);
  }
  list->In(ModelPart::kSharedExperts);
  if (c.shared_experts > 0) {
    AddMlp(p + "shared_experts.", int64_t{c.shared_experts} * c.expert_width, c.hidden, list);
  }
}

void AddLayer(const DeepseekV3Config& c, int index, TensorList* list) {
  const std::string p = absl::StrCat("model.layers.", index, ".");
  list->In(ModelPart::kResidual).Vector(p + "input_layernorm.weight", c.hidden);
  list->Vector(p + "post_attention_layernorm.weight", c.hidden);
  AddAttention(c, p + "self_attn.", list);
  if (c.index_heads > 0) AddIndexer(c, p + "self_attn.indexer.", list);
  if (index < c.dense_layers) {
    list->In(ModelPart::kDense);
    AddMlp(p + "mlp.", c.dense_width, c.hidden, list);
  } else {
    AddExperts(c, p + "mlp.", list);
  }
}

// One layer that predicts a token further, with copies of the embeddings. Every tensor is optional:
// many copies of a release go without.
void AddDraftLayer(const DeepseekV3Config& c, int index, TensorList* list) {
  const std::string p = absl::StrCat("model.layers.", index, ".");
  list->Table(p + "embed_tokens.weight", c.vocab, c.hidden);
  list->Vector(p + "enorm.weight", c.hidden);
  list->Vector(p + "hnorm.weight", c.hidden);
  list->Plain(p + "eh_proj", c.hidden, int64_t{2} * c.hidden);
  list->Vector(p + "shared_head.norm.weight", c.hidden);
  list->Plain(p + "shared_head.head", c.vocab, c.hidden);
  AddLayer(c, index, list);
}

}  // namespace

std::vector<ExpectedTensor> DeepseekV3Tensors(const DeepseekV3Config& c) {
  TensorList list(ScaleForm::kInverseF32, {c.block_rows, c.block_cols});
  list.In(ModelPart::kEmbedding).Table("model.embed_tokens.weight", c.vocab, c.hidden);
  list.Plain("lm_head", c.vocab, c.hidden);
  list.In(ModelPart::kResidual).Vector("model.norm.weight", c.hidden);
  for (int i = 0; i < c.layers; ++i) AddLayer(c, i, &list);
  std::vector<ExpectedTensor> tensors = list.Take();
  TensorList draft(ScaleForm::kInverseF32, {c.block_rows, c.block_cols});
  for (int i = 0; i < c.draft_layers; ++i) AddDraftLayer(c, c.layers + i, &draft);
  for (ExpectedTensor& tensor : draft.Take()) {
    const bool copy = absl::StrContains(tensor.name, "embed_tokens") ||
                      absl::StrContains(tensor.name, "shared_head.head");
    tensor.part = copy ? ModelPart::kDraftCopy : ModelPart::kDraft;
    tensor.optional = true;
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace weir::engine
