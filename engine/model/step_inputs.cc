// SPDX-License-Identifier: Apache-2.0
#include "engine/model/step_inputs.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/stdx/check.h"
#include "base/stdx/planted.h"
#include "base/stdx/units.h"

namespace weir::engine {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

bool HasPenalties(const SamplingParams& p) {
  return p.presence_penalty != 0 || p.frequency_penalty != 0 || p.repetition_penalty != 1;
}

// Room that one group's biases can take: the request's own and the stop tokens that are masked.
size_t BiasNeed(const SamplingParams& p, size_t model_stops) {
  return p.logit_bias.size() + (p.min_tokens > 0 ? p.stop_tokens.size() + model_stops : 0);
}

template <class T>
void Put(kernels::Stream& stream, const kernels::Tensor& to, const std::vector<T>& from) {
  stream.CopyIn(to.address, from.data(), from.size() * sizeof(T));
}

}  // namespace

absl::StatusOr<std::unique_ptr<StepInputs>> StepInputs::Create(kernels::Backend* backend,
                                                               const PassLimits& limits,
                                                               std::vector<TokenId> stop_tokens) {
  std::unique_ptr<StepInputs> inputs(new StepInputs(backend, limits, std::move(stop_tokens)));
  WEIR_TRY(inputs->arena_.status());
  return inputs;
}

StepInputs::StepInputs(kernels::Backend* backend, const PassLimits& limits,
                       std::vector<TokenId> stop_tokens)
    : limits_(limits),
      stop_tokens_(std::move(stop_tokens)),
      // Both hold the largest single group; more groups share what is left.
      bias_max_(static_cast<size_t>(limits.vocab) * 2 + 4096),
      history_max_(static_cast<size_t>(limits.positions_max) + limits.samples + 4096),
      arena_(backend) {
  const int64_t rows = limits_.rows;
  rows_ = TakeRows();
  tail_ = TakeRows();
  tail_index_ = arena_.Ints(rows);
  state_ = arena_.Ints(rows);
  for (int part = 0; part < kPartCount; ++part) {
    if (!limits_.parts[part]) continue;
    table_[part] = arena_.Ints(rows, CeilDiv(limits_.positions_max, limits_.block_tokens));
    table_host_[part].reserve(static_cast<size_t>(table_[part].elements()));
  }
  sample_index_ = arena_.Ints(limits_.samples);
  sample_params_ = arena_.Bytes(sizeof(kernels::SampleRow) * limits_.samples);
  bias_token_ = arena_.Ints(static_cast<int64_t>(bias_max_));
  bias_value_ = arena_.Floats(static_cast<int64_t>(bias_max_));
  history_ = arena_.Ints(static_cast<int64_t>(history_max_));
  for (RowLists* lists : {&lists_, &tail_lists_}) {
    for (auto* list : lists->all()) list->reserve(static_cast<size_t>(rows));
  }
  table_rows_.reserve(static_cast<size_t>(rows));
  tail_index_host_.reserve(static_cast<size_t>(rows));
  state_host_.reserve(static_cast<size_t>(rows));
  index_host_.reserve(static_cast<size_t>(limits_.samples));
  samples_.reserve(static_cast<size_t>(limits_.samples));
  groups_.reserve(static_cast<size_t>(limits_.samples));
  bias_token_host_.reserve(bias_max_);
  bias_value_host_.reserve(bias_max_);
  history_host_.reserve(history_max_);
}

kernels::StepRows StepInputs::TakeRows() {
  kernels::StepRows rows;
  for (auto* tensor : {&rows.token, &rows.position, &rows.sequence, &rows.write_floor,
                       &rows.visible_from, &rows.fresh_from}) {
    *tensor = arena_.Ints(limits_.rows);
  }
  return rows;
}

void StepInputs::Begin(const StepPlan& plan) {
  plan_ = &plan;
  group_ = 0;
  group_done_ = 0;
}

bool StepInputs::NextPass(kernels::Stream& stream) {
  Clear();
  while (group_ < plan_->rows.size() && AddGroup(plan_->rows[group_])) {
  }
  if (lists_.count() == 0) {
    WEIR_CHECK(group_ == plan_->rows.size());  // a group that fits no pass breaks the limits
    return false;
  }
  // Somebody waits for every token of a step that decodes.
  stream.SetUrgent(std::any_of(plan_->rows.begin(), plan_->rows.end(), [](const StepRow& row) {
    return row.kind == RowKind::kVerify;
  }));
  Upload(stream);
  return true;
}

void StepInputs::Clear() {
  for (RowLists* lists : {&lists_, &tail_lists_}) {
    for (auto* list : lists->all()) list->clear();
  }
  for (auto* list :
       {&tail_index_host_, &state_host_, &index_host_, &bias_token_host_, &history_host_}) {
    list->clear();
  }
  table_rows_.clear();
  samples_.clear();
  bias_value_host_.clear();
  groups_.clear();
}

