// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "base/app/process.h"
#include "base/config/load.h"
#include "base/net/grpc_channel.h"
#include "base/obs/admin.h"
#include "base/obs/log.h"
#include "base/stdx/bytes.h"
#include "engine/model/load_model.h"
#include "weir/commands.h"
#include "weir/engine_pages.h"
#include "weir/engine_role.h"
#include "weir/settings.h"

namespace weir {
namespace {

// Everything one engine process owns, in the order of its making.
class EngineProcess {
 public:
  EngineProcess(Role role, v1::Config config) : role_(role), config_(std::move(config)) {}

  absl::Status Start() {
    const v1::EngineConfig& config =
        role_ == Role::kPrefill ? config_.prefill() : config_.decode();
    engine::LoadOptions load;
    if (!config_.model().numerics().empty()) load.numerics = config_.model().numerics();
    load.backend = config_.model().backend();
    load.threads = config.threads();
    load.step_delay_us = config.step_delay_us();
    WEIR_ASSIGN(model_, engine::LoadModel(config_.model().path(), load));
    EngineRoleOptions options;
    WEIR_ASSIGN(options.sizes, SizesFor(role_, config, model_->info()));
    WEIR_ASSIGN(arenas_, MakeKvArenas(model_->info().layout, options.sizes.pages,
                                      options.sizes.states, /*shared=*/true));
    options.role = role_;
    options.config = config;
    options.model_name = ModelNameOf(config_.model());
    options.model = model_;
    options.deterministic = config_.model().deterministic();
    options.arenas = arenas_.get();
    options.make_channel = [](Channel::Options channel, Channel::Handler* handler) {
      return CreateGrpcChannel(std::move(channel), handler);
    };
    options.on_poisoned = [] { RequestExit(kExitPoisoned); };
    WEIR_ASSIGN(trace_, MakeTraceSink(config_.log()));
    ShowTrace(trace_.get(), &metrics_);
    options.trace = trace_.get();
    WEIR_ASSIGN(spans_, MakeSpanSink(config_.trace(), &metrics_));
    options.spans = spans_.get();
    WEIR_ASSIGN(engine_, MakeEngine(std::move(options)));
    ShowEngine(engine_.get(), &metrics_, &watch_);
    WEIR_TRY(StartAdmin(config.admin_address()));
    engine_->Start();
    Log(LogLevel::kInfo, absl::StrCat(engine_->name(), " runs"),
        {{"peers", engine_->address()},
         {"admin", absl::StrCat("http://127.0.0.1:", admin_->port())},
         {"model", ModelNameOf(config_.model())}});
    return absl::OkStatus();
  }

  void Drain(Instant deadline, Task drained) { engine_->Drain(deadline, std::move(drained)); }

  void Stop() {
    if (admin_) admin_->Shutdown();
    if (engine_) engine_->Stop();
    loop_.Stop();
    loop_.Join();
  }

  Duration drain_limit() const {
    const uint32_t ms =
        role_ == Role::kPrefill ? config_.prefill().drain_ms() : config_.decode().drain_ms();
    return Millis(ms);
  }

 private:
  absl::Status StartAdmin(const std::string& address) {
    WEIR_ASSIGN(const HostPort at, ParseHostPort(address, "admin_address"));
    HttpServerOptions options;
    options.listen_host = at.host;
    options.listen_port = at.port;
    options.max_connections = 64;
    options.body_bytes_max = 64 * 1024;
    WEIR_ASSIGN(admin_, HttpServer::Create(std::move(options), {&loop_},
                                           [this](HttpRequest request,
                                                  std::shared_ptr<HttpResponder> responder) {
                                             Answer(request, responder.get());
                                           }));
    loop_.Start();
    return absl::OkStatus();
  }

  void Answer(const HttpRequest& request, HttpResponder* responder) {
    const AdminPages pages{&metrics_, &watch_, [this] {
                             return absl::StrCat("{\"", engine_->name(),
                                                 "\":", EngineStateJson(*engine_), "}");
                           }};
    if (AnswerAdmin(request, responder, pages)) return;
    responder->Respond(404, {{"content-type", "text/plain; charset=utf-8"}},
                       "this is an engine: /metrics, /health/live, /health/ready, /debug/state\n");
  }

  const Role role_;
  const v1::Config config_;
  Metrics metrics_;
  ProgressWatch watch_;
  std::unique_ptr<TracePointSink> trace_;
  std::unique_ptr<SpanSink> spans_;
  Loop loop_{{.name = "admin"}};
  std::shared_ptr<const engine::LoadedModel> model_;
  std::unique_ptr<KvArenas> arenas_;
  std::unique_ptr<engine::EngineService> engine_;
  std::unique_ptr<HttpServer> admin_;
};

}  // namespace

int RunEngine(Role role, const ServiceArgs& args) {
  ArmPlantedFromEnvironment();
  const bool prefill = role == Role::kPrefill;
  const Roles roles{.prefill = prefill, .decode = !prefill};
  absl::StatusOr<v1::Config> config = LoadSettings(args, roles);
  if (const std::optional<int> code = AnswerConfigFlags(args, config)) return *code;
  Reloader reloader(args, roles, *config);
  EngineProcess process(role, *std::move(config));
  ProcessHooks hooks;
  hooks.start = [&] { return process.Start(); };
  hooks.drain = [&](Instant deadline, Task drained) { process.Drain(deadline, std::move(drained)); };
  hooks.reload = [&] { (void)reloader.Reload(); };  // nothing of an engine is read again
  hooks.stop = [&] { process.Stop(); };
  hooks.drain_limit = process.drain_limit();
  return RunProcess(std::move(hooks));
}

}  // namespace weir
