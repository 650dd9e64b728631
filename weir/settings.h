// SPDX-License-Identifier: Apache-2.0
//
// The effective configuration of a process: file, environment and --set into one message, with the
// checks that need to know what a setting means. Main thread, at start.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/obs/metrics.h"
#include "base/obs/span.h"
#include "base/obs/trace_point.h"
#include "base/stdx/status.h"
#include "proto/config.pb.h"
#include "weir/commands.h"

namespace weir {

// What the process runs; decides which sections are required.
struct Roles {
  bool router = false;
  bool prefill = false;
  bool decode = false;
};

// Every default filled in, but for what the checkpoint decides. kBadField with one line per problem;
// what passes here is only refused at start for what start alone can know (a port in use, a
// checkpoint that does not load).
absl::StatusOr<v1::Config> LoadSettings(const ServiceArgs& args, const Roles& roles);

// Answers SIGHUP: reads the configuration again and logs which settings it takes over and which need
// a restart. Main thread.
class Reloader {
 public:
  Reloader(ServiceArgs args, Roles roles, v1::Config running)
      : args_(std::move(args)), roles_(roles), running_(std::move(running)) {}

  // What to run with from now on; nullopt, with the reason in the log, when it is refused.
  std::optional<v1::Config> Reload();

 private:
  const ServiceArgs args_;
  const Roles roles_;
  v1::Config running_;
};

// Prints problems, --dump-config and --check-config; the exit code if the process is done with that.
// Configures the log otherwise.
std::optional<int> AnswerConfigFlags(const ServiceArgs& args,
                                     const absl::StatusOr<v1::Config>& config);

// The sink of log.trace_directory; null when none is set. kBadField when it cannot be written.
absl::StatusOr<std::unique_ptr<TracePointSink>> MakeTraceSink(const v1::LogConfig& config);

// The exporter of trace.otlp_endpoint, with its counters among `metrics`; null when none is set.
absl::StatusOr<std::unique_ptr<SpanSink>> MakeSpanSink(const v1::TraceConfig& config,
                                                       Metrics* metrics);

// The served name: configured, or the last part of the directory's path.
std::string ModelNameOf(const v1::ModelConfig& model);

struct HostPort {
  std::string host;
  int port = 0;
};
// "host:port", an IPv6 host in brackets, which are taken off. kBadField naming `field` for anything else.
absl::StatusOr<HostPort> ParseHostPort(const std::string& address, const std::string& field);

}  // namespace weir
