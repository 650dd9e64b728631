// SPDX-License-Identifier: Apache-2.0
#include "base/obs/trace_point.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/obs/json_text.h"
#include "base/obs/log.h"
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

class Table {
 public:
  ~Table() {
    if (fd_ >= 0) close(fd_);
  }
  bool Open(const std::string& path) {
    fd_ = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    return fd_ >= 0;
  }
  void Add(const TracePoint& point) {
    text_ += TraceJson(point);
    text_ += '\n';
    ++rows_;
  }
  // Answers how many of the added rows the file did not take; errno says why.
  uint64_t Flush() {
    size_t done = 0;
    while (done < text_.size()) {
      const ssize_t written = write(fd_, text_.data() + done, text_.size() - done);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) break;
      done += static_cast<size_t>(written);
    }
    uint64_t lost = 0;
    if (done < text_.size()) {
      const int why = errno;
      const size_t whole = text_.rfind('\n', done == 0 ? 0 : done - 1) + 1;  // 0 for none
      lost = rows_ - static_cast<uint64_t>(std::count(text_.data(), text_.data() + whole, '\n'));
      // A reader must not meet half a row; what is no file has no end to cut.
      if (ftruncate(fd_, end_ + static_cast<off_t>(whole)) == 0) lseek(fd_, 0, SEEK_END);
      done = whole;
      errno = why;
    }
    end_ += static_cast<off_t>(done);
    text_.clear();
    rows_ = 0;
    return lost;
  }

 private:
  int fd_ = -1;
  off_t end_ = 0;     // of the rows written
  std::string text_;  // rows to be written
  uint64_t rows_ = 0;
};

}  // namespace

std::string_view TraceTable(const TracePoint& point) { return kTables[point.index()]; }

std::string TraceJson(const TracePoint& point) {
  return std::visit([](const auto& row) { return Json(row); }, point);
}

struct NdjsonTraceSink::Files {
  std::array<Table, kTables.size()> tables;
};

absl::StatusOr<std::unique_ptr<NdjsonTraceSink>> NdjsonTraceSink::Create(
    const std::string& directory, size_t queue_capacity) {
  auto files = std::make_unique<Files>();
  for (size_t i = 0; i < kTables.size(); ++i) {
    const std::string path = directory + "/" + std::string(kTables[i]) + ".ndjson";
    if (!files->tables[i].Open(path)) {
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
    for (const TracePoint& point : points) files_->tables[point.index()].Add(point);
    Flush();
  }
}

void NdjsonTraceSink::Flush() {
  std::string why = "rows come faster than they are written";
  for (Table& table : files_->tables) {
    const uint64_t lost = table.Flush();
    if (lost == 0) continue;
    WEIR_REACHED("trace: rows not written");
    why = std::strerror(errno);
    dropped_.fetch_add(lost, std::memory_order_relaxed);
  }
  if (warned_ || dropped() == 0) return;
  warned_ = true;
  Log(LogLevel::kWarn, "trace rows are lost", {{"rows_so_far", dropped()}, {"why", why}});
}

}  // namespace weir
