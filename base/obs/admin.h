// SPDX-License-Identifier: Apache-2.0
//
// What every process answers to those who watch it: /metrics, /health/live, /health/ready and
// /debug/state. Live means that the thread that answers runs; ready is measured: every part that
// has work must have moved within its bound, and nobody may be draining. The callbacks run on the
// answering thread and must be quick. ProgressWatch is for any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/net/http_server.h"
#include "base/obs/metrics.h"
#include "base/runtime/time.h"

namespace weir {

class ProgressWatch {
 public:
  // `counter` must advance at least every `bound` while `busy` says so.
  void Watch(std::string name, std::function<uint64_t()> counter, std::function<bool()> busy,
             Duration bound);
  // A condition for readiness beyond progress: empty when it holds, else why not.
  void Require(std::function<std::string()> condition);

  // Empty when ready; otherwise one sentence about the first thing that is not right.
  std::string Verdict(Instant now);

 private:
  struct Part {
    std::string name;
    std::function<uint64_t()> counter;
    std::function<bool()> busy;
    Duration bound;
    uint64_t last = 0;
    Instant moved{};
  };
  absl::Mutex mu_;
  std::vector<Part> parts_ ABSL_GUARDED_BY(mu_);
  std::vector<std::function<std::string()>> conditions_ ABSL_GUARDED_BY(mu_);
};

struct AdminPages {
  Metrics* metrics = nullptr;
  ProgressWatch* watch = nullptr;
  std::function<std::string()> debug_state;  // a JSON object
};

// Answers `request` if it asks for one of the pages; false, with nothing done, if not.
bool AnswerAdmin(const HttpRequest& request, HttpResponder* responder, const AdminPages& pages);

}  // namespace weir
