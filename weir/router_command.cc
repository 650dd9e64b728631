// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/app/process.h"
#include "base/config/load.h"
#include "base/net/grpc_channel.h"
#include "base/obs/admin.h"
#include "base/obs/log.h"
#include "router/router_service.h"
#include "weir/commands.h"
#include "weir/engine_pages.h"
#include "weir/engine_role.h"
#include "weir/router_role.h"
#include "weir/settings.h"
#include "weir/version.h"

namespace weir {

absl::StatusOr<std::unique_ptr<router::RouterService>> MakeRouter(const v1::Config& config,
                                                                  RouterRoleOptions options) {
  router::RouterServiceOptions service;
  service.config = config.router();
  WEIR_ASSIGN(service.model,
              router::LoadServedModel({.directory = config.model().path(),
                                       .name = ModelNameOf(config.model()),
                                       .template_name = config.router().template_(),
                                       .earlier_reasoning = config.router().earlier_reasoning(),
                                       .keep_attribution = config.router().keep_attribution()}));
  service.make_channel = std::move(options.make_channel);
  service.listen_address = std::move(options.listen_address);
  service.instance = InstanceId(DrawId());
  service.seed = DrawId();
  service.build = kVersion;
  service.make_native_front = router::CreateGrpcFront;
  service.metrics = options.metrics;
  service.watch = options.watch;
  service.trace = options.trace;
  service.spans = options.spans;
  if (config.trace().sample_per_mille() > 0) {
    service.sample_per_mille = config.trace().sample_per_mille();
  }
  service.more_state = std::move(options.more_state);
  return router::RouterService::Create(std::move(service));
}

Duration RouterDrainLimit(const v1::RouterConfig& config) {
  return Millis(config.drain_ms());
}

int RunRouter(const ServiceArgs& args) {
  ArmPlantedFromEnvironment();
  const Roles roles{.router = true};
  absl::StatusOr<v1::Config> config = LoadSettings(args, roles);
  if (const std::optional<int> code = AnswerConfigFlags(args, config)) return *code;
  Metrics metrics;
  ProgressWatch watch;
  std::unique_ptr<TracePointSink> trace;
  std::unique_ptr<SpanSink> spans;
  std::unique_ptr<router::RouterService> service;
  ProcessHooks hooks;
  hooks.start = [&]() -> absl::Status {
    RouterRoleOptions options;
    options.metrics = &metrics;
    options.watch = &watch;
    WEIR_ASSIGN(trace, MakeTraceSink(config->log()));
    ShowTrace(trace.get(), &metrics);
    options.trace = trace.get();
    WEIR_ASSIGN(spans, MakeSpanSink(config->trace(), &metrics));
    options.spans = spans.get();
    options.make_channel = [](Channel::Options channel, Channel::Handler* handler) {
      return CreateGrpcChannel(std::move(channel), handler);
    };
    WEIR_ASSIGN(service, MakeRouter(*config, std::move(options)));
    service->Start();
    Log(LogLevel::kInfo, "router runs",
        {{"http", service->http_port()},
         {"peers", service->peer_port()},
         {"grpc", service->grpc_port()},
         {"model", ModelNameOf(config->model())}});
    return absl::OkStatus();
  };
  hooks.drain = [&](Instant deadline, Task drained) {
    service->Drain(deadline, std::move(drained));
  };
  Reloader reloader(args, roles, *config);
  hooks.reload = [&] {
    if (const auto fresh = reloader.Reload()) service->Reload(fresh->router());
  };
  hooks.stop = [&] {
    if (service) service->Stop();
  };
  hooks.drain_limit = RouterDrainLimit(config->router());
  return RunProcess(std::move(hooks));
}

}  // namespace weir