// Takes as much of the group as the pass has room for; false when the pass is full.
bool StepInputs::AddGroup(const StepRow& row) {
  if (row.count == 0) {
    ++group_;
    return true;
  }
  if (InPass(row.slot)) return false;
  const SlotView& slot = plan_->slots[static_cast<size_t>(row.slot.value)];
  const int left = row.count - group_done_;
  const bool verify = row.kind == RowKind::kVerify;
  const int take = verify ? left : std::min(left, limits_.rows - lists_.count());
  const bool last = take == left;
  const bool samples = verify || (row.sample && last);
  if (!HasRoom(row, slot, take, samples)) return false;
  AddRows(row, take);
  if (samples) AddSamples(row, slot, take);
  group_done_ = last ? 0 : group_done_ + take;
  if (last) ++group_;
  return last;
}

bool StepInputs::HasRoom(const StepRow& row, const SlotView& slot, int take, bool samples) const {
  if (take <= 0 || lists_.count() + take > limits_.rows) return false;
  if (!samples) return true;
  WEIR_CHECK(slot.sampling != nullptr);
  const int wanted = row.kind == RowKind::kVerify ? take : 1;
  if (static_cast<int>(samples_.size()) + wanted > limits_.samples) return false;
  if (bias_token_host_.size() + BiasNeed(*slot.sampling, stop_tokens_.size()) > bias_max_) {
    return false;
  }
  return !HasPenalties(*slot.sampling) ||
         history_host_.size() + slot.emitted.size() + row.count <= history_max_;
}

// Kernels find a step's own rows of a sequence by their distance.
bool StepInputs::InPass(SlotId slot) const {
  return std::any_of(table_rows_.begin(), table_rows_.end(),
                     [slot](const TableRow& row) { return row.slot == slot; });
}

Position StepInputs::TailStart(const SlotView& slot) const {
  return limits_.parts[static_cast<int>(Part::kEncoder)] ? slot.tail_start : 0;
}

void StepInputs::AddRows(const StepRow& row, int take) {
  const SlotView& slot = plan_->slots[static_cast<size_t>(row.slot.value)];
  const Position first = row.first + static_cast<Position>(group_done_);
  const Position end = first + static_cast<Position>(take);
  const uint32_t blocks = CeilDiv(end, limits_.block_tokens);
  WEIR_CHECK(end <= limits_.positions_max);
  const Position tail_start = TailStart(slot);
  const auto sequence = static_cast<int32_t>(table_rows_.size());
  const auto add = [&](RowLists* to, int i, Position from) {
    TokenId token = plan_->tokens[row.token_offset + static_cast<uint32_t>(i)];
    WEIR_CHECK(token >= 0 && token < limits_.vocab);
    if (IsPlanted(Planted::kBatchChangesRow) && to->token.size() == 5) token = to->token.back();
    to->token.push_back(token);
    to->position.push_back(static_cast<int32_t>(row.first) + i);
    to->sequence.push_back(sequence);
    to->floor.push_back(static_cast<int32_t>(row.write_floor));
    to->visible.push_back(static_cast<int32_t>(std::max(row.visible_from, from)));
    to->fresh.push_back(static_cast<int32_t>(std::max(first, from)));
  };
  for (int i = group_done_; i < group_done_ + take; ++i) {
    if (row.first + static_cast<Position>(i) >= tail_start) {
      tail_index_host_.push_back(lists_.count());
      add(&tail_lists_, i, tail_start);
    }
    add(&lists_, i, 0);
  }
  table_rows_.push_back({row.slot, blocks});
  state_host_.push_back(slot.state);
}

