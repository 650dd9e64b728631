// SPDX-License-Identifier: Apache-2.0
#include "base/obs/admin.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/runtime/clock.h"

namespace weir {
namespace {

constexpr char kText[] = "text/plain; charset=utf-8";
constexpr char kJson[] = "application/json";

void Answer(HttpResponder* responder, int status, const char* type, std::string body) {
  responder->Respond(status, {{"content-type", type}, {"cache-control", "no-store"}},
                     std::move(body));
}

}  // namespace

void ProgressWatch::Watch(std::string name, std::function<uint64_t()> counter,
                          std::function<bool()> busy, Duration bound) {
  absl::MutexLock lock(&mu_);
  parts_.push_back({std::move(name), std::move(counter), std::move(busy), bound});
}

void ProgressWatch::Require(std::function<std::string()> condition) {
  absl::MutexLock lock(&mu_);
  conditions_.push_back(std::move(condition));
}

std::string ProgressWatch::Verdict(Instant now) {
  absl::MutexLock lock(&mu_);
  for (const auto& condition : conditions_) {
    std::string why = condition();
    if (!why.empty()) return why;
  }
  std::string verdict;
  for (Part& part : parts_) {
    const uint64_t count = part.counter();
    if (count != part.last || !part.busy() || part.moved == Instant{}) {
      part.last = count;
      part.moved = now;
    } else if (now - part.moved > part.bound && verdict.empty()) {
      verdict = absl::StrCat(part.name, " has work and has not moved for ",
                             static_cast<int64_t>(Seconds(now - part.moved)), " s");
    }
  }
  return verdict;
}

bool AnswerAdmin(const HttpRequest& request, HttpResponder* responder, const AdminPages& pages) {
  const std::string_view path = request.path();
  const bool ours = path == "/metrics" || path == "/health/live" || path == "/health/ready" ||
                    path == "/health" || path == "/debug/state";
  if (!ours) return false;
  if (request.method != "GET" && request.method != "HEAD") {
    responder->Respond(405, {{"content-type", kText}, {"allow", "GET, HEAD"}},
                       "use GET\n");
    return true;
  }
  if (path == "/metrics") {
    Answer(responder, 200, "text/plain; version=0.0.4; charset=utf-8",
           pages.metrics ? pages.metrics->Text() : std::string());
  } else if (path == "/health/live") {
    Answer(responder, 200, kText, "live\n");
  } else if (path == "/debug/state") {
    Answer(responder, 200, kJson, pages.debug_state ? pages.debug_state() : std::string("{}"));
  } else {
    const std::string why = pages.watch ? pages.watch->Verdict(Now()) : std::string();
    Answer(responder, why.empty() ? 200 : 503, kText, why.empty() ? "ready\n" : why + "\n");
  }
  return true;
}

}  // namespace weir
