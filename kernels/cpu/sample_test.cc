// SPDX-License-Identifier: Apache-2.0
//
// The token of every filter and seed is the reference's, over small and full vocabularies.
#include <cstring>

#include "kernels/cpu/cpu_fixture_for_test.h"

namespace weir::kernels {
namespace {

class SampleTest : public CpuTest {};

std::vector<SampleRow> Params(int vocab) {
  std::vector<SampleRow> all;
  const auto add = [&](float temperature, float top_p, float min_p, int top_k) {
    SampleRow& row = all.emplace_back();
    row.seed = 1000 + all.size();
    row.position = static_cast<int32_t>(all.size());
    row.temperature = temperature;
    row.top_p = top_p;
    row.min_p = min_p;
    row.top_k = top_k;
    row.logprobs = static_cast<int32_t>(all.size() % 4) * 6;
    row.history_end = 3;
    row.frequency_penalty = 0.5f;
    row.bias_end = 2;
  };
  for (const float temperature : {0.0f, 0.6f, 1.0f, 3.0f}) {
    for (const float top_p : {1.0f, 0.95f, 0.3f, 0.9999f}) {
      for (const float min_p : {0.0f, 0.05f}) {
        for (const int top_k : {0, 1, 40, vocab - 3}) add(temperature, top_p, min_p, top_k);
      }
    }
  }
  return all;
}

struct Sampled {
  std::vector<SampleOut> out;
  std::vector<int32_t> counts;
};

Sampled Sample(Side& side, int vocab, const std::vector<SampleRow>& params,
               const std::vector<float>& logits) {
  SampleArgs args;
  args.rows = static_cast<int>(params.size());
  args.vocab = vocab;
  args.logits = side.Put(logits);
  std::vector<int32_t> words(params.size() * sizeof(SampleRow) / 4);
  std::memcpy(words.data(), params.data(), words.size() * 4);
  args.params = side.Put(words);
  args.bias_token = side.Put(std::vector<int32_t>{1, 7});
  args.bias_value = side.Put(std::vector<float>{-100, 1});
  args.history = side.Put(std::vector<int32_t>{5, 9, 5});
  args.adjusted = side.Room(vocab);
  args.order = side.Put(std::vector<int32_t>(static_cast<size_t>(vocab)));
  args.counts = side.Put(std::vector<int32_t>(static_cast<size_t>(vocab)));
  args.out = side.Put(std::vector<int32_t>(params.size() * sizeof(SampleOut) / 4));
  side.ops().Sample(side.stream(), args);
  const std::vector<int32_t> bytes = side.Get<int32_t>(args.out);
  Sampled run{std::vector<SampleOut>(params.size()), side.Get<int32_t>(args.counts)};
  std::memcpy(static_cast<void*>(run.out.data()), bytes.data(), bytes.size() * 4);
  return run;
}

// What kinds of logits there are: spread, flat with many ties, and few that matter.
std::vector<float> Logits(size_t rows, size_t vocab, uint64_t seed) {
  std::vector<float> logits = Random(rows * vocab, seed);
  for (size_t i = 0; i < logits.size(); ++i) {
    switch (i / vocab % 3) {
      case 0:
        logits[i] *= 8;
        break;
      case 1:
        logits[i] = std::round(logits[i] * 2) / 2;
        break;
      default:
        if (i % 97 == 5) logits[i] += 12;
    }
    if (i % 1013 == 3) logits[i] = -INFINITY;
  }
  return logits;
}

void ExpectSame(const Sampled& have, const Sampled& want, const std::vector<SampleRow>& params) {
  for (size_t r = 0; r < params.size(); ++r) {
    SCOPED_TRACE(testing::Message()
                 << "temperature " << params[r].temperature << ", top_p " << params[r].top_p
                 << ", min_p " << params[r].min_p << ", top_k " << params[r].top_k);
    EXPECT_EQ(have.out[r].token, want.out[r].token);
    EXPECT_NEAR(have.out[r].logprob, want.out[r].logprob, 1e-5);
    ASSERT_EQ(have.out[r].top_count, want.out[r].top_count);
    for (int i = 0; i < want.out[r].top_count; ++i) {
      EXPECT_EQ(have.out[r].top_token[i], want.out[r].top_token[i]);
      EXPECT_NEAR(have.out[r].top_logprob[i], want.out[r].top_logprob[i], 1e-5);
    }
  }
  EXPECT_EQ(have.counts, want.counts);
}

TEST_P(SampleTest, TheTokenIsTheReferences) {
  constexpr int kVocab = 700;
  const std::vector<SampleRow> params = Params(kVocab);
  Side truth(ref::NewRefBackend());
  Side side = Cpu();
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const std::vector<float> logits = Logits(params.size(), kVocab, seed);
    ExpectSame(Sample(side, kVocab, params, logits), Sample(truth, kVocab, params, logits), params);
  }
}

// Heads that are found without a sort, and those that are too long for it.
TEST_P(SampleTest, OverALargeVocabulary) {
  constexpr int kVocab = 40000;
  std::vector<SampleRow> params = Params(kVocab);
  for (size_t i = 0; i < params.size() / 5; ++i) params[i] = params[i * 5];
  params.resize(params.size() / 5);
  const std::vector<float> logits = Logits(params.size(), kVocab, 9);
  Side truth(ref::NewRefBackend());
  Side side = Cpu();
  ExpectSame(Sample(side, kVocab, params, logits), Sample(truth, kVocab, params, logits), params);
}

TEST_P(SampleTest, WithoutNumbersThereIsNoToken) {
  std::vector<SampleRow> params(4);
  for (SampleRow& row : params) row.temperature = 0.7f;
  params[3].temperature = 1.1e-5f;  // logits leave the range
  std::vector<float> logits = Random(4 * 64, 3);
  logits[10] = NAN;
  logits[64 + 3] = -NAN;
  logits[128 + 3] = INFINITY;
  for (size_t i = 192; i < 256; ++i) logits[i] *= 3e35f;
  Side truth(ref::NewRefBackend());
  Side side = Cpu();
  const Sampled have = Sample(side, 64, params, logits);
  const Sampled want = Sample(truth, 64, params, logits);
  for (size_t r = 0; r < 4; ++r) EXPECT_EQ(have.out[r].token, want.out[r].token) << r;
  EXPECT_EQ(have.out[0].token, -1);
}

INSTANTIATE_TEST_SUITE_P(Isa, SampleTest, ::testing::ValuesIn(kIsaNames), IsaTestName);

}  // namespace
}  // namespace weir::kernels
