// SPDX-License-Identifier: Apache-2.0
#include "weir/kv_pages.h"

#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"

namespace weir {
namespace {

using Stats = kv::NodeService::Stats;

struct Figure {
  const char* name;
  const char* help;
  MetricLabels labels;
  double (*of)(const Stats&);
};

double AsDouble(uint64_t value) { return static_cast<double>(value); }

// How many bytes went to the disk for each that a caller wrote.
double WriteAmplification(const Stats& s) {
  if (s.store.disk.written_bytes == 0) return 1;
  return 1 + AsDouble(s.store.disk.moved_bytes) / AsDouble(s.store.disk.written_bytes);
}

std::vector<Figure> Gauges() {
  return {
      {"weir_kv_clients", "Engines that are connected", {},
       [](const Stats& s) { return AsDouble(s.node.clients); }},
      {"weir_kv_leases", "Lookups under lease", {},
       [](const Stats& s) { return AsDouble(s.node.lookups); }},
      {"weir_kv_under_way", "Operations under way", {{"op", "put"}},
       [](const Stats& s) { return AsDouble(s.node.puts); }},
      {"weir_kv_under_way", "Operations under way", {{"op", "fetch"}},
       [](const Stats& s) { return AsDouble(s.node.fetches); }},
      {"weir_kv_used_bytes", "Bytes that a tier keeps", {{"tier", "host"}},
       [](const Stats& s) { return AsDouble(s.store.host.held_bytes); }},
      {"weir_kv_used_bytes", "Bytes that a tier keeps", {{"tier", "disk"}},
       [](const Stats& s) { return AsDouble(s.store.disk.held_bytes); }},
      {"weir_kv_capacity_bytes", "Bytes that a tier may keep", {{"tier", "host"}},
       [](const Stats& s) { return AsDouble(s.host_bytes_max); }},
      {"weir_kv_capacity_bytes", "Bytes that a tier may keep", {{"tier", "disk"}},
       [](const Stats& s) { return AsDouble(s.disk_bytes_max); }},
      {"weir_kv_live_bytes", "Bytes of records that can be found", {{"tier", "disk"}},
       [](const Stats& s) { return AsDouble(s.store.disk.live_bytes); }},
      {"weir_kv_records", "Records that a tier keeps", {{"tier", "host"}},
       [](const Stats& s) { return AsDouble(s.store.host.records); }},
      {"weir_kv_records", "Records that a tier keeps", {{"tier", "disk"}},
       [](const Stats& s) { return AsDouble(s.store.disk.records); }},
      {"weir_kv_window_slots", "Window states that fit", {},
       [](const Stats& s) { return AsDouble(s.window_slots); }},
      {"weir_kv_segments", "Segment files of the disk tier", {},
       [](const Stats& s) { return AsDouble(s.store.disk.segments); }},
      {"weir_kv_index_bytes", "Memory for knowing what is kept", {},
       [](const Stats& s) { return AsDouble(s.store.index_bytes); }},
      {"weir_kv_write_amplification", "Bytes to the disk for each byte written", {},
       &WriteAmplification},
      {"weir_kv_disk_writes_off", "1 when the disk erred too often to be written", {},
       [](const Stats& s) { return s.store.disk.writes_off ? 1.0 : 0.0; }},
  };
}

std::vector<Figure> Counters() {
  const char* blocks = "Blocks asked for and found in lookups";
  const char* errors = "Operations of the disk that failed";
  const char* refused = "What was refused because something was full or did not fit";
  const char* moved = "Bytes that were moved";
  return {
      {"weir_kv_lookups_total", "Lookups", {},
       [](const Stats& s) { return AsDouble(s.node.lookups_total); }},
      {"weir_kv_lookup_blocks_total", blocks, {{"result", "asked"}},
       [](const Stats& s) { return AsDouble(s.node.asked_blocks); }},
      {"weir_kv_lookup_blocks_total", blocks, {{"result", "found"}},
       [](const Stats& s) { return AsDouble(s.node.found_blocks); }},
      {"weir_kv_put_blocks_total", "Blocks that were put", {},
       [](const Stats& s) { return AsDouble(s.node.put_blocks); }},
      {"weir_kv_put_failed_total", "Puts that did not land or were not wanted any more", {},
       [](const Stats& s) { return AsDouble(s.node.put_failed); }},
      {"weir_kv_fetched_total", "Stretches brought from the disk", {{"result", "ok"}},
       [](const Stats& s) { return AsDouble(s.node.fetched); }},
      {"weir_kv_fetched_total", "Stretches brought from the disk", {{"result", "failed"}},
       [](const Stats& s) { return AsDouble(s.node.fetch_failed); }},
      {"weir_kv_states_total", "Window states", {{"op", "put"}},
       [](const Stats& s) { return AsDouble(s.node.states_put); }},
      {"weir_kv_states_total", "Window states", {{"op", "asked"}},
       [](const Stats& s) { return AsDouble(s.node.states_asked); }},
      {"weir_kv_states_total", "Window states", {{"op", "found"}},
       [](const Stats& s) { return AsDouble(s.node.states_found); }},
      {"weir_kv_leases_expired_total", "Leases that nobody gave back in time", {},
       [](const Stats& s) { return AsDouble(s.node.leases_expired); }},
      {"weir_kv_refused_total", refused, {{"by", "node"}},
       [](const Stats& s) { return AsDouble(s.node.refused); }},
      {"weir_kv_refused_total", refused, {{"by", "index"}},
       [](const Stats& s) { return AsDouble(s.store.put_refused); }},
      {"weir_kv_refused_total", refused, {{"by", "host"}},
       [](const Stats& s) { return AsDouble(s.store.host.refused); }},
      {"weir_kv_refused_total", refused, {{"by", "disk"}},
       [](const Stats& s) { return AsDouble(s.store.disk.appends_refused); }},
      {"weir_kv_moved_bytes_total", moved, {{"way", "put"}},
       [](const Stats& s) { return AsDouble(s.node.put_bytes); }},
      {"weir_kv_moved_bytes_total", moved, {{"way", "disk_write"}},
       [](const Stats& s) { return AsDouble(s.store.disk.written_bytes); }},
      {"weir_kv_moved_bytes_total", moved, {{"way", "disk_rewrite"}},
       [](const Stats& s) { return AsDouble(s.store.disk.moved_bytes); }},
      {"weir_kv_moved_bytes_total", moved, {{"way", "disk_read"}},
       [](const Stats& s) { return AsDouble(s.store.disk.read_bytes); }},
      {"weir_kv_evicted_total", "Records that made room", {{"tier", "host"}},
       [](const Stats& s) { return AsDouble(s.store.host.evicted); }},
      {"weir_kv_evicted_total", "Records that made room", {{"tier", "disk"}},
       [](const Stats& s) { return AsDouble(s.store.disk.evicted); }},
      {"weir_kv_spills_dropped_total", "Records that left memory before the disk took them", {},
       [](const Stats& s) { return AsDouble(s.store.spills_dropped); }},
      {"weir_kv_disk_errors_total", errors, {{"op", "write"}},
       [](const Stats& s) { return AsDouble(s.store.disk.write_errors); }},
      {"weir_kv_disk_errors_total", errors, {{"op", "read"}},
       [](const Stats& s) { return AsDouble(s.store.disk.read_errors); }},
      {"weir_kv_damaged_total", "Records whose checksum or key was wrong when they were read", {},
       [](const Stats& s) { return AsDouble(s.store.disk.damaged); }},
  };
}

}  // namespace

void ShowNode(kv::NodeService* node, Metrics* metrics, ProgressWatch* watch) {
  watch->Watch("kv node", [node] { return node->loop().turns(); },
               [node] { return node->loop().running(); }, std::chrono::seconds(5));
  watch->Require([node]() -> std::string {
    return node->GetStats().store.disk.writes_off ? "the disk tier stopped writing after errors"
                                                  : "";
  });
  std::vector<std::pair<Metrics::Gauge, double (*)(const Stats&)>> gauges;
  for (const Figure& figure : Gauges())
    gauges.emplace_back(metrics->AddGauge(figure.name, figure.help, figure.labels), figure.of);
  std::vector<std::pair<Metrics::Counter, double (*)(const Stats&)>> counters;
  for (const Figure& figure : Counters())
    counters.emplace_back(metrics->AddCounter(figure.name, figure.help, figure.labels), figure.of);
  metrics->OnScrape([node, gauges, counters]() mutable {
    const Stats stats = node->GetStats();
    for (auto& [gauge, of] : gauges) gauge.Set(of(stats));
    for (auto& [counter, of] : counters) counter.MoveTo(of(stats));
  });
}

std::string NodeStateJson(kv::NodeService& node) {
  const Stats s = node.GetStats();
  return absl::StrCat("{\"clients\":", s.node.clients, ",\"leases\":", s.node.lookups,
                      ",\"puts\":", s.node.puts, ",\"fetches\":", s.node.fetches,
                      ",\"runs\":", s.store.runs, ",\"host_bytes\":", s.store.host.held_bytes,
                      ",\"disk_bytes\":", s.store.disk.held_bytes,
                      ",\"disk_work\":", s.store.disk_work,
                      ",\"transfers\":", s.transfer.outstanding, "}");
}

}  // namespace weir
