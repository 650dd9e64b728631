// SPDX-License-Identifier: Apache-2.0
#include "kernels/bench/ops_bench.h"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/stdx/bytes.h"
#include "base/stdx/planted.h"
#include "base/stdx/random.h"
#include "base/stdx/status.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/tables.h"
#include "kernels/ref/ref_backend.h"

namespace weir::kernels {
namespace {

using cpu::KernelTable;

constexpr double kTolerance = 1e-5;  // of the output's standard deviation
constexpr int64_t kReadPiece = int64_t{1} << 20;

struct Form {
  const char* name;
  DType dtype;
  int block_rows;
  int block_cols;
  DType scale_dtype;
};
constexpr Form kF32{"f32", DType::kF32, 0, 0, DType::kF32};
constexpr Form kBf16{"bf16", DType::kBf16, 0, 0, DType::kF32};
constexpr Form kFp8{"fp8", DType::kF8E4m3, 128, 128, DType::kF32};
constexpr Form kFp8Mx{"fp8mx", DType::kF8E4m3, 32, 32, DType::kF8E8m0};
constexpr Form kFp4{"fp4", DType::kI8, 1, 32, DType::kF8E8m0};

// A weight as a checkpoint stores it.
class HostWeight {
 public:
  HostWeight(const Form& form, int64_t rows, int64_t cols) {
    const int64_t bytes = form.dtype == DType::kI8
                              ? rows * cols / 2
                              : rows * cols * static_cast<int64_t>(DTypeBytes(form.dtype));
    values_.resize(static_cast<size_t>(bytes));
    for (size_t i = 0; i < values_.size(); i += 8) {
      uint64_t bits = RandomBits(1, 0, i);
      // No NaN and no huge value in any form.
      if (form.dtype == DType::kF8E4m3) bits &= 0xb7b7b7b7b7b7b7b7u;
      if (form.dtype == DType::kBf16) bits = (bits & 0x807f807f807f807fu) | 0x3f003f003f003f00u;
      if (form.dtype == DType::kF32) bits = (bits & 0x807fffff807fffffu) | 0x3f0000003f000000u;
      std::memcpy(values_.data() + i, &bits, std::min<size_t>(8, values_.size() - i));
    }
    host_ = {values_.data(), form.dtype, rows, cols};
    if (form.block_rows == 0) return;
    const int64_t scales = (rows + form.block_rows - 1) / form.block_rows *
                           ((cols + form.block_cols - 1) / form.block_cols);
    for (int64_t i = 0; i < scales; ++i) {
      const float scale = std::ldexp(1.0f, static_cast<int>(i % 4));
      const auto byte = static_cast<uint8_t>(127 + i % 4);
      const bool narrow = form.scale_dtype == DType::kF8E8m0;
      const auto* at = narrow ? reinterpret_cast<const std::byte*>(&byte)
                              : reinterpret_cast<const std::byte*>(&scale);
      scales_.insert(scales_.end(), at, at + (narrow ? 1 : 4));
    }
    host_.scales = scales_.data();
    host_.scale_dtype = form.scale_dtype;
    host_.block_rows = form.block_rows;
    host_.block_cols = form.block_cols;
  }

  const HostMatrix& host() const { return host_; }
  int64_t bytes() const { return static_cast<int64_t>(values_.size() + scales_.size()); }

