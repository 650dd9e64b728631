// SPDX-License-Identifier: Apache-2.0
//
// DecodeScheduler: the sequences that decode, in the order they started, and how many rows each gets
// in the next step. Called by one core; it allocates only when constructed, and a turn costs time in
// proportion to the sequences in it alone. When not all fit, those that were left out come first.
#pragma once

#include <cstdint>
#include <vector>

#include "base/stdx/ids.h"

namespace weir::engine {

class DecodeScheduler {
 public:
  struct Turn {
    SlotId slot;
    uint16_t rows = 0;  // the accepted token and rows - 1 drafts
  };

  DecodeScheduler(uint32_t slots, uint32_t step_rows_max);

  void Add(SlotId slot);
  void Remove(SlotId slot);
  // Rows the sequence could use, 1 + drafts; 0 leaves it out of steps for now.
  void Want(SlotId slot, uint16_t rows) { wanted_[Index(slot)] = rows; }

  uint32_t size() const { return size_; }
  // Walks all in order of starting; a sequence may be removed once the walk has passed it.
  SlotId first() const { return SlotId(head_); }
  SlotId next(SlotId slot) const { return SlotId(next_[Index(slot)]); }
  static bool valid(SlotId slot) { return slot.value >= 0; }

  // Everybody gets one row first; drafts share what is left.
  void Assign(std::vector<Turn>* out);

 private:
  static size_t Index(SlotId slot) { return static_cast<size_t>(slot.value); }

  const uint32_t step_rows_max_;
  uint32_t size_ = 0;
  int32_t head_ = -1;
  int32_t tail_ = -1;
  int32_t resume_at_ = -1;  // first that was left out of the last step
  std::vector<int32_t> next_;
  std::vector<int32_t> previous_;
  std::vector<uint16_t> wanted_;
};

}  // namespace weir::engine
