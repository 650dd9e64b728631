// SPDX-License-Identifier: Apache-2.0
//
// The reference's choice without sorting the vocabulary. Every filter keeps a head of the tokens in
// order of their logits, so a few passes find the head and only that is sorted. Without a filter a
// token is drawn only if its noise could win: g > c needs 1 - u < e^-c, which the random bits tell
// without a logarithm. What rounding leaves open goes the reference's way.
#include <algorithm>
#include <cmath>

#include "base/stdx/check.h"
#include "base/stdx/random.h"
#include "kernels/cpu/best.h"
#include "kernels/cpu/run.h"
#include "kernels/ref/access.h"
#include "kernels/ref/draw.h"

namespace weir::kernels::cpu {
namespace {

using ref::As;
using ref::Draw;
using ref::F32;
using ref::I32;

constexpr int64_t kHeadFirst = 1024;
constexpr int64_t kHeadMost = 16384;
constexpr double kFloatMargin = 4e-6;    // of a sum of exponentials in float
constexpr double kDoubleMargin = 1e-11;  // in double, in another order

double SumOf(const float* x, int64_t count) {
  double lane[8] = {};
  for (int64_t i = 0; i < count; ++i) lane[i % 8] += x[i];
  return ((lane[0] + lane[4]) + (lane[1] + lane[5])) + ((lane[2] + lane[6]) + (lane[3] + lane[7]));
}

// The choice among a row's scaled logits.
class Chooser {
 public:
  // `weight` is room for the vocabulary.
  Chooser(const KernelTable& kernels, Draw* draw, float top, float* weight)
      : kernels_(kernels),
        draw_(*draw),
        top_(top),
        least_(ref::LeastKept(draw->row, top)),
        weight_(weight) {}

  int32_t Run() {
    const SampleRow& row = draw_.row;
    int64_t kept = draw_.vocab;
    if (row.min_p > 0) {
      kept = std::count_if(draw_.logit, draw_.logit + draw_.vocab,
                           [this](float logit) { return logit >= least_; });
    }
    const bool by_k = row.top_k > 0 && row.top_k < kept;
    if (by_k) kept = row.top_k;
    if (!by_k && row.top_p >= 1) return DrawFromAll();
    if (kept <= kHeadMost) {
      TakeBest(kept);
      if (row.top_p < 1) ref::KeepMass(&draw_, top_);
      return ref::DrawAmong(draw_);
    }
    if (by_k || !TakeMass(kept)) return ref::ChooseScaled(&draw_, top_);
    return ref::DrawAmong(draw_);
  }

 private:
  // The best `count` tokens, best first.
  void TakeBest(int64_t count) {
    draw_.kept = static_cast<int>(KeepBest(draw_.logit, draw_.vocab, count, draw_.order));
    std::sort(draw_.order, draw_.order + draw_.kept,
              [this](int32_t a, int32_t b) { return draw_.Better(a, b); });
  }

  // The shortest head whose share of all that min_p leaves reaches top_p. False where it is long or
  // its end lies within rounding.
  bool TakeMass(int64_t tokens) {
    kernels_.exp_below(draw_.logit, top_, draw_.vocab, weight_);
    double total = 0;
    for (int t = 0; t < draw_.vocab; ++t) total += draw_.logit[t] >= least_ ? weight_[t] : 0.0f;
    double margin = kFloatMargin;
    for (int64_t count = kHeadFirst; count <= std::min(kHeadMost, tokens);) {
      TakeBest(count);
      switch (EndHead(total * draw_.row.top_p, total * margin)) {
        case Head::kEnds:
          return true;
        case Head::kGoesOn:
          count *= 4;
          continue;
        case Head::kUnclear:
          break;
      }
      if (margin == kDoubleMargin) break;
      WEIR_REACHED("sample: a head's end within rounding");
      total = 0;
      for (int t = 0; t < draw_.vocab; ++t) {
        if (draw_.logit[t] >= least_) total += std::exp(double{draw_.logit[t]} - top_);
      }
      margin = kDoubleMargin;
    }
    return false;
  }

