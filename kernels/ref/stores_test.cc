// SPDX-License-Identifier: Apache-2.0
//
// One attention layer of V4.1 over its stores, row for row the same bits however the rows are cut
// into steps: rings that are shorter than a step, half groups, entries of the step itself, both
// levels of selection, and rows below their write floor.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "kernels/ref/access.h"
#include "kernels/ref/ref_fixture_for_test.h"

namespace weir::kernels {
namespace {

constexpr int kPositions = 44;
constexpr int kHeads = 2;
constexpr int kWidth = 32;
constexpr int kRope = 16;
constexpr int kWindow = 6;
constexpr int kSelect = 5;
constexpr int kBlock = 2;
constexpr int kBlocksKept = 4;
constexpr int kPageTokens = 8;

struct Formats {
  RowFormat window;
  RowFormat entry;
  RowFormat key;
};
constexpr Formats kFloats = {RowFormat::kF32, RowFormat::kF32, RowFormat::kF32};
constexpr Formats kPacked = {RowFormat::kFp8Block32, RowFormat::kFp4Block16,
                             RowFormat::kFp4Block32};

// What one position came to.
struct Outcome {
  std::vector<float> attended;
  std::vector<int32_t> selected, candidates, narrow;
  bool operator==(const Outcome&) const = default;
};

class StoresTest : public RefFixture {
 protected:
  // A fresh sequence of state page 1 and pages in descending order.
  void Start(const Formats& formats, int ratio) {
    formats_ = formats;
    ratio_ = ratio;
    const auto ring = [&](RowFormat format, int32_t rows) {
      RingKv r;
      r.format = format;
      r.row_bytes = static_cast<int64_t>(RowBytes(format, kWidth));
      r.ring_rows = rows;
      r.state_bytes = r.row_bytes * rows + 64;
      r.layer_offset = 64;
      r.state = Put(std::vector<int32_t>{1});
      r.base = Room(r.state_bytes).address;
      return r;
    };
    window_ = ring(formats.window, kWindow + 4);
    kv_carry_ = ring(RowFormat::kF32, 4);
    gate_carry_ = ring(RowFormat::kF32, 4);
    history_ = ring(RowFormat::kF32, 6);
    history_.row_bytes = 4;
    const auto paged = [&](RowFormat format) {
      PagedKv kv;
      kv.format = format;
      kv.row_bytes = static_cast<int64_t>(RowBytes(format, kWidth));
      kv.page_tokens = kPageTokens;
      kv.ratio = ratio;
      kv.page_bytes = kv.row_bytes * kPageTokens / ratio + 4;
      kv.layer_offset = 4;
      kv.table = Put(std::vector<int32_t>{5, 4, 3, 2, 1, 0});
      kv.table_stride = 6;
      kv.base = Room(kv.page_bytes * 6).address;
      return kv;
    };
    entries_ = paged(formats.entry);
    keys_ = paged(formats.key);
    outcome_.clear();
  }

  StepRows Rows(int32_t first, int count, int32_t floor) {
    StepRows rows;
    rows.count = count;
    std::vector<int32_t> position, token;
    for (int i = 0; i < count; ++i) {
      position.push_back(first + i);
      token.push_back((first + i) * 7 % 13);
    }
    const auto same = [count](int32_t v) {
      return std::vector<int32_t>(static_cast<size_t>(count), v);
    };
    rows.token = Put(token);
    rows.position = Put(position);
    rows.sequence = Put(same(0));
    rows.write_floor = Put(same(floor));
    rows.visible_from = Put(same(1));  // position 0 is out of sight
    rows.fresh_from = Put(same(first));
    return rows;
  }

  // Inputs of positions [first, first + count), `values` each.
  Tensor Input(uint64_t seed, int32_t first, int count, int values) {
    const std::vector<float> all = Random(static_cast<size_t>(kPositions * values), seed);
    return Put(std::vector<float>(all.begin() + first * values,
                                  all.begin() + (first + count) * values));
  }

