// SPDX-License-Identifier: Apache-2.0
//
// The checker against the kernels that are served: every synchronisation of every kernel is left
// out or misplaced once, at every place where it stands, and must be found; as they are, the
// kernels are clean under any schedule. A place that nobody would miss does not belong in a kernel.
// All of them with --long.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <functional>
#include <iostream>
#include <string>

#include "kernels/cuda/pack.h"
#include "kernels/cuda/store_fixture_for_test.h"

namespace weir::kernels::cuda {
namespace {

using simt::Sabotage;

// A kernel with its problem, and where its answer lies.
struct Case {
  std::string name;
  std::function<void(const Queue&)> run;
  Tensor out;
  int64_t words = 0;
};

class Sabotaged : public StoreFixture {
 protected:
  Sabotaged() {
    queue_.options.count = false;
    AddNorm();
    AddRope();
    AddMla();
    AddSparse();
    AddIndex();
    AddMoe();
    AddLinear();
    AddStored();
    AddStreams();
  }

  void AddNorm() {
    RmsNormArgs args{1, 1024, 1e-6f, Put(Uniform(1024)), 1024, Put(Uniform(1024)), Room(1024)};
    cases_.push_back({"RmsNorm", [=](const Queue& q) { RmsNorm(q, args); }, args.out, 1024});
  }

  void AddRope() {
    rope_ = MakeBatch(1, 100, 1, 64, 1152, RowFormat::kBf16);
    const Tensor frequency = Put(RopeFrequencies(64, 10000, std::nullopt));
    const std::vector<float> q = Uniform(4 * 192);
    RopeQueryArgs turn{&rope_.rows, 4, 128, 64, frequency, Room(4 * 192), false};
    cases_.push_back({"RopeQuery",
                      [=, this](const Queue& queue) {
                        memory_->CopyIn(reinterpret_cast<void*>(turn.q.address), q.data(),
                                        4 * 192 * 4);
                        RopeQuery(queue, turn);
                      },
                      turn.q, 4 * 192});
    MlaKvWriteArgs write{&rope_.rows,       512,     64, 1e-6f, Put(Uniform(512)), frequency,
                         Put(Uniform(576)), rope_.kv};
    const DeviceAddress row = ref::KvRow(rope_.kv, 0, rope_.position[0]);
    cases_.push_back({"MlaKvWrite",
                      [=](const Queue& queue) { MlaKvWrite(queue, write); },
                      {row, DType::kF32, {288, 1, 1}},
                      288});
  }

  // One split of four tiles, the last one short: the ring of two stages wraps.
  void AddMla() {
    do {
      mla_ = MakeBatch(1, 250, 1, 64, 1152, RowFormat::kBf16);
    } while (mla_.position[0] < 200);
    FillBf16(mla_, 576);
    MlaAttentionArgs args;
    args.rows = &mla_.rows;
    args.heads = 16;
    args.latent = 512;
    args.nope = 128;
    args.rope = 64;
    args.scale = 0.1f;
    args.q_latent = Put(Uniform(16 * 512));
    args.q = Put(Uniform(16 * 192));
    args.kv = mla_.kv;
    args.out = Room(16 * 512);
    cases_.push_back({"MlaAttention", [=](const Queue& q) { MlaAttention(q, args, Tensor()); },
                      args.out, 16 * 512});
    args.kv = FillFp8(mla_, 576);
    args.out = Room(16 * 512);
    cases_.push_back({"MlaAttention FP8", [=](const Queue& q) { MlaAttention(q, args, Tensor()); },
                      args.out, 16 * 512});
  }

  void AddSparse() {
    do {
      sparse_ = MakeBatch(1, 600, 1, 128, 288, RowFormat::kFp4Block16);
    } while (sparse_.position[0] < 400);
    sparse_.kv.ratio = 2;
    SparseAttentionArgs args;
    args.rows = &sparse_.rows;
    args.heads = 4;
    args.width = 512;
    args.window = 150;
    args.select = 64;
    args.scale = 0.05f;
    args.q = Put(Uniform(4 * 512));
    args.sink = Put(Uniform(4));
    args.ring = MakeRing(1, 152, 528, RowFormat::kFp8Block32);
    args.fresh = Room(528, DType::kU8);
    args.entries = sparse_.kv;
    FillWindow(&sparse_, args);
    sparse_.rows.visible_from = Put(std::vector<int32_t>{0});
    args.selected = FillEntries(sparse_, args.select);
    args.out = Room(4 * 512);
    cases_.push_back(
        {"SparseAttention", [=](const Queue& q) { SparseAttention(q, args); }, args.out, 4 * 512});
  }

