// SPDX-License-Identifier: Apache-2.0
#include "tests/golden/model_rig.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/stdx/random.h"
#include "engine/checkpoint/mapped_file.h"
#include "kernels/ref/ref_backend.h"

namespace weir::engine {

ModelRig::ModelRig(const Options& options) {
  TextModelOptions more;
  more.backend = kernels::ref::NewRefBackend(options.guarded ? kernels::ref::Guard::kOn
                                                             : kernels::ref::Guard::kOff);
  more.experts = options.experts;
  more.rows_per_pass = options.rows_per_pass;
  more.tap = [this](std::string_view what, int layer, kernels::Stream& stream,
                    const kernels::Tensor& tensor,
                    int rows) { OnTensor(what, layer, stream, tensor, rows); };
  LoadOptions load;
  load.numerics = options.numerics;
  const auto config = ReadTextFile(options.directory + "/config.json", 1 << 20);
  EXPECT_TRUE(config.ok()) << config.status();
  auto loaded = LoadDeepseekV3With(options.directory, *config, load, std::move(more));
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  loaded_ = *std::move(loaded);

  const CacheLayout& layout = info().layout;
  const uint32_t blocks = layout.BlocksFor(info().positions_max);
  std::vector<PageId> pages(blocks * kSlots);
  std::iota(pages.begin(), pages.end(), 0);
  Random random(options.page_seed);
  for (size_t i = pages.size(); i > 1; --i) std::swap(pages[i - 1], pages[random.Below(i)]);
  KvMemory memory;
  const auto part = static_cast<size_t>(Part::kDecoder);
  memory.page_bytes[part] = layout.page_bytes(Part::kDecoder);
  memory.page_count[part] = static_cast<PageId>(pages.size());
  arena_.resize(pages.size() * memory.page_bytes[part], std::byte{0x7f});  // NaN-like garbage
  memory.part_base[part] = arena_.data();
  sampling_.resize(kSlots);
  slots_.resize(kSlots);
  tables_.resize(kSlots);
  for (int s = 0; s < kSlots; ++s) {
    const auto slot = static_cast<size_t>(s);
    tables_[slot].assign(pages.begin() + s * blocks, pages.begin() + (s + 1) * blocks);
    slots_[slot].pages[part] = tables_[slot];
    slots_[slot].sampling = &sampling_[slot];
    slots_[slot].prompt_tokens = info().positions_max;
  }
  model_ = loaded_->Instantiate(memory);
}

const StepResult& ModelRig::Run(const std::vector<Group>& groups) {
  plan_.Clear();
  plan_.step = StepId(plan_.step.value + 1);
  plan_.slots = slots_;
  sampled_.clear();
  sampled_seen_ = 0;
  for (const Group& group : groups) {
    StepRow row;
    row.slot = SlotId(group.slot);
    row.kind = group.kind;
    row.first = group.first;
    row.count = static_cast<uint16_t>(group.tokens.size());
    row.token_offset = static_cast<uint32_t>(plan_.tokens.size());
    row.write_floor = group.write_floor;
    row.sample = group.sample;
    plan_.rows.push_back(row);
    plan_.tokens.insert(plan_.tokens.end(), group.tokens.begin(), group.tokens.end());
    for (Position i = 0; i < row.count; ++i) {
      const bool sampled =
          row.kind == RowKind::kVerify || (group.sample && i + 1 == Position{row.count});
      if (sampled) sampled_.emplace_back(group.slot, group.first + i);
    }
  }
  model_->Launch(plan_);
  EXPECT_TRUE(model_->Collect(plan_.step, true, &result_));
  EXPECT_EQ(sampled_seen_, sampled_.size());
  return result_;
}

TokenId ModelRig::Prefill(int slot, const std::vector<TokenId>& tokens, size_t chunk) {
  TokenId last = -1;
  for (size_t at = 0; at < tokens.size(); at += chunk) {
    const size_t end = std::min(at + chunk, tokens.size());
    Group group;
    group.slot = slot;
    group.first = static_cast<Position>(at);
    group.tokens.assign(tokens.begin() + static_cast<ptrdiff_t>(at),
                        tokens.begin() + static_cast<ptrdiff_t>(end));
    last = Run({group}).tokens.at(0);
  }
  return last;
}

TokenId ModelRig::Decode(int slot, Position position, TokenId token) {
  return Run({{slot, RowKind::kVerify, position, {token}}}).tokens.at(0);
}

void ModelRig::OnTensor(std::string_view what, int layer, kernels::Stream& stream,
                        const kernels::Tensor& tensor, int rows) {
  const auto width = static_cast<size_t>(what == "positions" ? 1 : tensor.shape[1]);
  if (what == "positions") {
    positions_.resize(static_cast<size_t>(rows));
    stream.CopyOut(positions_.data(), tensor.address, positions_.size() * 4);
  } else if (what == "experts") {
    std::vector<int32_t> all(static_cast<size_t>(rows) * 3);
    stream.CopyOut(all.data(), tensor.address, all.size() * 4);
    for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
      experts[layer][positions_[r]] = {all[r * 3], all[r * 3 + 1], all[r * 3 + 2]};
    }
  } else {
    std::vector<float> all(static_cast<size_t>(rows) * width);
    stream.CopyOut(all.data(), tensor.address, all.size() * 4);
    for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
      const Row row(all.begin() + static_cast<ptrdiff_t>(r * width),
                    all.begin() + static_cast<ptrdiff_t>((r + 1) * width));
      if (what == "layer") {
        layers[layer][positions_[r]] = row;
      } else {
        ASSERT_LT(sampled_seen_, sampled_.size());
        logits_[sampled_[sampled_seen_++]] = row;
      }
    }
  }
}

}  // namespace weir::engine
