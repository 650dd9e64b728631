// SPDX-License-Identifier: Apache-2.0
//
// The V4.1 engine against outside truth (tests/golden/v41/PROVENANCE.md), and against itself: with
// one tail_start a row's bits do not depend on chunks, batch, passes, pages, block size, decode or
// prefill, or where experts lie.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <vector>

#include "engine/model/deepseek_v41.h"
#include "kernels/cpu/isa.h"
#include "nlohmann/json.hpp"
#include "tests/golden/model_rig.h"

namespace weir::engine {
namespace {

constexpr char kDirectory[] = "tests/golden/v41";

const nlohmann::json& Case(const std::string& name) {
  static const nlohmann::json kGolden =
      nlohmann::json::parse(std::ifstream(std::string(kDirectory) + "/golden.json"));
  return kGolden.at("cases").at(name);
}
std::vector<TokenId> Prompt() { return Case("text.ideal").at("prompt"); }

ModelRig::Options RigOptions(const std::string& numerics, const char* isa = "") {
  ModelRig::Options options;
  options.directory = kDirectory;
  options.numerics = numerics;
  options.isa = isa;
  options.load = &LoadDeepseekV41With;
  return options;
}

// Prefill of the prompt in chunks, then greedy decoding of `count` tokens in all.
std::vector<TokenId> RunGreedy(ModelRig* rig, int slot, size_t chunk, size_t count) {
  const auto end = static_cast<Position>(Prompt().size());
  std::vector<TokenId> tokens = {rig->Prefill(slot, Prompt(), chunk)};
  for (Position i = 1; i < count; ++i) {
    tokens.push_back(rig->Decode(slot, end + i - 1, tokens.back()));
  }
  return tokens;
}

struct Difference {
  double max = 0;
  double square = 0;
  size_t count = 0;
  double rms() const { return std::sqrt(square / static_cast<double>(std::max<size_t>(count, 1))); }
  void Add(const Row& have, const std::vector<double>& want) {
    ASSERT_EQ(have.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i, ++count) {
      const double d = std::abs(have[i] - want[i]);
      max = std::max(max, d);
      square += d * d;
    }
  }
};

// Overlap of two lists of chosen numbers, as a share of what is wanted.
double Overlap(std::vector<int32_t> have, std::vector<int32_t> want) {
  if (want.empty()) return have.empty() ? 1 : 0;
  int both = 0;
  for (const int32_t one : want) both += std::count(have.begin(), have.end(), one) > 0 ? 1 : 0;
  return static_cast<double>(both) / static_cast<double>(std::max(have.size(), want.size()));
}

// Candidates come as blocks of 4; the golden lists the visible rows of layer 6 (ratio 1) in them.
std::vector<int32_t> RowsOfBlocks(const std::vector<int32_t>& blocks, int position) {
  std::vector<int32_t> rows;
  for (const int32_t block : blocks) {
    for (int32_t g = block * 4; g < block * 4 + 4 && g <= position; ++g) rows.push_back(g);
  }
  return rows;
}

// Mean overlap of every choice that the golden lists; 1 when all are equal.
double ChoiceOverlap(const ModelRig& rig, const nlohmann::json& golden, const std::string& what,
                     const std::string& field) {
  double sum = 0;
  int count = 0;
  for (const auto& [layer, want] : golden.at(field).items()) {
    const auto& rows = rig.lists.at(what).at(std::stoi(layer));
    // A decoder layer ran on the prompt's last rows only.
    const int first = static_cast<int>(Prompt().size() - want.size());
    for (size_t t = 0; t < want.size(); ++t, ++count) {
      const int position = first + static_cast<int>(t);
      std::vector<int32_t> have = rows.at(position);
      have.erase(std::remove(have.begin(), have.end(), -1), have.end());
      if (what == "candidates") have = RowsOfBlocks(have, position);
      const auto list = want[t].get<std::vector<int32_t>>();
      const double overlap = Overlap(have, list);
      // Experts come best first.
      sum += overlap == 1 && what == "experts" && have != list ? 0.99 : overlap;
    }
  }
  return sum / count;
}

void ExpectEngramRows(const ModelRig& rig, const nlohmann::json& golden) {
  const auto& want = golden.at("engram_rows");
  for (size_t t = 0; t < want.size(); ++t) {
    std::vector<int32_t> have;
    for (const auto& [layer, rows] : rig.lists.at("engram")) {
      const std::vector<int32_t>& row = rows.at(static_cast<int>(t));
      have.insert(have.end(), row.begin(), row.end());
    }
    EXPECT_EQ(have, want[t].get<std::vector<int32_t>>()) << "token " << t;
  }
}

Difference LogitsDifference(const ModelRig& rig, const nlohmann::json& golden) {
  Difference difference;
  for (const auto& [position, want] : golden.at("logits").items()) {
    const auto p = static_cast<Position>(std::stoi(position));
    difference.Add(rig.logits(0, p), want.get<std::vector<double>>());
  }
  return difference;
}

struct Exact {
  const char* golden;
  const char* numerics;
  double max;
  double rms;
  const char* isa = "";  // of the cpu backend; empty: ref
};

class Golden : public ::testing::TestWithParam<Exact> {};

// One row a step, so that every position's logits are there to compare.
TEST_P(Golden, MatchesTheReference) {
  const Exact& exact = GetParam();
  const nlohmann::json& golden = Case(exact.golden);
  if (*exact.isa != 0 && std::string(exact.isa) != "best" &&
      !kernels::cpu::CheckedIsa(exact.isa).ok()) {
    GTEST_SKIP() << "not on this machine";
  }
  ModelRig rig(RigOptions(exact.numerics, exact.isa));
  if (golden.contains("tail")) {
    rig.view(0).tail_start =
        static_cast<Position>(Prompt().size() - golden.at("tail").get<size_t>());
  }
  const std::vector<TokenId> greedy = golden.at("greedy");
  EXPECT_EQ(RunGreedy(&rig, 0, 1, greedy.size()), greedy);
  rig.Decode(0, static_cast<Position>(Prompt().size() + greedy.size() - 1), greedy.back());
  for (const auto& [what, field] : {std::pair("experts", "experts"), std::pair("selected", "topk"),
                                    std::pair("candidates", "candidates")}) {
    EXPECT_EQ(ChoiceOverlap(rig, golden, what, field), 1) << what;
  }
  ExpectEngramRows(rig, golden);
  const Difference difference = LogitsDifference(rig, golden);
  std::printf("%s: logits differ by at most %.2e, rms %.2e\n", exact.golden, difference.max,
              difference.rms());
  EXPECT_LT(difference.max, exact.max);
  EXPECT_LT(difference.rms(), exact.rms);
}

INSTANTIATE_TEST_SUITE_P(V41, Golden,
                         ::testing::Values(Exact{"text.smooth", "fp32", 1e-3, 1e-4},
                                           Exact{"text.ideal", "native", 0.1, 1e-2},
                                           Exact{"replay.smooth", "fp32", 1e-3, 1e-4},
                                           Exact{"replay.ideal", "native", 0.1, 1e-2},
                                           Exact{"text.smooth", "fp32", 1e-3, 1e-4, "scalar"},
                                           Exact{"text.smooth", "fp32", 1e-3, 1e-4, "avx2"},
                                           Exact{"text.smooth", "fp32", 1e-3, 1e-4, "avx512"},
                                           Exact{"text.smooth", "fp32", 1e-3, 1e-4, "best"},
                                           Exact{"text.ideal", "native", 0.1, 1e-2, "best"},
                                           Exact{"replay.smooth", "fp32", 1e-3, 1e-4, "best"},
                                           Exact{"replay.ideal", "native", 0.1, 1e-2, "best"}),
                         [](const auto& info) {
                           std::string name = info.param.golden;
                           if (*info.param.isa != 0) name += std::string("_cpu_") + info.param.isa;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

// The vendor's roundings decide near ties, so overlap and spread are compared, over the prompt. The
// golden numbers sum in F32; the same reference summing in double is as far from them as this.
TEST(GoldenV41, VendorRoundsLikeTheVendor) {
  const nlohmann::json& golden = Case("text.vendor");
  ModelRig rig(RigOptions("vendor"));
  rig.Prefill(0, Prompt(), 1);
  Difference difference;
  for (const auto& [position, want] : golden.at("logits").items()) {
    const auto p = static_cast<Position>(std::stoi(position));
    if (p < Prompt().size()) difference.Add(rig.logits(0, p), want.get<std::vector<double>>());
  }
  const double experts = ChoiceOverlap(rig, golden, "experts", "experts");
  const double rows = ChoiceOverlap(rig, golden, "selected", "topk");
  std::printf("text.vendor: experts %.3f, rows %.3f, logits differ by %.2e rms\n", experts, rows,
              difference.rms());
  EXPECT_GE(experts, 0.85);
  EXPECT_GE(rows, 0.85);
  EXPECT_LT(difference.rms(), 0.3 * golden.at("logit_std").get<double>());
}

// On memory that faults when model code looks at a tensor.
TEST(GoldenV41, NeverLooksAtTensors) {
  ModelRig::Options options = RigOptions("native");
  options.guarded = true;
  ModelRig rig(options);
  rig.view(0).tail_start = 37;
  const std::vector<TokenId> greedy = Case("replay.ideal").at("greedy");
  EXPECT_EQ(RunGreedy(&rig, 0, 45, 3), std::vector<TokenId>(greedy.begin(), greedy.begin() + 3));
}

// A prefix hit whose window rows are gone: the last 8 of 30 cached tokens run again below the write
// floor. The three rows before them run for the n-gram history alone; no window sees them.
TEST(GoldenV41, ResumeMatchesTheReference) {
  for (const auto& [name, numerics] :
       {std::pair("resume.smooth", "fp32"), std::pair("resume.ideal", "native")}) {
    const nlohmann::json& golden = Case(name);
    ModelRig rig(RigOptions(numerics));
    const std::vector<TokenId> prompt = Prompt();
    const auto cut = [&prompt](Position from, Position to) {
      return std::vector<TokenId>(prompt.begin() + from, prompt.begin() + to);
    };
    rig.view(0).tail_start = 37;
    rig.Run({{0, RowKind::kPrefill, 0, cut(0, 30), false}});
    const std::vector<std::byte> encoder = rig.kv(Part::kEncoder);
    const std::vector<std::byte> decoder = rig.kv(Part::kDecoder);
    rig.Run({{0, RowKind::kReplay, 19, cut(19, 22), false, 30}});
    rig.Run({{0, RowKind::kReplay, 22, cut(22, 30), false, 30, 22}});
    EXPECT_EQ(rig.kv(Part::kEncoder), encoder);
    EXPECT_EQ(rig.kv(Part::kDecoder), decoder);
    std::vector<TokenId> tokens = {
        rig.Run({{0, RowKind::kPrefill, 30, cut(30, 45), true, 30, 22}}).tokens.at(0)};
    for (Position p = 45; p < 49; ++p) {
      const TokenId next =
          rig.Run({{0, RowKind::kVerify, p, {tokens.back()}, true, 0, 22}}).tokens.at(0);
      if (p < 48) tokens.push_back(next);
    }
    EXPECT_EQ(tokens, golden.at("greedy").get<std::vector<TokenId>>()) << name;
    const Difference difference = LogitsDifference(rig, golden);
    std::printf("%s: logits differ by at most %.2e, rms %.2e\n", name, difference.max,
                difference.rms());
    EXPECT_LT(difference.rms(), 1e-2);
  }
}

// A run of the golden prompt, one row a step, that others are compared with bit for bit.
class Invariance : public ::testing::TestWithParam<const char*> {
 protected:
  static constexpr size_t kTokens = 6;

  Invariance() : base_(RigOptions("native", GetParam())) {
    base_.view(0).tail_start = kTail;
    greedy_ = RunGreedy(&base_, 0, 1, kTokens);
  }
  void ExpectSameBits(const ModelRig& rig, int slot) {
    int compared = 0;
    for (Position p = kTail; p < Prompt().size() + kTokens - 1; ++p) {
      if (!rig.has_logits(slot, p)) continue;
      EXPECT_EQ(rig.logits(slot, p), base_.logits(0, p)) << "position " << p;
      ++compared;
    }
    EXPECT_GT(compared, 0);
  }
  std::vector<TokenId> Cut(Position from, Position to) const {
    const std::vector<TokenId> prompt = Prompt();
    return {prompt.begin() + from, prompt.begin() + to};
  }

  static constexpr Position kTail = 21;  // odd, and inside every kind of chunk
  ModelRig base_;
  std::vector<TokenId> greedy_;
};

TEST_P(Invariance, ChunksOfAnySize) {
  for (const size_t chunk : {2u, 7u, 16u, 45u}) {
    ModelRig::Options options = RigOptions("native", GetParam());
    options.page_seed = chunk;
    options.block_tokens = chunk == 7 ? 64 : chunk == 16 ? 256 : 0;
    ModelRig rig(options);
    rig.view(2).tail_start = kTail;
    EXPECT_EQ(RunGreedy(&rig, 2, chunk, kTokens), greedy_);
    ExpectSameBits(rig, 2);
  }
}

TEST_P(Invariance, DecodeRowsEqualPrefillRows) {
  ModelRig rig(RigOptions("native", GetParam()));
  rig.view(0).tail_start = kTail;
  rig.Run({{0, RowKind::kPrefill, 0, Cut(0, kTail), false}});
  rig.Run({{0, RowKind::kVerify, kTail, Cut(kTail, 45)}});
  ExpectSameBits(rig, 0);
}

TEST_P(Invariance, PassesOfAnySize) {
  for (const int rows : {1, 3, 44}) {
    ModelRig::Options options = RigOptions("native", GetParam());
    options.rows_per_pass = rows;
    ModelRig rig(options);
    rig.view(0).tail_start = kTail;
    EXPECT_EQ(RunGreedy(&rig, 0, 45, kTokens), greedy_);
    ExpectSameBits(rig, 0);
  }
}

// Slot 3 runs the golden prompt while slot 1 prefills another with another tail, in both orders.
TEST_P(Invariance, MixedBatchesInAnyOrder) {
  const std::vector<TokenId> prompt = Prompt();
  const std::vector<TokenId> other(prompt.rbegin(), prompt.rend());
  ModelRig rig(RigOptions("native", GetParam()));
  rig.view(3).tail_start = kTail;
  rig.view(1).tail_start = 5;
  TokenId token = -1;
  for (Position i = 0; i < 9 + kTokens - 1; ++i) {
    ModelRig::Group golden{3, RowKind::kPrefill, i * 5, {}, i >= 5};
    if (i < 9) {
      golden.tokens = Cut(i * 5, i * 5 + 5);
    } else {
      golden = {3, RowKind::kVerify, 45 + i - 9, {token}};
    }
    ModelRig::Group beside{1, RowKind::kPrefill, i * 3, {}, i >= 2};
    beside.tokens.assign(other.begin() + i * 3, other.begin() + i * 3 + 3);
    const bool first = i % 2 == 0;
    const StepResult& result = first ? rig.Run({golden, beside}) : rig.Run({beside, golden});
    for (const Accepted& one : result.accepted) {
      if (one.slot == SlotId(3)) token = result.tokens.at(one.token_offset);
    }
    if (i >= 8) {
      EXPECT_EQ(token, greedy_[i - 8]);
    }
  }
  ExpectSameBits(rig, 3);
}

// Two groups of one sequence in one step, as a replay and its suffix would come.
TEST_P(Invariance, GroupsOfOneSequenceInOneStep) {
  ModelRig rig(RigOptions("native", GetParam()));
  rig.view(0).tail_start = kTail;
  rig.Run({{0, RowKind::kPrefill, 0, Cut(0, 12), false},
           {0, RowKind::kPrefill, 12, Cut(12, 33)},
           {0, RowKind::kPrefill, 33, Cut(33, 45)}});
  ExpectSameBits(rig, 0);
}

TEST_P(Invariance, ExpertsInAnySlot) {
  ModelRig::Options options = RigOptions("native", GetParam());
  options.experts = ExpertMap::Identity(10, 8);
  for (auto& layer : options.experts.slot_of) std::reverse(layer.begin(), layer.end());
  options.experts.slot_of[4] = {3, 1, 7, 0, 2, 6, 5, 4};
  ModelRig rig(options);
  rig.view(0).tail_start = kTail;
  EXPECT_EQ(RunGreedy(&rig, 0, 45, kTokens), greedy_);
  ExpectSameBits(rig, 0);
}

// Up to five drafts a step, right and then wrong: what is rejected leaves no trace in any ring.
TEST_P(Invariance, DraftsChangeNothingButTheStepCount) {
  const std::vector<TokenId> want = Case("text.ideal").at("greedy");
  for (const size_t wrong : {1u, 3u, 5u, 6u}) {
    ModelRig rig(RigOptions("native", GetParam()));
    std::vector<TokenId> have = {rig.Prefill(0, Prompt(), 16)};
    while (have.size() + 6 < want.size()) {
      std::vector<TokenId> input = {have.back()};
      for (size_t d = 1; d < 6; ++d) {
        input.push_back(d < wrong ? want[have.size() + d - 1]
                                  : (want[have.size() + d - 1] + 1) % 280);
      }
      const auto first = static_cast<Position>(Prompt().size() + have.size() - 1);
      const StepResult& result = rig.Run({{0, RowKind::kVerify, first, input}});
      ASSERT_EQ(result.accepted.at(0).count, wrong);
      have.insert(have.end(), result.tokens.begin(), result.tokens.end());
    }
    EXPECT_TRUE(std::equal(have.begin(), have.end(), want.begin()));
  }
}

// The decoder's windows begin at the tail, so that another tail start is another model of the text.
TEST_P(Invariance, AnotherTailStartChangesTheAnswer) {
  ModelRig rig(RigOptions("native", GetParam()));
  rig.view(0).tail_start = kTail + 20;
  RunGreedy(&rig, 0, 45, 1);
  EXPECT_NE(rig.logits(0, 44), base_.logits(0, 44));
}

INSTANTIATE_TEST_SUITE_P(Backends, Invariance, ::testing::Values("", "best"),
                         [](const auto& info) { return *info.param == 0 ? "ref" : "cpu"; });

TEST(DeepseekV41, KeepsWhatTheSpecificationCounts) {
  ModelRig rig(RigOptions("native"));
  EXPECT_EQ(rig.info().decoder_tail_rows, 8u);
  EXPECT_EQ(rig.info().layout.block_tokens(), 128u);
  // Two encoder sources of ratio 2, one decoder source of ratio 1: 36 bytes a row, 17 a key.
  EXPECT_EQ(rig.info().layout.page_bytes(Part::kEncoder), 2u * 64 * (64 / 2 + 64 / 16 + 16 + 1));
  EXPECT_EQ(rig.info().layout.page_bytes(Part::kDecoder), 128u * (64 / 2 + 64 / 16 + 16 + 1));
}

}  // namespace
}  // namespace weir::engine