  enum class Head { kEnds, kGoesOn, kUnclear };

  // Cuts the sorted candidates where their mass reaches `goal`, known to +- `margin`.
  Head EndHead(double goal, double margin) {
    double mass = 0;
    for (int i = 0; i < draw_.kept; ++i) {
      mass += std::exp(double{draw_.logit[draw_.order[i]]} - top_);
      if (mass < goal - margin) continue;
      if (mass < goal + margin) return Head::kUnclear;
      draw_.kept = i + 1;
      return Head::kEnds;
    }
    return Head::kGoesOn;
  }

  int32_t DrawFromAll() {
    const SampleRow& row = draw_.row;
    kernels_.exp_below(draw_.logit, top_, draw_.vocab, weight_);
    auto best =
        static_cast<int32_t>(std::find(draw_.logit, draw_.logit + draw_.vocab, top_) - draw_.logit);
    double best_value = draw_.logit[best] + ref::Gumbel(row, best);
    // A token of weight w may win only if its 1 - u, in steps of 2^-53, is at most w times this.
    const auto reach = [&] { return std::exp(top_ - best_value) * 1.0001 * 0x1.0p53; };
    double bound = reach();
    for (int32_t t = 0; t < draw_.vocab; ++t) {
      const uint64_t rest =
          ~RandomBits(row.seed, static_cast<uint64_t>(row.position), static_cast<uint64_t>(t)) >>
          11;
      if (static_cast<double>(static_cast<int64_t>(rest) - 2) > weight_[t] * bound) continue;
      if (draw_.logit[t] < least_) continue;
      const double value = draw_.logit[t] + ref::Gumbel(row, t);
      if (value > best_value || (value == best_value && t < best)) {
        best = t;
        best_value = value;
        bound = reach();
      }
    }
    return best;
  }

  const KernelTable& kernels_;
  Draw& draw_;
  const float top_;
  const double least_;
  float* const weight_;
};

int32_t Choose(const KernelTable& kernels, Draw* draw, float* weight) {
  if (draw->row.temperature >= kGreedyBelow) ref::Scale(draw);
  const float top = kernels.top(draw->logit, draw->vocab);
  const bool greedy = draw->row.temperature < kGreedyBelow;
  if (!std::isfinite(top)) {
    WEIR_REACHED("sample: a bias or a temperature leaves the range of floats");
    const int32_t best = ref::Greedy(*draw);
    return greedy ? best : ref::ChooseScaled(draw, draw->logit[best]);
  }
  if (greedy) {
    return static_cast<int32_t>(std::find(draw->logit, draw->logit + draw->vocab, top) -
                                draw->logit);
  }
  return Chooser(kernels, draw, top, weight).Run();
}

}  // namespace

void RunSample(const KernelTable& kernels, Team& team, const SampleArgs& args) {
  WEIR_CHECK(static_cast<size_t>(args.vocab) * sizeof(float) <= kSharedScratch);
  auto* weight = reinterpret_cast<float*>(team.shared());
  for (int64_t r = 0; r < args.rows; ++r) {
    const float* logits = F32(args.logits) + r * args.vocab;
    SampleOut* out = As<SampleOut>(args.out.address) + r;
    *out = SampleOut();
    const float top = kernels.top(logits, args.vocab);
    if (!std::isfinite(top)) continue;
    Draw draw{As<const SampleRow>(args.params.address)[r],
              args.vocab,
              F32(args.adjusted),
              I32(args.order),
              I32(args.counts),
              args.vocab};
    ref::Adjust(args, logits, &draw);
    out->token = Choose(kernels, &draw, weight);
    kernels.exp_below(logits, top, args.vocab, weight);
    ref::Report(logits, top + std::log(SumOf(weight, args.vocab)), &draw, out);
  }
}

}  // namespace weir::kernels::cpu