void StepInputs::AddSamples(const StepRow& row, const SlotView& slot, int take) {
  const SamplingParams& p = *slot.sampling;
  const bool verify = row.kind == RowKind::kVerify;
  const int first = verify ? 0 : row.count - 1;
  const int behind = take - (first - group_done_);  // rows from the first sample to the pass's last
  WEIR_CHECK(row.first + static_cast<Position>(first) >= TailStart(slot));
  const int first_row = tail_lists_.count() - behind;
  groups_.push_back({&row, static_cast<int>(samples_.size()), row.count - first, p.logprobs});

  kernels::SampleRow base;
  base.seed = p.seed;
  base.temperature = p.temperature;
  base.top_p = p.top_p;
  base.min_p = p.min_p;
  base.top_k = p.top_k;
  base.presence_penalty = p.presence_penalty;
  base.frequency_penalty = p.frequency_penalty;
  base.repetition_penalty = p.repetition_penalty;
  base.logprobs = p.logprobs ? static_cast<int32_t>(p.top_logprobs) : 0;
  base.group = static_cast<int32_t>(groups_.size()) - 1;
  base.bias_begin = static_cast<int32_t>(bias_token_host_.size());
  const auto add_bias = [this](TokenId token, float value) {
    if (token < 0 || token >= limits_.vocab) return;
    bias_token_host_.push_back(token);
    bias_value_host_.push_back(value);
  };
  for (const auto& [token, value] : p.logit_bias) add_bias(token, value);
  const auto plain_end = static_cast<int32_t>(bias_token_host_.size());
  if (p.min_tokens > 0) {
    for (const TokenId token : p.stop_tokens) add_bias(token, kNever);
    for (const TokenId token : stop_tokens_) add_bias(token, kNever);
  }
  const auto masked_end = static_cast<int32_t>(bias_token_host_.size());
  const int history_begin = HasPenalties(p) ? AddHistory(row, slot) : 0;

  for (int i = first; i < row.count; ++i) {
    kernels::SampleRow sample = base;
    const Position emits = row.first + static_cast<Position>(i) + 1;
    const Position answer = emits > slot.prompt_tokens ? emits - slot.prompt_tokens : 0;
    sample.position = static_cast<int32_t>(emits);
    sample.bias_end = answer < p.min_tokens ? masked_end : plain_end;
    if (HasPenalties(p)) {
      // The answer tokens before the one to emit: those the core knows, then this group's drafts.
      const int drafts = i - first;
      const auto known =
          static_cast<int>(history_host_.size()) - history_begin - (row.count - 1 - first);
      sample.history_begin = history_begin;
      sample.history_end = history_begin + known + drafts;
    }
    if (i > first) {
      sample.draft = plan_->tokens[row.token_offset + static_cast<uint32_t>(i)];
    }
    samples_.push_back(sample);
    index_host_.push_back(first_row + (i - first));
  }
}

int StepInputs::AddHistory(const StepRow& row, const SlotView& slot) {
  const auto begin = static_cast<int>(history_host_.size());
  const bool verify = row.kind == RowKind::kVerify;
  const int first = verify ? 0 : row.count - 1;
  const Position emits = row.first + static_cast<Position>(first) + 1;
  const size_t answer = emits > slot.prompt_tokens ? emits - slot.prompt_tokens : 0;
  for (const TokenId token : slot.emitted.first(std::min(answer, slot.emitted.size()))) {
    history_host_.push_back(token);
  }
  for (int i = first + 1; i < row.count; ++i) {
    history_host_.push_back(plan_->tokens[row.token_offset + static_cast<uint32_t>(i)]);
  }
  return begin;
}

void StepInputs::PutTables() {
  uint32_t stride = 1;
  for (const TableRow& row : table_rows_) stride = std::max(stride, row.blocks);
  table_stride_ = static_cast<int>(stride);
  for (int part = 0; part < kPartCount; ++part) {
    if (!limits_.parts[part]) continue;
    std::vector<int32_t>& host = table_host_[part];
    host.assign(stride * table_rows_.size(), kNoPage);
    for (size_t i = 0; i < table_rows_.size(); ++i) {
      const SlotView& slot = plan_->slots[static_cast<size_t>(table_rows_[i].slot.value)];
      WEIR_CHECK(table_rows_[i].blocks <= slot.pages[part].size());
      std::copy_n(slot.pages[part].begin(), table_rows_[i].blocks,
                  host.begin() + static_cast<ptrdiff_t>(i * stride));
    }
  }
}

void StepInputs::UploadRows(kernels::Stream& stream, const RowLists& from, kernels::StepRows* to) {
  to->count = from.count();
  Put(stream, to->token, from.token);
  Put(stream, to->position, from.position);
  Put(stream, to->sequence, from.sequence);
  Put(stream, to->write_floor, from.floor);
  Put(stream, to->visible_from, from.visible);
  Put(stream, to->fresh_from, from.fresh);
}

void StepInputs::Upload(kernels::Stream& stream) {
  PutTables();
  UploadRows(stream, lists_, &rows_);
  UploadRows(stream, tail_lists_, &tail_);
  Put(stream, tail_index_, tail_index_host_);
  for (int part = 0; part < kPartCount; ++part) {
    if (limits_.parts[part]) Put(stream, table_[part], table_host_[part]);
  }
  if (limits_.states) Put(stream, state_, state_host_);
  Put(stream, sample_index_, index_host_);
  Put(stream, sample_params_, samples_);
  Put(stream, bias_token_, bias_token_host_);
  Put(stream, bias_value_, bias_value_host_);
  Put(stream, history_, history_host_);
}

}  // namespace weir::engine
