// SPDX-License-Identifier: Apache-2.0
//
// SimDevice: runs an engine's steps in simulated time. It computes with the real model, at the start
// or at the end of the step's time, since a device may touch pages at any moment between. One
// thread. Faults: a void step computes and then says so; a poisoned device never works again.
#pragma once

#include <functional>
#include <memory>

#include "base/stdx/random.h"
#include "engine/model/model.h"
#include "replay/sim/sim_clock.h"

namespace weir::sim {

struct DeviceTimes {
  Duration step = std::chrono::microseconds(800);
  Duration row = std::chrono::microseconds(10);
  double jitter = 0.5;
  bool late = false;        // compute at the end
  double void_chance = 0;   // of a step
};

class SimDevice {
 public:
  // Called once per launch; the result is valid during the call.
  using Done = std::function<void(const engine::StepResult&)>;

  SimDevice(SimClock* clock, uint64_t seed, const DeviceTimes& times,
            std::unique_ptr<engine::Model> model, Done done)
      : clock_(*clock), random_(seed, 17), times_(times), model_(std::move(model)),
        done_(std::move(done)), alive_(std::make_shared<bool>(true)) {}
  ~SimDevice() { *alive_ = false; }
  SimDevice(const SimDevice&) = delete;
  SimDevice& operator=(const SimDevice&) = delete;

  void Launch(const engine::StepPlan& plan);
  void Poison() { poisoned_ = true; }
  // Ends faults that no step has met yet.
  void Mend() { poisoned_ = void_next_ = false; }
  void VoidNext() { void_next_ = true; }
  bool running() const { return plan_ != nullptr; }
  uint64_t rows() const { return rows_; }

 private:
  void Finish();

  SimClock& clock_;
  Random random_;
  const DeviceTimes times_;
  const std::unique_ptr<engine::Model> model_;
  const Done done_;
  const std::shared_ptr<bool> alive_;
  const engine::StepPlan* plan_ = nullptr;
  engine::StepResult result_;
  bool poisoned_ = false;
  bool void_next_ = false;
  uint64_t rows_ = 0;
};

}  // namespace weir::sim
