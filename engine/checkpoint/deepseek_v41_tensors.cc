// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/str_cat.h"
#include "engine/checkpoint/deepseek_tensors.h"
#include "engine/checkpoint/deepseek_v4_tensors.h"

namespace weir::engine {
namespace {

using kernels::DType;

void AddSources(const DeepseekV41Config& c, int layer, const std::string& p, TensorList* list) {
  if (c.is_kv_source(layer)) {
    list->In(ModelPart::kAttention).Plain(p + "compressor.wkv", c.head_dim, c.hidden);
    if (c.ratios[static_cast<size_t>(layer)] > 1) {
      list->Plain(p + "compressor.wgate", c.head_dim, c.hidden);
    }
    list->Vector(p + "compressor.norm.weight", c.head_dim);
    list->In(ModelPart::kIndexer).Plain(p + "indexer.wk", c.index_dim, c.head_dim);
    list->Vector(p + "indexer.k_norm.weight", c.index_dim);
  }
  if (c.is_index_source(layer)) {
    list->In(ModelPart::kIndexer);
    list->Fp8(p + "indexer.wq_b", int64_t{c.index_heads} * c.index_dim, c.q_rank);
    list->Plain(p + "indexer.weights_proj", c.index_heads, c.hidden);
  }
}

void AddBlock(const DeepseekV41Config& c, const std::string& p, int experts, TensorList* list) {
  AddV4Block(c, p, list);
  list->In(ModelPart::kRouter).Plain(p + "ffn.gate", experts, c.hidden);
  list->Vector(p + "ffn.gate.bias", experts, DType::kF32);
  list->Vector(p + "ffn.gate.bias_vl", experts, DType::kF32);
  AddV4Experts(c, p + "ffn.", experts, list);
}

void AddEngram(const DeepseekV41Config& c, TensorList* list) {
  for (size_t i = 0; i < c.engram.layers.size(); ++i) {
    const std::string p = absl::StrCat("layers.", c.engram.layers[i], ".engram.");
    list->In(ModelPart::kEngramTable);
    list->Fp8Table(p + "embed", c.engram.rows[i], c.engram.head_dim, kFp4Group);
    list->In(ModelPart::kEngram);
    // A key for each stream, and one value.
    list->Fp8(p + "wkv", int64_t{c.streams + 1} * c.hidden, c.engram.width());
    list->Table(p + "q_weight", c.streams, c.hidden);
    list->Table(p + "k_weight", c.streams, c.hidden);
  }
}

void AddDrafter(const DeepseekV41Config& c, TensorList* list) {
  const int last = c.draft.stages - 1;
  for (int i = 0; i <= last; ++i) {
    AddBlock(c, absl::StrCat("mtp.", i, "."), c.draft.experts, list);
  }
  const auto targets = static_cast<int64_t>(c.draft.target_layers.size());
  list->Fp8("mtp.0.main_proj", c.hidden, targets * c.hidden);
  list->Vector("mtp.0.main_norm.weight", c.hidden);
  const std::string p = absl::StrCat("mtp.", last, ".");
  list->Vector(p + "norm.weight", c.hidden);
  list->Table(p + "markov_head.embed.weight", c.vocab, c.draft.markov_rank);
  list->Plain(p + "markov_head.head", c.vocab, c.draft.markov_rank);
  list->Plain(p + "confidence_head.proj", 1, c.hidden + c.draft.markov_rank);
}

void AddBiased(const std::string& p, int64_t outputs, int64_t inputs, TensorList* list) {
  list->Plain(p, outputs, inputs);
  list->Vector(p + ".bias", outputs);
}

void AddVision(const VisionConfig& v, int64_t hidden, TensorList* list) {
  list->In(ModelPart::kVision);
  for (const char* name : {"image_start", "image_end", "image_newline"}) {
    list->Vector(name, hidden);
  }
  AddBiased("vision.patch_embed.proj", v.hidden, int64_t{3} * v.patch * v.patch, list);
  for (int i = 0; i < v.layers; ++i) {
    const std::string p = absl::StrCat("vision.blocks.", i, ".");
    list->Vector(p + "norm1.weight", v.hidden);
    list->Vector(p + "norm2.weight", v.hidden);
    AddBiased(p + "attn.wqkv", int64_t{3} * v.hidden, v.hidden, list);
    AddBiased(p + "attn.wo", v.hidden, v.hidden, list);
    list->Plain(p + "mlp.w1", int64_t{2} * v.width, v.hidden);
    list->Plain(p + "mlp.w2", v.hidden, v.width);
  }
  list->Vector("vision.norm.weight", v.hidden);
  AddBiased("aligner.w1", hidden, int64_t{v.downsample} * v.downsample * v.hidden, list);
  AddBiased("aligner.w2", hidden, hidden, list);
}

}  // namespace

std::vector<ExpectedTensor> DeepseekV41Tensors(const DeepseekV41Config& c) {
  TensorList list(ScaleForm::kE8m0, {c.block_rows, c.block_cols});
  list.In(ModelPart::kEmbedding).Table("embed.weight", c.vocab, c.hidden);
  list.Plain("head", c.vocab, c.hidden);
  list.In(ModelPart::kResidual).Vector("norm.weight", c.hidden);
  for (int i = 0; i < c.layers; ++i) {
    const std::string p = absl::StrCat("layers.", i, ".");
    AddBlock(c, p, c.experts, &list);
    AddSources(c, i, p + "attn.", &list);
  }
  AddEngram(c, &list);
  if (c.vision) AddVision(*c.vision, c.hidden, &list);
  std::vector<ExpectedTensor> tensors = list.Take();
  if (c.draft.stages == 0) return tensors;
  TensorList drafter(ScaleForm::kE8m0, {c.block_rows, c.block_cols});
  AddDrafter(c, &drafter);
  for (ExpectedTensor& tensor : drafter.Take()) {
    tensor.part = ModelPart::kDraft;
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace weir::engine