 private:
  std::vector<std::byte> values_;
  std::vector<std::byte> scales_;
  HostMatrix host_;
};

std::vector<float> Inputs(int64_t count) {
  std::vector<float> x(static_cast<size_t>(count));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(RandomUnit(3, 0, i) * 2 - 1);
  return x;
}

absl::StatusOr<std::vector<float>> Product(Backend* backend, const HostMatrix& host,
                                           const std::vector<float>& x, int rows) {
  const std::unique_ptr<Stream> stream = backend->NewStream();
  std::vector<float> y(static_cast<size_t>(rows * host.rows));
  LinearArgs args;
  args.rows = rows;
  WEIR_ASSIGN(args.weight, backend->LoadMatrix(host));
  WEIR_ASSIGN(args.x.address, backend->Allocate(x.size() * 4));
  WEIR_ASSIGN(args.out.address, backend->Allocate(y.size() * 4));
  stream->CopyIn(args.x.address, x.data(), x.size() * 4);
  backend->ops().Linear(*stream, args);
  stream->CopyOut(y.data(), args.out.address, y.size() * 4);
  stream->Wait(stream->Record());
  for (const DeviceAddress at : {args.weight.address, args.x.address, args.out.address}) {
    backend->Free(at);
  }
  return y;
}

// The largest difference from the reference over all forms, in standard deviations.
absl::StatusOr<double> Validate() {
  WEIR_ASSIGN(const std::unique_ptr<Backend> cpu, cpu::NewCpuBackend({}));
  const std::unique_ptr<Backend> truth = ref::NewRefBackend();
  double worst = 0;
  for (const Form& form : {kF32, kBf16, kFp8, kFp8Mx, kFp4}) {
    const HostWeight weight(form, 224, 512);
    for (const int rows : {1, 3, 20}) {
      const std::vector<float> x = Inputs(rows * 512);
      WEIR_ASSIGN(const std::vector<float> have, Product(cpu.get(), weight.host(), x, rows));
      WEIR_ASSIGN(const std::vector<float> want, Product(truth.get(), weight.host(), x, rows));
      double square = 0;
      double most = 0;
      for (size_t i = 0; i < want.size(); ++i) {
        square += double{want[i]} * want[i];
        most = std::max(most, std::abs(double{have[i]} - want[i]));
      }
      const double off = most / std::sqrt(square / static_cast<double>(want.size()));
      if (!(off <= kTolerance)) {
        return Error(Reason::kBug, absl::StrCat(form.name, " weights times ", rows,
                                                " rows differ from the reference by ", off,
                                                " standard deviations"));
      }
      worst = std::max(worst, off);
    }
  }
  return worst;
}

double ThreadSeconds() {
  timespec at;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
  return static_cast<double>(at.tv_sec) + static_cast<double>(at.tv_nsec) * 1e-9;
}

// One computing thread with weights of its own, and what it is asked to run.
class Lane {
 public:
  static absl::StatusOr<std::unique_ptr<Lane>> Make(const KernelTable& kernels) {
    cpu::CpuOptions options;
    options.threads = 1;
    WEIR_ASSIGN(std::unique_ptr<Backend> backend, cpu::NewCpuBackend(options));
    return std::unique_ptr<Lane>(new Lane(kernels, std::move(backend)));
  }
  ~Lane() {
    stream_->Wait(stream_->Record());
    for (const DeviceAddress at : taken_) backend_->Free(at);
  }

  absl::StatusOr<DeviceAddress> Allocate(int64_t bytes) {
    WEIR_ASSIGN(const DeviceAddress at, backend_->Allocate(static_cast<size_t>(bytes)));
    taken_.push_back(at);
    return at;
  }
  absl::StatusOr<Matrix> Load(const HostMatrix& host) {
    WEIR_ASSIGN(const Matrix matrix, backend_->LoadMatrix(host));
    taken_.push_back(matrix.address);
    return matrix;
  }

