// SPDX-License-Identifier: Apache-2.0
#include "base/obs/health.h"

#include "base/stdx/check.h"
#include "base/stdx/planted.h"

namespace weir {

Progress& Health::AddProgress(std::string name, Duration bound) {
  std::lock_guard lock(mu_);
  watched_.push_back({std::move(name), bound, std::make_unique<Progress>(), nullptr});
  return *watched_.back().progress;
}

void Health::AddLoop(const Loop* loop, Duration bound) {
  std::lock_guard lock(mu_);
  watched_.push_back({loop->name(), bound, nullptr, loop});
}

void Health::AddCheck(std::string name, std::function<absl::Status()> check) {
  std::lock_guard lock(mu_);
  checks_.emplace_back(std::move(name), std::move(check));
}

absl::Status Health::Ready(Instant now) const {
  if (draining_.load() && !IsPlanted(Planted::kReadyLies)) {
    return Error(Reason::kNoCapacity, "draining");
  }
  if (!started_.load()) return Error(Reason::kNoCapacity, "starting");
  WEIR_TRY(Standing(now, 1));
  std::vector<std::pair<std::string, std::function<absl::Status()>>> checks;
  {
    // Copied, so that a check may take its own lock.
    std::lock_guard lock(mu_);
    checks = checks_;
  }
  for (const auto& [name, check] : checks) {
    const absl::Status status = check();
    if (!status.ok()) {
      return Error(Reason::kNoCapacity, name + ": " + std::string(status.message()));
    }
  }
  return absl::OkStatus();
}

absl::Status Health::Live(Instant now) const { return Standing(now, 10); }

absl::Status Health::Standing(Instant now, int patience) const {
  std::lock_guard lock(mu_);
  for (const Watched& watched : watched_) {
    const Duration stalled = watched.loop ? watched.loop->Lag() : watched.progress->StalledFor(now);
    if (stalled <= watched.bound * patience) continue;
    WEIR_REACHED("health: no progress");
    return Error(Reason::kNoCapacity, watched.name + " has work and stood still for " +
                                          std::to_string(stalled / Millis(1)) + " ms");
  }
  return absl::OkStatus();
}

}  // namespace weir
