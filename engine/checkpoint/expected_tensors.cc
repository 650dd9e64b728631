// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/expected_tensors.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/stdx/bytes.h"
#include "base/stdx/check.h"
#include "base/stdx/units.h"

namespace weir::engine {
namespace {

using kernels::DType;

class ListBuilder {
 public:
  void Vector(std::string name, int64_t size) {
    list_.push_back({std::move(name), TensorUse::kVector, {size}});
  }
  void Table(std::string name, int64_t rows, int64_t cols) {
    list_.push_back({std::move(name), TensorUse::kTable, {rows, cols}});
  }
  void Linear(const std::string& prefix, int64_t outputs, int64_t inputs) {
    list_.push_back({prefix + ".weight", TensorUse::kMatrix, {outputs, inputs}});
  }
  void Mlp(const std::string& prefix, int64_t width, int64_t hidden) {
    Linear(prefix + "gate_proj", width, hidden);
    Linear(prefix + "up_proj", width, hidden);
    Linear(prefix + "down_proj", hidden, width);
  }
  std::vector<ExpectedTensor> Take() { return std::move(list_); }

 private:
  std::vector<ExpectedTensor> list_;
};

void AddAttention(const DeepseekV3Config& c, const std::string& p, ListBuilder* list) {
  const int64_t q_width = int64_t{c.heads} * (c.nope_dim + c.rope_dim);
  if (c.q_rank > 0) {
    list->Linear(p + "q_a_proj", c.q_rank, c.hidden);
    list->Vector(p + "q_a_layernorm.weight", c.q_rank);
    list->Linear(p + "q_b_proj", q_width, c.q_rank);
  } else {
    list->Linear(p + "q_proj", q_width, c.hidden);
  }
  list->Linear(p + "kv_a_proj_with_mqa", c.kv_rank + c.rope_dim, c.hidden);
  list->Vector(p + "kv_a_layernorm.weight", c.kv_rank);
  list->Linear(p + "kv_b_proj", int64_t{c.heads} * (c.nope_dim + c.value_dim), c.kv_rank);
  list->Linear(p + "o_proj", c.hidden, int64_t{c.heads} * c.value_dim);
}

absl::Status Wrong(const std::string& name, std::string_view what) {
  return Error(Reason::kBadField, absl::StrCat("tensor \"", name, "\" ", AbslView(what)), name);
}

absl::Status CheckScales(const Weights& weights, const ExpectedTensor& want, TensorBlock block) {
  const std::string name = want.name + "_scale_inv";
  if (block.rows == 0) {
    return Wrong(want.name, "is F8_E4M3, but config.json has no quantization_config");
  }
  const TensorView* scales = weights.Find(name);
  if (scales == nullptr) return Wrong(name, "is missing");
  const std::vector<int64_t> shape = {CeilDiv(want.shape[0], block.rows),
                                      CeilDiv(want.shape[1], block.cols)};
  if (scales->dtype != DType::kF32 || scales->shape != shape) {
    return Wrong(name, absl::StrCat("is ", Describe(*scales), " but should be F32[",
                                    absl::StrJoin(shape, ", "), "]"));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<ExpectedTensor> DeepseekV3Tensors(const DeepseekV3Config& c) {
  ListBuilder list;
  list.Table("model.embed_tokens.weight", c.vocab, c.hidden);
  list.Vector("model.norm.weight", c.hidden);
  list.Linear("lm_head", c.vocab, c.hidden);
  for (int i = 0; i < c.layers; ++i) {
    const std::string p = absl::StrCat("model.layers.", i, ".");
    list.Vector(p + "input_layernorm.weight", c.hidden);
    list.Vector(p + "post_attention_layernorm.weight", c.hidden);
    AddAttention(c, p + "self_attn.", &list);
    if (i < c.dense_layers) {
      list.Mlp(p + "mlp.", c.dense_width, c.hidden);
      continue;
    }
    list.Linear(p + "mlp.gate", c.experts, c.hidden);
    list.Vector(p + "mlp.gate.e_score_correction_bias", c.experts);
    for (int e = 0; e < c.experts; ++e) {
      list.Mlp(absl::StrCat(p, "mlp.experts.", e, "."), c.expert_width, c.hidden);
    }
    if (c.shared_experts > 0) {
      list.Mlp(p + "mlp.shared_experts.", int64_t{c.shared_experts} * c.expert_width, c.hidden);
    }
  }
  return list.Take();
}

absl::StatusOr<size_t> CheckTensors(const Weights& weights,
                                    const std::vector<ExpectedTensor>& expected,
                                    TensorBlock block) {
  size_t used = 0;
  for (const ExpectedTensor& want : expected) {
    const TensorView* have = weights.Find(want.name);
    if (have == nullptr) return Wrong(want.name, "is missing");
    const bool plain = have->dtype == DType::kF32 || have->dtype == DType::kBf16;
    const bool scaled = want.use == TensorUse::kMatrix && have->dtype == DType::kF8E4m3;
    if (have->shape != want.shape || (!plain && !scaled)) {
      return Wrong(want.name, absl::StrCat("is ", Describe(*have), " but should be [",
                                           absl::StrJoin(want.shape, ", "), "] of F32, BF16",
                                           want.use == TensorUse::kMatrix ? " or F8_E4M3" : ""));
    }
    ++used;
    if (scaled) {
      WEIR_TRY(CheckScales(weights, want, block));
      ++used;
    }
  }
  return weights.count() - used;
}

kernels::HostMatrix HostMatrixOf(const Weights& weights, const std::string& name,
                                 TensorBlock block) {
  const TensorView* values = weights.Find(name);
  WEIR_CHECK(values != nullptr && values->shape.size() == 2);
  kernels::HostMatrix host{values->bytes.data(), values->dtype, values->shape[0], values->shape[1]};
  if (values->dtype == DType::kF8E4m3) {
    host.scales = weights.Find(name + "_scale_inv")->bytes.data();
    host.block_rows = block.rows;
    host.block_cols = block.cols;
  }
  return host;
}

}  // namespace weir::engine
