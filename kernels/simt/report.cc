// SPDX-License-Identifier: Apache-2.0
#include "kernels/simt/report.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>

namespace weir::kernels::simt {
namespace {

// "file.cu:12" of an instruction, by the debugger's own tool; its address where that is absent.
std::string LineOf(const void* pc) {
  static thread_local std::map<const void*, std::string> known;
  const auto found = known.find(pc);
  if (found != known.end()) return found->second;
  char raw[32];
  std::snprintf(raw, sizeof(raw), "%p", pc);
  Dl_info info{};
  if (dladdr(pc, &info) == 0 || info.dli_fname == nullptr) return raw;
  // One before the return address, to name the call and not what follows it.
  const auto offset =
      reinterpret_cast<uintptr_t>(pc) - 1 - reinterpret_cast<uintptr_t>(info.dli_fbase);
  char command[512];
  std::snprintf(command, sizeof(command), "addr2line -s -e '%s' 0x%zx 2>/dev/null", info.dli_fname,
                static_cast<size_t>(offset));
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command, "r"), pclose);
  char line[256] = "";
  if (pipe == nullptr || std::fgets(line, sizeof(line), pipe.get()) == nullptr) return raw;
  std::string text = line;
  text.erase(std::find_if(text.begin(), text.end(), [](char c) { return c == '\n' || c == ' '; }),
             text.end());
  return known[pc] = text.empty() || text[0] == '?' ? raw : text;
}

}  // namespace

const char* FindingName(FindingKind kind) {
  switch (kind) {
    case FindingKind::kRace:
      return "race";
    case FindingKind::kUninitialised:
      return "uninitialised read";
    case FindingKind::kPending:
      return "pending copy";
    case FindingKind::kOutOfBounds:
      return "out of bounds";
    case FindingKind::kMisaligned:
      return "misaligned";
    case FindingKind::kDivergent:
      return "divergent";
    case FindingKind::kDeadlock:
      return "deadlock";
    case FindingKind::kProxyFence:
      return "missing proxy fence";
    case FindingKind::kMisuse:
      return "misuse";
  }
  return "?";
}

double Counters::BankConflictFactor() const {
  return shared_ideal == 0
             ? 1.0
             : static_cast<double>(shared_transactions) / static_cast<double>(shared_ideal);
}

double Counters::UncoalescedShare() const {
  return global_sectors == 0 ? 0.0
                             : static_cast<double>(global_sectors - global_ideal) /
                                   static_cast<double>(global_sectors);
}

bool Report::Has(FindingKind kind) const {
  return std::any_of(findings.begin(), findings.end(),
                     [&](const Finding& finding) { return finding.kind == kind; });
}

std::string Report::Text() const {
  std::string text;
  for (const Finding& finding : findings) text += finding.text + "\n";
  return text;
}

void Report::Add(FindingKind kind, const Origin& origin, const std::string& detail) {
  if (!seen_.insert({kind, origin.pc, origin.site.file, origin.site.line}).second) return;
  if (findings.size() >= kFindingsMax) return;
  const std::string place = origin.pc != nullptr ? LineOf(origin.pc) : origin.site.Text();
  findings.push_back(
      {kind, std::string(FindingName(kind)) + " at " + place + ", " + origin.what + ": " + detail});
}

void Report::Absorb(const Report& other) {
  findings.insert(findings.end(), other.findings.begin(), other.findings.end());
  for (size_t kind = 0; kind < sabotage_places.size(); ++kind) {
    sabotage_places[kind] = std::max(sabotage_places[kind], other.sabotage_places[kind]);
  }
  for (size_t i = 0; i < counters.instructions.size(); ++i) {
    counters.instructions[i] += other.counters.instructions[i];
  }
  counters.switches += other.counters.switches;
  counters.shared_transactions += other.counters.shared_transactions;
  counters.shared_ideal += other.counters.shared_ideal;
  counters.global_sectors += other.counters.global_sectors;
  counters.global_ideal += other.counters.global_ideal;
  counters.global_read_bytes += other.counters.global_read_bytes;
  counters.global_written_bytes += other.counters.global_written_bytes;
}

}  // namespace weir::kernels::simt
