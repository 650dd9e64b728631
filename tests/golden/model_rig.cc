// SPDX-License-Identifier: Apache-2.0
#include "tests/golden/model_rig.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/config/load.h"
#include "base/stdx/random.h"
#include "engine/checkpoint/mapped_file.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/ref/ref_backend.h"

namespace weir::engine {
namespace {

std::shared_ptr<kernels::Backend> BackendFor(const ModelRig::Options& options) {
  if (options.isa.empty()) {
    return kernels::ref::NewRefBackend(
        options.guarded ? kernels::ref::Guard::kOn : kernels::ref::Guard::kOff,
        options.numerics == "vendor" ? kernels::Numerics::kVendor : kernels::Numerics::kNative);
  }
  kernels::cpu::CpuOptions cpu;
  cpu.threads = options.threads;
  if (options.isa != "best") cpu.isa = options.isa;
  auto backend = kernels::cpu::NewCpuBackend(cpu);
  EXPECT_TRUE(backend.ok()) << backend.status();
  return *std::move(backend);
}

}  // namespace

ModelRig::ModelRig(const Options& options) {
  ArmPlantedFromEnvironment();
  TextModelOptions more;
  more.backend = BackendFor(options);
  more.experts = options.experts;
  more.rows_per_pass = options.rows_per_pass;
  more.tap = [this](std::string_view what, int layer, kernels::Stream& stream,
                    const kernels::Tensor& tensor,
                    int rows) { OnTensor(what, layer, stream, tensor, rows); };
  LoadOptions load;
  load.numerics = options.numerics;
  load.block_tokens = options.block_tokens;
  const auto config = ReadTextFile(options.directory + "/config.json", 1 << 20);
  EXPECT_TRUE(config.ok()) << config.status();
  auto loaded = options.load(options.directory, *config, load, std::move(more));
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  loaded_ = *std::move(loaded);
  sampling_.resize(kSlots);
  slots_.resize(kSlots);
  for (size_t s = 0; s < kSlots; ++s) {
    slots_[s].sampling = &sampling_[s];
    slots_[s].prompt_tokens = info().positions_max;
  }
  TakePages(options.page_seed);
}

// Every sequence gets room for all positions, in pages that lie anywhere; memory holds NaN-like
// garbage at first.
void ModelRig::TakePages(uint64_t seed) {
  const CacheLayout& layout = info().layout;
  const uint32_t blocks = layout.BlocksFor(info().positions_max);
  KvMemory memory;
  Random random(seed);
  for (int part = 0; part < kPartCount; ++part) {
    memory.page_bytes[part] = layout.page_bytes(static_cast<Part>(part));
    if (memory.page_bytes[part] == 0) continue;
    std::vector<PageId> pages(blocks * kSlots);
    std::iota(pages.begin(), pages.end(), 0);
    for (size_t i = pages.size(); i > 1; --i) std::swap(pages[i - 1], pages[random.Below(i)]);
    memory.page_count[part] = static_cast<PageId>(pages.size());
    arena_[part].resize(pages.size() * memory.page_bytes[part], std::byte{0x7f});
    memory.part_base[part] = arena_[part].data();
    tables_[part].resize(kSlots);
    for (size_t s = 0; s < kSlots; ++s) {
      const auto from = pages.begin() + static_cast<ptrdiff_t>(s * blocks);
      tables_[part][s].assign(from, from + blocks);
      slots_[s].pages[part] = tables_[part][s];
    }
  }
  memory.state_bytes = layout.state_bytes();
  memory.state_count = kSlots;
  states_.resize(memory.state_bytes * kSlots, std::byte{0x7f});
  memory.state_base = states_.data();
  for (int s = 0; s < kSlots; ++s) slots_[static_cast<size_t>(s)].state = kSlots - 1 - s;
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
    row.visible_from = group.visible_from;
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
    const bool encoder = info().layout.has(Part::kEncoder);
    group.sample = !encoder || end > view(slot).tail_start;
    const StepResult& result = Run({group});
    if (group.sample) last = result.tokens.at(0);
  }
  return last;
}

TokenId ModelRig::Decode(int slot, Position position, TokenId token) {
  return Run({{slot, RowKind::kVerify, position, {token}}}).tokens.at(0);
}

void ModelRig::OnTensor(std::string_view what, int layer, kernels::Stream& stream,
                        const kernels::Tensor& tensor, int rows) {
  const auto count = static_cast<size_t>(rows);
  const auto width =
      static_cast<size_t>(what == "positions" ? 1 : tensor.shape[1] * tensor.shape[2]);
  const auto at = [width](size_t row) { return static_cast<ptrdiff_t>(row * width); };
  if (tensor.dtype == kernels::DType::kI32) {
    std::vector<int32_t> all(count * width);
    stream.CopyOut(all.data(), tensor.address, all.size() * 4);
    stream.Wait(stream.Record());
    if (what == "positions") {
      positions_ = all;
      return;
    }
    auto& list = lists[std::string(what)][layer];
    for (size_t r = 0; r < count; ++r) {
      list[positions_[r]].assign(all.begin() + at(r), all.begin() + at(r + 1));
    }
    return;
  }
  std::vector<float> all(count * width);
  stream.CopyOut(all.data(), tensor.address, all.size() * 4);
  stream.Wait(stream.Record());
  for (size_t r = 0; r < count; ++r) {
    const Row row(all.begin() + at(r), all.begin() + at(r + 1));
    if (what == "layer") {
      layers[layer][positions_[r]] = row;
    } else {
      ASSERT_LT(sampled_seen_, sampled_.size());
      logits_[sampled_[sampled_seen_++]] = row;
    }
  }
}

}  // namespace weir::engine
