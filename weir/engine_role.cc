// SPDX-License-Identifier: Apache-2.0
#include "weir/engine_role.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/stdx/units.h"
#include "engine/decode/decode_core.h"
#include "engine/prefill/prefill_core.h"
#include "kvstore/transfer/route_transfer.h"
#include "kvstore/transfer/shm_carrier.h"
#include "kvstore/transfer/ucx_carrier.h"
#include "weir/version.h"

namespace weir {
namespace {

using engine::KvMemory;
using engine::Part;

v1::Geometry GeometryOf(const EngineRoleOptions& options, uint32_t pages) {
  const engine::ModelInfo& info = options.model->info();
  v1::Geometry geometry;
  geometry.set_model(options.model_name);
  geometry.set_model_digest(info.digest);
  geometry.set_layout_digest(info.layout.Digest());
  geometry.set_block_tokens(info.layout.block_tokens());
  geometry.set_vocab(info.vocab);
  geometry.set_positions_max(info.positions_max);
  geometry.set_decoder_tail_rows(info.decoder_tail_rows);
  const uint64_t pool_tokens = uint64_t{pages} * info.layout.block_tokens();
  geometry.set_sequence_tokens_max(
      static_cast<uint32_t>(std::min<uint64_t>(pool_tokens, info.positions_max)));
  for (const TokenId token : info.stop_tokens) geometry.add_stop_tokens(token);
  return geometry;
}

// V4.1 was trained to go on from windows that one window of rows rebuilt; nothing else was.
bool ReplaysBounded(const EngineRoleOptions& options, const engine::ModelInfo& info) {
  if (!options.config.replay().empty()) return options.config.replay() == "bounded";
  return info.family == "deepseek_v41" && !options.deterministic;
}

std::unique_ptr<engine::EngineCore> MakeCore(const EngineRoleOptions& options,
                                             const engine::KvShare& share) {
  const v1::EngineConfig& config = options.config;
  const Duration lease = Millis(config.lease_ms());
  if (options.role == Role::kPrefill) {
    engine::PrefillCore::Config core;
    core.model = options.model->info();
    core.kv = share;
    core.arena = options.arena;
    core.slots = options.sizes.slots;
    core.chunk_rows = config.chunk_rows();
    core.queue_max = config.queue_max();
    core.retain_max = config.retain_max();
    core.prefix_cache = !config.no_prefix_cache();
    core.window_states = config.window_states();
    if (ReplaysBounded(options, core.model)) core.replay = kv::ReplayMode::kBounded;
    core.lease = lease;
    return std::make_unique<engine::EngineCoreOf<engine::PrefillCore>>(
        std::make_unique<engine::PrefillCore>(std::move(core)));
  }
  engine::DecodeCore::Config core;
  core.model = options.model->info();
  core.kv = share;
  core.arena = options.arena;
  core.slots = options.sizes.slots;
  core.step_rows_max = config.step_rows_max();
  core.queue_max = config.queue_max();
  core.lease = lease;
  return std::make_unique<engine::EngineCoreOf<engine::DecodeCore>>(
      std::make_unique<engine::DecodeCore>(std::move(core)));
}

// KV is read from us at the host where other engines dial us; the carrier by itself keeps to this
// host.
kv::UcxOptions UcxOptionsFor(const v1::EngineConfig& config) {
  kv::UcxOptions ucx;
  std::string host = config.peer_address().substr(0, config.peer_address().rfind(':'));
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  if (!host.empty() && host != "localhost") {
    ucx.listen_host = host;
    const bool loopback = host == "::1" || host.rfind("127.", 0) == 0;
    if (!loopback) ucx.devices = "all";
  }
  if (!config.ucx_devices().empty()) ucx.devices = config.ucx_devices();
  if (!config.ucx_transports().empty()) ucx.transports = config.ucx_transports();
  return ucx;
}

// Same-host memory first, the network for everything else, unless the configuration forces one.
absl::StatusOr<std::unique_ptr<kv::Transfer>> MakeTransfer(const v1::EngineConfig& config,
                                                           const KvArenas& arenas,
                                                           InstanceId instance,
                                                           std::function<void()> wake) {
  const std::string& kind = config.transfer();
  std::vector<std::unique_ptr<kv::Carrier>> carriers;
  if (kind != "ucx") carriers.push_back(kv::MakeShmCarrier());
  if (kind != "shm") {
    WEIR_ASSIGN(std::unique_ptr<kv::Carrier> carrier, kv::MakeUcxCarrier(UcxOptionsFor(config)));
    carriers.push_back(std::move(carrier));
  }
  kv::TransferOptions options;
  options.self = instance;
  options.wake = std::move(wake);
  auto transfer = std::make_unique<kv::RouteTransfer>(std::move(options), std::move(carriers));
  for (int part = 0; part < engine::kPartCount; ++part) {
    if (!arenas.parts[part]) continue;
    WEIR_TRY(transfer->AddRegion(static_cast<uint32_t>(part), arenas.parts[part].get()));
  }
  if (arenas.states) {
    WEIR_TRY(transfer->AddRegion(engine::kStateRegion, arenas.states.get()));
  }
  return absl::StatusOr<std::unique_ptr<kv::Transfer>>(std::move(transfer));
}

}  // namespace

uint64_t DrawId() {
  std::random_device device;
  uint64_t id = 0;
  while (id == 0) id = (uint64_t{device()} << 32) | device();
  return id;
}

absl::StatusOr<EngineSizes> SizesFor(Role role, const v1::EngineConfig& config,
                                     const engine::ModelInfo& info) {
  const bool prefill = role == Role::kPrefill;
  EngineSizes sizes;
  sizes.slots = config.slots();
  sizes.states = sizes.slots + (prefill ? config.retain_max() + config.window_states() : 0);
  const uint64_t block_bytes =
      info.layout.page_bytes(Part::kEncoder) + info.layout.page_bytes(Part::kDecoder);
  const uint64_t blocks_per_sequence = info.layout.BlocksFor(info.positions_max);
  if (config.pages() > 0) {
    sizes.pages = config.pages();
    return sizes;
  }
  const uint64_t budget = config.memory_mib() * kMiB;
  if (block_bytes == 0 || budget < block_bytes) {
    return Error(Reason::kBadField,
                 absl::StrCat("memory_mib must hold at least one block of ", block_bytes, " bytes"),
                 "memory_mib");
  }
  // More pages than all slots at full length can never be used.
  const uint64_t useful = blocks_per_sequence * sizes.states;
  sizes.pages = static_cast<uint32_t>(std::min<uint64_t>({budget / block_bytes, useful, 1u << 30}));
  return sizes;
}

absl::StatusOr<std::unique_ptr<KvArenas>> MakeKvArenas(const engine::CacheLayout& layout,
                                                       uint32_t pages, uint32_t states,
                                                       bool shared) {
  const auto make = [shared](uint64_t bytes) {
    return shared ? kv::Arena::CreateShared(bytes) : kv::Arena::CreatePrivate(bytes);
  };
  auto arenas = std::make_unique<KvArenas>();
  KvMemory& memory = arenas->memory;
  for (int part = 0; part < engine::kPartCount; ++part) {
    memory.page_bytes[part] = layout.page_bytes(static_cast<Part>(part));
    if (memory.page_bytes[part] == 0) continue;
    WEIR_ASSIGN(arenas->parts[part], make(memory.page_bytes[part] * pages));
    memory.part_base[part] = arenas->parts[part]->data();
    memory.page_count[part] = static_cast<PageId>(pages);
  }
  memory.state_bytes = layout.state_bytes();
  if (memory.state_bytes > 0) {
    WEIR_ASSIGN(arenas->states, make(memory.state_bytes * states));
    memory.state_base = arenas->states->data();
    memory.state_count = static_cast<PageId>(states);
  }
  return arenas;
}

absl::StatusOr<std::unique_ptr<engine::EngineService>> MakeEngine(EngineRoleOptions options) {
  const engine::KvShare share =
      engine::ShareOf(options.arenas->memory, options.share, options.shares);
  engine::EngineServiceOptions service;
  service.role = options.role;
  service.instance = InstanceId(DrawId());
  service.name = options.role == Role::kPrefill ? "prefill" : "decode";
  service.arena = options.arena;
  service.listen_address = options.config.peer_address();
  service.routers.assign(options.config.routers().begin(), options.config.routers().end());
  service.geometry = GeometryOf(options, options.sizes.pages);
  service.memory = options.arenas->memory;
  service.core = MakeCore(options, share);
  service.model = options.model->Instantiate(options.arenas->memory);
  service.make_channel = options.make_channel;
  service.transfer_delay = Millis(options.config.transfer_delay_ms());
  service.on_poisoned = options.on_poisoned;
  service.trace = options.trace;
  service.spans = options.spans;
  service.build = kVersion;
  if (options.transfers) {
    service.make_transfer = [arenas = options.arenas, config = options.config,
                             instance = service.instance](std::function<void()> wake) {
      return MakeTransfer(config, *arenas, instance, std::move(wake));
    };
  }
  return engine::EngineService::Create(std::move(service));
}

}  // namespace weir
