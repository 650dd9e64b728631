// SPDX-License-Identifier: Apache-2.0
//
// The CPU backend against the reference, at every level of instructions this machine has: the same
// random inputs through both. And the pool on its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/cpu/cpu_fixture_for_test.h"

namespace weir::kernels {
namespace {

TEST_P(CpuTest, LinearInEveryStorage) {
  const Form forms[] = {Form::kF32,   Form::kBf16,   Form::kFp8Block128,
                        Form::kFp8Mx, Form::kFp8Odd, Form::kFp4};
  // Widths that end inside a tile, a chain, and both.
  const int64_t shapes[][2] = {{64, 128}, {37, 32}, {200, 288}, {130, 320}};
  constexpr int kMost = 131;
  Side one = Cpu(1);
  Side two = Cpu(2);
  for (const Form form : forms) {
    for (const auto& [outputs, inputs] : shapes) {
      const Stored w = MakeWeight(form, outputs, inputs, 7);
      const std::vector<float> all = Random(static_cast<size_t>(kMost * inputs), 3);
      const auto run = [&, outputs = outputs, inputs = inputs](Side& side, const Matrix& weight,
                                                               int rows) {
        LinearArgs args;
        args.rows = rows;
        args.x = side.Put(std::vector<float>(all.begin(), all.begin() + rows * inputs));
        args.weight = weight;
        args.out = side.Room(rows * outputs);
        side.ops().Linear(side.stream(), args);
        return side.Get(args.out);
      };
      // The reference takes rows one by one: what it makes of few is what it makes of all.
      const std::vector<float>& truth =
          Truth<float>([&](Side& side) { return run(side, side.Load(w.host), kMost); });
      const Matrix at_one = one.Load(w.host);
      const Matrix at_two = two.Load(w.host);
      for (const int rows : {1, 2, 3, 5, 6, 7, 16, kMost}) {
        SCOPED_TRACE(testing::Message() << "form " << static_cast<int>(form) << ", " << outputs
                                        << " x " << inputs << ", rows " << rows);
        const std::vector<float> have = run(one, at_one, rows);
        EXPECT_EQ(run(two, at_two, rows), have) << "threads change bits";
        ExpectNear(have, {truth.begin(), truth.begin() + rows * outputs}, 3e-6);
      }
    }
  }
}

// The same row alone, among few and among many: three paths through the kernels, one answer.
TEST_P(CpuTest, ARowsBitsDoNotDependOnItsBatch) {
  for (const Form form : {Form::kF32, Form::kBf16, Form::kFp8Block128, Form::kFp8Mx, Form::kFp4}) {
    const Stored w = MakeWeight(form, 150, 352, 5);
    const std::vector<float> all = Random(140 * 352, 9);
    Side side = Cpu();
    const Matrix weight = side.Load(w.host);
    const auto run = [&](size_t first, int rows) {
      const std::vector<float> some(all.begin() + static_cast<ptrdiff_t>(first * 352),
                                    all.begin() + static_cast<ptrdiff_t>((first + rows) * 352));
      LinearArgs args;
      args.rows = rows;
      args.x = side.Put(some);
      args.weight = weight;
      args.out = side.Room(rows * 150);
      side.ops().Linear(side.stream(), args);
      return side.Get(args.out);
    };
    const std::vector<float> whole = run(0, 140);
    for (const size_t first : {0u, 17u, 77u, 130u}) {
      for (const int rows : {1, 2, 4, 5, 8, 10}) {
        const std::vector<float> some = run(first, rows);
        EXPECT_TRUE(std::equal(some.begin(), some.end(),
                               whole.begin() + static_cast<ptrdiff_t>(first * 150)))
            << "form " << static_cast<int>(form) << ", rows " << first << " + " << rows;
      }
    }
  }
}

TEST_P(CpuTest, GroupedLinear) {
  for (const int64_t rank : {8, 64, 96}) {
    const Stored w = MakeWeight(Form::kBf16, 4 * rank, 96, 2);
    Compare(3e-6, [&](Side& side) {
      GroupedLinearArgs args;
      args.rows = 5;
      args.groups = 4;
      args.x = side.Put(Random(5 * 4 * 96, 4));
      args.weight = side.Load(w.host);
      args.out = side.Room(5 * 4 * rank);
      side.ops().GroupedLinear(side.stream(), args);
      return side.Get(args.out);
    });
  }
}

TEST_P(CpuTest, TheHalvesOfKvB) {
  const int heads = 3, nope = 32, rope = 16, value = 48, latent = 160;
  for (const Form form : {Form::kBf16, Form::kFp8Block128, Form::kFp8Mx}) {
    Stored w = MakeWeight(form, heads * (nope + value), latent, 6);
    w.host.head_transposed = nope;
    w.host.head_plain = value;
    for (const int rows : {1, 9}) {
      for (const bool query : {true, false}) {
        Compare(3e-6, [&](Side& side) {
          MlaAbsorbArgs args{rows, heads, nope, rope, value, latent, side.Load(w.host), {}, {}};
          args.in = side.Put(
              Random(static_cast<size_t>(rows * heads * (query ? nope + rope : latent)), 8));
          args.out = side.Room(rows * heads * (query ? latent : value));
          query ? side.ops().MlaAbsorbQuery(side.stream(), args)
                : side.ops().MlaExpandValue(side.stream(), args);
          return side.Get(args.out);
        });
      }
    }
  }
}

TEST_P(CpuTest, RowwiseOperations) {
  for (const int width : {1, 15, 128, 1000}) {
    const auto count = static_cast<size_t>(3 * width);
    Compare(1e-6, [&](Side& side) {
      const Tensor out = side.Room(3 * width);
      RmsNormArgs args;
      args.rows = 3;
      args.width = width;
      args.eps = 1e-6f;
      args.x = side.Put(Random(count, 1));
      args.x_stride = width;
      args.weight = side.Put(Random(static_cast<size_t>(width), 2));
      args.out = out;
      side.ops().RmsNorm(side.stream(), args);
      return side.Get(out);
    });
    for (const float limit : {0.0f, 0.5f}) {
      Compare(1e-6, [&](Side& side) {
        std::vector<float> gate = Random(count, 3);
        for (float& g : gate) g *= 30;
        SwigluArgs args;
        args.elements = 3 * width;
        args.gate = side.Put(gate);
        args.up = side.Put(Random(count, 4));
        args.limit = limit;
        side.ops().Swiglu(side.stream(), args);
        side.ops().Add(side.stream(), {args.elements, args.gate, args.up});
        return side.Get(args.gate);
      });
    }
  }
}

// Attention over pages in a scrambled order: long enough for several tiles, at positions that end
// within one; rope and the KV write before it.
TEST_P(CpuTest, AttentionOverPages) {
  const int heads = 5, latent = 112, rope = 16, nope = 8, tokens = 97, page_tokens = 16;
  for (const RowFormat format : {RowFormat::kF32, RowFormat::kBf16}) {
    Compare(3e-6, [&](Side& side) {
      const int count = tokens;
      const std::vector<int32_t> pages = {4, 1, 6, 0, 5, 2, 3};
      StepRows rows;
      rows.count = count;
      std::vector<int32_t> position(count), zero(count);
      for (int i = 0; i < count; ++i) position[static_cast<size_t>(i)] = i;
      rows.position = side.Put(position);
      rows.sequence = side.Put(zero);
      rows.write_floor = side.Put(zero);
      PagedKv kv;
      kv.row_bytes = static_cast<int64_t>(RowBytes(format, latent + rope));
      kv.page_bytes = kv.row_bytes * page_tokens;
      kv.page_tokens = page_tokens;
      kv.format = format;
      kv.table = side.Put(pages);
      kv.table_stride = static_cast<int32_t>(pages.size());
      kv.base = side.Room(static_cast<int64_t>(pages.size()) * kv.page_bytes / 4).address;
      const Tensor frequency = side.Put(RopeFrequencies(rope, 10000, std::nullopt));
      const Tensor q = side.Put(Random(static_cast<size_t>(count * heads * (nope + rope)), 2));
      side.ops().RopeQuery(side.stream(), {&rows, heads, nope, rope, frequency, q});
      side.ops().MlaKvWrite(
          side.stream(), {&rows, latent, rope, 1e-6f, side.Put(Random(latent, 3)), frequency,
                          side.Put(Random(static_cast<size_t>(count * (latent + rope)), 4)), kv});
      const Tensor out = side.Room(count * heads * latent);
      side.ops().MlaAttention(
          side.stream(), {&rows, heads, latent, nope, rope, 0.3f,
                          side.Put(Random(static_cast<size_t>(count * heads * latent), 1)), q, kv,
                          side.Room(2 * tokens), out});
      return side.Get(out);
    });
  }
}

TEST_P(CpuTest, ExpertsRouteAndSum) {
  const int rows = 23, experts = 12, choices = 3, width = 96, inner = 80;
  for (const bool v4 : {false, true}) {
    const Form form = v4 ? Form::kFp4 : Form::kFp8Block128;
    const Form inner_form = v4 ? Form::kFp8Mx : Form::kBf16;  // 80 inputs fit no FP4 block
    Compare(1e-5, [&](Side& side) {
      MoeRouteArgs route;
      route.rows = rows;
      route.experts = experts;
      route.choices = choices;
      route.scale = 2.5f;
      route.groups = v4 ? 1 : 4;
      route.groups_kept = v4 ? 1 : 2;
      route.score = v4 ? RouteScore::kSqrtSoftplus : RouteScore::kSigmoid;
      route.x = side.Put(Random(rows * width, 1));
      route.gate = side.Load(MakeWeight(Form::kF32, experts, width, 2).host);
      route.bias = side.Put(Random(experts, 3));
      route.expert = side.Put(std::vector<int32_t>(rows * choices));
      route.weight = side.Room(rows * choices);
      side.ops().MoeRoute(side.stream(), route);
      std::vector<int32_t> slot_of(experts);
      for (int e = 0; e < experts; ++e) slot_of[static_cast<size_t>(e)] = (e * 5 + 3) % experts;
      const Tensor entry = side.Put(std::vector<int32_t>(rows * choices));
      const Tensor begin = side.Put(std::vector<int32_t>(experts + 1));
      side.ops().MoePermute(
          side.stream(), {rows, choices, experts, route.expert, side.Put(slot_of), entry, begin});
      std::vector<ExpertWeights> slots;
      for (uint64_t e = 0; e < experts; ++e) {
        slots.push_back({side.Load(MakeWeight(form, inner, width, 10 + e).host),
                         side.Load(MakeWeight(form, inner, width, 30 + e).host),
                         side.Load(MakeWeight(inner_form, width, inner, 50 + e).host)});
      }
      ExpertFfnArgs ffn;
      ffn.entries_max = rows * choices;
      ffn.choices = choices;
      ffn.slots = slots;
      ffn.x = route.x;
      ffn.entry = entry;
      ffn.slot_begin = begin;
      ffn.hidden = side.Room(2 * rows * choices * inner);
      ffn.out = side.Room(rows * choices * width);
      if (v4) {
        ffn.limit = 2;
        ffn.weight = route.weight;
      }
      side.ops().ExpertFfn(side.stream(), ffn);
      const Tensor sum = side.Room(rows * width);
      MoeCombineArgs combine;
      combine.rows = rows;
      combine.choices = choices;
      combine.width = width;
      combine.expert = route.expert;
      if (!v4) combine.weight = route.weight;
      combine.out = ffn.out;
      combine.sum = sum;
      side.ops().MoeCombine(side.stream(), combine);
      std::vector<float> all = side.Get(sum);
      for (const int32_t e : side.Get<int32_t>(route.expert)) {
        all.push_back(static_cast<float>(e));
      }
      return all;
    });
  }
}

TEST_P(CpuTest, StreamMix) {
  const int n = 4, width = 96, rows = 11;
  Compare(1e-6, [&](Side& side) {
    StreamMixArgs args;
    args.rows = rows;
    args.streams = n;
    args.iterations = 20;
    args.eps = 1e-6f;
    args.norm_eps = 1e-6f;
    args.x = side.Put(Random(rows * n * width, 1));
    args.fn = side.Load(MakeWeight(Form::kF32, 2 * n + n * n, n * width, 2).host);
    args.scale = side.Put(std::vector<float>{0.1f, 0.2f, 0.3f});
    args.base = side.Put(Random(2 * n + n * n, 3));
    args.pre = side.Room(rows * n);
    args.post = side.Room(rows * n);
    args.comb = side.Room(rows * n * n);
    side.ops().StreamMix(side.stream(), args);
    std::vector<float> all = side.Get(args.comb);
    for (const float x : side.Get(args.pre)) all.push_back(x);
    for (const float x : side.Get(args.post)) all.push_back(x);
    return all;
  });
}

TEST_P(CpuTest, NanInAWeightIsRefused) {
  Stored w = MakeWeight(Form::kFp8Block128, 64, 128, 1);
  w.values[77] = std::byte{0x7f};
  Side side = Cpu();
  EXPECT_FALSE(side.backend().LoadMatrix(w.host).ok());
  Stored scaled = MakeWeight(Form::kFp4, 64, 128, 1);
  scaled.scales[5] = std::byte{255};
  EXPECT_FALSE(side.backend().LoadMatrix(scaled.host).ok());
}

INSTANTIATE_TEST_SUITE_P(Isa, CpuTest, ::testing::ValuesIn(kIsaNames), IsaTestName);

TEST(Isa, ANameThatIsNoneIsRefused) {
  EXPECT_FALSE(cpu::CheckedIsa("sse9").ok());
  EXPECT_TRUE(cpu::CheckedIsa("scalar").ok());
}

}  // namespace
}  // namespace weir::kernels