  void Step(int32_t first, int count, int32_t floor = 0) {
    const StepRows rows = Rows(first, count, floor);
    const Tensor frequency = Put(RopeFrequencies(kRope, 10000, std::nullopt));
    const Tensor norm = Put(std::vector<float>(kWidth, 1.5f));
    const auto in = [&](uint64_t seed, int values) { return Input(seed, first, count, values); };

    const Tensor fresh = Room(count * kWidth);
    ops().WindowRows(*stream_, {&rows, kWidth, kRope, 1e-20f, formats_.window, norm, frequency,
                                in(1, kWidth), fresh});
    const Tensor kv = in(2, kWidth), gate = in(3, kWidth), pooled = Room(count * kWidth);
    Tensor latent = kv;
    if (ratio_ == 2) {
      ops().CompressPair(*stream_, {&rows, kWidth, 1e-20f, kv, gate, kv_carry_, gate_carry_, norm,
                                    pooled});
      latent = pooled;
    }
    ops().EntryWrite(*stream_, {&rows, kWidth, kRope, 1e-20f, norm, frequency, latent, keys_});
    ops().EntryWrite(*stream_, {&rows, kWidth, kRope, 1e-20f, {}, frequency, latent, entries_});

    const Tensor selected = Room(count * kSelect, DType::kI32);
    const Tensor narrow = Room(count * kSelect, DType::kI32);
    const Tensor candidates = Room(count * kBlocksKept, DType::kI32);
    IndexSelectArgs select{&rows, kHeads, kWidth, kSelect, 0.3f, in(4, kHeads * kWidth),
                           in(5, kHeads), keys_, kBlock, kBlocksKept};
    ops().RoundTrip(*stream_, {int64_t{count} * kHeads, kWidth, formats_.key, select.q});
    select.candidates_out = candidates;
    select.entries_max = kPositions;
    select.scratch = Room(3 * kPositions);
    select.selected = selected;
    ops().IndexSelect(*stream_, select);
    select.candidates_out = {};
    select.candidates = candidates;
    select.weight = in(6, kHeads);
    select.selected = narrow;
    ops().IndexSelect(*stream_, select);

    SparseAttentionArgs attend{&rows, kHeads, kWidth, kWindow, kSelect, 0.2f,
                               in(7, kHeads * kWidth), fresh, window_, entries_, selected,
                               Put(std::vector<float>{0.1f, -1}),
                               Room((kWindow + kSelect) * kWidth), Room(count * kHeads * kWidth)};
    ops().SparseAttention(*stream_, attend);
    ops().RingWrite(*stream_, {&rows, fresh, window_});
    ops().RingWrite(*stream_, {&rows, kv, kv_carry_});
    ops().RingWrite(*stream_, {&rows, gate, gate_carry_});
    Keep(first, count, attend.out, selected, candidates, narrow);
  }

  template <class T>
  static std::vector<T> Part(const std::vector<T>& all, int i, int width) {
    return std::vector<T>(all.begin() + i * width, all.begin() + (i + 1) * width);
  }
  void Keep(int32_t first, int count, const Tensor& out, const Tensor& selected,
            const Tensor& candidates, const Tensor& narrow) {
    const std::vector<float> o = Floats(out, count * kHeads * kWidth);
    const std::vector<int32_t> s = Ints(selected, count * kSelect);
    const std::vector<int32_t> c = Ints(candidates, count * kBlocksKept);
    const std::vector<int32_t> n = Ints(narrow, count * kSelect);
    for (int i = 0; i < count; ++i) {
      outcome_[first + i] = {Part(o, i, kHeads * kWidth), Part(s, i, kSelect),
                             Part(c, i, kBlocksKept), Part(n, i, kSelect)};
    }
  }

