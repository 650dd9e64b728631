// SPDX-License-Identifier: Apache-2.0
//
// SpanCollector: a small OTLP collector on a real port, for tests. It owns its loop and keeps what it
// is sent; reading is for any thread and waits, but not for ever.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/net/http_server.h"
#include "base/runtime/loop.h"

namespace weir {

// Answers the first `refusals` posts with `status`, takes all others and keeps their bodies.
class SpanCollector {
 public:
  explicit SpanCollector(int refusals = 0, int status = 503) : refusals_(refusals), status_(status) {
    loop_.Start();
    auto server = HttpServer::Create({}, {&loop_}, [this](HttpRequest request,
                                                         std::shared_ptr<HttpResponder> responder) {
      responder->Respond(Take(std::move(request)), {{"content-type", "application/json"}}, "{}");
    });
    server_ = *std::move(server);
  }
  ~SpanCollector() { server_->Shutdown(); }

  std::string url() const { return "http://127.0.0.1:" + std::to_string(server_->port()); }
  // Waits for that many spans in all; answers what came, each with its resource's attributes.
  std::vector<nlohmann::json> WaitSpans(size_t count) {
    std::unique_lock lock(mu_);
    changed_.wait_for(lock, std::chrono::seconds(20), [&] { return spans_.size() >= count; });
    return spans_;
  }
  int posts() {
    std::lock_guard lock(mu_);
    return posts_;
  }
  std::vector<HttpRequest> requests() {
    std::lock_guard lock(mu_);
    return requests_;
  }

 private:
  int Take(HttpRequest request) {
    std::lock_guard lock(mu_);
    if (++posts_ <= refusals_) return status_;
    const auto body = nlohmann::json::parse(request.body);
    for (const nlohmann::json& resource : body.at("resourceSpans")) {
      for (const nlohmann::json& scope : resource.at("scopeSpans")) {
        for (nlohmann::json span : scope.at("spans")) {
          span["resource"] = resource.at("resource").at("attributes");
          spans_.push_back(std::move(span));
        }
      }
    }
    requests_.push_back(std::move(request));
    changed_.notify_all();
    return 200;
  }

  const int refusals_;
  const int status_;
  Loop loop_{{.name = "collector"}};
  std::unique_ptr<HttpServer> server_;
  std::mutex mu_;
  std::condition_variable changed_;
  int posts_ = 0;                      // guarded by mu_
  std::vector<nlohmann::json> spans_;  // guarded by mu_
  std::vector<HttpRequest> requests_;  // guarded by mu_
};

}  // namespace weir
