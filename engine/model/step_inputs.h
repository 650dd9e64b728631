// SPDX-License-Identifier: Apache-2.0
//
// StepInputs: turns a StepPlan into what kernels read. A plan is run in one or more passes over the
// layers, each within fixed limits, so that buffers are taken once and a plan may have any size;
// rows are invariant, so passes change nothing but time. Owned by one model, used on its step
// thread; the plan must stay unchanged between Begin and the last NextPass. A plan that breaks its
// contract (pages missing, a token outside the vocabulary) is a bug and stops the process.
//
// Of a model with an encoder part, rows at or after their sequence's tail_start are the pass's tail:
// only they run the decoder layers. Of others every row is tail.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "base/stdx/status.h"
#include "engine/model/device_arena.h"
#include "engine/sched/step_plan.h"
#include "kernels/op/rows.h"
#include "kernels/op/sample.h"

namespace weir::engine {

struct PassLimits {
  int rows = 128;    // at least the longest verify group
  int samples = 64;  // rows whose logits are computed in one pass; likewise
  int vocab = 0;
  uint32_t positions_max = 0;
  uint32_t block_tokens = 0;
  bool parts[kPartCount] = {false, true};  // which parts have pages
  bool states = false;                     // sequences have a state page
};

// A sampling group of the current pass.
struct PassGroup {
  const StepRow* row = nullptr;
  int first_sample = 0;
  int sample_count = 0;
  bool logprobs = false;
};

class StepInputs {
 public:
  static absl::StatusOr<std::unique_ptr<StepInputs>> Create(kernels::Backend* backend,
                                                            const PassLimits& limits,
                                                            std::vector<TokenId> stop_tokens);

  void Begin(const StepPlan& plan);
  // Gathers and uploads the next pass; false when the plan is done.
  bool NextPass(kernels::Stream& stream);

  const kernels::StepRows& rows() const { return rows_; }
  const kernels::StepRows& tail() const { return tail_; }
  const kernels::Tensor& tail_index() const { return tail_index_; }  // I32 [tail], among the rows
  const kernels::Tensor& block_table(Part part = Part::kDecoder) const {
    return table_[static_cast<int>(part)];
  }
  int table_stride() const { return table_stride_; }
  const kernels::Tensor& state() const { return state_; }  // I32 [sequences]
  // Rows of the tail whose logits are wanted, and how to sample them.
  int sample_count() const { return static_cast<int>(samples_.size()); }
  const kernels::Tensor& sample_index() const { return sample_index_; }
  const kernels::Tensor& sample_params() const { return sample_params_; }
  const kernels::Tensor& bias_token() const { return bias_token_; }
  const kernels::Tensor& bias_value() const { return bias_value_; }
  const kernels::Tensor& history() const { return history_; }
  const std::vector<PassGroup>& groups() const { return groups_; }

 private:
  // Host side of a StepRows.
  struct RowLists {
    std::vector<int32_t> token, position, sequence, floor, visible, fresh;

    std::array<std::vector<int32_t>*, 6> all() {
      return {&token, &position, &sequence, &floor, &visible, &fresh};
    }
    int count() const { return static_cast<int>(token.size()); }
  };

  StepInputs(kernels::Backend* backend, const PassLimits& limits, std::vector<TokenId> stop_tokens);

  kernels::StepRows TakeRows();
  void UploadRows(kernels::Stream& stream, const RowLists& from, kernels::StepRows* to);
  void Clear();
  bool AddGroup(const StepRow& row);
  bool HasRoom(const StepRow& row, const SlotView& slot, int take, bool samples) const;
  bool InPass(SlotId slot) const;
  Position TailStart(const SlotView& slot) const;
  void AddRows(const StepRow& row, int take);
  void AddSamples(const StepRow& row, const SlotView& slot, int take);
  int AddHistory(const StepRow& row, const SlotView& slot);
  void PutTables();
  void Upload(kernels::Stream& stream);

  // Constant after construction.
  const PassLimits limits_;
  const std::vector<TokenId> stop_tokens_;
  const size_t bias_max_;
  const size_t history_max_;
  DeviceArena arena_;
  kernels::StepRows rows_;  // `count` changes with each pass
  kernels::StepRows tail_;
  kernels::Tensor table_[kPartCount];
  kernels::Tensor tail_index_, state_, sample_index_, sample_params_, bias_token_, bias_value_, history_;

  // The plan's cursor.
  const StepPlan* plan_ = nullptr;
  size_t group_ = 0;
  int group_done_ = 0;  // rows of the current group that earlier passes ran

  // Host side of the current pass.
  struct TableRow {
    SlotId slot;
    uint32_t blocks = 0;
  };
  RowLists lists_, tail_lists_;
  std::vector<int32_t> tail_index_host_, state_host_, table_host_[kPartCount], index_host_;
  std::vector<TableRow> table_rows_;
  int table_stride_ = 0;
  std::vector<kernels::SampleRow> samples_;
  std::vector<int32_t> bias_token_host_, history_host_;
  std::vector<float> bias_value_host_;
  std::vector<PassGroup> groups_;
};

}  // namespace weir::engine
