// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "base/app/process.h"
#include "base/config/load.h"
#include "base/net/grpc_channel.h"
#include "base/net/http_server.h"
#include "base/obs/admin.h"
#include "base/obs/log.h"
#include "kvstore/node/node_service.h"
#include "weir/kv_commands.h"
#include "weir/kv_pages.h"
#include "weir/settings.h"

namespace weir {
namespace {

// What a store process owns, in the order of its making.
class NodeProcess {
 public:
  explicit NodeProcess(const KvStoreArgs& args) : args_(args) {}

  absl::Status Start() {
    kv::NodeServiceOptions options{.name = "kvstore", .listen_address = args_.listen};
    options.make_channel = [](Channel::Options channel, Channel::Handler* handler) {
      return CreateGrpcChannel(std::move(channel), handler);
    };
    options.store.host_bytes = args_.host_bytes;
    options.store.disk_path = args_.dir;
    options.store.disk.capacity_bytes = args_.disk_bytes;
    // Small tiers have small segments, so that there are enough of them to choose from.
    options.store.disk.segment_bytes =
        std::clamp<uint64_t>(AlignDown<uint64_t>(args_.disk_bytes / 16, kMiB), kMiB, 256 * kMiB);
    // Records of 64 KiB, smaller than those of real models, would fill both tiers with this many.
    options.store.runs_max = static_cast<uint32_t>(std::clamp<uint64_t>(
        (args_.host_bytes + args_.disk_bytes) / (64 * kKiB), 1ull << 20, 1ull << 27));
    options.window_bytes = args_.window_bytes;
    options.windows = {.state_bytes_max = static_cast<uint32_t>(args_.state_bytes),
                       .time_to_live = std::chrono::seconds(args_.state_seconds)};
    WEIR_ASSIGN(node_, kv::NodeService::Create(std::move(options)));
    ShowNode(node_.get(), &metrics_, &watch_);
    WEIR_TRY(StartAdmin());
    node_->Start();
    Log(LogLevel::kInfo, "kvstore runs",
        {{"engines", args_.listen},
         {"port", node_->listen_port()},
         {"admin", absl::StrCat("http://127.0.0.1:", admin_->port())}});
    return absl::OkStatus();
  }

  void Stop() {
    if (admin_) admin_->Shutdown();
    loop_.Stop();
    loop_.Join();
    node_.reset();
  }

 private:
  absl::Status StartAdmin() {
    WEIR_ASSIGN(const HostPort at, ParseHostPort(args_.admin, "--admin-address"));
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
                             return absl::StrCat("{\"kvstore\":", NodeStateJson(*node_), "}");
                           }};
    if (AnswerAdmin(request, responder, pages)) return;
    responder->Respond(404, {{"content-type", "text/plain; charset=utf-8"}},
                       "this is a store: /metrics, /health/live, /health/ready, /debug/state\n");
  }

  const KvStoreArgs args_;
  Metrics metrics_;
  ProgressWatch watch_;
  Loop loop_{{.name = "admin"}};
  std::unique_ptr<kv::NodeService> node_;
  std::unique_ptr<HttpServer> admin_;
};

}  // namespace

int RunKvStore(const KvStoreArgs& args) {
  ArmPlantedFromEnvironment();
  if (args.role != "node") {
    std::fprintf(stderr, "weir kvstore: --role is node, not \"%s\"\n", args.role.c_str());
    return kExitBadConfig;
  }
  if (args.dir.empty() != (args.disk_bytes == 0)) {
    std::fprintf(stderr, "weir kvstore: --dir and --disk-bytes go together\n");
    return kExitBadConfig;
  }
  if (args.state_bytes > 256 * kMiB) {
    std::fprintf(stderr, "weir kvstore: --state-bytes is at most 256 MiB\n");
    return kExitBadConfig;
  }
  NodeProcess process(args);
  ProcessHooks hooks;
  hooks.start = [&] { return process.Start(); };
  hooks.drain = [](Instant, Task drained) { drained(); };  // engines go on without it
  hooks.stop = [&] { process.Stop(); };
  return RunProcess(std::move(hooks));
}

}  // namespace weir
