// SPDX-License-Identifier: Apache-2.0
//
// OtlpExporter: sends finished spans to a collector as OTLP over HTTP with JSON bodies. Record is
// for any thread and costs one push into a bounded queue; a thread of the exporter's own makes
// batches, posts them and tries a failed one again a few times. It owns what is queued. A full queue
// drops spans, an unwilling collector loses batches; both are counted and nothing else notices. The
// destructor sends what is queued, for at most `flush_limit`.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/net/http_server.h"
#include "base/obs/metrics.h"
#include "base/obs/span.h"
#include "base/runtime/pool.h"
#include "base/stdx/bounded_queue.h"

namespace weir {

class OtlpExporter final : public SpanSink {
 public:
  struct Options {
    std::string endpoint;  // http(s)://host:port; /v1/traces is appended where it is missing
    HttpHeaders headers;   // added to each post, for collectors that want a key
    std::string version;   // of this program
    size_t queue_max = 8192;
    size_t batch_max = 512;
    Duration batch_wait = std::chrono::seconds(1);  // how long the first span of a batch waits
    int attempts_max = 4;                           // of one batch
    Duration backoff = Millis(250);                 // before the second, doubled before each more
    Duration post_limit = std::chrono::seconds(5);  // without a byte from the collector
    Duration flush_limit = std::chrono::seconds(3);
  };

  // kBadField when the endpoint is no URL.
  static absl::StatusOr<std::unique_ptr<OtlpExporter>> Create(Options options);
  ~OtlpExporter() override;

  void Record(Span span) override;

  uint64_t sent() const { return sent_.load(std::memory_order_relaxed); }
  uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }  // queue full
  uint64_t failed() const { return failed_.load(std::memory_order_relaxed); }    // given up
  // This exporter must outlive the last scrape.
  void AddMetrics(Metrics* metrics);

 private:
  explicit OtlpExporter(Options options);
  // All below on the writer's thread.
  void Write();
  bool Collect(std::vector<Span>* batch);
  void Send(std::span<const Span> batch);
  // True when another attempt may help.
  bool Post(const std::string& body, bool* accepted);

  const Options options_;
  BoundedQueue<Span> queue_;
  std::atomic<uint64_t> sent_{0};
  std::atomic<uint64_t> dropped_{0};
  std::atomic<uint64_t> failed_{0};
  std::atomic<bool> cancel_{false};  // ends a post under way
  absl::Notification closing_;
  absl::Notification written_;
  std::string body_;          // reused
  int64_t wall_offset_ns_ = 0;  // from Now() to the wall clock
  bool complained_ = false;
  Pool writer_{1, 1};
};

// An ExportTraceServiceRequest. `wall_offset_ns` turns an Instant into nanoseconds since 1970.
void AppendOtlpJson(std::span<const Span> spans, int64_t wall_offset_ns, const std::string& version,
                    std::string* out);

}  // namespace weir
