// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "base/stdx/check.h"
#include "base/stdx/random.h"
#include "kernels/ref/access.h"
#include "kernels/ref/draw.h"
#include "kernels/ref/ref_ops.h"

namespace weir::kernels::ref {
namespace {

bool HasChoice(const float* logits, int vocab) {
  bool nan = false;
  float top = -HUGE_VALF;
  for (int t = 0; t < vocab; ++t) {
    nan |= std::isnan(logits[t]);
    top = std::max(top, logits[t]);
  }
  return !nan && std::isfinite(top);
}

// Drops tokens whose probability is below min_p times the largest.
void KeepMinP(Draw* draw, float top) {
  if (draw->row.min_p <= 0) return;
  const double floor = LeastKept(draw->row, top);
  draw->kept = static_cast<int>(std::remove_if(draw->order, draw->order + draw->kept,
                                               [&](int32_t t) { return draw->logit[t] < floor; }) -
                                draw->order);
}

// Sorts the candidates and keeps the best top_k, then what top_p leaves of them.
void KeepHead(Draw* draw, float top) {
  const SampleRow& row = draw->row;
  const bool by_k = row.top_k > 0 && row.top_k < draw->kept;
  if (!by_k && row.top_p >= 1) return;
  const int wanted = by_k ? row.top_k : draw->kept;
  std::partial_sort(draw->order, draw->order + wanted, draw->order + draw->kept,
                    [&](int32_t a, int32_t b) { return draw->Better(a, b); });
  draw->kept = wanted;
  if (row.top_p < 1) KeepMass(draw, top);
}

int32_t Choose(Draw* draw) {
  if (draw->row.temperature < kGreedyBelow) return Greedy(*draw);
  Scale(draw);
  return ChooseScaled(draw, draw->logit[Greedy(*draw)]);
}

double LogTotal(const float* logits, int vocab) {
  const float top = *std::max_element(logits, logits + vocab);
  double total = 0;
  for (int t = 0; t < vocab; ++t) total += std::exp(double{logits[t]} - top);
  return top + std::log(total);
}

}  // namespace

void Adjust(const SampleArgs& args, const float* logits, Draw* draw) {
  const SampleRow& row = draw->row;
  std::copy_n(logits, args.vocab, draw->logit);
  for (int i = row.bias_begin; i < row.bias_end; ++i) {
    draw->logit[I32(args.bias_token)[i]] += F32(args.bias_value)[i];
  }
  const int32_t* history = I32(args.history);
  for (int i = row.history_begin; i < row.history_end; ++i) ++draw->counts[history[i]];
  for (int i = row.history_begin; i < row.history_end; ++i) {
    const int32_t token = history[i];
    const int32_t count = draw->counts[token];
    if (count == 0) continue;  // an earlier occurrence was handled already
    draw->counts[token] = 0;
    float& logit = draw->logit[token];
    logit = logit > 0 ? logit / row.repetition_penalty : logit * row.repetition_penalty;
    logit -= row.presence_penalty + row.frequency_penalty * static_cast<float>(count);
  }
}

int32_t Greedy(const Draw& draw) {
  return static_cast<int32_t>(std::max_element(draw.logit, draw.logit + draw.vocab) - draw.logit);
}

void Scale(Draw* draw) {
  for (int t = 0; t < draw->vocab; ++t) draw->logit[t] /= draw->row.temperature;
}

double LeastKept(const SampleRow& row, float top) {
  return row.min_p > 0 ? top + std::log(static_cast<double>(row.min_p)) : -HUGE_VAL;
}

void KeepMass(Draw* draw, float top) {
  double total = 0;
  for (int i = 0; i < draw->kept; ++i) total += std::exp(double{draw->logit[draw->order[i]]} - top);
  double mass = 0;
  for (int i = 0; i < draw->kept; ++i) {
    mass += std::exp(double{draw->logit[draw->order[i]]} - top);
    if (mass >= draw->row.top_p * total) {
      draw->kept = i + 1;
      break;
    }
  }
}

double Gumbel(const SampleRow& row, int32_t token) {
  const uint64_t bits =
      RandomBits(row.seed, static_cast<uint64_t>(row.position), static_cast<uint64_t>(token));
  const double u = (static_cast<double>(bits >> 11) + 0.5) * 0x1.0p-53;
  return -std::log(-std::log(u));
}

int32_t DrawAmong(const Draw& draw) {
  int32_t best = draw.order[0];
  double best_value = -HUGE_VAL;
  for (int i = 0; i < draw.kept; ++i) {
    const int32_t token = draw.order[i];
    const double value = draw.logit[token] + Gumbel(draw.row, token);
    if (value > best_value || (value == best_value && token < best)) {
      best = token;
      best_value = value;
    }
  }
  return best;
}

int32_t ChooseScaled(Draw* draw, float top) {
  draw->kept = draw->vocab;
  for (int t = 0; t < draw->vocab; ++t) draw->order[t] = t;
  KeepMinP(draw, top);
  KeepHead(draw, top);
  return DrawAmong(*draw);
}

// Before bias, penalties and temperature.
void Report(const float* logits, double log_total, Draw* draw, SampleOut* out) {
  out->logprob = static_cast<float>(logits[out->token] - log_total);
  out->top_count = std::clamp(draw->row.logprobs, 0, std::min(kTopLogprobsMax, draw->vocab));
  if (out->top_count == 0) return;
  for (int t = 0; t < draw->vocab; ++t) draw->order[t] = t;
  std::partial_sort(
      draw->order, draw->order + out->top_count, draw->order + draw->vocab,
      [&](int32_t a, int32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
  for (int i = 0; i < out->top_count; ++i) {
    out->top_token[i] = draw->order[i];
    out->top_logprob[i] = static_cast<float>(logits[draw->order[i]] - log_total);
  }
}

void RefOps::Sample(Stream& stream, const SampleArgs& args) const {
  const KernelScope scope(stream);
  for (int64_t r = 0; r < args.rows; ++r) {
    const float* logits = F32(args.logits) + r * args.vocab;
    SampleOut* out = As<SampleOut>(args.out.address) + r;
    if (!HasChoice(logits, args.vocab)) {
      WEIR_REACHED("sample: logits are no numbers");
      *out = SampleOut();
      continue;
    }
    Draw draw{As<const SampleRow>(args.params.address)[r],
              args.vocab,
              F32(args.adjusted),
              I32(args.order),
              I32(args.counts),
              args.vocab};
    Adjust(args, logits, &draw);
    out->token = Choose(&draw);
    Report(logits, LogTotal(logits, args.vocab), &draw, out);
  }
}

void RefOps::Verify(Stream& stream, const VerifyArgs& args) const {
  const KernelScope scope(stream);
  const auto* row = As<const SampleRow>(args.params.address);
  const auto* out = As<const SampleOut>(args.out.address);
  int32_t* accepted = I32(args.accepted);
  std::fill_n(accepted, args.groups, 0);
  bool stands = false;
  for (int r = 0; r < args.rows; ++r) {
    const bool first = r == 0 || row[r - 1].group != row[r].group;
    // A row stands if the rows before it stood and its input is what the last of them emitted.
    stands = first || (stands && out[r - 1].token == row[r].draft);
    if (stands) ++accepted[row[r].group];
  }
}

}  // namespace weir::kernels::ref
