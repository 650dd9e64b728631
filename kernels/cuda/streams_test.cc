// SPDX-License-Identifier: Apache-2.0
//
// Residual streams, Engram, embeddings and the compressor against the reference; see
// kernels_test.cc for what must hold.
#include "kernels/cuda/store_fixture_for_test.h"

namespace weir::kernels::cuda {
namespace {

class KernelsOfStreams : public StoreFixture {
 protected:
  // Rows with tokens below 100, some of them of images.
  Batch MakeTokens() {
    Batch batch = MakeBatch(3, 50, 5, 64, 16, RowFormat::kBf16);
    std::vector<int32_t> token;
    std::vector<int32_t> image;
    std::vector<int32_t> fresh_from;
    for (size_t r = 0; r < batch.position.size(); ++r) {
      token.push_back(Pick(0, 99));
      image.push_back(Pick(0, 5) == 0 ? 1 : 0);
      const bool first = r == 0 || batch.sequence[r] != batch.sequence[r - 1];
      fresh_from.push_back(first ? batch.position[r] : fresh_from.back());
    }
    batch.rows.token = Put(token);
    batch.rows.image = Put(image);
    batch.rows.fresh_from = Put(fresh_from);
    return batch;
  }

  // A weight that kernels and reference read from the same floats.
  Matrix Both(const std::vector<float>& values, int64_t rows, Matrix* want) {
    const auto cols = static_cast<int64_t>(values.size()) / rows;
    *want = *backend_->LoadMatrix(
        {reinterpret_cast<const std::byte*>(values.data()), DType::kF32, rows, cols});
    Matrix mine = *want;
    mine.address = Put(values).address;
    return mine;
  }
};

TEST_F(KernelsOfStreams, MixCollapseExpandGate) {
  Trials([&] {
    const int rows = Pick(1, 4);
    const int width = 8 * Pick(1, g_long ? 640 : 150);
    const int64_t wide = int64_t{4} * width;
    const std::vector<float> x = Uniform(rows * wide);
    std::vector<float> fn = Uniform(24 * wide);
    for (float& v : fn) v *= 0.05f;
    Matrix want_fn;
    StreamMixArgs mix{rows,
                      4,
                      20,
                      1e-6f,
                      1e-20f,
                      Put(x),
                      Both(fn, 24, &want_fn),
                      Put(Uniform(3)),
                      Put(Uniform(24))};
    mix.pre = Room(rows * 4);
    mix.post = Room(rows * 4);
    mix.comb = Room(rows * 16);
    StreamMix(queue_, mix);
    StreamMixArgs mixed = mix;
    mixed.fn = want_fn;
    mixed.pre = Room(rows * 4);
    mixed.post = Room(rows * 4);
    mixed.comb = Room(rows * 16);
    backend_->ops().StreamMix(*stream_, mixed);
    backend_->Free(want_fn.address);
    ExpectNear(mix.pre, mixed.pre, rows * 4);
    ExpectNear(mix.post, mixed.post, rows * 4);
    ExpectNear(mix.comb, mixed.comb, rows * 16);

    CollapseArgs collapse{rows, 4, width, mix.x, mix.pre, Room(int64_t{rows} * width)};
    Collapse(queue_, collapse);
    CollapseArgs collapsed = collapse;
    collapsed.out = Room(int64_t{rows} * width);
    backend_->ops().Collapse(*stream_, collapsed);
    ExpectNear(collapse.out, collapsed.out, int64_t{rows} * width);

    const Tensor y = Put(Uniform(int64_t{rows} * width));
    const ExpandArgs expand{rows, 4, width, y, mix.post, mix.comb, Put(x)};
    Expand(queue_, expand);
    const ExpandArgs expanded{rows, 4, width, y, mix.post, mix.comb, Put(x)};
    backend_->ops().Expand(*stream_, expanded);
    ExpectNear(expand.x, expanded.x, rows * wide);

    StepRows step;
    step.count = rows;
    std::vector<int32_t> image(static_cast<size_t>(rows), 0);
    image[0] = Pick(0, 1);
    step.image = Put(image);
    EngramGateArgs gate{&step,
                        4,
                        width,
                        1e-20f,
                        Put(Uniform(rows * int64_t{5} * width)),
                        Put(Uniform(wide)),
                        Put(Uniform(wide)),
                        Put(x)};
    EngramGate(queue_, gate);
    EngramGateArgs gated = gate;
    gated.x = Put(x);
    backend_->ops().EngramGate(*stream_, gated);
    ExpectNear(gate.x, gated.x, rows * wide);
    EXPECT_LE(report_.counters.UncoalescedShare(), 0.05);
  });
}

TEST_F(KernelsOfStreams, Embed) {
  Trials([&] {
    const Batch batch = MakeTokens();
    const int count = batch.rows.count;
    const int width = 4 * Pick(1, 200);
    EmbedStreamsArgs embed{&batch.rows, 4, Put(Uniform(int64_t{100} * width))};
    embed.table.shape = {100, width, 1};
    embed.x = Room(int64_t{count} * 4 * width);
    embed.pre = Room(count * 4);
    EmbedStreams(queue_, embed);
    EmbedStreamsArgs embedded = embed;
    embedded.x = Room(int64_t{count} * 4 * width);
    embedded.pre = Room(count * 4);
    backend_->ops().EmbedStreams(*stream_, embedded);
    ExpectEqual(embed.x, embedded.x, int64_t{count} * 4 * width);
    ExpectEqual(embed.pre, embedded.pre, count * 4);

    std::vector<int32_t> index;
    for (int i = 0; i < 5; ++i) index.push_back(Pick(0, count - 1));
    GatherRowsArgs gather{5, width, embed.x, Put(index), Room(int64_t{5} * width)};
    GatherRows(queue_, gather);
    GatherRowsArgs gathered = gather;
    gathered.out = Room(int64_t{5} * width);
    backend_->ops().GatherRows(*stream_, gathered);
    ExpectEqual(gather.out, gathered.out, int64_t{5} * width);
  });
}

TEST_F(KernelsOfStreams, EngramIdsAndRows) {
  Trials([&] {
    const Batch batch = MakeTokens();
    const int count = batch.rows.count;
    std::vector<int32_t> map(100);
    for (int32_t& id : map) id = Pick(0, 80);
    EngramIdsArgs ids{&batch.rows, Put(map), Room(count, DType::kI32)};
    EngramIds(queue_, ids);
    EngramIdsArgs named = ids;
    named.id = Room(count, DType::kI32);
    backend_->ops().EngramIds(*stream_, named);
    ExpectEqual(ids.id, named.id, count);

    EngramRowsArgs rows{&batch.rows, 4, 8, 2, ids.id, MakeRing(3, 5, 4, RowFormat::kF32)};
    std::vector<int32_t> history(static_cast<size_t>(rows.history.state_bytes * 3 / 4));
    for (int32_t& id : history) id = Pick(-1, 80);
    memory_->CopyIn(reinterpret_cast<void*>(rows.history.base), history.data(), history.size() * 4);
    rows.multiplier =
        Put(std::vector<int64_t>{76632096046245, 4839876093313, 35959672319349, 73987337458391},
            DType::kI64);
    std::vector<int32_t> prime;
    std::vector<int32_t> offset;
    for (int c = 0; c < 24; ++c) {
      prime.push_back(37);
      offset.push_back(c * 37);
    }
    rows.prime = Put(prime);
    rows.offset = Put(offset);
    rows.row = Room(count * 24, DType::kI32);
    EngramRows(queue_, rows);
    EngramRowsArgs rowed = rows;
    rowed.row = Room(count * 24, DType::kI32);
    backend_->ops().EngramRows(*stream_, rowed);
    ExpectEqual(rows.row, rowed.row, count * 24);

    std::vector<uint8_t> codes(24 * 37 * 64);
    for (uint8_t& code : codes) code = static_cast<uint8_t>(Pick(0, 126) | Pick(0, 1) << 7);
    std::vector<uint8_t> scales(24 * 37 * 2);
    for (uint8_t& scale : scales) scale = static_cast<uint8_t>(Pick(120, 130));
    const Table table{Put(codes, DType::kU8).address,
                      Put(scales, DType::kU8).address,
                      24 * 37,
                      64,
                      DType::kF8E4m3,
                      DType::kF8E8m0,
                      32};
    EngramGatherArgs lookup{count, 24, rows.row, table, Room(int64_t{count} * 24 * 64)};
    EngramGather(queue_, lookup);
    EngramGatherArgs looked = lookup;
    looked.out = Room(int64_t{count} * 24 * 64);
    backend_->ops().EngramGather(*stream_, looked);
    ExpectEqual(lookup.out, looked.out, int64_t{count} * 24 * 64);
  });
}

TEST_F(KernelsOfStreams, CompressPair) {
  Trials([&] {
    const Batch batch = MakeTokens();
    const int count = batch.rows.count;
    const int width = 4 * Pick(1, 200);
    CompressPairArgs args;
    args.rows = &batch.rows;
    args.width = width;
    args.eps = 1e-6f;
    args.kv = Put(Uniform(int64_t{count} * width));
    args.gate = Put(Uniform(int64_t{count} * width));
    args.norm_weight = Put(Uniform(width));
    args.kv_carry = MakeRing(3, 1, int64_t{4} * width, RowFormat::kF32);
    args.gate_carry = MakeRing(3, 1, int64_t{4} * width, RowFormat::kF32);
    for (const RingKv* ring : {&args.kv_carry, &args.gate_carry}) {
      const std::vector<float> carried = Uniform(ring->state_bytes * 3 / 4);
      memory_->CopyIn(reinterpret_cast<void*>(ring->base), carried.data(), carried.size() * 4);
    }
    args.latent = Room(int64_t{count} * width);
    CompressPair(queue_, args);
    CompressPairArgs want = args;
    want.latent = Room(int64_t{count} * width);
    backend_->ops().CompressPair(*stream_, want);
    const auto* latent = reinterpret_cast<const float*>(want.latent.address);
    if (std::any_of(latent, latent + int64_t{count} * width, [](float v) { return v != 0; })) {
      ExpectNear(args.latent, want.latent, int64_t{count} * width);
    } else {
      ExpectEqual(args.latent, want.latent, int64_t{count} * width);
    }
  });
}

}  // namespace
}  // namespace weir::kernels::cuda
