// SPDX-License-Identifier: Apache-2.0
//
// A row's bits depend on that row's inputs and KV alone (decisions, ruling 6): not on its batch, its
// place in it, chunks, rows per request, role or threads. The truth is one row a step; every other
// way over the same tokens must leave the same results, pages and state, bit for bit. Arguments:
// --trials=N random mixtures for each model (default 4), --long for more and longer sequences.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "base/stdx/planted.h"
#include "engine/model/load_model.h"
#include "tests/invariance/row_rig.h"

namespace weir::engine {
namespace {

int g_trials = 4;
bool g_long = false;

struct Subject {
  const char* name;
  const char* directory;
  const char* numerics;
  const char* backend;
  Position tokens;       // of the sequence under test
  Position tokens_long;  // with --long
};

constexpr Subject kSubjects[] = {
    {"hash", "deploy/models/hash", "native", "", 300, 700},
    {"v3_fp32", "tests/golden/v3", "fp32", "ref", 60, 120},
    {"v3_native", "tests/golden/v3", "native", "ref", 60, 120},
    {"v3_native_cpu", "tests/golden/v3", "native", "cpu", 60, 250},
    {"v32_native", "tests/golden/v32", "native", "ref", 60, 120},
    {"v32_native_cpu", "tests/golden/v32", "native", "cpu", 60, 200},
    {"v41_fp32", "tests/golden/v41", "fp32", "ref", 90, 180},
    {"v41_native", "tests/golden/v41", "native", "ref", 90, 180},
    {"v41_vendor", "tests/golden/v41", "vendor", "ref", 90, 180},
    {"v41_native_cpu", "tests/golden/v41", "native", "cpu", 90, 240},
    {"v41_fp32_cpu", "tests/golden/v41", "fp32", "cpu", 90, 240},
};

constexpr Position kVerifyRowsMax = 6;

// False where this build has no such choice.
template <class Options>
bool ChooseBackend(const char* backend, Options* options) {
  if constexpr (requires { options->backend; }) {
    options->backend = backend;
    return true;
  } else {
    return std::string_view(backend) != "cpu";
  }
}

class RowInvariance : public ::testing::TestWithParam<Subject> {
 protected:
  void SetUp() override {
    const Subject& subject = GetParam();
    if (!std::filesystem::exists(std::string(subject.directory) + "/config.json")) {
      GTEST_SKIP() << subject.directory << " is not there";
    }
    if (LoadOptions options; !ChooseBackend(subject.backend, &options)) {
      GTEST_SKIP() << "this build has no backend " << subject.backend;
    }
    loaded_ = Load(1);
    ASSERT_NE(loaded_, nullptr);
    const ModelInfo& info = loaded_->info();
    length_ = std::min(g_long ? subject.tokens_long : subject.tokens, info.positions_max - 8);
    const Position tail = info.decoder_tail_rows;
    // What a router would ask for a prompt of three quarters of it.
    prompt_ = length_ * 3 / 4;
    tail_start_ = tail > 0 && prompt_ > tail ? prompt_ - tail : 0;
    for (int slot = 0; slot < RowRig::kSlots; ++slot) {
      tokens_.push_back(Tokens(static_cast<uint64_t>(slot)));
    }
    truth_ = std::make_unique<RowRig>(loaded_, length_, 1);
    truth_->SetTailStart(0, tail_start_);
    for (Position p = 0; p < length_; ++p) {
      truth_->Run({{0, RowKind::kPrefill, p, Rows(0, p, 1), p >= tail_start_}});
      // The answer is the model's own, so that it accepts right drafts.
      if (p + 1 >= prompt_ && p + 1 < length_) tokens_[0][p + 1] = truth_->results(0).at(p).token;
    }
    memory_ = truth_->MemoryOf(0);
  }

  std::shared_ptr<const LoadedModel> Load(uint32_t threads) {
    LoadOptions options;
    options.numerics = GetParam().numerics;
    options.deterministic = true;
    options.threads = threads;
    ChooseBackend(GetParam().backend, &options);
    auto loaded = LoadModel(GetParam().directory, options);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return loaded.ok() ? *loaded : nullptr;
  }

