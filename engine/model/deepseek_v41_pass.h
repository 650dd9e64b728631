// SPDX-License-Identifier: Apache-2.0
//
// V41Pass: the forward computation of V4.1 as a list of operations, one pass of rows at a time: the
// encoder over all rows, the decoder over the tail. Owned by one model and used on its step thread;
// weights and stores outlive it. Calls enqueue work and do not block.
#pragma once

#include <vector>

#include "engine/model/deepseek_v41_stores.h"
#include "engine/model/deepseek_v41_weights.h"
#include "engine/model/step_runner.h"
#include "kernels/op/ops.h"

namespace weir::engine {

// What of the checkpoint a pass works on; all of it outlives the pass.
struct V41Setting {
  const DeepseekV41Config& config;
  const V41Stores& stores;
  const DeepseekV41Weights& weights;
  int32_t pad = 0;  // compressed id of Engram's pad token
};

class V41Pass final : public ForwardPass {
 public:
  V41Pass(const V41Setting& setting, const PassContext& context);

  void Run(const StepInputs& inputs, const kernels::Tensor& logits) override;

 private:
  // Where a layer finds its stores; constant.
  struct LayerStores {
    int source = -1;  // place of the KV source it reads among all; -1: its window only
    int pair = -1;    // layer within the pair carries, of a source of ratio 2
    int window = -1;  // store, and layer within it
    int window_layer = 0;
  };

  void TakeBuffers(const PassContext& context);
  void PlaceStores();
  void EnterDecoder();
  void Layer(int l);
  void Engram(int l, const V41Layer& layer);
  void Attention(int l, const V41Layer& layer);
  void Compress(int l, const V41Layer& layer);
  void Select(int l, const V41Layer& layer);
  void Moe(int l, const V41Layer& layer);
  void Logits(const kernels::Tensor& logits);

  void Mix(const V41Mix& mix, const kernels::Tensor& pre);
  void Collapse(const kernels::Tensor& pre, const kernels::Tensor& norm);
  void Expand();
  void Norm(const kernels::Tensor& x, const kernels::Tensor& weight, int width, int count);
  void Linear(const kernels::Tensor& x, const kernels::Matrix& weight, const kernels::Tensor& out);
  void Rotate(const kernels::Tensor& x, int heads, int width, bool inverse);
  void Tap(std::string_view what, int l, const kernels::Tensor& tensor) {
    if (tap_) tap_(what, l, stream_, tensor, rows_->count);
  }

  const V41Setting setting_;
  const DeepseekV41Config& config_;
  const kernels::Ops& ops_;
  const KvStores& kv_;
  kernels::Stream& stream_;
  EpComm& ep_;
  const TensorTap& tap_;
  std::vector<LayerStores> layer_stores_;

  // Buffers. Two of those that a pass narrows from all rows to its tail.
  kernels::Tensor streams_[2], pre_[2], selected_[2], candidates_[2];
  kernels::Tensor pre_attention_, post_, comb_;
  kernels::Tensor hidden_, normed_, block_;  // collapsed streams; input and output of a sublayer
  kernels::Tensor q_latent_, q_, kv_row_, window_rows_, attention_scratch_, attended_, low_;
  kernels::Tensor pair_values_, pair_gates_, latent_, key_;
  kernels::Tensor index_q_, index_weight_, index_scratch_;
  kernels::Tensor ngram_id_, table_row_, ngram_, ngram_kv_;
  kernels::Tensor gate_, up_, expert_, expert_weight_, expert_hidden_, expert_out_;
  kernels::Tensor sampled_streams_, sampled_pre_, sampled_;

  // The pass under way.
  const StepInputs* inputs_ = nullptr;
  const kernels::StepRows* rows_ = nullptr;
  int half_ = 0;  // which of the doubled buffers holds the current rows
  kernels::Tensor frequency_;  // of the current layer
};

}  // namespace weir::engine
