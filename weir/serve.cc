// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/app/process.h"
#include "base/config/load.h"
#include "base/net/mem_channel.h"
#include "base/obs/admin.h"
#include "base/obs/log.h"
#include "engine/model/load_model.h"
#include "weir/commands.h"
#include "weir/engine_pages.h"
#include "weir/engine_role.h"
#include "weir/router_role.h"
#include "weir/settings.h"

namespace weir {
namespace {

constexpr char kRouterName[] = "mem:router";
constexpr char kDecodeName[] = "mem:decode";

// Every role in one process: one checkpoint, one KV memory in two shares, links in memory. Prefilled
// pages change owner instead of being copied.
class ServeProcess {
 public:
  explicit ServeProcess(v1::Config config) : config_(std::move(config)) {}

  absl::Status Start() {
    engine::LoadOptions load;
    if (!config_.model().numerics().empty()) load.numerics = config_.model().numerics();
    load.backend = config_.model().backend();
    load.threads = std::max(config_.prefill().threads(), config_.decode().threads());
    load.step_delay_us = config_.decode().step_delay_us();
    WEIR_ASSIGN(model_, engine::LoadModel(config_.model().path(), load));
    EngineSizes sizes[2];
    WEIR_ASSIGN(sizes[0], SizesFor(Role::kPrefill, config_.prefill(), model_->info()));
    WEIR_ASSIGN(sizes[1], SizesFor(Role::kDecode, config_.decode(), model_->info()));
    // Equal shares: what a prompt needs on one side it needs on the other.
    const uint32_t pages = std::min(sizes[0].pages, sizes[1].pages);
    const uint32_t states = std::max(sizes[0].states, sizes[1].states);
    WEIR_ASSIGN(arenas_, MakeKvArenas(model_->info().layout, 2 * pages, 2 * states,
                                      /*shared=*/false));
    WEIR_ASSIGN(trace_, MakeTraceSink(config_.log()));
    ShowTrace(trace_.get(), &metrics_);
    RouterRoleOptions router;
    router.trace = trace_.get();
    WEIR_ASSIGN(spans_, MakeSpanSink(config_.trace(), &metrics_));
    router.spans = spans_.get();
    router.make_channel = Hub();
    router.listen_address = kRouterName;
    router.metrics = &metrics_;
    router.watch = &watch_;
    router.more_state = [this] {
      return absl::StrCat("\"prefill\":", EngineStateJson(*prefill_),
                          ",\"decode\":", EngineStateJson(*decode_));
    };
    WEIR_ASSIGN(router_, MakeRouter(config_, std::move(router)));
    const uint64_t arena = DrawId();
    WEIR_ASSIGN(prefill_, Engine(Role::kPrefill, config_.prefill(), "", pages, sizes[0], arena));
    WEIR_ASSIGN(decode_,
                Engine(Role::kDecode, config_.decode(), kDecodeName, pages, sizes[1], arena));
    ShowEngine(prefill_.get(), &metrics_, &watch_);
    ShowEngine(decode_.get(), &metrics_, &watch_);
    router_->Start();
    decode_->Start();
    prefill_->Start();
    Log(LogLevel::kInfo, "serving",
        {{"http", router_->http_port()},
         {"grpc", router_->grpc_port()},
         {"model", ModelNameOf(config_.model())}});
    return absl::OkStatus();
  }

  // The router goes first: once its answers are through, the engines hold nothing.
  void Drain(Instant deadline, Task drained) { router_->Drain(deadline, std::move(drained)); }

  void Stop() {
    if (router_) router_->Stop();
    if (prefill_) prefill_->Stop();
    if (decode_) decode_->Stop();
  }

  void Reload(const v1::Config& fresh) { router_->Reload(fresh.router()); }

 private:
  ChannelFactory Hub() {
    return [this](Channel::Options channel, Channel::Handler* handler) {
      return hub_.Create(std::move(channel), handler);
    };
  }

  absl::StatusOr<std::unique_ptr<engine::EngineService>> Engine(Role role,
                                                                v1::EngineConfig config,
                                                                const char* name, uint32_t pages,
                                                                EngineSizes sizes,
                                                                uint64_t arena) {
    EngineRoleOptions options;
    options.role = role;
    options.config = std::move(config);
    options.config.set_peer_address(name);
    options.config.clear_routers();
    options.config.add_routers(kRouterName);
    options.model_name = ModelNameOf(config_.model());
    options.model = model_;
    options.deterministic = config_.model().deterministic();
    options.arenas = arenas_.get();
    options.share = role == Role::kPrefill ? 0 : 1;
    options.shares = 2;
    options.arena = arena;
    options.sizes = sizes;
    options.sizes.pages = pages;
    options.transfers = false;
    options.make_channel = Hub();
    options.on_poisoned = [] { RequestExit(kExitPoisoned); };
    options.trace = trace_.get();
    options.spans = spans_.get();
    return MakeEngine(std::move(options));
  }

  const v1::Config config_;
  Metrics metrics_;
  ProgressWatch watch_;
  std::unique_ptr<TracePointSink> trace_;
  std::unique_ptr<SpanSink> spans_;
  MemHub hub_;
  std::shared_ptr<const engine::LoadedModel> model_;
  std::unique_ptr<KvArenas> arenas_;
  std::unique_ptr<router::RouterService> router_;
  std::unique_ptr<engine::EngineService> prefill_;
  std::unique_ptr<engine::EngineService> decode_;
};

}  // namespace

int RunServe(const ServiceArgs& args) {
  ArmPlantedFromEnvironment();
  const Roles roles{.router = true, .prefill = true, .decode = true};
  absl::StatusOr<v1::Config> config = LoadSettings(args, roles);
  if (const std::optional<int> code = AnswerConfigFlags(args, config)) return *code;
  ServeProcess process(*config);
  ProcessHooks hooks;
  hooks.start = [&] { return process.Start(); };
  hooks.drain = [&](Instant deadline, Task drained) { process.Drain(deadline, std::move(drained)); };
  Reloader reloader(args, roles, *config);
  hooks.reload = [&] {
    if (const auto fresh = reloader.Reload()) process.Reload(*fresh);
  };
  hooks.stop = [&] { process.Stop(); };
  hooks.drain_limit = RouterDrainLimit(config->router());
  return RunProcess(std::move(hooks));
}

}  // namespace weir
