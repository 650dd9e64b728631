// SPDX-License-Identifier: Apache-2.0
#include "weir/engine_pages.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace weir {
namespace {

using engine::EngineState;

// How long a step may take before the engine counts as hung.
constexpr Duration kStepBound = std::chrono::seconds(10);

uint32_t Sum(const uint32_t (&parts)[engine::kPartCount]) { return parts[0] + parts[1]; }

enum class Kind : uint8_t { kGauge, kSum, kFlag };  // a sum only rises

// Every number of an engine once: its name and how to read it, for both pages.
struct Field {
  const char* name;  // in /debug/state; metrics prefix "weir_engine_" and, for sums, add "_total"
  const char* help;
  Kind kind;
  double (*read)(const EngineState&);
};

constexpr Field kFields[] = {
    {"slots", "Slots there are", Kind::kGauge,
     [](const EngineState& s) -> double { return s.slots_total; }},
    {"slots_used", "Slots taken by a sequence", Kind::kGauge,
     [](const EngineState& s) -> double { return s.slots_used; }},
    {"pages", "KV pages there are, both parts", Kind::kGauge,
     [](const EngineState& s) -> double { return Sum(s.pages_total); }},
    {"pages_used", "KV pages held by sequences", Kind::kGauge,
     [](const EngineState& s) -> double { return Sum(s.pages_used); }},
    {"pages_retained", "KV pages kept for a new attempt, given up when needed", Kind::kGauge,
     [](const EngineState& s) -> double { return Sum(s.pages_retained); }},
    {"blocks_shared", "Blocks of KV that requests may share, in use or not", Kind::kGauge,
     [](const EngineState& s) -> double { return s.blocks_shared; }},
    {"window_states", "Window states kept to go on from", Kind::kGauge,
     [](const EngineState& s) -> double { return s.window_states; }},
    {"tokens_hit", "Tokens of prompts whose KV was there already", Kind::kSum,
     [](const EngineState& s) -> double { return static_cast<double>(s.tokens_hit); }},
    {"leases", "Leases held for routers", Kind::kGauge,
     [](const EngineState& s) -> double { return s.leases; }},
    {"queued", "Requests waiting for room", Kind::kGauge,
     [](const EngineState& s) -> double { return s.queued; }},
    {"fetches", "Reads of peers' pages under way", Kind::kGauge,
     [](const EngineState& s) -> double { return s.fetches; }},
    {"draining", "1 while draining", Kind::kFlag,
     [](const EngineState& s) -> double { return s.draining ? 1 : 0; }},
    {"steps", "Model steps", Kind::kSum,
     [](const EngineState& s) -> double { return static_cast<double>(s.steps); }},
    {"rows_computed", "Token rows computed", Kind::kSum,
     [](const EngineState& s) -> double { return static_cast<double>(s.rows_computed); }},
    {"tokens_emitted", "Tokens that left the engine", Kind::kSum,
     [](const EngineState& s) -> double { return static_cast<double>(s.tokens_emitted); }},
    {"cancelled", "Sequences withdrawn", Kind::kSum,
     [](const EngineState& s) -> double { return static_cast<double>(s.cancelled); }},
    {"preempted", "Sequences that gave way for want of pages", Kind::kSum,
     [](const EngineState& s) -> double { return static_cast<double>(s.preempted); }},
    {"orphans", "Messages about requests that nobody knew", Kind::kSum,
     [](const EngineState& s) -> double { return static_cast<double>(s.orphans); }},
};

}  // namespace

void ShowEngine(engine::EngineService* engine, Metrics* metrics, ProgressWatch* watch) {
  const MetricLabels labels = {{"role", engine->name()}};
  std::vector<std::pair<const Field*, Metrics::Gauge>> gauges;
  std::vector<std::pair<const Field*, Metrics::Counter>> counters;
  for (const Field& field : kFields) {
    const std::string name = absl::StrCat("weir_engine_", field.name);
    if (field.kind == Kind::kSum) {
      counters.emplace_back(&field, metrics->AddCounter(name + "_total", field.help, labels));
    } else {
      gauges.emplace_back(&field, metrics->AddGauge(name, field.help, labels));
    }
  }
  Metrics::Counter bytes_shm = metrics->AddCounter(
      "weir_transfer_bytes_total", "KV bytes read from peers",
      {{"role", engine->name()}, {"by", "shm"}});
  Metrics::Counter bytes_ucx = metrics->AddCounter(
      "weir_transfer_bytes_total", "KV bytes read from peers",
      {{"role", engine->name()}, {"by", "ucx"}});
  metrics->OnScrape([engine, gauges, counters, bytes_shm, bytes_ucx]() mutable {
    const EngineState state = engine->state();
    for (auto& [field, gauge] : gauges) gauge.Set(field->read(state));
    for (auto& [field, counter] : counters) counter.MoveTo(field->read(state));
    const kv::TransferStats transfer = engine->transfer_stats();
    bytes_shm.MoveTo(static_cast<double>(transfer.bytes_shm));
    bytes_ucx.MoveTo(static_cast<double>(transfer.bytes_ucx));
  });
  watch->Watch(
      engine->name(), [engine] { return engine->progress(); }, [] { return true; }, kStepBound);
  watch->Require([engine] {
    if (engine->state().draining) return std::string("draining");
    return engine->routers_up() == 0 ? absl::StrCat(engine->name(), " has no router")
                                     : std::string();
  });
}

void ShowTrace(TracePointSink* trace, Metrics* metrics) {
  if (trace == nullptr) return;
  Metrics::Gauge lost = metrics->AddGauge(
      "weir_trace_rows_lost", "Rows for trace_directory that were not written: a full disk, or too many");
  metrics->OnScrape([trace, lost]() mutable { lost.Set(static_cast<double>(trace->dropped())); });
}

std::string EngineStateJson(const engine::EngineService& engine) {
  const EngineState state = engine.state();
  std::string out = absl::StrCat("{\"instance\":\"", engine.instance().value, "\"");
  for (const Field& field : kFields) {
    const auto value = static_cast<uint64_t>(field.read(state));
    absl::StrAppend(&out, ",\"", field.name, "\":");
    if (field.kind == Kind::kFlag) {
      absl::StrAppend(&out, value != 0 ? "true" : "false");
    } else {
      absl::StrAppend(&out, value);
    }
  }
  const kv::TransferStats transfer = engine.transfer_stats();
  absl::StrAppend(&out, ",\"transfer_bytes_shm\":", transfer.bytes_shm,
                  ",\"transfer_bytes_ucx\":", transfer.bytes_ucx,
                  ",\"routers_up\":", engine.routers_up(), "}");
  return out;
}

}  // namespace weir
