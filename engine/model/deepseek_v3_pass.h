// SPDX-License-Identifier: Apache-2.0
//
// V3Pass: the forward computation of V2, V3 and V3.2 as a list of operations, one pass of rows at a
// time. Owned by one model and used on its step thread; configuration and weights outlive it. Calls
// enqueue work and do not block.
#pragma once

#include "engine/model/deepseek_v3_weights.h"
#include "engine/model/step_runner.h"
#include "kernels/op/ops.h"

namespace weir::engine {

class V3Pass final : public ForwardPass {
 public:
  V3Pass(const DeepseekV3Config& config, const DeepseekV3Weights& weights,
         const PassContext& context);

  void Run(const StepInputs& inputs, const kernels::Tensor& logits) override;

 private:
  void TakeBuffers(const PassContext& context);
  void Attention(int index, const DeepseekV3Layer& layer);
  void Select(int index, const DeepseekV3Index& indexer);
  void FeedForward(int index, const DeepseekV3Layer& layer);
  void Mlp(const kernels::ExpertWeights& mlp, const kernels::Tensor& out);
  void Experts(int index, const DeepseekV3Layer& layer);
  void Logits(const kernels::Tensor& logits);

  void Norm(const kernels::Tensor& x, const kernels::Tensor& weight, double eps,
            const kernels::Tensor& out, int count);
  void Linear(const kernels::Tensor& x, const kernels::Matrix& weight, const kernels::Tensor& out);
  void AddBlock();
  void Tap(std::string_view what, int layer, const kernels::Tensor& tensor) {
    if (tap_) tap_(what, layer, stream_, tensor, rows_->count);
  }

  const DeepseekV3Config& config_;
  const DeepseekV3Weights& weights_;
  const float softmax_scale_;
  const kernels::Ops& ops_;
  const KvStores& kv_;
  kernels::Stream& stream_;
  EpComm& ep_;
  const TensorTap& tap_;

  // Buffers.
  kernels::Tensor hidden_, normed_, block_;  // residual; input and output of a sublayer
  kernels::Tensor q_latent_in_, q_, kv_a_, q_latent_, attended_, value_, scores_;
  kernels::Tensor index_q_, index_key_, index_weight_, index_scratch_, selected_;  // V3.2
  kernels::Tensor gate_, up_, expert_, weight_, expert_hidden_, expert_out_;
  kernels::Tensor sampled_;

  // The pass under way.
  const StepInputs* inputs_ = nullptr;
  const kernels::StepRows* rows_ = nullptr;
};

}  // namespace weir::engine