  std::map<int32_t, Outcome> Whole() {
    Step(0, kPositions);
    return outcome_;
  }
  void StepsOf(int count) {
    for (int at = 0; at < kPositions; at += count) Step(at, std::min(count, kPositions - at));
  }

  Formats formats_{};
  int ratio_ = 1;
  RingKv window_, kv_carry_, gate_carry_, history_;
  PagedKv entries_, keys_;
  std::map<int32_t, Outcome> outcome_;
};

TEST_F(StoresTest, StepsOfAnySizeGiveTheSameBits) {
  for (const Formats& formats : {kFloats, kPacked}) {
    for (const int ratio : {1, 2}) {
      Start(formats, ratio);
      const std::map<int32_t, Outcome> whole = Whole();
      for (const int count : {1, 2, 3, 7, 16}) {
        Start(formats, ratio);
        StepsOf(count);
        EXPECT_TRUE(outcome_ == whole) << "steps of " << count << ", ratio " << ratio;
      }
    }
  }
}

TEST_F(StoresTest, RepeatedRowsLeaveNoTrace) {
  // As after rejected drafts: rows beyond the cursor are computed again. The ring has room for them.
  Start(kPacked, 2);
  const std::map<int32_t, Outcome> whole = Whole();
  Start(kPacked, 2);
  for (int at = 0; at < kPositions; ++at) Step(at, std::min(4, kPositions - at));
  EXPECT_TRUE(outcome_ == whole);
}

TEST_F(StoresTest, SelectionsAreVisibleAscendingAndEndInMinusOne) {
  Start(kFloats, 2);
  for (const auto& pair : Whole()) {
    const int32_t position = pair.first;
    const Outcome& one = pair.second;
    const int visible = (position + 1) / 2;
    const auto check = [&](const std::vector<int32_t>& list, int limit) {
      const auto end = std::find(list.begin(), list.end(), -1);
      EXPECT_TRUE(std::is_sorted(list.begin(), end));
      EXPECT_TRUE(std::all_of(end, list.end(), [](int32_t v) { return v == -1; }));
      EXPECT_TRUE(end == list.begin() || *(end - 1) < limit) << "position " << position;
      return static_cast<int>(end - list.begin());
    };
    EXPECT_EQ(check(one.selected, visible), std::min(visible, kSelect));
    check(one.narrow, visible);
    EXPECT_EQ(check(one.candidates, (visible + kBlock - 1) / kBlock),
              std::min((visible + kBlock - 1) / kBlock, kBlocksKept));
    if (visible > 0) {
      const int newest = (visible - 1) / kBlock;
      EXPECT_TRUE(std::count(one.candidates.begin(), one.candidates.end(), newest) == 1);
    }
    for (const int32_t g : one.narrow) {
      if (g < 0) break;
      EXPECT_EQ(std::count(one.candidates.begin(), one.candidates.end(), g / kBlock), 1);
    }
  }
}

TEST_F(StoresTest, ReplayRebuildsWindowsAndLeavesEntriesAlone) {
  Start(kPacked, 2);
  const std::map<int32_t, Outcome> whole = Whole();
  const auto bytes = [&](const PagedKv& kv) {
    return Get<uint8_t>({kv.base, DType::kU8, {}}, kv.page_bytes * 6);
  };
  // Entries up to 20 from the first pass; then windows are gone and rows 12 ... 19 run again.
  Start(kPacked, 2);
  Step(0, 20);
  const std::vector<uint8_t> before = bytes(entries_);
  std::vector<uint8_t> noise(static_cast<size_t>(window_.state_bytes), 0x31);
  stream_->CopyIn(window_.base + window_.state_bytes, noise.data(), noise.size());
  Step(12, 8, 20);
  EXPECT_EQ(bytes(entries_), before);
  for (int at = 20; at < kPositions; ++at) Step(at, 1, 20);
  for (int at = 18; at < kPositions; ++at) EXPECT_TRUE(outcome_[at] == whole.at(at)) << at;
}

}  // namespace
}  // namespace weir::kernels
