// SPDX-License-Identifier: Apache-2.0
//
// Linear maps and experts against the reference, in every stored form of a weight; see
// kernels_test.cc for what must hold.
#include <cstring>

#include "kernels/cuda/kernel_fixture_for_test.h"
#include "kernels/cuda/pack.h"

namespace weir::kernels::cuda {
namespace {

// A random weight as a checkpoint stores it.
struct Stored {
  std::vector<std::byte> values;
  std::vector<std::byte> scales;
  HostMatrix host;
};

struct Form {
  DType dtype;
  DType scale;
  int64_t block_rows;
  int64_t block_cols;
};

constexpr Form kForms[] = {{DType::kBf16, DType::kF32, 0, 0},
                           {DType::kF8E4m3, DType::kF32, 128, 128},
                           {DType::kF8E4m3, DType::kF8E8m0, 32, 32},
                           {DType::kI8, DType::kF8E8m0, 1, 32}};

class KernelsWithWeights : public KernelFixture {
 protected:
  Stored MakeWeight(const Form& form, int64_t rows, int64_t cols) {
    Stored made;
    const int64_t count = rows * cols;
    made.values.resize(static_cast<size_t>(form.dtype == DType::kBf16 ? count * 2
                                           : form.dtype == DType::kI8 ? count / 2
                                                                      : count));
    if (form.dtype == DType::kBf16) {
      for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
        const uint16_t code = ref::FloatToBf16(Uniform(1)[0]);
        std::memcpy(&made.values[i * 2], &code, sizeof(code));
      }
    } else {
      for (std::byte& b : made.values) {
        b = static_cast<std::byte>(random_.Next());
        if (form.dtype == DType::kF8E4m3 && (b & std::byte{127}) == std::byte{127}) b = {};
      }
    }
    made.host = {nullptr,         form.dtype,      rows,      cols, nullptr,
                 form.block_rows, form.block_cols, form.scale};
    if (form.block_rows > 0) PutScales(&made);
    made.host.values = made.values.data();
    return made;
  }

  void PutScales(Stored* made) {
    const HostMatrix& host = made->host;
    const int64_t count = (host.rows + host.block_rows - 1) / host.block_rows *
                          ((host.cols + host.block_cols - 1) / host.block_cols);
    for (int64_t i = 0; i < count; ++i) {
      if (host.scale_dtype == DType::kF8E8m0) {
        made->scales.push_back(static_cast<std::byte>(Pick(122, 129)));
        continue;
      }
      const float scale = 1.0f + 0.7f * Uniform(1)[0];
      const auto* bytes = reinterpret_cast<const std::byte*>(&scale);
      made->scales.insert(made->scales.end(), bytes, bytes + 4);
    }
    made->host.scales = made->scales.data();
  }

  Matrix PutPacked(const HostMatrix& host) {
    EXPECT_NE(PackedFormOf(host), Packed::kNone);
    std::vector<unsigned char> packed(PackedBytes(host));
    Pack(host, packed.data());
    return {
        Put(packed, DType::kU8).address,      host.rows, host.cols, host.dtype, host.scale_dtype,
        static_cast<int32_t>(host.block_cols)};
  }