  void PushClock(double* to) {
    Queue().Push(
        [](cpu::Team&, const void* at) { **static_cast<double* const*>(at) = ThreadSeconds(); },
        to);
  }
  void PushRead(DeviceAddress from, int64_t bytes) {
    struct Args {
      const KernelTable* kernels;
      DeviceAddress from;
      int64_t bytes;
    };
    Queue().Push(
        [](cpu::Team&, const void* arguments) {
          const auto& args = *static_cast<const Args*>(arguments);
          volatile float sink = 0;
          for (int64_t i = 0; i < args.bytes; i += kReadPiece) {
            sink = args.kernels->read_bytes(reinterpret_cast<const uint8_t*>(args.from + i),
                                            std::min(kReadPiece, args.bytes - i));
          }
          static_cast<void>(sink);
        },
        Args{&kernels_, from, bytes});
  }
  void PushMultiplyAdds(int64_t count) {
    struct Args {
      const KernelTable* kernels;
      int64_t count;
    };
    Queue().Push(
        [](cpu::Team&, const void* arguments) {
          const auto& args = *static_cast<const Args*>(arguments);
          volatile float sink = args.kernels->multiply_adds(args.count);
          static_cast<void>(sink);
        },
        Args{&kernels_, count});
  }
  void PushLinear(const LinearArgs& args) {
    const int times = IsPlanted(Planted::kSlowStep) ? 4 : 1;
    for (int i = 0; i < times; ++i) backend_->ops().Linear(*stream_, args);
  }
  void PushAttention(const SparseAttentionArgs& args) {
    backend_->ops().SparseAttention(*stream_, args);
  }
  void PushSelection(const IndexSelectArgs& args) { backend_->ops().IndexSelect(*stream_, args); }
  void Wait() { stream_->Wait(stream_->Record()); }

  // Floats between -1 and 1.
  absl::StatusOr<Tensor> Floats(int64_t count) {
    const std::vector<float> x = Inputs(count);
    Tensor tensor{0, DType::kF32, {count, 1, 1}};
    WEIR_ASSIGN(tensor.address, Allocate(count * 4));
    return Put(tensor, x.data(), x.size() * 4);
  }
  absl::StatusOr<Tensor> Ints(const std::vector<int32_t>& values) {
    const auto count = static_cast<int64_t>(values.size());
    Tensor tensor{0, DType::kI32, {count, 1, 1}};
    WEIR_ASSIGN(tensor.address, Allocate(count * 4));
    return Put(tensor, values.data(), values.size() * 4);
  }
  // Bytes that are middling numbers as codes and as scales of any store.
  absl::StatusOr<DeviceAddress> Codes(int64_t bytes) {
    std::vector<uint8_t> codes(static_cast<size_t>(bytes));
    for (size_t i = 0; i < codes.size(); ++i) {
      codes[i] = static_cast<uint8_t>(0x30 | (RandomBits(5, 0, i) & 15));
    }
    WEIR_ASSIGN(const DeviceAddress at, Allocate(bytes));
    return Put({at, DType::kU8, {bytes, 1, 1}}, codes.data(), codes.size()).address;
  }

 private:
  Tensor Put(const Tensor& tensor, const void* from, size_t bytes) {
    stream_->CopyIn(tensor.address, from, bytes);
    Wait();
    return tensor;
  }
  Lane(const KernelTable& kernels, std::unique_ptr<Backend> backend)
      : kernels_(kernels), backend_(std::move(backend)), stream_(backend_->NewStream()) {}
  cpu::CommandQueue& Queue() { return static_cast<cpu::CpuStream&>(*stream_).queue(); }

