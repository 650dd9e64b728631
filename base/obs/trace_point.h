// SPDX-License-Identifier: Apache-2.0
//
// Trace points: what the joint measurement reads. Step loop, router and transfer fill in one plain
// row per event and hand it to a sink that may be null, so that measuring is a reader and not a
// rewrite. Times are microseconds since the run began, on one clock; ids are small integers; -1 is
// "none". Record is called on the thread that measured and must not block; a sink that cannot keep
// up drops rows and counts them.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "base/runtime/pool.h"
#include "base/stdx/bounded_queue.h"
#include "base/stdx/status.h"

namespace weir {

struct TraceRequest {  // one per request
  int64_t rid = -1, sid = -1, round = 0, domain = -1;
  int64_t t_arrive = -1, t_sched_pe = -1, t_read_begin = -1, t_read_end = -1;
  int64_t t_prefill_begin = -1, t_prefill_end = -1, t_first = -1, t_second = -1, t_done = -1;
  int64_t t_kv_ready_de = -1;
  int64_t pe = -1, de = -1;
  int64_t in_len = 0, hit_tok_l0 = 0, hit_tok_l1 = 0, hit_tok_l2 = 0, miss_tok = 0, out_len = 0;
  int64_t n_rounds_spec = 0, sum_draft = 0, sum_sched = 0, sum_accept = 0, preempt = 0, retries = 0;
  const char* outcome = "";  // a literal
};

struct TraceIo {  // one per transfer, per request and hop
  int64_t rid = -1;
  const char* kind = "";  // kv_load kv_store pd_kv miss_kv draft_kv weights ep ctrl
  int64_t tier_src = -1, tier_dst = -1;
  const char* path = "";  // pe de local
  int64_t node_src = -1, node_dst = -1, bytes_useful = 0, bytes_wire = 0;
  int64_t t_submit = -1, t_begin = -1, t_end = -1;
  bool high_class = false;
};

struct TraceNic {  // one per window, device and direction
  int64_t window = 0, nic = 0;
  bool receive = false;
  const char* kind = "";
  int64_t bytes = 0;
};

struct TraceStep {  // one per engine step
  int64_t step = 0, engine = 0, epoch = 0;
  const char* role = "";
  int64_t t0 = -1, t1 = -1, n_req = 0, n_rows_ctx = 0, n_rows_verify = 0, tokens_emitted = 0;
  int64_t kv_bytes_scanned = 0, verify_budget = 0, graph_tier = -1;
  int64_t t_attn = 0, t_moe = 0, t_comm = 0, t_wait_peer = 0, t_host = 0;  // durations
};

struct TraceVerify {  // one per request and step
  int64_t step = 0, rid = -1;
  uint8_t gamma = 0, ell = 0, accepted = 0, emitted = 0;
  std::array<uint8_t, 8> survival{};  // of 255, the first gamma count
  bool full_check = false;
  uint8_t accepted_full = 0;
};

struct TraceExperts {  // one per window, layer and physical slot
  int64_t window = 0, epoch = 0, layer = 0, slot = 0, rows = 0;
};

struct TraceMigration {  // one per slot copy
  int64_t epoch = 0, layer = 0, expert = 0, src = 0, dst = 0, bytes = 0;
  int64_t t_plan = -1, t_begin = -1, t_end = -1, t_commit_step = -1;
  bool aborted = false;
};

struct TraceSpan {  // sampled requests
  int64_t rid = -1;
  const char* name = "";
  const char* parent = "";
  int64_t t0 = -1, t1 = -1;
};

struct TraceEvent {  // faults, epoch changes, evictions, rejections, configuration
  int64_t t = -1;
  const char* kind = "";
  int64_t subject = -1, value = 0;
};

using TracePoint = std::variant<TraceRequest, TraceIo, TraceNic, TraceStep, TraceVerify, TraceExperts,
                                TraceMigration, TraceSpan, TraceEvent>;

class TracePointSink {
 public:
  virtual ~TracePointSink() = default;
  virtual void Record(const TracePoint& point) = 0;
  // Rows that were recorded and will never be read. Any thread.
  virtual uint64_t dropped() const { return 0; }
};

// Costs one compare where there is no sink.
template <class Row>
void Trace(TracePointSink* sink, const Row& row) {
  if (sink) sink->Record(TracePoint(row));
}

// The table a point belongs to ("requests", "io" ...) and its row as one JSON object.
std::string_view TraceTable(const TracePoint& point);
std::string TraceJson(const TracePoint& point);

// Writes DIRECTORY/<table>.ndjson from a thread of its own; the directory must exist. Record is for
// any thread. Rows beyond the queue, and rows that the disk does not take, are dropped and counted,
// with one warning; a file keeps whole rows only. The destructor writes what is queued.
class NdjsonTraceSink : public TracePointSink {
 public:
  static absl::StatusOr<std::unique_ptr<NdjsonTraceSink>> Create(const std::string& directory,
                                                                 size_t queue_capacity = 65536);
  ~NdjsonTraceSink() override;

  void Record(const TracePoint& point) override;
  uint64_t dropped() const override { return dropped_.load(std::memory_order_relaxed); }

 private:
  struct Files;
  NdjsonTraceSink(std::unique_ptr<Files> files, size_t queue_capacity);
  // On the writer's thread.
  void Write();
  void Flush();

  std::unique_ptr<Files> files_;  // owned by the writer thread
  bool warned_ = false;
  BoundedQueue<TracePoint> queue_;
  std::atomic<uint64_t> dropped_{0};
  Pool writer_{1, 1};
};

}  // namespace weir
