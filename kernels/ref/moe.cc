// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "base/stdx/check.h"
#include "kernels/ref/access.h"
#include "kernels/ref/experts.h"
#include "kernels/ref/gated.h"
#include "kernels/ref/matrix.h"
#include "kernels/ref/project.h"
#include "kernels/ref/ref_ops.h"

namespace weir::kernels::ref {

void RefOps::MoeRoute(Stream& stream, const MoeRouteArgs& args) const {
  const KernelScope scope(stream);
  WEIR_CHECK(args.experts <= kExpertsMax && args.choices <= kChoicesMax);
  std::array<double, kExpertsMax> logit;
  for (int64_t r = 0; r < args.rows; ++r) {
    Multiply(
        args.gate, 1, [&](int) { return F32(args.x) + r * args.gate.cols; },
        [&](int) { return logit.data(); });
    SelectExperts(args, logit.data(), r);
  }
}

void RefOps::MoePermute(Stream& stream, const MoePermuteArgs& args) const {
  const KernelScope scope(stream);
  const int32_t* expert = I32(args.expert);
  const int32_t* slot_of = I32(args.slot_of);
  int32_t* begin = I32(args.slot_begin);
  int32_t* entry = I32(args.entry);
  const int entries = args.rows * args.choices;
  int32_t next = 0;
  for (int slot = 0; slot < args.slots; ++slot) {
    begin[slot] = next;
    for (int e = 0; e < entries; ++e) {
      if (slot_of[expert[e]] == slot) entry[next++] = e;
    }
  }
  begin[args.slots] = next;
  WEIR_CHECK(next == entries);
}

void RefOps::ExpertFfn(Stream& stream, const ExpertFfnArgs& args) const {
  const KernelScope scope(stream);
  const int32_t* begin = I32(args.slot_begin);
  const int32_t* entry = I32(args.entry);
  for (size_t slot = 0; slot < args.slots.size(); ++slot) {
    const int count = begin[slot + 1] - begin[slot];
    if (count == 0) continue;
    const ExpertWeights& w = args.slots[slot];
    const int32_t* mine = entry + begin[slot];
    const int64_t wide = w.gate.rows;
    float* gate = F32(args.hidden) + begin[slot] * wide;
    float* up = F32(args.hidden) + (args.entries_max + begin[slot]) * wide;
    const auto in = [&](int i) { return F32(args.x) + mine[i] / args.choices * w.gate.cols; };
    Project(w.gate, count, round_, in, [&](int i) { return gate + i * wide; });
    Project(w.up, count, round_, in, [&](int i) { return up + i * wide; });
    for (int64_t i = 0; i < count * wide; ++i) {
      const double weight = args.weight.empty() ? 1.0 : F32(args.weight)[mine[i / wide]];
      gate[i] = round_(Gated(gate[i], up[i], args.limit) * weight);
    }
    Project(
        w.down, count, round_, [&](int i) { return gate + i * wide; },
        [&](int i) { return F32(args.out) + mine[i] * w.down.rows; });
  }
}

void RefOps::MoeCombine(Stream& stream, const MoeCombineArgs& args) const {
  const KernelScope scope(stream);
  WEIR_CHECK(args.choices <= kChoicesMax);
  for (int64_t r = 0; r < args.rows; ++r) {
    const int32_t* expert = I32(args.expert) + r * args.choices;
    const float* weight = args.weight.empty() ? nullptr : F32(args.weight) + r * args.choices;
    const std::array<int, kChoicesMax> order = InExpertOrder(expert, args.choices);
    float* sum = F32(args.sum) + r * args.width;
    for (int i = 0; i < args.width; ++i) {
      double total = 0;
      for (int k = 0; k < args.choices; ++k) {
        const float* out = F32(args.out) + (r * args.choices + order[k]) * args.width;
        total += (weight == nullptr ? 1.0 : weight[order[k]]) * out[i];
      }
      sum[i] = round_(sum[i] + total);
    }
  }
}

}  // namespace weir::kernels::ref