  const KernelTable& kernels_;
  const std::unique_ptr<Backend> backend_;
  const std::unique_ptr<Stream> stream_;
  std::vector<DeviceAddress> taken_;
};

// What one turn runs on one lane, and how much it counts for.
struct Work {
  std::vector<LinearArgs> linear;
  std::vector<SparseAttentionArgs> attention;
  std::vector<IndexSelectArgs> selection;
  DeviceAddress read = 0;
  int64_t read_bytes = 0;
  int64_t multiply_adds = 0;
  double amount = 0;  // bytes or floating-point operations of one turn
};

struct Case {
  OpsBenchLine line;
  size_t ceiling = 0;      // index of the case it is measured against; its own for a ceiling
  std::vector<Work> lane;  // by lane
  std::vector<double> rates;
};

using Lanes = std::vector<std::unique_ptr<Lane>>;

void RunTurn(const Lanes& lanes, Case* c) {
  std::vector<double> begin(lanes.size());
  std::vector<double> end(lanes.size());
  const auto threads = static_cast<size_t>(c->line.threads);
  for (size_t i = 0; i < threads; ++i) {
    const Work& work = c->lane[i];
    Lane& lane = *lanes[i];
    lane.PushClock(&begin[i]);
    if (work.read_bytes > 0) lane.PushRead(work.read, work.read_bytes);
    if (work.multiply_adds > 0) lane.PushMultiplyAdds(work.multiply_adds);
    for (const LinearArgs& args : work.linear) lane.PushLinear(args);
    for (const SparseAttentionArgs& args : work.attention) lane.PushAttention(args);
    for (const IndexSelectArgs& args : work.selection) lane.PushSelection(args);
    lane.PushClock(&end[i]);
  }
  double rate = 0;
  for (size_t i = 0; i < threads; ++i) lanes[i]->Wait();
  for (size_t i = 0; i < threads; ++i) rate += c->lane[i].amount / (end[i] - begin[i]);
  c->rates.push_back(rate);
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Sizes of a measurement.
struct Sizes {
  int64_t set_bytes = 0;  // what a turn reads on one lane
  int64_t multiply_adds = 0;
  int products = 0;  // of one turn
  int rows = 0;      // likewise, of attention and selection
  int turns = 0;
};

class Bench {
 public:
  Bench(const Sizes& sizes, Lanes lanes) : sizes_(sizes), lanes_(std::move(lanes)) {}

  absl::Status AddCeilings() {
    std::vector<Work> read;
    std::vector<Work> flops;
    for (const std::unique_ptr<Lane>& lane : lanes_) {
      WEIR_ASSIGN(const DeviceAddress at, lane->Allocate(sizes_.set_bytes));
      Work& reading = read.emplace_back();
      reading.read = at;
      reading.read_bytes = sizes_.set_bytes;
      reading.amount = static_cast<double>(sizes_.set_bytes);
      Work& multiplying = flops.emplace_back();
      multiplying.multiply_adds = sizes_.multiply_adds;
      multiplying.amount = 2.0 * static_cast<double>(sizes_.multiply_adds);
    }
    Add("read", "memory read loop", false, 0, std::move(read));
    Add("fma", "multiply-add loop", true, 1, std::move(flops));
    return absl::OkStatus();
  }

  // One row times enough 4096 x 4096 weights to come from memory.
  absl::Status AddVector(const Form& form, const char* label) {
    const HostWeight weight(form, 4096, 4096);
    const int64_t count = std::max<int64_t>(1, sizes_.set_bytes / weight.bytes());
    std::vector<Work> works;
    for (const std::unique_ptr<Lane>& lane : lanes_) {
      Work work;
      for (int64_t i = 0; i < count; ++i) {
        WEIR_ASSIGN(const LinearArgs args, Args(lane.get(), weight, 1));
        work.linear.push_back(args);
        work.amount += static_cast<double>(weight.bytes());
      }
      works.push_back(std::move(work));
    }
    Add(absl::StrCat(form.name, "_gemv"), label, false, 0, std::move(works));
    return absl::OkStatus();
  }

  // 256 rows times a 2048 x 2048 weight.
  absl::Status AddProduct(const Form& form, const char* label) {
    const HostWeight weight(form, 2048, 2048);
    std::vector<Work> works;
    for (const std::unique_ptr<Lane>& lane : lanes_) {
      WEIR_ASSIGN(const LinearArgs args, Args(lane.get(), weight, 256));
      Work work;
      work.linear.assign(static_cast<size_t>(sizes_.products), args);
      work.amount = 2.0 * 256 * 2048 * 2048 * sizes_.products;
      works.push_back(std::move(work));
    }
    Add(absl::StrCat(form.name, "_gemm"), label, true, 1, std::move(works));
    return absl::OkStatus();
  }

  // One row of V4.1-Flash: 64 heads of 512 over a window of 128 and 512 entries. Scores and sums.
  absl::Status AddAttention() {
    std::vector<Work> works;
    for (const std::unique_ptr<Lane>& lane : lanes_) {
      SparseAttentionArgs args;
      args.heads = 64;
      args.width = 512;
      args.window = 128;
      args.select = 512;
      args.scale = 0.04f;
      WEIR_ASSIGN(args.rows, OneRow(lane.get(), kEntries - 1));
      WEIR_ASSIGN(args.q, lane->Floats(64 * 512));
      WEIR_ASSIGN(args.sink, lane->Floats(64));
      WEIR_ASSIGN(args.scratch, lane->Floats((128 + 512) * 512));
      WEIR_ASSIGN(args.out, lane->Floats(64 * 512));
      args.ring.format = RowFormat::kFp8Block32;
      args.ring.row_bytes = static_cast<int64_t>(RowBytes(args.ring.format, 512));
      args.ring.ring_rows = 128;
      WEIR_ASSIGN(args.ring.state, lane->Ints({0}));
      WEIR_ASSIGN(args.ring.base, lane->Codes(128 * args.ring.row_bytes));
      args.fresh.address = args.ring.base;
      WEIR_ASSIGN(args.entries, Store(lane.get(), RowFormat::kFp4Block16, 512));
      std::vector<int32_t> selected;
      for (int32_t i = 0; i < 512; ++i)
        selected.push_back(i * static_cast<int32_t>(kEntries / 512));
      WEIR_ASSIGN(args.selected, lane->Ints(selected));
      Work work;
      work.attention.assign(static_cast<size_t>(sizes_.rows), args);
      work.amount = 4.0 * 64 * 512 * (128 + 512) * sizes_.rows;
      works.push_back(std::move(work));
    }
    Add("attention_row", "V4.1 attention, one row of 640 keys", true, 1, std::move(works));
    return absl::OkStatus();
  }

  // One row's choice of 512 among kEntries entries, 32 heads of 128. Scores alone.
  absl::Status AddSelection() {
    std::vector<Work> works;
    for (const std::unique_ptr<Lane>& lane : lanes_) {
      IndexSelectArgs args;
      args.heads = 32;
      args.width = 128;
      args.select = 512;
      args.scale = 0.01f;
      WEIR_ASSIGN(args.rows, OneRow(lane.get(), kEntries - 1));
      WEIR_ASSIGN(args.q, lane->Floats(32 * 128));
      WEIR_ASSIGN(args.weight, lane->Floats(32));
      WEIR_ASSIGN(args.keys, Store(lane.get(), RowFormat::kFp4Block32, 128));
      args.entries_max = kEntries;
      WEIR_ASSIGN(args.scratch, lane->Floats(3 * kEntries));
      WEIR_ASSIGN(args.selected, lane->Ints(std::vector<int32_t>(512)));
      Work work;
      work.selection.assign(static_cast<size_t>(sizes_.rows), args);
      work.amount = 2.0 * 32 * 128 * static_cast<double>(kEntries) * sizes_.rows;
      works.push_back(std::move(work));
    }
    Add("selection_row", "V4.1 selection, 512 of 16,384", true, 1, std::move(works));
    return absl::OkStatus();
  }

  std::vector<OpsBenchLine> Run() {
    for (int turn = 0; turn < sizes_.turns; ++turn) {
      for (Case& c : cases_) RunTurn(lanes_, &c);
    }
    std::vector<OpsBenchLine> lines;
    for (Case& c : cases_) {
      const Case& ceiling = cases_[c.ceiling];
      std::vector<double> shares;
      for (size_t i = 0; i < c.rates.size(); ++i) shares.push_back(c.rates[i] / ceiling.rates[i]);
      c.line.rate = Median(c.rates) * 1e-9;
      c.line.share = Median(shares);
      lines.push_back(c.line);
    }
    return lines;
  }

 private:
  static constexpr int64_t kEntries = 16384;

  // A step of one row at `position`, whose window lies in the ring but for itself.
  absl::StatusOr<const StepRows*> OneRow(Lane* lane, int64_t position) {
    StepRows& rows = rows_.emplace_back();
    rows.count = 1;
    WEIR_ASSIGN(rows.position, lane->Ints({static_cast<int32_t>(position)}));
    WEIR_ASSIGN(rows.sequence, lane->Ints({0}));
    WEIR_ASSIGN(rows.visible_from, lane->Ints({0}));
    WEIR_ASSIGN(rows.fresh_from, lane->Ints({static_cast<int32_t>(position)}));
    return &rows;
  }

  // kEntries entries of one token each, in pages of 128.
  absl::StatusOr<PagedKv> Store(Lane* lane, RowFormat format, int64_t width) {
    PagedKv kv;
    kv.format = format;
    kv.row_bytes = static_cast<int64_t>(RowBytes(format, static_cast<size_t>(width)));
    kv.page_tokens = 128;
    kv.page_bytes = kv.row_bytes * 128;
    kv.table_stride = static_cast<int32_t>(kEntries / 128);
    std::vector<int32_t> pages;
    for (int32_t p = 0; p < kv.table_stride; ++p) pages.push_back(kv.table_stride - 1 - p);
    WEIR_ASSIGN(kv.table, lane->Ints(pages));
    WEIR_ASSIGN(kv.base, lane->Codes(kEntries * kv.row_bytes));
    return kv;
  }

  absl::StatusOr<LinearArgs> Args(Lane* lane, const HostWeight& weight, int rows) {
    LinearArgs args;
    args.rows = rows;
    WEIR_ASSIGN(args.weight, lane->Load(weight.host()));
    WEIR_ASSIGN(args.x.address, lane->Allocate(rows * args.weight.cols * 4));
    WEIR_ASSIGN(args.out.address, lane->Allocate(rows * args.weight.rows * 4));
    return args;
  }

  // One case for each number of lanes; `ceiling` counts kinds of cases.
  void Add(const std::string& name, const char* label, bool flops, size_t ceiling,
           std::vector<Work> works) {
    for (size_t threads = 1; threads <= lanes_.size(); ++threads) {
      Case c;
      c.line = {name, label, static_cast<int>(threads), 0, 0, flops};
      c.ceiling = ceiling * lanes_.size() + threads - 1;
      c.lane = works;
      cases_.push_back(std::move(c));
    }
  }

  const Sizes sizes_;
  std::deque<StepRows> rows_;  // in place: commands refer to them
  const Lanes lanes_;
  std::vector<Case> cases_;
};

}  // namespace

absl::StatusOr<OpsBenchResult> BenchOps(const OpsBenchOptions& options) {
  OpsBenchResult result;
  WEIR_ASSIGN(const cpu::Isa isa, cpu::ChooseIsa());
  result.isa = std::string(cpu::IsaName(isa));
  WEIR_ASSIGN(result.worst, Validate());
  if (options.check_only) return result;
  const bool quick = options.quick;
  const Sizes sizes{quick ? int64_t{128} << 20 : int64_t{512} << 20,
                    quick ? 500'000'000 : 2'000'000'000, quick ? 1 : 4, quick ? 20 : 100,
                    quick ? 5 : 11};
  Lanes lanes;
  for (int i = 0; i < 2; ++i) {
    WEIR_ASSIGN(std::unique_ptr<Lane> lane, Lane::Make(cpu::KernelsFor(isa)));
    lanes.push_back(std::move(lane));
  }
  Bench bench(sizes, std::move(lanes));
  WEIR_TRY(bench.AddCeilings());
  WEIR_TRY(bench.AddVector(kFp8, "FP8, 128 x 128 scales, one row"));
  WEIR_TRY(bench.AddVector(kFp4, "FP4, scales per 32, one row"));
  if (!quick) {
    WEIR_TRY(bench.AddVector(kFp8Mx, "FP8, 32 x 32 scales, one row"));
    WEIR_TRY(bench.AddVector(kBf16, "BF16, one row"));
  }
  WEIR_TRY(bench.AddProduct(kF32, "F32, 256 x 2048 x 2048"));
  WEIR_TRY(bench.AddProduct(kFp8, "FP8, 256 x 2048 x 2048"));
  if (!quick) {
    WEIR_TRY(bench.AddProduct(kBf16, "BF16, 256 x 2048 x 2048"));
    WEIR_TRY(bench.AddProduct(kFp4, "FP4, 256 x 2048 x 2048"));
    WEIR_TRY(bench.AddAttention());
    WEIR_TRY(bench.AddSelection());
  }
  result.lines = bench.Run();
  return result;
}

}  // namespace weir::kernels
