// SPDX-License-Identifier: Apache-2.0
//
// Selection and attention over V4.1's stores against the reference, in every row format, and row
// for row the same bits whatever the batch.
#include <cmath>
#include <cstring>

#include "kernels/cpu/cpu_fixture_for_test.h"
#include "kernels/cpu/tables.h"
#include "kernels/ref/formats.h"

namespace weir::kernels {
namespace {

constexpr int kTokens = 400;
constexpr int kPageTokens = 16;
constexpr int kRingRows = 70;

class SparseTest : public CpuTest {};

TEST_P(SparseTest, RowsExpandToTheReferencesBits) {
  const cpu::KernelTable& kernels = cpu::KernelsFor(*cpu::CheckedIsa(GetParam()));
  constexpr int kWidth = 96;
  const auto check = [&](RowFormat format, auto decode, size_t values) {
    for (uint64_t trial = 0; trial < 20; ++trial) {
      // Any bytes at any address, every code among them.
      std::vector<uint8_t> bytes(RowBytes(format, kWidth) + 1);
      for (size_t i = 0; i < bytes.size(); ++i) {
        bytes[i] = static_cast<uint8_t>(RandomBits(trial, 0, i));
      }
      float have[kWidth], want[kWidth];
      decode(bytes.data() + 1, bytes.data() + 1 + values, kWidth, have);
      ref::DecodeRow(format, reinterpret_cast<const std::byte*>(bytes.data() + 1), kWidth, want);
      for (int i = 0; i < kWidth; ++i) {
        if (std::isnan(want[i])) {
          EXPECT_TRUE(std::isnan(have[i])) << i;
        } else {
          EXPECT_EQ(std::memcmp(&have[i], &want[i], sizeof(float)), 0) << have[i] << " " << want[i];
        }
      }
    }
  };
  check(RowFormat::kFp8Block32, kernels.decode_fp8_block32, kWidth);
  check(RowFormat::kFp4Block16, kernels.decode_fp4_block16, kWidth / 2);
  check(RowFormat::kFp4Block32, kernels.decode_fp4_block32, kWidth / 2);
}

TEST_P(SparseTest, RowsArePackedToTheReferencesBits) {
  const cpu::KernelTable& kernels = cpu::KernelsFor(*cpu::CheckedIsa(GetParam()));
  constexpr int kWidth = 64;
  const auto check = [&](RowFormat format, auto encode) {
    for (uint64_t trial = 0; trial < 300; ++trial) {
      std::vector<float> x = Random(kWidth, trial);
      for (size_t i = 0; i < x.size(); ++i) {
        // All sizes down to subnormal ones, midpoints between codes, zeros and what is no number.
        if (trial % 3 == 0)
          x[i] = std::ldexp(x[i], static_cast<int>(RandomBits(trial, 1, i) % 40) - 30);
        if (trial % 3 == 1)
          x[i] = std::ldexp(std::round(x[i] * 64), static_cast<int>(trial % 17) - 12);
        if (trial % 50 == 7 && i % 9 == 2) x[i] = i % 2 == 0 ? NAN : -INFINITY;
        if (i % 13 == 4) x[i] = i % 2 == 0 ? 0.0f : -0.0f;
      }
      if (trial % 40 == 3) std::fill(x.begin(), x.end(), std::ldexp(1.0f, -140));
      std::vector<uint8_t> have(RowBytes(format, kWidth)), want(have.size());
      encode(x.data(), kWidth, have.data());
      ref::EncodeRow(format, x.data(), kWidth, reinterpret_cast<std::byte*>(want.data()));
      ASSERT_EQ(have, want) << "format " << static_cast<int>(format) << ", trial " << trial;
    }
  };
  check(RowFormat::kFp8Block32, kernels.encode_fp8_block32);
  check(RowFormat::kFp4Block16, kernels.encode_fp4_block16);
  check(RowFormat::kFp4Block32, kernels.encode_fp4_block32);
}

// Random rows in a store's format, one after the other. Every `same`th row repeats the one before.
Tensor PutRows(Side& side, RowFormat format, int count, int width, uint64_t seed, int same = 0) {
  const size_t bytes = RowBytes(format, static_cast<size_t>(width));
  std::vector<int32_t> rows((static_cast<size_t>(count) * bytes + 3) / 4);
  auto* to = reinterpret_cast<std::byte*>(rows.data());
  for (int i = 0; i < count; ++i) {
    const int source = same > 0 && i % same == same - 1 ? i - 1 : i;
    const std::vector<float> row =
        Random(static_cast<size_t>(width), seed * 1000 + static_cast<uint64_t>(source));
    ref::EncodeRow(format, row.data(), width, to + static_cast<size_t>(i) * bytes);
  }
  return side.Put(rows);
}

// Two sequences of kTokens tokens, whose pages lie in turn, one page per kPageTokens tokens.
PagedKv Paged(Side& side, RowFormat format, int ratio, int width, uint64_t seed, int same = 0) {
  PagedKv kv;
  kv.format = format;
  kv.ratio = ratio;
  kv.row_bytes = static_cast<int64_t>(RowBytes(format, static_cast<size_t>(width)));
  kv.page_tokens = kPageTokens;
  kv.page_bytes = kv.row_bytes * kPageTokens / ratio;
  kv.table_stride = kTokens / kPageTokens;
  std::vector<int32_t> table;
  for (int s = 0; s < 2; ++s) {
    for (int p = 0; p < kv.table_stride; ++p) table.push_back((kv.table_stride - 1 - p) * 2 + s);
  }
  kv.table = side.Put(table);
  kv.base = PutRows(side, format, 2 * kTokens / ratio, width, seed, same).address;
  return kv;
}

RingKv Ring(Side& side, RowFormat format, int width, uint64_t seed) {
  RingKv ring;
  ring.format = format;
  ring.row_bytes = static_cast<int64_t>(RowBytes(format, static_cast<size_t>(width)));
  ring.ring_rows = kRingRows;
  ring.state_bytes = ring.row_bytes * kRingRows;
  ring.state = side.Put(std::vector<int32_t>{1, 0});
  ring.base = PutRows(side, format, 2 * kRingRows, width, seed).address;
  return ring;
}

// Rows [first, first + count) of the one sequence, or of both in halves.
struct Batch {
  int32_t first;
  int count;
  bool both = false;
};

StepRows Rows(Side& side, const Batch& batch) {
  std::vector<int32_t> position, sequence, fresh;
  for (int i = 0; i < batch.count; ++i) {
    const bool second = batch.both && i >= batch.count / 2;
    const int32_t from = second ? batch.first - 7 : batch.first;
    position.push_back(from + i - (second ? batch.count / 2 : 0));
    sequence.push_back(second ? 1 : 0);
    fresh.push_back(from);
  }
  StepRows rows;
  rows.count = batch.count;
  rows.position = side.Put(position);
  rows.sequence = side.Put(sequence);
  rows.fresh_from = side.Put(fresh);
  rows.visible_from = side.Put(std::vector<int32_t>(static_cast<size_t>(batch.count), 3));
  return rows;
}

// A row's numbers depend on its position alone, so that batches can be compared.
template <class T, class Make>
std::vector<T> ByPosition(const Batch& batch, size_t each, const Make& make) {
  std::vector<T> all;
  for (int i = 0; i < batch.count; ++i) {
    const bool second = batch.both && i >= batch.count / 2;
    const int32_t at = second ? batch.first - 7 + i - batch.count / 2 : batch.first + i;
    const std::vector<T> row = make(static_cast<uint64_t>(at) + (second ? 100000 : 0), each);
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

struct Formats {
  RowFormat window;
  RowFormat entry;
  RowFormat key;
};
constexpr Formats kFloats = {RowFormat::kF32, RowFormat::kF32, RowFormat::kF32};
constexpr Formats kPacked = {RowFormat::kFp8Block32, RowFormat::kFp4Block16,
                             RowFormat::kFp4Block32};

std::vector<float> Attend(Side& side, const Formats& formats, int heads, const Batch& batch) {
  constexpr int kWidth = 96, kWindow = 50, kSelect = 60;
  const StepRows rows = Rows(side, batch);
  const auto random = [](uint64_t seed, size_t count) { return Random(count, seed); };
  SparseAttentionArgs args;
  args.rows = &rows;
  args.heads = heads;
  args.width = kWidth;
  args.window = kWindow;
  args.select = kSelect;
  args.scale = 0.3f;
  args.q = side.Put(ByPosition<float>(batch, static_cast<size_t>(heads * kWidth), random));
  args.ring = Ring(side, formats.window, kWidth, 1);
  // Fresh rows by position, the ring's where one step has them and another finds them in the ring.
  std::vector<int32_t> fresh;
  const size_t bytes = static_cast<size_t>(args.ring.row_bytes);
  std::vector<std::byte> codes(static_cast<size_t>(batch.count) * bytes);
  const std::vector<float> values = ByPosition<float>(batch, kWidth, random);
  for (int i = 0; i < batch.count; ++i) {
    ref::EncodeRow(formats.window, values.data() + i * kWidth, kWidth,
                   codes.data() + static_cast<size_t>(i) * bytes);
  }
  fresh.resize((codes.size() + 3) / 4);
  std::memcpy(fresh.data(), codes.data(), codes.size());
  args.fresh = side.Put(fresh);
  args.entries = Paged(side, formats.entry, 2, kWidth, 2);
  args.selected = side.Put(ByPosition<int32_t>(batch, kSelect, [](uint64_t seed, size_t count) {
    std::vector<int32_t> list(count, -1);
    const size_t kept = seed % (kSelect + 1);
    for (size_t i = 0; i < kept; ++i) list[i] = static_cast<int32_t>(i * 2 + seed % 2);
    return list;
  }));
  args.sink = side.Put(Random(static_cast<size_t>(heads), 9));
  args.scratch = side.Room(int64_t{side.backend().lanes()} * (kWindow + kSelect) * kWidth);
  args.out = side.Room(int64_t{batch.count} * heads * kWidth);
  side.ops().SparseAttention(side.stream(), args);
  return side.Get(args.out);
}

TEST_P(SparseTest, AttentionOverWindowAndEntries) {
  for (const Formats& formats : {kFloats, kPacked}) {
    for (const int heads : {1, 5, 20}) {
      for (const Batch& batch : {Batch{0, 5}, Batch{150, 1}, Batch{300, 40, true}}) {
        SCOPED_TRACE(testing::Message() << heads << " heads from " << batch.first);
        Compare(6e-6, [&](Side& side) { return Attend(side, formats, heads, batch); });
      }
    }
  }
}

TEST_P(SparseTest, ARowsAttentionDoesNotDependOnItsBatch) {
  for (const int heads : {3, 20}) {
    Side side = Cpu();
    // Windows of the first row alone are of one step: only rows that see no other fresh row
    // compare.
    const std::vector<float> whole = Attend(side, kPacked, heads, {200, 30});
    const std::vector<float> one = Attend(side, kPacked, heads, {200, 1});
    const std::vector<float> some = Attend(side, kPacked, heads, {200, 3});
    EXPECT_TRUE(std::equal(one.begin(), one.end(), whole.begin()));
    EXPECT_TRUE(std::equal(some.begin(), some.end(), whole.begin()));
  }
}

struct Choice {
  int heads = 2;
  int ratio = 2;
  int blocks_kept = 12;
  RowFormat key = RowFormat::kFp4Block32;
};

// Both levels: entries and candidate blocks of a source, then entries of a layer within those.
std::vector<int32_t> Select(Side& side, const Choice& choice, const Batch& batch) {
  constexpr int kWidth = 64, kSelect = 20;
  const StepRows rows = Rows(side, batch);
  const auto random = [](uint64_t seed, size_t count) { return Random(count, seed); };
  const auto heads = static_cast<size_t>(choice.heads);
  IndexSelectArgs args;
  args.rows = &rows;
  args.heads = choice.heads;
  args.width = kWidth;
  args.select = kSelect;
  args.scale = 0.11f;
  args.q = side.Put(ByPosition<float>(batch, heads * kWidth, random));
  side.ops().RoundTrip(side.stream(),
                       {int64_t{batch.count} * choice.heads, kWidth, choice.key, args.q});
  args.weight = side.Put(ByPosition<float>(batch, heads, random));
  args.keys = Paged(side, choice.key, choice.ratio, kWidth, 5, /*same=*/3);
  args.block_entries = 4;
  args.blocks_kept = choice.blocks_kept;
  args.candidates_out =
      side.Put(std::vector<int32_t>(static_cast<size_t>(batch.count * choice.blocks_kept)));
  args.entries_max = kTokens;
  args.scratch = side.Room(int64_t{side.backend().lanes()} * 3 * kTokens);
  args.selected = side.Put(std::vector<int32_t>(static_cast<size_t>(batch.count * kSelect)));
  side.ops().IndexSelect(side.stream(), args);
  std::vector<int32_t> all = side.Get<int32_t>(args.selected);
  const std::vector<int32_t> blocks = side.Get<int32_t>(args.candidates_out);
  args.candidates = args.candidates_out;
  args.candidates_out = {};
  args.weight = side.Put(ByPosition<float>(
      batch, heads, [](uint64_t seed, size_t count) { return Random(count, seed + 7777); }));
  side.ops().IndexSelect(side.stream(), args);
  const std::vector<int32_t> narrow = side.Get<int32_t>(args.selected);
  all.insert(all.end(), blocks.begin(), blocks.end());
  all.insert(all.end(), narrow.begin(), narrow.end());
  return all;
}

TEST_P(SparseTest, SelectionIsTheReferencesToTheLastTie) {
  for (const RowFormat key : {RowFormat::kFp4Block32, RowFormat::kF32}) {
    for (const int ratio : {1, 2}) {
      for (const int heads : {1, 3, 32}) {
        for (const Batch& batch : {Batch{0, 30}, Batch{380, 1}, Batch{300, 24, true}}) {
          SCOPED_TRACE(testing::Message() << heads << " heads from " << batch.first);
          CompareExactly([&](Side& side) { return Select(side, {heads, ratio, 12, key}, batch); });
        }
      }
    }
  }
}

// Queries and weights of nothing: every score is the same.
TEST_P(SparseTest, EqualScoresKeepTheLowestEntries) {
  Side side = Cpu();
  const StepRows rows = Rows(side, {200, 1});
  IndexSelectArgs args;
  args.rows = &rows;
  args.heads = 2;
  args.width = 32;
  args.select = 6;
  args.scale = 1;
  args.q = side.Room(2 * 32);
  args.weight = side.Put(std::vector<float>{-1, 1});
  args.keys = Paged(side, RowFormat::kFp4Block32, 1, 32, 5);
  args.entries_max = kTokens;
  args.scratch = side.Room(int64_t{side.backend().lanes()} * 3 * kTokens);
  args.selected = side.Put(std::vector<int32_t>(6));
  side.ops().IndexSelect(side.stream(), args);
  EXPECT_EQ(side.Get<int32_t>(args.selected), (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
  // Not a number counts least of all.
  args.q = side.Put(std::vector<float>(2 * 32, NAN));
  side.ops().IndexSelect(side.stream(), args);
  EXPECT_EQ(side.Get<int32_t>(args.selected), (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
}

INSTANTIATE_TEST_SUITE_P(Isa, SparseTest, ::testing::ValuesIn(kIsaNames), IsaTestName);

}  // namespace
}  // namespace weir::kernels
