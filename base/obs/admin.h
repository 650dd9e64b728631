// SPDX-License-Identifier: Apache-2.0
//
// The operator's pages: /metrics, /health/live, /health/ready and /debug/state, for whichever HTTP
// server a process has. Serve is called on the connection's loop and never blocks; sections of the
// state may live on other threads and answer later, those that do not within two seconds show as
// null. Register at start; metrics and health are borrowed and outlive this object.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/net/http_server.h"
#include "base/obs/health.h"
#include "base/obs/metrics.h"

namespace weir {

class Admin {
 public:
  Admin(const Metrics* metrics, const Health* health);
  ~Admin();

  // `section` gets a callback to call once, from any thread, with a JSON value. It may drop it.
  using StateSection = std::function<void(std::function<void(std::string json)> done)>;
  void AddState(std::string name, StateSection section);

  // Answers and returns true when the path is one of the admin's.
  bool Serve(const HttpRequest& request, const std::shared_ptr<HttpResponder>& responder) const;

 private:
  void ServeState(const std::shared_ptr<HttpResponder>& responder) const;

  const Metrics* const metrics_;
  const Health* const health_;
  std::vector<std::pair<std::string, StateSection>> sections_;  // constant after start
};

// Exposes a server's own counters as weir_http_* under `labels`. Borrows `server`.
void ExposeHttpServer(const HttpServer* server, const Metrics::Labels& labels, Metrics* metrics);
// Exposes a loop's turns, stalls and lag as weir_loop_*. Borrows `loop`.
void ExposeLoop(const Loop* loop, Metrics* metrics);

}  // namespace weir
