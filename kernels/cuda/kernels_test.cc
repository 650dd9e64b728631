// SPDX-License-Identifier: Apache-2.0
//
// Every kernel against its reference, on the emulator in checked mode: random shapes, ragged
// batches, any schedule. No finding, every output written, integers equal, and numbers within
//   1 - 2 <x, y> / (<x, x> + <y, y>) <= 1e-5   and   max |x - y| <= 1e-2 rms.
// --trials=N runs more shapes, --long larger ones.
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/stdx/planted.h"
#include "kernels/cuda/store_fixture_for_test.h"

namespace weir::kernels::cuda {

int g_trials = 2;
bool g_long = false;

namespace {

using Kernels = StoreFixture;

float BitsToFloat(uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

TEST_F(Kernels, RmsNormAddSwiglu) {
  Trials([&] {
    RmsNormArgs norm;
    norm.rows = Pick(1, 5);
    norm.width = 4 * Pick(1, g_long ? 2048 : 600);
    norm.x_stride = norm.width + 4 * Pick(0, 3);
    norm.eps = 1e-6f;
    norm.x = Put(Uniform(int64_t{norm.rows} * norm.x_stride));
    norm.weight = Put(Uniform(norm.width));
    const int64_t count = int64_t{norm.rows} * norm.width;
    norm.out = Room(count);
    RmsNorm(queue_, norm);
    RmsNormArgs want = norm;
    want.out = Room(count);
    backend_->ops().RmsNorm(*stream_, want);
    ExpectNear(norm.out, want.out, count);

    const std::vector<float> a = Uniform(count);
    const Tensor b = Put(Uniform(count));
    const Tensor sum = Put(a);
    const Tensor sum_want = Put(a);
    Add(queue_, {count, sum, b});
    backend_->ops().Add(*stream_, {count, sum_want, b});
    ExpectNear(sum, sum_want, count);

    const Tensor gate = Put(a);
    const Tensor gate_want = Put(a);
    const float limit = Among({0.0f, 0.5f});
    Swiglu(queue_, {count, gate, b, limit});
    backend_->ops().Swiglu(*stream_, {count, gate_want, b, limit});
    ExpectNear(gate, gate_want, count);
    EXPECT_LE(report_.counters.UncoalescedShare(), 0.05);
  });
}

TEST_F(Kernels, RopeAndKvWrite) {
  Trials([&] {
    const RowFormat format = Among({RowFormat::kBf16, RowFormat::kF32});
    const int latent = 2 * Pick(8, 256);
    const int rope = Among({16, 64});
    const auto row_bytes =
        static_cast<int64_t>(RowBytes(format, static_cast<size_t>(latent + rope)));
    Batch batch = MakeBatch(3, 4096, 3, 64, (row_bytes + 15) / 16 * 16, format);
    const Tensor frequency = Put(RopeFrequencies(rope, 10000, std::nullopt));

    RopeQueryArgs turn;
    turn.rows = &batch.rows;
    turn.heads = Pick(1, 9);
    turn.nope = 2 * Pick(0, 64);
    turn.rope = rope;
    turn.frequency = frequency;
    turn.inverse = Pick(0, 1) == 1;
    const int64_t count = int64_t{batch.rows.count} * turn.heads * (turn.nope + rope);
    const std::vector<float> q = Uniform(count);
    turn.q = Put(q);
    RopeQuery(queue_, turn);
    RopeQueryArgs turn_want = turn;
    turn_want.q = Put(q);
    backend_->ops().RopeQuery(*stream_, turn_want);
    ExpectNear(turn.q, turn_want.q, count);

    MlaKvWriteArgs write;
    write.rows = &batch.rows;
    write.latent = latent;
    write.rope = rope;
    write.eps = 1e-6f;
    write.norm_weight = Put(Uniform(latent));
    write.frequency = frequency;
    write.kv_a = Put(Uniform(int64_t{batch.rows.count} * (latent + rope)));
    write.kv = batch.kv;
    std::vector<int32_t> floor(static_cast<size_t>(batch.rows.count), 0);
    floor[0] = batch.position[0] + 1;  // a row that must leave its place alone
    batch.rows.write_floor = Put(floor);
    MlaKvWrite(queue_, write);
    const auto bytes = static_cast<size_t>(batch.kv.page_bytes * 3 * batch.kv.table_stride);
    const auto* mine = reinterpret_cast<const unsigned char*>(batch.kv.base);
    const std::vector<unsigned char> got(mine, mine + bytes);
    EXPECT_EQ(bytes - memory_->Unwritten(mine, bytes),
              static_cast<size_t>((batch.rows.count - 1) * row_bytes));
    backend_->ops().MlaKvWrite(*stream_, write);
    size_t far = 0;  // more than a step or 64 of their format apart, unless rotation cancelled them out
    for (size_t i = 0; i + 4 <= bytes; i += format == RowFormat::kBf16 ? 2 : 4) {
      uint32_t a = 0;
      uint32_t b = 0;
      std::memcpy(&a, &got[i], format == RowFormat::kBf16 ? 2 : 4);
      std::memcpy(&b, mine + i, format == RowFormat::kBf16 ? 2 : 4);
      const int64_t steps = std::abs(int64_t{a} - b);
      const int shift = format == RowFormat::kBf16 ? 16 : 0;
      const float error = std::fabs(BitsToFloat(a << shift) - BitsToFloat(b << shift));
      if (steps > (format == RowFormat::kBf16 ? 1 : 64) && !(error <= 0x1p-18f)) ++far;
    }
    EXPECT_EQ(far, 0u);
  });
}

TEST_F(Kernels, StoredRows) {
  Trials([&] {
    const RowFormat format =
        Among({RowFormat::kFp8Block32, RowFormat::kFp4Block16, RowFormat::kFp4Block32});
    const int width = Among({128, 256, 512});
    const auto row_bytes = static_cast<int64_t>(RowBytes(format, static_cast<size_t>(width)));
    Batch batch = MakeBatch(3, 4096, 5, 64, row_bytes, format);
    batch.kv.ratio = Among({1, 2});
    const int count = batch.rows.count;
    const Tensor frequency = Put(RopeFrequencies(32, 10000, std::nullopt));
    const Tensor weight = Put(Uniform(width));
    const Tensor x = Put(Uniform(int64_t{count} * width));

    WindowRowsArgs window{&batch.rows, width,  32,
                          1e-6f,       format, weight,
                          frequency,   x,      Room(count * row_bytes, DType::kU8)};
    WindowRows(queue_, window);
    WindowRowsArgs window_want = window;
    window_want.fresh = Room(count * row_bytes, DType::kU8);
    backend_->ops().WindowRows(*stream_, window_want);
    ExpectEqual(window.fresh, window_want.fresh, count * row_bytes / 4);

    RingWriteArgs keep{&batch.rows, window.fresh, MakeRing(3, Pick(1, 4), row_bytes, format)};
    RingWrite(queue_, keep);
    const auto ring_bytes = static_cast<size_t>(keep.ring.state_bytes * 3);
    const std::vector<unsigned char> kept = Bytes(keep.ring.base, ring_bytes);
    backend_->ops().RingWrite(*stream_, keep);
    EXPECT_EQ(kept, Bytes(keep.ring.base, ring_bytes));

    std::vector<int32_t> floor(static_cast<size_t>(count), 0);
    floor.back() = batch.position.back() + 1;  // a row that must leave its place alone
    batch.rows.write_floor = Put(floor);
    EntryWriteArgs entry{&batch.rows, width, 32,      1e-6f, Among({weight, Tensor()}),
                         frequency,   x,     batch.kv};
    EntryWrite(queue_, entry);
    const auto store_bytes = static_cast<size_t>(batch.kv.page_bytes * 3 * batch.kv.table_stride);
    const std::vector<unsigned char> stored = Bytes(batch.kv.base, store_bytes);
    backend_->ops().EntryWrite(*stream_, entry);
    EXPECT_EQ(stored, Bytes(batch.kv.base, store_bytes));
    int64_t entries = 0;
    for (int r = 0; r + 1 < count; ++r) {
      entries += (batch.position[static_cast<size_t>(r)] + 1) % batch.kv.ratio == 0 ? 1 : 0;
    }
    EXPECT_EQ(store_bytes - memory_->Unwritten(reinterpret_cast<void*>(batch.kv.base), store_bytes),
              static_cast<size_t>(entries * row_bytes));

    const std::vector<float> values = Uniform(int64_t{count} * width);
    const RoundTripArgs trip{count, width, format, Put(values)};
    RoundTrip(queue_, trip);
    const RoundTripArgs want{count, width, format, Put(values)};
    backend_->ops().RoundTrip(*stream_, want);
    ExpectEqual(trip.x, want.x, int64_t{count} * width);
  });
}

TEST_F(Kernels, MlaAttention) {
  int trial = 0;
  Trials([&] {
    MlaAttentionArgs args;
    const int page_tokens = Among({16, 64, 128});
    const bool fp8 = ++trial % 2 == 0;
    Batch batch = MakeBatch(2, g_long ? 4096 : 700, 2, page_tokens, 1152, RowFormat::kBf16);
    const PagedKv narrow = fp8 ? FillFp8(batch, 576) : PagedKv();
    if (!fp8) FillBf16(batch, 576);
    args.rows = &batch.rows;
    args.heads = g_long ? Among({16, 64, 128}) : Among({16, 20});
    args.latent = 512;
    args.nope = 128;
    args.rope = 64;
    args.scale = 0.1f;
    const int64_t heads = int64_t{batch.rows.count} * args.heads;
    args.q_latent = Put(Bf16(Uniform(heads * 512)));
    args.q = Put(Bf16(Uniform(heads * 192)));
    args.kv = batch.kv;
    args.scores = Room(2 * 8192);
    args.out = Room(heads * 512);
    if (fp8) args.kv = narrow;
    MlaAttention(queue_, args, Room(MlaWorkspace(args)));
    MlaAttentionArgs want = args;
    want.kv = batch.kv;
    want.out = Room(heads * 512);
    backend_->ops().MlaAttention(*stream_, want);
    ExpectNear(args.out, want.out, heads * 512);
    // FP8 rows are above it, up to 5.6 %: each of the two rows that a warp expands has its scales in
    // a sector of its own.
    if (!fp8) {
      EXPECT_LE(report_.counters.UncoalescedShare(), 0.05);
    }
    EXPECT_LE(report_.counters.BankConflictFactor(), 1.1);
  });
}

TEST_F(Kernels, SparseAttention) {
  Trials([&] {
    Batch batch = MakeBatch(2, 600, 3, 128, 288, RowFormat::kFp4Block16);
    batch.kv.ratio = 2;
    SparseAttentionArgs args;
    args.rows = &batch.rows;
    args.heads = g_long ? Among({16, 64, 72}) : 20;
    args.width = 512;
    args.window = Pick(1, 100);
    args.select = 4 * Pick(0, 40);
    args.scale = 0.05f;
    const int64_t heads = int64_t{batch.rows.count} * args.heads;
    args.q = Put(Bf16(Uniform(heads * 512)));
    args.sink = Put(Uniform(args.heads));
    args.ring = MakeRing(2, args.window + Pick(0, 5), 528, RowFormat::kFp8Block32);
    args.fresh = Room(batch.rows.count * 528, DType::kU8);
    args.entries = batch.kv;
    FillWindow(&batch, args);
    args.selected = FillEntries(batch, args.select);
    args.scratch = Room(int64_t{args.window + args.select} * 512);
    args.out = Room(heads * 512);
    SparseAttention(queue_, args);
    SparseAttentionArgs want = args;
    want.out = Room(heads * 512);
    backend_->ops().SparseAttention(*stream_, want);
    ExpectNear(args.out, want.out, heads * 512);
    EXPECT_LE(report_.counters.BankConflictFactor(), 1.1);
  });
}

TEST_F(Kernels, IndexSelect) {
  Trials([&] {
    const RowFormat format = Among({RowFormat::kFp4Block32, RowFormat::kFp8Block128});
    Batch batch = MakeBatch(2, g_long ? 4096 : 1500, 2, 128, 144, format);
    batch.kv.ratio = Among({1, 2});
    IndexSelectArgs args;
    args.rows = &batch.rows;
    args.heads = Among({4, 32});
    args.width = 128;
    args.select = Pick(1, 300);
    args.scale = 0.1f;
    args.q = Put(Uniform(int64_t{batch.rows.count} * args.heads * 128));
    backend_->ops().RoundTrip(*stream_,
                              {int64_t{batch.rows.count} * args.heads, 128, format, args.q});
    args.weight = Put(Uniform(int64_t{batch.rows.count} * args.heads));
    args.keys = batch.kv;
    args.entries_max = batch.kv.table_stride * 128;
    args.scratch = Room(3 * args.entries_max);
    FillKeys(batch);
    args.block_entries = 8;
    args.blocks_kept = Pick(1, 60);
    // A source of candidates first, then a layer that looks at them alone.
    const int64_t lists = int64_t{batch.rows.count} * args.blocks_kept;
    const int64_t listed = int64_t{batch.rows.count} * args.select;
    for (int pass = 0; pass < 2; ++pass) {
      args.candidates_out = pass == 0 ? Room(lists, DType::kI32) : Tensor();
      args.selected = Room(listed, DType::kI32);
      IndexSelect(queue_, args, Room(IndexWorkspace(args)));
      IndexSelectArgs want = args;
      want.selected = Room(listed, DType::kI32);
      if (pass == 0) want.candidates_out = Room(lists, DType::kI32);
      backend_->ops().IndexSelect(*stream_, want);
      ExpectEqual(args.selected, want.selected, listed);
      if (pass == 0) ExpectEqual(args.candidates_out, want.candidates_out, lists);
      args.candidates = args.candidates_out;
    }
    EXPECT_LE(report_.counters.BankConflictFactor(), 1.1);
  });
}

TEST_F(Kernels, MoeSelectPermuteCombine) {
  Trials([&] {
    MoeRouteArgs route;
    route.rows = Pick(1, 9);
    route.groups = Among({1, 4, 8});
    route.experts = route.groups * Pick(4, 32);
    route.groups_kept = Pick(1, route.groups);
    route.choices = std::min(8, route.experts / route.groups * route.groups_kept);
    route.normalise = Pick(0, 1) == 1;
    route.scale = 2.5f;
    route.score = Among({RouteScore::kSigmoid, RouteScore::kSqrtSoftplus});
    std::vector<float> logit = Uniform(int64_t{route.rows} * route.experts);
    const bool ties = Pick(0, 1) == 1;
    for (float& x : logit) x = ties ? std::floor(x * 3) : x * 4;
    route.x = Put(logit);
    std::vector<float> identity(static_cast<size_t>(route.experts) *
                                static_cast<size_t>(route.experts));
    for (int e = 0; e < route.experts; ++e) {
      identity[static_cast<size_t>(e) * static_cast<size_t>(route.experts + 1)] = 1;
    }
    route.gate = *backend_->LoadMatrix({reinterpret_cast<const std::byte*>(identity.data()),
                                        DType::kF32, route.experts, route.experts});
    route.bias =
        Put(ties ? std::vector<float>(static_cast<size_t>(route.experts)) : Uniform(route.experts));
    const int64_t entries = int64_t{route.rows} * route.choices;
    route.expert = Room(entries, DType::kI32);
    route.weight = Room(entries);
    MoeSelect(queue_, route, route.x);
    MoeRouteArgs want = route;
    want.expert = Room(entries, DType::kI32);
    want.weight = Room(entries);
    backend_->ops().MoeRoute(*stream_, want);
    backend_->Free(route.gate.address);
    ExpectEqual(route.expert, want.expert, entries);
    ExpectNear(route.weight, want.weight, entries);

    MoePermuteArgs permute{route.rows, route.choices, route.experts, route.expert};
    std::vector<int32_t> slots(static_cast<size_t>(route.experts));
    std::iota(slots.rbegin(), slots.rend(), 0);
    permute.slot_of = Put(slots);
    permute.entry = Room(entries, DType::kI32);
    permute.slot_begin = Room(route.experts + 1, DType::kI32);
    MoePermute(queue_, permute);
    MoePermuteArgs permuted = permute;
    permuted.entry = Room(entries, DType::kI32);
    permuted.slot_begin = Room(route.experts + 1, DType::kI32);
    backend_->ops().MoePermute(*stream_, permuted);
    ExpectEqual(permute.entry, permuted.entry, entries);
    ExpectEqual(permute.slot_begin, permuted.slot_begin, route.experts + 1);

    MoeCombineArgs combine{route.rows, route.choices, 4 * Pick(1, 300), route.expert, route.weight};
    if (Pick(0, 1) == 1) combine.weight = Tensor();
    combine.out = Put(Uniform(entries * combine.width));
    const std::vector<float> sum = Uniform(int64_t{route.rows} * combine.width);
    combine.sum = Put(sum);
    MoeCombine(queue_, combine);
    MoeCombineArgs combined = combine;
    combined.sum = Put(sum);
    backend_->ops().MoeCombine(*stream_, combined);
    ExpectNear(combine.sum, combined.sum, int64_t{route.rows} * combine.width);
  });
}

}  // namespace
}  // namespace weir::kernels::cuda

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--long") weir::kernels::cuda::g_long = true;
    if (arg.rfind("--trials=", 0) == 0) weir::kernels::cuda::g_trials = std::atoi(arg.c_str() + 9);
    if (arg.rfind("--planted=", 0) == 0) weir::g_planted = std::atoi(arg.c_str() + 10);
  }
  return RUN_ALL_TESTS();
}
