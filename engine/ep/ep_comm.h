// SPDX-License-Identifier: Apache-2.0
//
// EpComm: how rows reach the experts they chose and how the answers come back. A MoE layer always
// calls Dispatch, runs the experts of this rank by physical slot, and calls Combine, with one rank
// as with many. Belongs to one model and its stream; calls enqueue work and do not block or
// allocate. Which expert lies in which slot is an ExpertMap, versioned by the group's epoch; a step
// reads the map of its StepPlan::epoch and the core checks that epoch again at commit. Lost ranks
// surface as StepHealth, never as a hang.
#pragma once

#include <vector>

#include "base/stdx/ids.h"
#include "kernels/op/ops.h"

namespace weir::engine {

// Physical slot of every logical expert, per MoE layer. Slots of all ranks are numbered through.
struct ExpertMap {
  Epoch epoch;
  std::vector<std::vector<int32_t>> slot_of;  // [moe layer][expert]

  static ExpertMap Identity(int layers, int experts);
};

struct EpDispatch {
  int layer = 0;  // counts MoE layers
  int rows = 0;
  kernels::Tensor x;       // F32 [rows, width]
  kernels::Tensor expert;  // I32 [rows, choices], logical
};

// What this rank has to compute: rows grouped by slot, counts on the device.
struct EpBatch {
  int entries_max = 0;
  kernels::Tensor x;           // rows that entries refer to
  kernels::Tensor entry;       // I32 [entries_max]
  kernels::Tensor slot_begin;  // I32 [slots + 1]
};

struct EpCombine {
  int rows = 0;
  int width = 0;
  kernels::Tensor expert;  // I32 [rows, choices]
  kernels::Tensor weight;  // F32 [rows, choices]
  kernels::Tensor out;     // F32 [entries_max, width]: this rank's expert outputs, by entry
  kernels::Tensor sum;     // F32 [rows, width]; += the weighted outputs in expert order
};

class EpComm {
 public:
  virtual ~EpComm() = default;

  virtual Epoch epoch() const = 0;
  virtual int slots() const = 0;  // on this rank
  virtual EpBatch Dispatch(kernels::Stream& stream, const EpDispatch& args) = 0;
  virtual void Combine(kernels::Stream& stream, const EpCombine& args) = 0;
};

}  // namespace weir::engine
