// SPDX-License-Identifier: Apache-2.0
//
// What V4.1 keeps of a token, its n-gram memory and its residual streams against the reference.
#include <cstring>

#include "kernels/cpu/cpu_fixture_for_test.h"

namespace weir::kernels {
namespace {

constexpr int kRows = 37;
constexpr int kWidth = 96;
constexpr int kRope = 32;

class StoresTest : public CpuTest {};

// kRows rows of one sequence from position 5 on, the first of them below the write floor.
StepRows Rows(Side& side) {
  std::vector<int32_t> position, token, image;
  for (int i = 0; i < kRows; ++i) {
    position.push_back(5 + i);
    token.push_back(i * 7 % 23);
    image.push_back(i % 11 == 6 ? 1 : 0);
  }
  StepRows rows;
  rows.count = kRows;
  rows.token = side.Put(token);
  rows.position = side.Put(position);
  rows.sequence = side.Put(std::vector<int32_t>(kRows, 0));
  rows.write_floor = side.Put(std::vector<int32_t>(kRows, 9));
  rows.fresh_from = side.Put(std::vector<int32_t>(kRows, 5));
  rows.image = side.Put(image);
  return rows;
}

RingKv Ring(Side& side, int64_t row_bytes, int rows) {
  RingKv ring;
  ring.row_bytes = row_bytes;
  ring.ring_rows = rows;
  ring.state_bytes = row_bytes * rows;
  ring.state = side.Put(std::vector<int32_t>{0});
  ring.base = side.Put(Random(static_cast<size_t>(row_bytes * rows / 4), 77)).address;
  return ring;
}

std::vector<int32_t> Bytes(Side& side, DeviceAddress at, int64_t bytes) {
  return side.Get<int32_t>({at, DType::kI32, {bytes / 4, 1, 1}});
}

// Windows, rings and entries in every format: the bytes are the reference's.
TEST_P(StoresTest, WhatIsKeptIsTheReferences) {
  for (const RowFormat format : {RowFormat::kF32, RowFormat::kBf16, RowFormat::kFp8Block32,
                                 RowFormat::kFp4Block16, RowFormat::kFp4Block32}) {
    for (const int ratio : {1, 2}) {
      SCOPED_TRACE(testing::Message() << "format " << static_cast<int>(format));
      CompareExactly([&](Side& side) {
        const StepRows rows = Rows(side);
        const Tensor frequency = side.Put(RopeFrequencies(kRope, 10000, std::nullopt));
        const Tensor norm = side.Put(Random(kWidth, 1));
        const Tensor x = side.Put(Random(kRows * kWidth, 2));
        RingKv ring = Ring(side, static_cast<int64_t>(RowBytes(format, kWidth)), 20);
        ring.format = format;
        const Tensor fresh = side.Room(kRows * kWidth);
        side.ops().WindowRows(side.stream(),
                              {&rows, kWidth, kRope, 1e-20f, format, norm, frequency, x, fresh});
        side.ops().RingWrite(side.stream(), {&rows, fresh, ring});
        PagedKv store;
        store.format = format;
        store.ratio = ratio;
        store.row_bytes = ring.row_bytes;
        store.page_tokens = 8;
        store.page_bytes = store.row_bytes * 8 / ratio;
        store.table = side.Put(std::vector<int32_t>{3, 1, 5, 0, 2, 4});
        store.table_stride = 6;
        store.base = side.Room(6 * store.page_bytes / 4).address;
        side.ops().EntryWrite(side.stream(), {&rows, kWidth, kRope, 1e-6f,
                                              ratio == 1 ? norm : Tensor(), frequency, x, store});
        side.ops().RoundTrip(side.stream(), {kRows, kWidth, format, x});
        std::vector<int32_t> all = Bytes(side, ring.base, ring.state_bytes);
        for (const int32_t word : Bytes(side, store.base, 6 * store.page_bytes)) {
          all.push_back(word);
        }
        for (const int32_t word : Bytes(side, x.address, kRows * kWidth * 4)) all.push_back(word);
        return all;
      });
    }
  }
}

TEST_P(StoresTest, PairsBecomeEntries) {
  Compare(1e-6, [&](Side& side) {
    const StepRows rows = Rows(side);
    CompressPairArgs args{&rows, kWidth, 1e-20f};
    args.kv = side.Put(Random(kRows * kWidth, 1));
    args.gate = side.Put(Random(kRows * kWidth, 2));
    args.kv_carry = Ring(side, kWidth * 4, 4);
    args.gate_carry = Ring(side, kWidth * 4, 4);
    args.norm_weight = side.Put(Random(kWidth, 3));
    args.latent = side.Room(kRows * kWidth);
    side.ops().CompressPair(side.stream(), args);
    return side.Get(args.latent);
  });
}

TEST_P(StoresTest, RowsOfTheNgramTable) {
  constexpr int kNgram = 3, kHeads = 2, kColumns = (kNgram - 1) * kHeads, kTable = 40;
  for (const Form form : {Form::kFp8Mx, Form::kBf16, Form::kF32}) {
    Stored table = MakeWeight(form, kTable, 64, 4);
    // Engram rows have their own scales, 32 columns each.
    table.scales.assign(kTable * 2, std::byte{125});
    table.host.scales = table.scales.data();
    table.host.block_rows = 1;
    Compare(0, [&](Side& side) {
      const StepRows rows = Rows(side);
      const Tensor id = side.Put(std::vector<int32_t>(kRows));
      std::vector<int32_t> map(23);
      for (int i = 0; i < 23; ++i) map[static_cast<size_t>(i)] = i / 2;
      side.ops().EngramIds(side.stream(), {&rows, side.Put(map), id});
      EngramRowsArgs args;
      args.rows = &rows;
      args.ngram = kNgram;
      args.heads = kHeads;
      args.id = id;
      args.history = Ring(side, 4, 8);
      // Ids of positions before the step; any small number will do.
      args.history.base = side.Put(std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7, 8}).address;
      const std::vector<int32_t> words = {12345, 0, 777777, 0, 31, 0};  // I64
      args.multiplier = side.Put(words);
      args.prime = side.Put(std::vector<int32_t>{7, 9, 11, 13});
      args.offset = side.Put(std::vector<int32_t>{0, 7, 16, 27});
      args.row = side.Put(std::vector<int32_t>(kRows * kColumns));
      side.ops().EngramRows(side.stream(), args);
      const Tensor out = side.Room(kRows * kColumns * 64);
      const Table mapped = *side.backend().MapTable(table.host);
      side.ops().EngramGather(side.stream(), {kRows, kColumns, args.row, mapped, out});
      return side.Get(out);
    });
  }
}

TEST_P(StoresTest, NgramsAreGatedIntoStreams) {
  constexpr int kStreams = 4;
  for (const int width : {33, 96, 1600}) {
    Compare(1e-6, [&](Side& side) {
      const StepRows rows = Rows(side);
      EngramGateArgs args{&rows, kStreams, width, 1e-20f};
      const auto w = static_cast<size_t>(width);
      args.kv = side.Put(Random(kRows * (kStreams + 1) * w, 1));
      args.q_weight = side.Put(Random(kStreams * w, 2));
      args.k_weight = side.Put(Random(kStreams * w, 3));
      args.x = side.Put(Random(kRows * kStreams * w, 4));
      side.ops().EngramGate(side.stream(), args);
      return side.Get(args.x);
    });
  }
}

TEST_P(StoresTest, StreamsCollapseAndExpand) {
  for (const int streams : {1, 4, kStreamsMax}) {
    for (const int width : {5, 96}) {
      Compare(1e-6, [&](Side& side) {
        const StepRows rows = Rows(side);
        const auto n = static_cast<size_t>(streams);
        const auto w = static_cast<size_t>(width);
        Tensor table = side.Put(Random(23 * w, 1));
        table.shape = {23, width, 1};
        const Tensor x = side.Room(kRows * streams * width);
        const Tensor pre = side.Room(kRows * streams);
        side.ops().EmbedStreams(side.stream(), {&rows, streams, table, x, pre});
        side.ops().Expand(side.stream(),
                          {kRows, streams, width, side.Put(Random(kRows * w, 2)),
                           side.Put(Random(kRows * n, 3)), side.Put(Random(kRows * n * n, 4)), x});
        const Tensor out = side.Room(kRows * width);
        side.ops().Collapse(side.stream(),
                            {kRows, streams, width, x, side.Put(Random(kRows * n, 5)), out});
        const Tensor some = side.Room(3 * width);
        side.ops().GatherRows(side.stream(),
                              {3, width, out, side.Put(std::vector<int32_t>{30, 2, 2}), some});
        std::vector<float> all = side.Get(out);
        for (const Tensor& more : {x, pre, some}) {
          for (const float value : side.Get(more)) all.push_back(value);
        }
        return all;
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, StoresTest, ::testing::ValuesIn(kIsaNames), IsaTestName);

}  // namespace
}  // namespace weir::kernels
