// SPDX-License-Identifier: Apache-2.0
//
// Which positions a row of MlaAttention reads, for every host backend: all up to its own, or those
// its selection lists. Always ascending. A plain value over the operation's memory.
#pragma once

#include "kernels/op/attention.h"
#include "kernels/ref/access.h"

namespace weir::kernels::ref {

class MlaKeys {
 public:
  MlaKeys(const MlaAttentionArgs& args, int64_t r) : count_(I32(args.rows->position)[r] + 1) {
    if (args.select == 0) return;
    list_ = I32(args.selected) + r * args.select;
    int32_t listed = 0;
    while (listed < args.select && list_[listed] >= 0) ++listed;
    count_ = listed;
  }

  int32_t count() const { return count_; }
  int32_t operator[](int32_t i) const { return list_ == nullptr ? i : list_[i]; }

 private:
  const int32_t* list_ = nullptr;
  int32_t count_;
};

}  // namespace weir::kernels::ref
