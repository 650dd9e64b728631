// SPDX-License-Identifier: Apache-2.0
#include "base/obs/admin.h"

#include <optional>

#include "base/obs/json_text.h"
#include "base/runtime/clock.h"
#include "base/stdx/check.h"

namespace weir {
namespace {

constexpr Duration kStateTimeout = std::chrono::seconds(2);

void ServeHealth(const absl::Status& status, HttpResponder& responder) {
  const bool ok = status.ok();
  const std::string body = ok ? R"({"status":"ok"})"
                              : R"({"status":"unavailable","reason":)" +
                                    JsonString({status.message().data(), status.message().size()}) + "}";
  responder.Respond(ok ? 200 : 503, {{"content-type", "application/json"}}, body + "\n");
}

// Collects the sections of one state request; owned by its callbacks, changed on one loop.
struct Collection {
  std::shared_ptr<HttpResponder> responder;
  std::vector<std::string> names;
  std::vector<std::optional<std::string>> parts;
  size_t missing = 0;
  bool answered = false;

  void Take(size_t index, std::string json) {
    if (parts[index] || answered) return;
    parts[index] = std::move(json);
    if (--missing == 0) Answer();
  }
  void Answer() {
    if (std::exchange(answered, true)) return;
    std::string body = "{";
    for (size_t i = 0; i < names.size(); ++i) {
      body += (i == 0 ? "" : ",") + JsonString(names[i]) + ":" + parts[i].value_or("null");
    }
    responder->Respond(200, {{"content-type", "application/json"}}, body + "}\n");
    responder.reset();
  }
};

}  // namespace

Admin::Admin(const Metrics* metrics, const Health* health) : metrics_(metrics), health_(health) {
  WEIR_CHECK(metrics && health);
}
Admin::~Admin() = default;

void Admin::AddState(std::string name, StateSection section) {
  sections_.emplace_back(std::move(name), std::move(section));
}

bool Admin::Serve(const HttpRequest& request, const std::shared_ptr<HttpResponder>& responder) const {
  const std::string_view path = request.path();
  const bool known = path == "/metrics" || path == "/health/live" || path == "/health/ready" ||
                     path == "/debug/state";
  if (!known) return false;
  if (request.method != "GET" && request.method != "HEAD") {
    responder->Respond(405, {{"allow", "GET, HEAD"}}, "");
  } else if (path == "/metrics") {
    responder->Respond(200, {{"content-type", "text/plain; version=0.0.4; charset=utf-8"}},
                       metrics_->Text());
  } else if (path == "/health/live") {
    ServeHealth(health_->Live(Now()), *responder);
  } else if (path == "/health/ready") {
    ServeHealth(health_->Ready(Now()), *responder);
  } else {
    ServeState(responder);
  }
  return true;
}

void Admin::ServeState(const std::shared_ptr<HttpResponder>& responder) const {
  auto collection = std::make_shared<Collection>();
  collection->responder = responder;
  collection->parts.resize(sections_.size());
  collection->missing = sections_.size();
  for (const auto& [name, section] : sections_) collection->names.push_back(name);
  if (sections_.empty()) return collection->Answer();
  Loop& loop = responder->loop();
  loop.After("debug state timeout", kStateTimeout, [collection] { collection->Answer(); });
  for (size_t i = 0; i < sections_.size(); ++i) {
    sections_[i].second([collection, i, &loop](std::string json) {
      loop.Post("debug state", [collection, i, json = std::move(json)]() mutable {
        collection->Take(i, std::move(json));
      });
    });
  }
}

void ExposeHttpServer(const HttpServer* server, const Metrics::Labels& labels, Metrics* metrics) {
  const HttpServerStats* stats = &server->stats();
  const auto add = [&](const char* name, const char* help, const auto& value) {
    metrics->AddCallback(name, help, labels, [&value] { return static_cast<double>(value.load()); });
  };
  add("weir_http_connections", "Connections open now.", stats->connections);
  add("weir_http_accepted_total", "Connections accepted.", stats->accepted);
  add("weir_http_refused_total", "Connections refused beyond the maximum.", stats->refused);
  add("weir_http_requests_total", "Requests handed to the service.", stats->requests);
  add("weir_http_bad_requests_total", "Requests answered by the server itself.", stats->bad_requests);
  add("weir_http_gone_total", "Clients that left before their answer was complete.", stats->gone);
  add("weir_http_slow_clients_total", "Clients closed for taking nothing.", stats->slow_clients);
}

void ExposeLoop(const Loop* loop, Metrics* metrics) {
  const Metrics::Labels labels = {{"loop", loop->name()}};
  metrics->AddCallback("weir_loop_turns_total", "Callbacks run by the loop.", labels,
                       [loop] { return static_cast<double>(loop->turns()); });
  metrics->AddCallback("weir_loop_stalls_total", "Callbacks that ran longer than the stall limit.",
                       labels, [loop] { return static_cast<double>(loop->stalls()); });
  metrics->AddCallback("weir_loop_lag_seconds", "How late the loop's own beat is.", labels,
                       [loop] { return Seconds(loop->Lag()); });
}

}  // namespace weir