  // The kernel's second product takes BF16: the reference's once more, from the same inputs.
  void MultiplyDown(const ExpertFfnArgs& args, const std::vector<int32_t>& begin,
                    const std::vector<int32_t>& entry) {
    auto* to = reinterpret_cast<float*>(args.out.address);
    for (size_t s = 0; s < args.slots.size(); ++s) {
      const Matrix& down = args.slots[s].down;
      const int rows = begin[s + 1] - begin[s];
      const auto* hidden = reinterpret_cast<const float*>(args.hidden.address);
      const int64_t first = begin[s] * down.cols;
      const Tensor x = Put(Bf16({hidden + first, hidden + first + rows * down.cols}));
      const Tensor out = Room(rows * down.rows);
      backend_->ops().Linear(*stream_, {rows, x, down, out});
      const auto* from = reinterpret_cast<const float*>(out.address);
      for (int i = 0; i < rows; ++i) {
        std::copy_n(from + i * down.rows, down.rows,
                    to + entry[static_cast<size_t>(begin[s] + i)] * down.rows);
      }
    }
  }
};

TEST_F(KernelsWithWeights, Linear) {
  Trials([&] {
    for (const Form& form : kForms) {
      LinearArgs args;
      args.rows = Among({Pick(1, 16), Pick(17, g_long ? 150 : 70)});
      // Outputs that end inside a block, inputs that end inside a step.
      const int64_t outputs = Pick(1, g_long ? 40 : 20) * 16;
      const int64_t inputs = Pick(1, g_long ? 64 : 30) * 32;
      const Stored stored = MakeWeight(form, outputs, inputs);
      args.weight = PutPacked(stored.host);
      args.x = Put(Bf16(Uniform(args.rows * inputs)));
      args.out = Room(args.rows * outputs);
      Linear(queue_, args, Room(LinearWorkspace(args.rows, inputs)));
      LinearArgs want = args;
      want.weight = *backend_->LoadMatrix(stored.host);
      want.out = Room(args.rows * outputs);
      backend_->ops().Linear(*stream_, want);
      backend_->Free(want.weight.address);
      ExpectNear(args.out, want.out, args.rows * outputs);
    }
    EXPECT_LE(report_.counters.UncoalescedShare(), 0.05);
    EXPECT_LE(report_.counters.BankConflictFactor(), 1.1);
  });
}

TEST_F(KernelsWithWeights, GroupedLinear) {
  Trials([&] {
    GroupedLinearArgs args;
    args.rows = Pick(1, 20);
    args.groups = Pick(1, 3);
    const int64_t inputs = 64 * Pick(1, 4);
    const int64_t outputs = int64_t{128} * args.groups;
    const Stored stored = MakeWeight(kForms[2], outputs, inputs);
    args.weight = PutPacked(stored.host);
    args.x = Put(Bf16(Uniform(args.rows * args.groups * inputs)));
    args.out = Room(args.rows * outputs);
    GroupedLinear(queue_, args, Room(LinearWorkspace(args.rows, inputs * args.groups)));
    GroupedLinearArgs want = args;
    want.weight = *backend_->LoadMatrix(stored.host);
    want.out = Room(args.rows * outputs);
    backend_->ops().GroupedLinear(*stream_, want);
    backend_->Free(want.weight.address);
    ExpectNear(args.out, want.out, args.rows * outputs);
  });
}

TEST_F(KernelsWithWeights, ExpertFfn) {
  Trials([&] {
    const Form& form = *Among({&kForms[1], &kForms[3]});
    const int slots = Pick(1, 5);
    const int64_t width = 32 * Pick(1, 10);
    const int64_t wide = 32 * Pick(1, 6);
    std::vector<Stored> stored;
    std::vector<ExpertWeights> mine;
    std::vector<ExpertWeights> theirs;
    std::vector<int64_t> address[3];
    for (int s = 0; s < slots; ++s) {
      for (int i = 0; i < 3; ++i) {
        stored.push_back(i < 2 ? MakeWeight(form, wide, width) : MakeWeight(form, width, wide));
      }
      const Stored* w = &stored[stored.size() - 3];
      mine.push_back({PutPacked(w[0].host), PutPacked(w[1].host), PutPacked(w[2].host)});
      theirs.push_back({*backend_->LoadMatrix(w[0].host), *backend_->LoadMatrix(w[1].host),
                        *backend_->LoadMatrix(w[2].host)});
      address[0].push_back(static_cast<int64_t>(mine.back().gate.address));
      address[1].push_back(static_cast<int64_t>(mine.back().up.address));
      address[2].push_back(static_cast<int64_t>(mine.back().down.address));
    }
    const int rows = Pick(1, g_long ? 90 : 30);
    ExpertFfnArgs args;
    args.choices = 2;
    args.entries_max = rows * args.choices;
    args.x = Put(Bf16(Uniform(rows * width)));
    // Entries by slot; one slot of several has none.
    std::vector<int32_t> entry;
    std::vector<int32_t> begin = {0};
    std::vector<int> slot(static_cast<size_t>(args.entries_max));
    for (int& s : slot) s = Pick(slots > 2 ? 1 : 0, slots - 1);
    for (int s = 0; s < slots; ++s) {
      for (int e = 0; e < args.entries_max; ++e) {
        if (slot[static_cast<size_t>(e)] == s) entry.push_back(e);
      }
      begin.push_back(static_cast<int32_t>(entry.size()));
    }
    args.entry = Put(entry);
    args.slot_begin = Put(begin);
    args.limit = Among({0.0f, 10.0f});
    if (Pick(0, 1) == 1) args.weight = Put(Uniform(args.entries_max));
    args.hidden = Room(2 * args.entries_max * wide);
    args.out = Room(args.entries_max * width);
    args.slots = mine;
    const ExpertTable table{Put(address[0], DType::kI64), Put(address[1], DType::kI64),
                            Put(address[2], DType::kI64)};
    ExpertFfn(queue_, args, table, Room(ExpertWorkspace(args)));
    ExpertFfnArgs want = args;
    want.slots = theirs;
    want.hidden = Room(2 * args.entries_max * wide);
    want.out = Room(args.entries_max * width);
    backend_->ops().ExpertFfn(*stream_, want);
    MultiplyDown(want, begin, entry);
    for (const ExpertWeights& w : theirs) {
      for (const Matrix* m : {&w.gate, &w.up, &w.down}) backend_->Free(m->address);
    }
    ExpectNear(args.out, want.out, args.entries_max * width);
  });
}

}  // namespace
}  // namespace weir::kernels::cuda
