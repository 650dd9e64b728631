// SPDX-License-Identifier: Apache-2.0
#include "engine/model/step_sampler.h"

namespace weir::engine {
namespace {

void ReportScore(const kernels::SampleOut& sampled, StepResult* result) {
  TokenScore& score = result->scores.emplace_back();
  score.logprob = sampled.logprob;
  for (int i = 0; i < sampled.top_count; ++i) {
    score.top.emplace_back(sampled.top_token[i], sampled.top_logprob[i]);
  }
}

}  // namespace

StepSampler::StepSampler(const kernels::Ops& ops, int samples_max, int vocab, DeviceArena* arena)
    : ops_(ops),
      vocab_(vocab),
      logits_(arena->Floats(samples_max, vocab)),
      adjusted_(arena->Floats(vocab)),
      order_(arena->Ints(vocab)),
      counts_(arena->Ints(vocab)),
      sampled_(arena->Bytes(sizeof(kernels::SampleOut) * static_cast<size_t>(samples_max))),
      accepted_(arena->Ints(samples_max)),
      sampled_host_(static_cast<size_t>(samples_max)),
      accepted_host_(static_cast<size_t>(samples_max)) {}

void StepSampler::Choose(kernels::Stream& stream, const StepInputs& inputs) {
  const int count = inputs.sample_count();
  const int groups = static_cast<int>(inputs.groups().size());
  ops_.Sample(stream, {count, vocab_, logits_, inputs.sample_params(), inputs.bias_token(),
                       inputs.bias_value(), inputs.history(), adjusted_, order_, counts_,
                       sampled_});
  ops_.Verify(stream, {count, groups, inputs.sample_params(), sampled_, accepted_});
  stream.CopyOut(sampled_host_.data(), sampled_.address,
                 static_cast<size_t>(count) * sizeof(kernels::SampleOut));
  stream.CopyOut(accepted_host_.data(), accepted_.address, static_cast<size_t>(groups) * 4);
}

void StepSampler::Report(const StepInputs& inputs, StepResult* result) const {
  for (size_t g = 0; g < inputs.groups().size(); ++g) {
    const PassGroup& group = inputs.groups()[g];
    Accepted& accepted = result->accepted.emplace_back();
    accepted.slot = group.row->slot;
    accepted.count = static_cast<uint16_t>(accepted_host_[g]);
    accepted.token_offset = static_cast<uint32_t>(result->tokens.size());
    if (group.logprobs) accepted.score_offset = static_cast<int32_t>(result->scores.size());
    for (int i = 0; i < accepted_host_[g]; ++i) {
      const auto& one = sampled_host_[static_cast<size_t>(group.first_sample + i)];
      result->tokens.push_back(one.token);
      if (group.logprobs) ReportScore(one, result);
    }
  }
}

}  // namespace weir::engine
