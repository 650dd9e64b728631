// SPDX-License-Identifier: Apache-2.0
//
// From configuration to running engines: KV memory, the core of a role, its transfer and its
// service. Used at start by the main thread. Errors name the setting at fault.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/stdx/status.h"
#include "engine/cache/kv_memory.h"
#include "engine/model/model.h"
#include "engine/run/engine_service.h"
#include "kvstore/transfer/arena.h"
#include "proto/config.pb.h"

namespace weir {

// The arenas behind one KvMemory. Engines of one process may share it.
struct KvArenas {
  std::unique_ptr<kv::Arena> parts[engine::kPartCount];  // null for a part the layout lacks
  std::unique_ptr<kv::Arena> states;
  engine::KvMemory memory;
};

// Memory for `pages` blocks and `states` sequences. `shared`: other processes of this host may read.
absl::StatusOr<std::unique_ptr<KvArenas>> MakeKvArenas(const engine::CacheLayout& layout,
                                                       uint32_t pages, uint32_t states,
                                                       bool shared);

// What a role gets by its configuration, in which the defaults are filled in (settings.h).
struct EngineSizes {
  uint32_t slots = 0;
  uint32_t states = 0;
  uint32_t pages = 0;
};
absl::StatusOr<EngineSizes> SizesFor(Role role, const v1::EngineConfig& config,
                                     const engine::ModelInfo& info);

struct EngineRoleOptions {
  Role role = Role::kUnspecified;
  v1::EngineConfig config;
  std::string model_name;
  std::shared_ptr<const engine::LoadedModel> model;
  KvArenas* arenas = nullptr;  // outlives the service
  int share = 0;               // this engine's part of the arenas ...
  int shares = 1;              // ... of so many
  uint64_t arena = 0;          // not 0: peers of this arena take pages over without a copy
  EngineSizes sizes;
  bool transfers = true;       // false: every peer shares the arena
  bool deterministic = false;  // an answer does not depend on what is kept of others
  ChannelFactory make_channel;
  std::function<void()> on_poisoned;
  TracePointSink* trace = nullptr;  // borrowed
  SpanSink* spans = nullptr;        // borrowed
};

absl::StatusOr<std::unique_ptr<engine::EngineService>> MakeEngine(EngineRoleOptions options);

// A fresh 64-bit id that is not 0, from the system's entropy.
uint64_t DrawId();

}  // namespace weir
