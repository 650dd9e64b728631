// SPDX-License-Identifier: Apache-2.0
#include "weir/settings.h"

#include <arpa/inet.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/app/process.h"
#include "base/config/load.h"
#include "base/obs/log.h"
#include "base/obs/otlp_exporter.h"
#include "base/stdx/bytes.h"
#include "codec/template/template.h"
#include "router/router_service.h"
#include "weir/version.h"

namespace weir {
namespace {

using Problems = std::vector<std::string>;

// What SIGHUP reads again; config.proto says so too.
constexpr std::string_view kReloadable[] = {"router.deadline_ms", "router.attempts_max",
                                            "router.api_keys"};

void SetDefault(std::string* field, const char* value) {
  if (field->empty()) *field = value;
}

void FillEngineDefaults(bool prefill, v1::EngineConfig* engine) {
  SetDefault(engine->mutable_peer_address(), "127.0.0.1:0");
  SetDefault(engine->mutable_admin_address(), "127.0.0.1:0");
  SetDefault(engine->mutable_transfer(), "auto");
  SetDefault(engine->mutable_ucx_transports(), "tcp");
  if (engine->slots() == 0) engine->set_slots(prefill ? 64 : 256);
  if (engine->memory_mib() == 0) engine->set_memory_mib(1024);
  if (engine->chunk_rows() == 0) engine->set_chunk_rows(512);
  if (engine->queue_max() == 0) engine->set_queue_max(1024);
  if (engine->lease_ms() == 0) engine->set_lease_ms(30000);
  if (engine->drain_ms() == 0) engine->set_drain_ms(30000);
  if (engine->retain_max() == 0) engine->set_retain_max(64);
  if (engine->window_states() == 0) engine->set_window_states(64);
}

// Zero and empty become the documented defaults; what another setting or the checkpoint decides
// stays as it is.
void FillDefaults(v1::Config* config) {
  SetDefault(config->mutable_log()->mutable_level(), "info");
  SetDefault(config->mutable_log()->mutable_format(), "text");
  v1::ModelConfig* model = config->mutable_model();
  SetDefault(model->mutable_numerics(), "native");
  SetDefault(model->mutable_backend(), model->numerics() == "vendor" ? "ref" : "cpu");
  if (model->name().empty()) model->set_name(ModelNameOf(*model));
  router::FillDefaults(config->mutable_router());
  FillEngineDefaults(/*prefill=*/true, config->mutable_prefill());
  FillEngineDefaults(/*prefill=*/false, config->mutable_decode());
}

void CheckRange(const std::string& field, uint64_t value, uint64_t low, uint64_t high,
                Problems* problems) {
  if (value == 0 || (value >= low && value <= high)) return;  // 0 is the default
  problems->push_back(absl::StrCat(field, " must be from ", low, " to ", high, ", not ", value));
}

void CheckWord(const std::string& field, const std::string& word,
               std::initializer_list<std::string_view> words, Problems* problems) {
  if (std::find(words.begin(), words.end(), word) != words.end()) return;
  std::vector<std::string> all(words.begin(), words.end());
  problems->push_back(absl::StrCat(field, " must be one of ", absl::StrJoin(all, ", "), ", not \"",
                                   word, "\""));
}

void CheckAddress(const std::string& field, const std::string& address, Problems* problems) {
  const absl::StatusOr<HostPort> parsed = ParseHostPort(address, field);
  if (!parsed.ok()) problems->push_back(std::string(StdView(parsed.status().message())));
}

// One that this process listens on itself.
void CheckOwnAddress(const std::string& field, const std::string& address, Problems* problems) {
  const absl::StatusOr<HostPort> parsed = ParseHostPort(address, field);
  if (!parsed.ok()) {
    problems->push_back(std::string(StdView(parsed.status().message())));
    return;
  }
  in6_addr bytes;
  if (inet_pton(AF_INET, parsed->host.c_str(), &bytes) == 1) return;
  if (inet_pton(AF_INET6, parsed->host.c_str(), &bytes) == 1) return;
  problems->push_back(absl::StrCat(field, " must begin with an IP address, not \"", parsed->host,
                                   "\""));
}

void CheckReadable(const std::string& field, const std::string& path, Problems* problems) {
  if (path.empty() || access(path.c_str(), R_OK) == 0) return;
  problems->push_back(absl::StrCat(field, ": ", path, " cannot be read"));
}

void CheckLog(const v1::LogConfig& log, Problems* problems) {
  CheckWord("log.level", log.level(), {"debug", "info", "warn", "error"}, problems);
  CheckWord("log.format", log.format(), {"text", "json"}, problems);
  const std::string& directory = log.trace_directory();
  if (directory.empty()) return;
  struct stat info;
  if (stat(directory.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
    problems->push_back(absl::StrCat("log.trace_directory: ", directory, " is not a directory"));
  } else if (access(directory.c_str(), W_OK | X_OK) != 0) {
    problems->push_back(absl::StrCat("log.trace_directory: ", directory, " cannot be written to"));
  }
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
  CheckWord("model.numerics", model.numerics(), {"fp32", "native", "vendor"}, problems);
  CheckWord("model.backend", model.backend(), {"cpu", "ref"}, problems);
  if (model.backend() == "cpu" && model.numerics() == "vendor") {
    problems->push_back("model.backend must be ref where model.numerics is vendor");
  }
}

void CheckRouter(const v1::RouterConfig& router, Problems* problems) {
  constexpr uint64_t kDayMs = 86400000;
  CheckOwnAddress("router.http_address", router.http_address(), problems);
  if (!router.grpc_address().empty()) {
    CheckOwnAddress("router.grpc_address", router.grpc_address(), problems);
  }
  CheckAddress("router.peer_address", router.peer_address(), problems);
  CheckRange("router.connections_max", router.connections_max(), 1, 100000, problems);
  CheckRange("router.body_bytes_max", router.body_bytes_max(), 1024, uint64_t{1} << 30, problems);
  CheckRange("router.requests_max", router.requests_max(), 1, 1000000, problems);
  CheckRange("router.deadline_ms", router.deadline_ms(), 1, kDayMs, problems);
  CheckRange("router.attempts_max", router.attempts_max(), 1, 10, problems);
  CheckRange("router.drain_ms", router.drain_ms(), 1, kDayMs, problems);
  CheckRange("router.silence_ms", router.silence_ms(), 100, kDayMs, problems);
  if (router.tls_certificate().empty() != router.tls_key().empty()) {
    problems->push_back(router.tls_key().empty()
                            ? "router.tls_certificate needs router.tls_key beside it"
                            : "router.tls_key needs router.tls_certificate beside it");
  }
  CheckReadable("router.tls_certificate", router.tls_certificate(), problems);
  CheckReadable("router.tls_key", router.tls_key(), problems);
  if (const auto known = codec::EarlierReasoningByName(router.earlier_reasoning()); !known.ok()) {
    problems->push_back(absl::StrCat("router.earlier_reasoning: ", known.status().message()));
  }
  if (router.template_().empty()) return;
  const auto known = codec::TemplateByName(router.template_());
  if (known.ok()) return;
  problems->push_back(absl::StrCat("router.template: ", known.status().message()));
}

void CheckTrace(const v1::TraceConfig& trace, Problems* problems) {
  CheckRange("trace.sample_per_mille", trace.sample_per_mille(), 1, 1000, problems);
  CheckRange("trace.queue_max", trace.queue_max(), 1, 1000000, problems);
  for (const std::string& header : trace.headers()) {
    const size_t colon = header.find(':');
    if (colon == 0 || colon == std::string::npos ||
        header.find_first_of("\r\n") != std::string::npos) {
      problems->push_back("trace.headers must each be \"name: value\"");
    }
  }
}

void CheckEngine(const std::string& section, const v1::EngineConfig& engine, bool alone,
                 Problems* problems) {
  const auto field = [&section](const char* name) { return absl::StrCat(section, ".", name); };
  if (alone && engine.routers().empty()) {
    problems->push_back(absl::StrCat(field("routers"), " is required: the peer address of a router"));
  }
  for (const std::string& router : engine.routers()) CheckAddress(field("routers"), router, problems);
  // Other engines are told this address, and KV is read there by a library that knows no names.
  if (engine.peer_address().rfind("localhost:", 0) != 0) {
    CheckOwnAddress(field("peer_address"), engine.peer_address(), problems);
  }
  CheckOwnAddress(field("admin_address"), engine.admin_address(), problems);
  CheckRange(field("slots"), engine.slots(), 1, 65536, problems);
  CheckRange(field("chunk_rows"), engine.chunk_rows(), 1, 32768, problems);
  CheckRange(field("queue_max"), engine.queue_max(), 1, 1000000, problems);
  CheckRange(field("lease_ms"), engine.lease_ms(), 100, 3600000, problems);
  // Page ids have 31 bits, and in one process two engines share them.
  CheckRange(field("pages"), engine.pages(), 1, uint64_t{1} << 29, problems);
  CheckRange(field("memory_mib"), engine.memory_mib(), 1, uint64_t{1} << 24, problems);
  CheckRange(field("step_rows_max"), engine.step_rows_max(), 1, 1000000, problems);
  CheckRange(field("threads"), engine.threads(), 1, 1024, problems);
  CheckRange(field("retain_max"), engine.retain_max(), 1, 1000000, problems);
  CheckRange(field("window_states"), engine.window_states(), 1, 65536, problems);
  CheckWord(field("replay"), engine.replay(), {"", "exact", "bounded"}, problems);
  CheckRange(field("drain_ms"), engine.drain_ms(), 1, 86400000, problems);
  CheckWord(field("transfer"), engine.transfer(), {"auto", "shm", "ucx"}, problems);
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
  if (out.host.size() > 2 && out.host.front() == '[' && out.host.back() == ']') {
    out.host = out.host.substr(1, out.host.size() - 2);
  }
  return out;
}

absl::StatusOr<std::unique_ptr<TracePointSink>> MakeTraceSink(const v1::LogConfig& config) {
  if (config.trace_directory().empty()) return std::unique_ptr<TracePointSink>();
  WEIR_ASSIGN(std::unique_ptr<NdjsonTraceSink> sink,
              NdjsonTraceSink::Create(config.trace_directory()));
  return std::unique_ptr<TracePointSink>(std::move(sink));
}

absl::StatusOr<std::unique_ptr<SpanSink>> MakeSpanSink(const v1::TraceConfig& config,
                                                       Metrics* metrics) {
  if (config.otlp_endpoint().empty()) return std::unique_ptr<SpanSink>();
  OtlpExporter::Options options;
  options.endpoint = config.otlp_endpoint();
  options.version = kVersion;
  if (config.queue_max() > 0) options.queue_max = config.queue_max();
  for (const std::string& header : config.headers()) {
    const size_t colon = header.find(':');
    options.headers.push_back({header.substr(0, colon),
                               std::string(absl::StripAsciiWhitespace(header.substr(colon + 1)))});
  }
  WEIR_ASSIGN(std::unique_ptr<OtlpExporter> exporter, OtlpExporter::Create(std::move(options)));
  exporter->AddMetrics(metrics);
  return std::unique_ptr<SpanSink>(std::move(exporter));
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
  if (!args.model.empty()) sources.flags.push_back({"--model", "model.path", args.model});
  const auto check = [&](std::vector<std::string>* problems) {
    FillDefaults(&config);
    if (args.port >= 0) {
      v1::RouterConfig* router = config.mutable_router();
      const std::string& given = router->http_address();
      router->set_http_address(absl::StrCat(given.substr(0, given.rfind(':')), ":", args.port));
    }
    CheckLog(config.log(), problems);
    CheckModel(config.model(), problems);
    CheckTrace(config.trace(), problems);
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

std::optional<v1::Config> Reloader::Reload() {
  absl::StatusOr<v1::Config> fresh = LoadSettings(args_, roles_);
  if (!fresh.ok()) {
    Log(LogLevel::kError, "reload refused; nothing changed", {{"why", fresh.status()}});
    return std::nullopt;
  }
  std::vector<std::string> changed;
  std::vector<std::string> restart;
  for (std::string& path : ChangedSettings(running_, *fresh)) {
    const bool reloadable =
        std::find(std::begin(kReloadable), std::end(kReloadable), path) != std::end(kReloadable);
    (reloadable ? changed : restart).push_back(std::move(path));
  }
  if (roles_.router) {
    v1::RouterConfig* router = running_.mutable_router();
    router->set_deadline_ms(fresh->router().deadline_ms());
    router->set_attempts_max(fresh->router().attempts_max());
    *router->mutable_api_keys() = fresh->router().api_keys();
  }
  Log(LogLevel::kInfo, "reloaded",
      {{"changed", changed.empty() ? "nothing" : absl::StrJoin(changed, ",")},
       {"needs_restart", restart.empty() ? "nothing" : absl::StrJoin(restart, ",")}});
  return running_;
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
  if (args.check_config && !args.dump_config) {
    const bool file = !args.config_file.empty();
    std::printf("%s: good\n", file ? args.config_file.c_str() : "the configuration");
  }
  if (args.dump_config || args.check_config) return 0;
  return std::nullopt;
}

}  // namespace weir