  std::vector<TokenId> Tokens(uint64_t seed) const {
    std::vector<TokenId> out;
    Random random(seed, 3);
    for (Position p = 0; p < length_; ++p) {
      out.push_back(static_cast<TokenId>(random.Below(loaded_->info().vocab)));
    }
    return out;
  }
  std::vector<TokenId> Rows(int slot, Position first, Position count) const {
    const auto& all = tokens_[static_cast<size_t>(slot)];
    return {all.begin() + first, all.begin() + first + count};
  }
  // A chunk of the sequence under test; `sequence` says whose tokens, `slot` where.
  RowRig::Group Chunk(int slot, int sequence, Position first, Position count) const {
    return {slot, RowKind::kPrefill, first, Rows(sequence, first, count),
            first + count > tail_start_};
  }

  // What `rig` did in `slot` with the sequence under test is what the truth did.
  void ExpectSame(const RowRig& rig, int slot, const std::string& how) {
    for (const auto& [position, result] : rig.results(slot)) {
      const auto truth = truth_->results(0).find(position);
      ASSERT_NE(truth, truth_->results(0).end()) << how;
      EXPECT_EQ(result, truth->second) << how << ", position " << position;
      ++compared_;
    }
    const RowMemory memory = rig.MemoryOf(slot);
    for (int part = 0; part < kPartCount; ++part) {
      EXPECT_TRUE(memory.pages[part] == memory_.pages[part]) << how << ": pages, part " << part;
    }
    EXPECT_TRUE(memory.state == memory_.state) << how << ": state";
  }