  void AddIndex() {
    do {
      index_ = MakeBatch(1, 400, 1, 128, 80, RowFormat::kFp4Block32);
    } while (index_.position[0] < 300);
    FillKeys(index_);
    IndexSelectArgs args;
    args.rows = &index_.rows;
    args.heads = 8;
    args.width = 128;
    args.select = 64;
    args.scale = 0.1f;
    args.q = Put(Bf16(Uniform(8 * 128)));
    args.weight = Put(Uniform(8));
    args.keys = index_.kv;
    args.entries_max = 512;
    args.block_entries = 8;
    args.blocks_kept = 20;
    args.candidates_out = Room(20, DType::kI32);
    args.selected = Room(64, DType::kI32);
    const Tensor workspace = Room(IndexWorkspace(args));
    const auto run = [=](const Queue& q) { IndexSelect(q, args, workspace); };
    cases_.push_back({"IndexSelect", run, args.selected, 64});
  }

  void AddMoe() {
    MoeRouteArgs route;
    route.rows = 1;
    route.experts = 64;
    route.groups = 4;
    route.groups_kept = 2;
    route.choices = 8;
    route.bias = Put(Uniform(64));
    route.expert = Room(8, DType::kI32);
    route.weight = Room(8);
    const Tensor logit = Put(Uniform(64));
    cases_.push_back(
        {"MoeSelect", [=](const Queue& q) { MoeSelect(q, route, logit); }, route.expert, 8});
    std::vector<int32_t> expert(2 * 8);
    for (int32_t& e : expert) e = Pick(0, 7);
    std::vector<int32_t> slots(8);
    std::iota(slots.begin(), slots.end(), 0);
    const MoePermuteArgs permute{
        2, 8, 8, Put(expert), Put(slots), Room(16, DType::kI32), Room(9, DType::kI32)};
    cases_.push_back(
        {"MoePermute", [=](const Queue& q) { MoePermute(q, permute); }, permute.entry, 16});
    const MoeCombineArgs combine{
        2, 8, 64, permute.expert, Tensor(), Put(Uniform(16 * 64)), Room(2 * 64)};
    const std::vector<float> zeros(128);
    cases_.push_back({"MoeCombine",
                      [=, this](const Queue& q) {
                        memory_->CopyIn(reinterpret_cast<void*>(combine.sum.address), zeros.data(),
                                        512);
                        MoeCombine(q, combine);
                      },
                      combine.sum, 128});
  }

  // Two more steps than there are stages.
  void AddLinear() {
    constexpr int64_t kInputs = 8 * kPackInputs;
    std::vector<std::byte> values(128 * kInputs / 2);
    for (std::byte& b : values) b = static_cast<std::byte>(random_.Next());
    const std::vector<std::byte> scales(128 * kInputs / 32, std::byte{126});
    const HostMatrix host{values.data(), DType::kI8, 128, kInputs,
                          scales.data(), 1,          32,  DType::kF8E8m0};
    std::vector<unsigned char> packed(PackedBytes(host));
    Pack(host, packed.data());
    const LinearArgs args{
        3, Put(Uniform(3 * kInputs)),
        Matrix{Put(packed, DType::kU8).address, 128, kInputs, DType::kI8, DType::kF8E8m0, 32},
        Room(3 * 128)};
    const Tensor workspace = Room(LinearWorkspace(3, kInputs));
    cases_.push_back(
        {"Linear", [=](const Queue& q) { Linear(q, args, workspace); }, args.out, 3 * 128});
  }

