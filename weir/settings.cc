// SPDX-License-Identifier: Apache-2.0
#include "weir/settings.h"

#include <sys/stat.h>

#include <cstdio>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/app/process.h"
#include "base/config/load.h"
#include "base/obs/log.h"
#include "base/stdx/bytes.h"

namespace weir {
namespace {

using Problems = std::vector<std::string>;

void CheckRange(const char* field, uint64_t value, uint64_t low, uint64_t high,
                Problems* problems) {
  if (value == 0 || (value >= low && value <= high)) return;  // 0 is the default
  problems->push_back(absl::StrCat(field, " must be from ", low, " to ", high, ", not ", value));
}

void CheckAddress(const std::string& field, const std::string& address, Problems* problems) {
  if (address.empty()) return;
  const absl::StatusOr<HostPort> parsed = ParseHostPort(address, field);
  if (!parsed.ok()) problems->push_back(std::string(StdView(parsed.status().message())));
}

void CheckModel(const v1::ModelConfig& model, Problems* problems) {
  if (model.path().empty()) {
    problems->push_back("model.path is required: --model DIR, a checkpoint directory with config.json");
    return;
  }
  struct stat info;
  if (stat((model.path() + "/config.json").c_str(), &info) != 0) {
    problems->push_back(absl::StrCat("model.path: ", model.path(), " has no config.json"));
  }
  const std::string& numerics = model.numerics();
  if (!numerics.empty() && numerics != "fp32" && numerics != "native" && numerics != "vendor") {
    problems->push_back("model.numerics must be fp32, native or vendor");
  }
  const std::string& backend = model.backend();
  if (!backend.empty() && backend != "cpu" && backend != "ref") {
    problems->push_back("model.backend must be cpu or ref");
  }
}

void CheckRouter(const v1::RouterConfig& router, Problems* problems) {
  CheckAddress("router.http_address", router.http_address(), problems);
  CheckAddress("router.peer_address", router.peer_address(), problems);
  CheckRange("router.connections_max", router.connections_max(), 1, 100000, problems);
  CheckRange("router.body_bytes_max", router.body_bytes_max(), 1024, uint64_t{1} << 30, problems);
  CheckRange("router.requests_max", router.requests_max(), 1, 1000000, problems);
  CheckRange("router.attempts_max", router.attempts_max(), 1, 10, problems);
  if (router.tls_certificate().empty() != router.tls_key().empty()) {
    problems->push_back("router.tls_certificate and router.tls_key must be set together");
  }
}

void CheckEngine(const std::string& section, const v1::EngineConfig& engine, bool alone,
                 Problems* problems) {
  const auto field = [&section](const char* name) { return absl::StrCat(section, ".", name); };
  if (alone && engine.routers().empty()) {
    problems->push_back(absl::StrCat(field("routers"), " is required: the peer address of a router"));
  }
  for (const std::string& router : engine.routers()) CheckAddress(field("routers"), router, problems);
  CheckAddress(field("peer_address"), engine.peer_address(), problems);
  CheckAddress(field("admin_address"), engine.admin_address(), problems);
  CheckRange(field("slots").c_str(), engine.slots(), 1, 65536, problems);
  CheckRange(field("chunk_rows").c_str(), engine.chunk_rows(), 1, 32768, problems);
  CheckRange(field("queue_max").c_str(), engine.queue_max(), 1, 1000000, problems);
  CheckRange(field("lease_ms").c_str(), engine.lease_ms(), 100, 3600000, problems);
  // Page ids have 31 bits, and in one process two engines share them.
  CheckRange(field("pages").c_str(), engine.pages(), 1, uint64_t{1} << 29, problems);
  CheckRange(field("memory_mib").c_str(), engine.memory_mib(), 1, uint64_t{1} << 24, problems);
  CheckRange(field("step_rows_max").c_str(), engine.step_rows_max(), 1, 1000000, problems);
  CheckRange(field("threads").c_str(), engine.threads(), 1, 1024, problems);
  CheckRange(field("retain_max").c_str(), engine.retain_max(), 1, 1000000, problems);
  const std::string& transfer = engine.transfer();
  if (!transfer.empty() && transfer != "auto" && transfer != "shm" && transfer != "ucx") {
    problems->push_back(absl::StrCat(field("transfer"), " must be auto, shm or ucx"));
  }
}

}  // namespace

absl::StatusOr<HostPort> ParseHostPort(const std::string& address, const std::string& field) {
  const size_t colon = address.rfind(':');
  HostPort out;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(address.substr(colon + 1), &out.port) || out.port < 0 || out.port > 65535) {
    return Error(Reason::kBadField,
                 absl::StrCat(field, " must be host:port, for example 127.0.0.1:8080, not \"",
                              address, "\""),
                 field);
  }
  out.host = address.substr(0, colon);
  return out;
}

absl::StatusOr<std::unique_ptr<TracePointSink>> MakeTraceSink(const v1::LogConfig& config) {
  if (config.trace_directory().empty()) return std::unique_ptr<TracePointSink>();
  WEIR_ASSIGN(std::unique_ptr<NdjsonTraceSink> sink,
              NdjsonTraceSink::Create(config.trace_directory()));
  return std::unique_ptr<TracePointSink>(std::move(sink));
}

std::string ModelNameOf(const v1::ModelConfig& model) {
  if (!model.name().empty()) return model.name();
  std::string path = model.path();
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

absl::StatusOr<v1::Config> LoadSettings(const ServiceArgs& args, const Roles& roles) {
  v1::Config config;
  const bool alone = !(roles.router && roles.prefill);
  ConfigSources sources{.file = args.config_file, .sets = args.sets};
  const auto check = [&](std::vector<std::string>* problems) {
    if (!args.model.empty()) config.mutable_model()->set_path(args.model);
    v1::RouterConfig* router = config.mutable_router();
    if (router->http_address().empty()) router->set_http_address("127.0.0.1:8080");
    if (router->peer_address().empty()) router->set_peer_address("127.0.0.1:8081");
    if (args.port >= 0) {
      const absl::StatusOr<HostPort> address =
          ParseHostPort(router->http_address(), "router.http_address");
      router->set_http_address(
          absl::StrCat(address.ok() ? address->host : "127.0.0.1", ":", args.port));
    }
    for (v1::EngineConfig* engine : {config.mutable_prefill(), config.mutable_decode()}) {
      if (engine->peer_address().empty()) engine->set_peer_address("127.0.0.1:0");
      if (engine->admin_address().empty()) engine->set_admin_address("127.0.0.1:0");
    }
    CheckModel(config.model(), problems);
    if (roles.router) CheckRouter(config.router(), problems);
    if (roles.prefill) CheckEngine("prefill", config.prefill(), alone, problems);
    if (roles.decode) CheckEngine("decode", config.decode(), alone, problems);
  };
  WEIR_TRY(LoadConfig(sources, check, &config));
  if (!roles.router) config.clear_router();
  if (!roles.prefill) config.clear_prefill();
  if (!roles.decode) config.clear_decode();
  return config;
}

std::optional<int> AnswerConfigFlags(const ServiceArgs& args,
                                     const absl::StatusOr<v1::Config>& config) {
  absl::Status status = config.status();
  if (status.ok()) status = ConfigureLog(config->log().level(), config->log().format());
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", std::string(StdView(status.message())).c_str());
    return kExitBadConfig;
  }
  if (args.dump_config) std::fputs(DumpConfig(*config).c_str(), stdout);
  if (args.dump_config || args.check_config) return 0;
  return std::nullopt;
}

}  // namespace weir
