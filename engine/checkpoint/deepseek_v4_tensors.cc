// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/deepseek_v4_tensors.h"

#include "absl/strings/str_cat.h"
#include "engine/checkpoint/deepseek_tensors.h"

namespace weir::engine {

using kernels::DType;

namespace {

// Softmax-pooled rows of `width`; overlapping ones project each token for two rows.
void AddCompressor(const DeepseekV4Config& c, int ratio, int width, const std::string& p,
                   TensorList* list) {
  const int64_t wide = int64_t{width} * (ratio == DeepseekV4Config::kIndexedRatio ? 2 : 1);
  list->Plain(p + "wkv", wide, c.hidden);
  list->Plain(p + "wgate", wide, c.hidden);
  list->Matrix(p + "ape", ratio, wide, DType::kF32);
  list->Vector(p + "norm.weight", width);
}

void AddLayer(const DeepseekV4Config& c, int index, TensorList* list) {
  const bool draft = index >= c.layers;
  const std::string p =
      draft ? absl::StrCat("mtp.", index - c.layers, ".") : absl::StrCat("layers.", index, ".");
  const int ratio = c.ratios[static_cast<size_t>(index)];
  AddV4Block(c, p, list);
  if (ratio > 0) {
    list->In(ModelPart::kAttention);
    AddCompressor(c, ratio, c.head_dim, p + "attn.compressor.", list);
  }
  if (ratio == DeepseekV4Config::kIndexedRatio) {
    list->In(ModelPart::kIndexer);
    list->Fp8(p + "attn.indexer.wq_b", int64_t{c.index_heads} * c.index_dim, c.q_rank);
    list->Plain(p + "attn.indexer.weights_proj", c.index_heads, c.hidden);
    AddCompressor(c, ratio, c.index_dim, p + "attn.indexer.compressor.", list);
  }
  list->In(ModelPart::kRouter).Plain(p + "ffn.gate", c.experts, c.hidden);
  if (index < c.hash_layers) {
    list->Indices(p + "ffn.gate.tid2eid", c.vocab, c.experts_per_token);
  } else {
    list->Vector(p + "ffn.gate.bias", c.experts, DType::kF32);
  }
  AddV4Experts(c, p + "ffn.", c.experts, list);
}

// The last collapse of the streams.
void AddHead(const DeepseekV4Config& c, const std::string& p, TensorList* list) {
  list->In(ModelPart::kResidual).Vector(p + "norm.weight", c.hidden);
  list->Matrix(p + "hc_head_fn", c.streams, int64_t{c.streams} * c.hidden, DType::kF32);
  list->Vector(p + "hc_head_base", c.streams, DType::kF32);
  list->Vector(p + "hc_head_scale", 1, DType::kF32);
}

}  // namespace

void AddV4Block(const DeepseekV4Shape& c, const std::string& p, TensorList* list) {
  list->In(ModelPart::kResidual).Vector(p + "attn_norm.weight", c.hidden);
  list->Vector(p + "ffn_norm.weight", c.hidden);
  for (const char* site : {"hc_attn", "hc_ffn"}) {
    list->Matrix(absl::StrCat(p, site, "_fn"), c.mix_width(), int64_t{c.streams} * c.hidden,
                 DType::kF32);
    list->Vector(absl::StrCat(p, site, "_base"), c.mix_width(), DType::kF32);
    list->Vector(absl::StrCat(p, site, "_scale"), 3, DType::kF32);
  }
  const std::string a = p + "attn.";
  const int64_t width = int64_t{c.heads} * c.head_dim;
  list->In(ModelPart::kAttention).Fp8(a + "wq_a", c.q_rank, c.hidden);
  list->Vector(a + "q_norm.weight", c.q_rank);
  list->Fp8(a + "wq_b", width, c.q_rank);
  list->Fp8(a + "wkv", c.head_dim, c.hidden);
  list->Vector(a + "kv_norm.weight", c.head_dim);
  list->Vector(a + "attn_sink", c.heads, DType::kF32);
  // One block of o_rank rows for each group of heads.
  list->Fp8(a + "wo_a", int64_t{c.o_groups} * c.o_rank, width / c.o_groups);
  list->Fp8(a + "wo_b", c.hidden, int64_t{c.o_groups} * c.o_rank);
}

void AddV4Experts(const DeepseekV4Shape& c, const std::string& p, int experts, TensorList* list) {
  list->In(ModelPart::kExperts);
  for (int e = 0; e < experts; ++e) {
    const std::string expert = absl::StrCat(p, "experts.", e, ".");
    list->Fp4(expert + "w1", c.expert_width, c.hidden, kFp4Group);
    list->Fp4(expert + "w2", c.hidden, c.expert_width, kFp4Group);
    list->Fp4(expert + "w3", c.expert_width, c.hidden, kFp4Group);
  }
  list->In(ModelPart::kSharedExperts);
  list->Fp8(p + "shared_experts.w1", c.expert_width, c.hidden);
  list->Fp8(p + "shared_experts.w2", c.hidden, c.expert_width);
  list->Fp8(p + "shared_experts.w3", c.expert_width, c.hidden);
}

std::vector<ExpectedTensor> DeepseekV4Tensors(const DeepseekV4Config& c) {
  const TensorBlock block{c.block_rows, c.block_cols};
  TensorList list(ScaleForm::kE8m0, block);
  list.In(ModelPart::kEmbedding).Table("embed.weight", c.vocab, c.hidden);
  list.Plain("head", c.vocab, c.hidden);
  AddHead(c, "", &list);
  for (int i = 0; i < c.layers; ++i) AddLayer(c, i, &list);
  std::vector<ExpectedTensor> tensors = list.Take();
  TensorList draft(ScaleForm::kE8m0, block);
  for (int i = 0; i < c.draft_layers; ++i) {
    const std::string p = absl::StrCat("mtp.", i, ".");
    draft.Fp8(p + "e_proj", c.hidden, c.hidden);
    draft.Fp8(p + "h_proj", c.hidden, c.hidden);
    draft.Vector(p + "enorm.weight", c.hidden);
    draft.Vector(p + "hnorm.weight", c.hidden);
    AddHead(c, p, &draft);
    AddLayer(c, c.layers + i, &draft);
  }
  for (ExpectedTensor& tensor : draft.Take()) {
    tensor.part = ModelPart::kDraft;
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace weir::engine