  std::shared_ptr<const LoadedModel> loaded_;
  Position length_ = 0;
  Position prompt_ = 0;
  Position tail_start_ = 0;
  std::vector<std::vector<TokenId>> tokens_;  // by sequence; number 0 is under test
  std::unique_ptr<RowRig> truth_;
  RowMemory memory_;
  int compared_ = 0;
};

TEST_P(RowInvariance, ChunksOfAnySizeOnOneAndTwoThreads) {
  for (const uint32_t threads : {1u, 2u}) {
    const auto loaded = Load(threads);
    for (const Position chunk : {1u, 2u, 7u, 16u, 128u, length_}) {
      if (chunk == 1 && threads == 1) continue;  // the truth itself
      RowRig rig(loaded, length_, chunk);
      rig.SetTailStart(2, tail_start_);
      for (Position p = 0; p < length_; p += chunk) {
        rig.Run({Chunk(2, 0, p, std::min(chunk, length_ - p))});
      }
      ExpectSame(rig, 2, "chunks of " + std::to_string(chunk) + ", " + std::to_string(threads) +
                             " threads");
    }
  }
  EXPECT_GT(compared_, 0);
}

TEST_P(RowInvariance, OneToSixRowsARequestAsDecodeRunsThem) {
  for (Position rows = 1; rows <= kVerifyRowsMax; ++rows) {
    RowRig rig(loaded_, length_, rows);
    rig.SetTailStart(0, tail_start_);
    // The prompt in one pass, then groups whose drafts are the tokens that follow.
    rig.Run({Chunk(0, 0, 0, prompt_)});
    for (Position p = prompt_; p < length_; p += rows) {
      rig.Run({{0, RowKind::kVerify, p, Rows(0, p, std::min(rows, length_ - p))}});
    }
    ExpectSame(rig, 0, std::to_string(rows) + " rows a request");
  }
  EXPECT_GT(compared_, 0);
}

TEST_P(RowInvariance, DecodeAfterAHandOverEqualsOnePass) {
  for (const Position chunk : {16u, length_}) {
    RowRig prefill(loaded_, length_, 11);
    prefill.SetTailStart(3, tail_start_);
    for (Position p = 0; p < prompt_; p += chunk) {
      prefill.Run({Chunk(3, 0, p, std::min(chunk, prompt_ - p))});
    }
    RowRig decode(Load(2), length_, 12);
    decode.TakeOver(1, prefill, 3);
    for (Position p = prompt_; p < length_; ++p) {
      decode.Run({{1, RowKind::kVerify, p, Rows(0, p, 1)}});
    }
    ExpectSame(decode, 1, "decoded elsewhere after chunks of " + std::to_string(chunk));
  }
  RowRig whole(loaded_, length_, 13);
  whole.SetTailStart(0, tail_start_);
  whole.Run({Chunk(0, 0, 0, length_)});
  ExpectSame(whole, 0, "one pass over prompt and answer");
  ASSERT_EQ(whole.results(0).count(length_ - 1), 1u);
}

// Sequences that stand at different places share steps, in random order and groups; other sequences
// come along as padding, and drafts are wrong now and then.
TEST_P(RowInvariance, MixturesInAnyOrder) {
  for (int trial = 0; trial < g_trials; ++trial) {
    Random random(static_cast<uint64_t>(trial) + 100);
    RowRig rig(Load(trial % 2 == 0 ? 2 : 1), length_, static_cast<uint64_t>(trial) + 50);
    const int under_test = static_cast<int>(random.Below(RowRig::kSlots));
    Position done[RowRig::kSlots] = {};
    // Windows have room for as many rows too many as there may be drafts.
    const bool windows = loaded_->info().layout.state_bytes() > 0;
    const int64_t wrong_max = windows ? std::max(loaded_->info().draft_max, 1u) : kVerifyRowsMax;
    for (int slot = 0; slot < RowRig::kSlots; ++slot) rig.SetTailStart(slot, tail_start_);
    while (done[under_test] < length_) {
      std::vector<RowRig::Group> groups;
      for (int slot = 0; slot < RowRig::kSlots; ++slot) {
        const bool runs = slot == under_test ? random.Chance(0.7) : random.Chance(0.5);
        const Position left = length_ - done[slot];
        if (!runs || left == 0) continue;
        const int sequence = slot == under_test ? 0 : 1 + slot % 5;
        const Position first = done[slot];
        if (first < prompt_) {
          const Position sizes[] = {1, 2, 7, 16, 128};
          const Position count = std::min(sizes[random.Below(5)], prompt_ - first);
          groups.push_back(Chunk(slot, sequence, first, count));
          done[slot] += count;
          continue;
        }
        RowRig::Group group{slot, RowKind::kVerify, first, {}};
        const auto rows = static_cast<Position>(random.Between(1, kVerifyRowsMax));
        group.tokens = Rows(sequence, first, std::min(rows, left));
        Position right = static_cast<Position>(group.tokens.size());
        if (right > 1 && random.Chance(0.5)) {  // one draft is wrong, and those after it are void
          const auto least = std::max<int64_t>(1, int64_t{right} - wrong_max);
          right = static_cast<Position>(random.Between(least, static_cast<int64_t>(right) - 1));
          TokenId& wrong = group.tokens[right];
          wrong = (wrong + 1) % static_cast<TokenId>(loaded_->info().vocab);
        }
        group.right = right;
        done[slot] += right;
        groups.push_back(std::move(group));
      }
      for (size_t i = groups.size(); i > 1; --i) std::swap(groups[i - 1], groups[random.Below(i)]);
      if (!groups.empty()) rig.Run(groups);
    }
    ExpectSame(rig, under_test, "trial " + std::to_string(trial));
  }
  EXPECT_GT(compared_, 0);
}

// A sequence of any tokens, where the draft that is not its own happens to be the model's choice.
TEST_P(RowInvariance, WhatFollowsAWrongDraftIsNoResult) {
  RowRig rig(loaded_, length_, 21);
  for (const int slot : {1, 2}) {
    rig.SetTailStart(slot, tail_start_);
    rig.Run({Chunk(slot, 1, 0, prompt_)});
  }
  rig.Run({{1, RowKind::kVerify, prompt_, Rows(1, prompt_, 1)}});
  const TokenId chosen = rig.results(1).at(prompt_).token;
  tokens_[1][prompt_ + 1] = (chosen + 1) % static_cast<TokenId>(loaded_->info().vocab);
  rig.Run({{2, RowKind::kVerify, prompt_, {tokens_[1][prompt_], chosen}, false, 1}});
  EXPECT_EQ(rig.results(2).rbegin()->first, prompt_);
  rig.Run({{2, RowKind::kVerify, prompt_ + 1, Rows(1, prompt_ + 1, 1)}});
  rig.Run({{1, RowKind::kVerify, prompt_ + 1, Rows(1, prompt_ + 1, 1)}});
  EXPECT_EQ(rig.results(2), rig.results(1));
}

INSTANTIATE_TEST_SUITE_P(Models, RowInvariance, ::testing::ValuesIn(kSubjects),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace weir::engine

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--long") weir::engine::g_long = true;
    if (arg.rfind("--trials=", 0) == 0) weir::engine::g_trials = std::atoi(arg.c_str() + 9);
    if (arg.rfind("--planted=", 0) == 0) weir::g_planted = std::atoi(arg.c_str() + 10);
  }
  return RUN_ALL_TESTS();
}
