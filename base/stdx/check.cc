// SPDX-License-Identifier: Apache-2.0
#include "base/stdx/check.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace weir {
namespace {

struct Registry {
  std::mutex mu;
  std::vector<Probe*> probes;
};

Registry& TheRegistry() {
  static Registry* registry = new Registry;  // never destroyed: probes may fire during exit
  return *registry;
}

}  // namespace

void CheckFailed(const char* file, int line, const char* text) {
  std::fprintf(stderr, "%s:%d: check failed: %s\n", file, line, text);
  std::fflush(stderr);
  std::abort();
}

Probe::Probe(const char* label) : label_(label) {
  Registry& registry = TheRegistry();
  std::lock_guard lock(registry.mu);
  registry.probes.push_back(this);
}

uint64_t ReachedCount(std::string_view label) {
  Registry& registry = TheRegistry();
  std::lock_guard lock(registry.mu);
  uint64_t count = 0;
  for (const Probe* probe : registry.probes) {
    if (probe->label() == label) count += probe->count();
  }
  return count;
}

std::vector<std::pair<std::string_view, uint64_t>> ReachedProbes() {
  Registry& registry = TheRegistry();
  std::lock_guard lock(registry.mu);
  std::vector<std::pair<std::string_view, uint64_t>> out;
  for (const Probe* probe : registry.probes) out.emplace_back(probe->label(), probe->count());
  return out;
}

}  // namespace weir
