// SPDX-License-Identifier: Apache-2.0
//
// PrefillScheduler: who computes how many rows in the next step. Called by one core; pure apart from
// its credit. The shortest remaining prompt goes first, so that a short one waits for few chunks
// behind a huge one; the oldest request is paid back by a credit, so that it never gets less than
// four fifths of the rows in the long run and everybody becomes the oldest in the end.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/stdx/ids.h"

namespace weir::engine {

struct PrefillCandidate {
  SlotId slot;
  Position remaining = 0;  // > 0
  uint64_t arrival = 0;    // smaller is older; unique
  uint32_t rows = 0;       // out: rows in this step
};

class PrefillScheduler {
 public:
  explicit PrefillScheduler(uint32_t chunk_rows);

  // Sets `rows` of every candidate; their sum is at most chunk_rows, and more than 0 when there is
  // a candidate. Reorders the candidates: those with rows come in order of service.
  void Assign(std::span<PrefillCandidate> candidates);

 private:
  const uint32_t chunk_rows_;
  const uint64_t credit_max_;
  uint64_t credit_;  // rows that others may still take before the oldest is served
};

}  // namespace weir::engine