  void AddStored() {
    const WindowRowsArgs args{&rope_.rows,
                              512,
                              64,
                              1e-6f,
                              RowFormat::kFp8Block32,
                              Put(Uniform(512)),
                              Put(RopeFrequencies(64, 10000, std::nullopt)),
                              Put(Uniform(512)),
                              Room(528, DType::kU8)};
    cases_.push_back({"WindowRows", [=](const Queue& q) { WindowRows(q, args); }, args.fresh, 132});
  }

  void AddStreams() {
    const StreamMixArgs mix{1,
                            4,
                            5,
                            1e-6f,
                            1e-20f,
                            Put(Uniform(1024)),
                            Matrix{Put(Uniform(24 * 1024)).address, 24, 1024, DType::kF32},
                            Put(Uniform(3)),
                            Put(Uniform(24)),
                            Room(4),
                            Room(4),
                            Room(16)};
    cases_.push_back({"StreamMix", [=](const Queue& q) { StreamMix(q, mix); }, mix.comb, 16});
    const std::vector<float> x = Uniform(1024);
    const EngramGateArgs gate{
        &rope_.rows,        4,         256, 1e-20f, Put(Uniform(5 * 256)), Put(Uniform(1024)),
        Put(Uniform(1024)), Room(1024)};
    cases_.push_back({"EngramGate",
                      [=, this](const Queue& q) {
                        memory_->CopyIn(reinterpret_cast<void*>(gate.x.address), x.data(), 4096);
                        EngramGate(q, gate);
                      },
                      gate.x, 1024});
  }

  std::vector<uint32_t> Answer(const Case& c) {
    report_ = simt::Report();
    c.run(queue_);
    std::vector<uint32_t> words(static_cast<size_t>(c.words));
    std::memcpy(words.data(), reinterpret_cast<const void*>(c.out.address), words.size() * 4);
    return words;
  }

  // In a process of its own: a kernel that reads what nobody wrote may store anywhere.
  bool Missed(const Case& c, const std::vector<uint32_t>& right) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);  // it may also never end
      const bool same = Answer(c) == right;
      _exit(report_.clean() && same ? 1 : 0);
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return !WIFEXITED(status) || WEXITSTATUS(status) == 0;
  }

  Batch rope_;
  Batch mla_;
  Batch sparse_;
  Batch index_;
  std::vector<Case> cases_;
};

TEST_F(Sabotaged, EverySynchronisationIsMissed) {
  const int stride = g_long ? 1 : 3;  // the short form tries every third
  int places = 0;
  int tried = 0;
  for (const Case& c : cases_) {
    queue_.options.sabotage = Sabotage::kCountPlaces;
    const std::vector<uint32_t> right = Answer(c);
    EXPECT_TRUE(report_.clean()) << c.name << ":\n" << report_.Text();
    const std::array<int, simt::kSabotages> met = report_.sabotage_places;
    for (size_t kind = 1; kind < met.size(); ++kind) {
      queue_.options.sabotage = static_cast<Sabotage>(kind);
      for (int place = 0; place < met[kind]; ++place) {
        if (places++ % stride != 0) continue;
        ++tried;
        queue_.options.sabotage_place = place;
        EXPECT_TRUE(Missed(c, right))
            << c.name << ": nobody misses sabotage " << kind << " at place " << place;
      }
    }
  }
  std::cout << tried << " mistakes planted\n";
  EXPECT_GE(tried, 20);
}

TEST_F(Sabotaged, CleanUnderAnySchedule) {
  const int schedules = g_long ? 50 : 3;
  for (const Case& c : cases_) {
    const std::vector<uint32_t> right = Answer(c);
    for (int seed = 1; seed <= schedules; ++seed) {
      queue_.options.seed = static_cast<uint64_t>(seed);
      queue_.options.landing = seed % 2 == 0 ? simt::Landing::kEarly : simt::Landing::kLate;
      EXPECT_EQ(Answer(c), right) << c.name << ", schedule " << seed;
      EXPECT_TRUE(report_.clean()) << c.name << ":\n" << report_.Text();
    }
    queue_.options.seed = 0;
    queue_.options.landing = simt::Landing::kLate;
  }
}

}  // namespace
}  // namespace weir::kernels::cuda
