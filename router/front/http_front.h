// SPDX-License-Identifier: Apache-2.0
//
// HttpFront: the routes of the public API. It checks the key, parses the body in its dialect, renders
// and tokenizes, and hands ids to the backend; what comes back it writes to the client. Lives on one
// loop (large bodies are parsed on the pool and posted back) and never blocks; it borrows the pool
// and the backend, which outlive it. Whatever a client sends ends in an answer: an error in the
// dialect's shape before the first byte of an answer, an error event after it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/net/http_server.h"
#include "base/obs/span.h"
#include "base/obs/trace_point.h"
#include "base/runtime/gate.h"
#include "base/runtime/pool.h"
#include "base/stdx/random.h"
#include "codec/dialect/models_body.h"
#include "codec/dialect/request_limits.h"
#include "codec/prompt/history.h"
#include "router/fleet/fleet_core.h"
#include "router/front/answer.h"
#include "router/front/routes.h"
#include "router/front/served_model.h"
#include "router/limits.h"

namespace weir::router {

struct Prepared;

// Who decides; on the front's loop. Neither call answers before it returns.
class FrontBackend {
 public:
  virtual ~FrontBackend() = default;
  virtual void Ask(Submit submit) = 0;
  virtual void Leave(Withdraw withdraw) = 0;
  virtual const FleetCore& fleet() const = 0;
};

struct FrontCounters {
  uint64_t requests = 0;        // for an answer, whatever became of them
  uint64_t rejected = 0;        // answered before they reached the backend
  uint64_t pooled = 0;          // to be parsed on the pool
  uint64_t abandoned = 0;       // of these, dropped unread: their client had left
  uint64_t first_tokens = 0;    // answers that began
};

class HttpFront final : public AnswerOwner {
 public:
  struct Options {
    ServedModel model;
    codec::RequestLimits limits;
    std::vector<std::string> api_keys;  // empty: anyone may ask
    uint64_t seed = 0;                  // of response ids, and of answers whose client gave no seed
    Pool* pool = nullptr;               // null: everything on the loop
    size_t pooled_bytes_max = kPooledBytesMax;
    size_t history_bytes_max = kPromptHistoryBytesMax;
    FrontBackend* backend = nullptr;
    // /metrics, /health/* and /debug/state; false where the request asks for none of them.
    std::function<bool(const HttpRequest&, HttpResponder*)> answer_admin;
    std::function<void(double seconds)> on_first_token;  // may be empty
    TracePointSink* trace = nullptr;  // borrowed; null: nothing is recorded
    SpanSink* spans = nullptr;        // borrowed; null: no request is traced
    uint32_t sample_per_mille = 1000;  // of requests that come without a traceparent
    uint64_t instance = 0;             // whose spans these are
  };

  explicit HttpFront(Options options);
  ~HttpFront() override;

  void Handle(HttpRequest request, std::shared_ptr<HttpResponder> responder);

  // How a request that did not come by HTTP is answered. All runs on the loop.
  struct Native {
    std::function<std::unique_ptr<codec::Response>(
        const codec::ChatRequest&, const codec::Prompt&, std::shared_ptr<const codec::Tokenizer>,
        codec::ResponseHead)>
        make_response;
    std::function<void(const absl::Status&)> refuse;
    // The prompt is all that was asked for; empty where an answer was.
    std::function<void(const Prepared&)> prepared;
  };
  struct NativeAsk {
    Page page = Page::kChat;  // whose body it is
    std::string body;
    std::string request_id;
    HttpHeaders key_headers;  // what Authorise reads
    std::shared_ptr<HttpResponder> responder;
    std::shared_ptr<const Native> native;
  };
  void Ask(NativeAsk ask);

  // Whose request it is; nobody's where there are no keys.
  absl::StatusOr<std::string> Authorise(const HttpHeaders& headers) const;
  // The model as it is served now.
  codec::ModelCard Card() const;

  // What the core said. Requests that nobody waits for any more are ignored.
  void OnDeliver(const RouterActions::Deliver& delivery);
  void OnClose(const RouterActions::Close& close);
  void OnSpans(std::span<Span> spans);

  // Comments for streams that were silent for long. Called every few seconds.
  void KeepAlive(Instant now);

  // Refuses new requests; `empty` runs once when no answer is under way.
  void Drain(Task empty);

  void SetApiKeys(std::vector<std::string> keys) { options_.api_keys = std::move(keys); }
  size_t answers() const { return gate_.inside(); }
  size_t choices() const { return slots_.size() - free_.size(); }
  const FrontCounters& counters() const { return counters_; }
  const codec::PromptHistory& history() const { return *history_; }

 private:
  // A request of the core: which answer and which of its choices. The id of a request is its slot
  // in the low bits and a number that never repeats in the others, so finding it needs no map.
  struct Slot {
    uint64_t id = 0;  // 0: free
    std::shared_ptr<Answer> answer;
    int choice = 0;
  };

  void Complete(const Target& target, HttpRequest request,
                std::shared_ptr<HttpResponder> responder);
  // What is known of a request before its body is.
  struct Arrival {
    std::string request_id;
    codec::ErrorShape shape;
    std::shared_ptr<HttpResponder> responder;
    Instant begun;
    Span span;
    std::shared_ptr<const Native> native;  // null: HTTP
  };
  // From a body to an answer or a refusal.
  void Read(Page page, std::string body, const HttpHeaders& headers, Arrival arrival);
  void Start(absl::StatusOr<Prepared> prepared, Arrival arrival, Gate::Pass pass);
  void Reject(const absl::Status& status, Arrival* arrival);
  Span BeginSpan(Page page, const HttpHeaders& headers, Instant begun);
  void EndSpan(Span span, Reason reason);
  void Models(const HttpRequest& request, HttpResponder* responder, const Target& target);
  void Remember(Answer* answer);
  pb::Sampling SamplingFor(const codec::ChatRequest& request, uint64_t seed) const;
  std::string NewResponseId();
  RequestId TakeSlot(const std::shared_ptr<Answer>& answer, int choice);
  Slot* Find(RequestId request);
  void TraceAnswer(const Answer& answer, const RouterActions::Close& close) const;
  void FreeSlot(Slot* slot);

  void Withdrawn(RequestId request, bool satisfied) override;
  void FirstToken(const Answer& answer) override;
  void Ended(Answer* answer, Reason reason) override;

  Options options_;
  const std::shared_ptr<codec::PromptHistory> history_;  // shared with the pool
  Random random_;
  Gate gate_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
  uint64_t last_serial_ = 0;
  size_t pooled_bytes_ = 0;  // bodies that wait for the pool or are on it
  FrontCounters counters_;
};

}  // namespace weir::router
