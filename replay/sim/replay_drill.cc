// SPDX-License-Identifier: Apache-2.0
#include "replay/sim/replay_drill.h"

#include <cstring>
#include <vector>

#include "base/stdx/check.h"
#include "base/stdx/random.h"
#include "engine/model/hash_model.h"
#include "replay/sim/sim_memory.h"

namespace weir::sim {
namespace {

using engine::RowKind;
using engine::StepRow;

void RunRows(engine::Model* model, const engine::SlotView& view, const std::vector<TokenId>& tokens,
             StepRow row) {
  engine::StepPlan plan;
  plan.step = StepId(1);
  plan.slots = std::span(&view, 1);
  plan.tokens.assign(tokens.begin() + row.first, tokens.begin() + row.first + row.count);
  row.slot = SlotId(0);
  plan.rows.push_back(row);
  engine::StepResult result;
  model->Launch(plan);
  WEIR_CHECK(model->Collect(plan.step, /*wait=*/true, &result));
}

}  // namespace

std::string ReplayDrill(const engine::HashConfig& config, uint64_t seed) {
  Random random(seed, 41);
  const auto count = static_cast<uint16_t>(config.window + 8 + random.Below(48));
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random.Below(config.vocab));
  const auto loaded = engine::MakeHashModel(config);
  const engine::CacheLayout& layout = loaded->info().layout;
  const uint32_t blocks = layout.BlocksFor(count);
  const SimMemory memory(layout, blocks, 1, seed);
  const auto model = loaded->Instantiate(memory.kv());
  std::vector<PageId> pages(blocks);
  for (uint32_t i = 0; i < blocks; ++i) pages[i] = static_cast<PageId>(blocks - 1 - i);
  const engine::SamplingParams sampling;
  engine::SlotView view;
  for (auto& list : view.pages) list = pages;
  view.state = 0;
  view.sampling = &sampling;
  view.prompt_tokens = count;
  view.tail_start = count - 1;
  RunRows(model.get(), view, tokens, {.kind = RowKind::kPrefill, .first = 0, .count = count});

  const auto snapshot = [&] {
    std::vector<std::byte> bytes;
    for (int part = 0; part < engine::kPartCount; ++part) {
      const std::byte* base = memory.kv().part_base[part];
      bytes.insert(bytes.end(), base, base + memory.kv().page_bytes[part] * blocks);
    }
    return bytes;
  };
  const auto before = snapshot();
  std::memset(memory.kv().state_base, 0, memory.kv().state_bytes);
  const Position from = count - config.window / 2 - 1;
  RunRows(model.get(), view, tokens,
          {.kind = RowKind::kReplay,
           .first = from,
           .count = static_cast<uint16_t>(count - from),
           .write_floor = count,
           .visible_from = from});
  return snapshot() == before ? "" : "replay drill: a block below the write floor was overwritten";
}

}  // namespace weir::sim
