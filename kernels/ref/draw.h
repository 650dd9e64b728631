// SPDX-License-Identifier: Apache-2.0
//
// One row's way from logits to a token, in the steps of kernels/op/sample.h: what the reference
// does in turn, and what faster backends on the host must come to. Any thread; a Draw points into
// scratch that its caller owns.
#pragma once

#include <cstdint>

#include "kernels/op/sample.h"

namespace weir::kernels::ref {

// One row's logits under bias, penalties and temperature, and the tokens still in the draw.
struct Draw {
  const SampleRow& row;
  int vocab;
  float* logit;     // adjusted
  int32_t* order;   // candidates; all tokens in order until a filter sorts them
  int32_t* counts;  // zero outside Adjust
  int kept;

  bool Better(int32_t a, int32_t b) const {
    return logit[a] != logit[b] ? logit[a] > logit[b] : a < b;
  }
};

// Copies the logits and applies bias and penalties.
void Adjust(const SampleArgs& args, const float* logits, Draw* draw);
int32_t Greedy(const Draw& draw);
void Scale(Draw* draw);
// The logit below which min_p leaves nothing; `top` is the largest. Minus infinity without min_p.
double LeastKept(const SampleRow& row, float top);
// All filters and the draw, over scaled logits.
int32_t ChooseScaled(Draw* draw, float top);
// Of the candidates, which are sorted best first: the shortest head whose share reaches top_p.
void KeepMass(Draw* draw, float top);
// -log(-log(u)) with u in (0, 1), the same for (seed, position, token) everywhere.
double Gumbel(const SampleRow& row, int32_t token);
// argmax(log p + g) over the candidates in any order.
int32_t DrawAmong(const Draw& draw);
// Log probabilities of the token and the best ones, of the model's own logits, whose exponentials
// sum to e^log_total.
void Report(const float* logits, double log_total, Draw* draw, SampleOut* out);

}  // namespace weir::kernels::ref
