// SPDX-License-Identifier: Apache-2.0
#include "base/obs/trace_point.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <string_view>
#include <vector>

#include "base/obs/json_text.h"
#include "base/stdx/check.h"

namespace weir {
namespace {

constexpr std::array<std::string_view, std::variant_size_v<TracePoint>> kTables = {
    "requests", "io", "nic", "steps", "verify", "experts", "migrations", "spans", "events"};

class Row {
 public:
  Row& Add(std::string_view name, int64_t value) { return Raw(name, std::to_string(value)); }
  Row& Add(std::string_view name, const char* value) { return Raw(name, JsonString(value)); }
  Row& Add(std::string_view name, bool value) { return Raw(name, value ? "true" : "false"); }
  Row& Raw(std::string_view name, std::string_view value) {
    text_.append(text_.empty() ? "{\"" : ",\"").append(name).append("\":").append(value);
    return *this;
  }
  std::string Take() { return std::move(text_) + "}"; }

 private:
  std::string text_;
};

// Adds a member under its own name.
#define WEIR_COLUMN(name) Add(#name, p.name)

std::string Json(const TraceRequest& p) {
  Row row;
  row.WEIR_COLUMN(rid).WEIR_COLUMN(sid).WEIR_COLUMN(round).WEIR_COLUMN(domain);
  row.WEIR_COLUMN(t_arrive).WEIR_COLUMN(t_sched_pe).WEIR_COLUMN(t_read_begin);
  row.WEIR_COLUMN(t_read_end).WEIR_COLUMN(t_prefill_begin).WEIR_COLUMN(t_prefill_end);
  row.WEIR_COLUMN(t_first).WEIR_COLUMN(t_second).WEIR_COLUMN(t_done).WEIR_COLUMN(t_kv_ready_de);
  row.WEIR_COLUMN(pe).WEIR_COLUMN(de).WEIR_COLUMN(in_len).WEIR_COLUMN(hit_tok_l0);
  row.WEIR_COLUMN(hit_tok_l1).WEIR_COLUMN(hit_tok_l2).WEIR_COLUMN(miss_tok).WEIR_COLUMN(out_len);
  row.WEIR_COLUMN(n_rounds_spec).WEIR_COLUMN(sum_draft).WEIR_COLUMN(sum_sched);
  row.WEIR_COLUMN(sum_accept).WEIR_COLUMN(preempt).WEIR_COLUMN(retries).WEIR_COLUMN(outcome);
  return row.Take();
}

std::string Json(const TraceIo& p) {
  Row row;
  row.WEIR_COLUMN(rid).WEIR_COLUMN(kind).WEIR_COLUMN(tier_src).WEIR_COLUMN(tier_dst);
  row.WEIR_COLUMN(path).WEIR_COLUMN(node_src).WEIR_COLUMN(node_dst).WEIR_COLUMN(bytes_useful);
  row.WEIR_COLUMN(bytes_wire).WEIR_COLUMN(t_submit).WEIR_COLUMN(t_begin).WEIR_COLUMN(t_end);
  return row.Add("cls", p.high_class ? "hi" : "lo").Take();
}

std::string Json(const TraceNic& p) {
  Row row;
  row.WEIR_COLUMN(window).WEIR_COLUMN(nic).Add("dir", p.receive ? "rx" : "tx");
  return row.WEIR_COLUMN(kind).WEIR_COLUMN(bytes).Take();
}

std::string Json(const TraceStep& p) {
  Row row;
  row.WEIR_COLUMN(step).WEIR_COLUMN(engine).WEIR_COLUMN(role).WEIR_COLUMN(epoch).WEIR_COLUMN(t0);
  row.WEIR_COLUMN(t1).WEIR_COLUMN(n_req).WEIR_COLUMN(n_rows_ctx).WEIR_COLUMN(n_rows_verify);
  row.WEIR_COLUMN(tokens_emitted).WEIR_COLUMN(kv_bytes_scanned);
  row.Add("K_budget", p.verify_budget).WEIR_COLUMN(graph_tier).WEIR_COLUMN(t_attn);
  row.WEIR_COLUMN(t_moe).WEIR_COLUMN(t_comm).WEIR_COLUMN(t_wait_peer).WEIR_COLUMN(t_host);
  return row.Take();
}

std::string Json(const TraceVerify& p) {
  std::string survival = "[";
  for (size_t i = 0; i < p.gamma && i < p.survival.size(); ++i) {
    survival += (i == 0 ? "" : ",") + std::to_string(p.survival[i]);
  }
  Row row;
  row.WEIR_COLUMN(step).WEIR_COLUMN(rid).Add("gamma", int64_t{p.gamma}).Add("ell", int64_t{p.ell});
  row.Add("accepted", int64_t{p.accepted}).Add("emitted", int64_t{p.emitted});
  row.Raw("surv", survival + "]").WEIR_COLUMN(full_check);
  return row.Add("accepted_full", int64_t{p.accepted_full}).Take();
}

std::string Json(const TraceExperts& p) {
  Row row;
  row.WEIR_COLUMN(window).WEIR_COLUMN(epoch).WEIR_COLUMN(layer).WEIR_COLUMN(slot);
  return row.WEIR_COLUMN(rows).Take();
}

std::string Json(const TraceMigration& p) {
  Row row;
  row.WEIR_COLUMN(epoch).WEIR_COLUMN(layer).WEIR_COLUMN(expert).WEIR_COLUMN(src).WEIR_COLUMN(dst);
  row.WEIR_COLUMN(bytes).WEIR_COLUMN(t_plan).WEIR_COLUMN(t_begin).WEIR_COLUMN(t_end);
  return row.WEIR_COLUMN(t_commit_step).WEIR_COLUMN(aborted).Take();
}

std::string Json(const TraceSpan& p) {
  Row row;
  row.WEIR_COLUMN(rid).WEIR_COLUMN(name).WEIR_COLUMN(t0).WEIR_COLUMN(t1).WEIR_COLUMN(parent);
  return row.Take();
}

std::string Json(const TraceEvent& p) {
  Row row;
  row.WEIR_COLUMN(t).WEIR_COLUMN(kind).WEIR_COLUMN(subject).WEIR_COLUMN(value);
  return row.Take();
}

#undef WEIR_COLUMN

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

}  // namespace

std::string_view TraceTable(const TracePoint& point) { return kTables[point.index()]; }

std::string TraceJson(const TracePoint& point) {
  return std::visit([](const auto& row) { return Json(row); }, point);
}

struct NdjsonTraceSink::Files {
  std::array<std::unique_ptr<std::FILE, FileCloser>, kTables.size()> files;
};

absl::StatusOr<std::unique_ptr<NdjsonTraceSink>> NdjsonTraceSink::Create(
    const std::string& directory, size_t queue_capacity) {
  auto files = std::make_unique<Files>();
  for (size_t i = 0; i < kTables.size(); ++i) {
    const std::string path = directory + "/" + std::string(kTables[i]) + ".ndjson";
    files->files[i].reset(std::fopen(path.c_str(), "we"));
    if (!files->files[i]) {
      return Error(Reason::kBadField, "cannot write " + path + ": " + std::strerror(errno),
                   "trace.directory");
    }
  }
  return std::unique_ptr<NdjsonTraceSink>(new NdjsonTraceSink(std::move(files), queue_capacity));
}

NdjsonTraceSink::NdjsonTraceSink(std::unique_ptr<Files> files, size_t queue_capacity)
    : files_(std::move(files)), queue_(queue_capacity) {
  WEIR_CHECK(writer_.TryRun([this] { Write(); }));
}

NdjsonTraceSink::~NdjsonTraceSink() {
  queue_.Close();
  writer_.Close();
}

void NdjsonTraceSink::Record(const TracePoint& point) {
  TracePoint copy = point;
  if (!queue_.TryPush(std::move(copy))) dropped_.fetch_add(1, std::memory_order_relaxed);
}

void NdjsonTraceSink::Write() {
  std::vector<TracePoint> points;
  for (;;) {
    points.clear();
    if (queue_.WaitSome(1024, std::chrono::seconds(60), &points) == 0 && queue_.closed()) {
      // What was pushed between the wait and the close is still there.
      if (queue_.PopSome(1024, &points) == 0) return;
    }
    for (const TracePoint& point : points) {
      const std::string line = TraceJson(point) + "\n";
      std::fwrite(line.data(), 1, line.size(), files_->files[point.index()].get());
    }
    if (queue_.size() == 0) {
      for (const auto& file : files_->files) std::fflush(file.get());
    }
  }
}

}  // namespace weir
