// SPDX-License-Identifier: Apache-2.0
#include "kvstore/transfer/transfer_bench.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/stdx/bounded_queue.h"
#include "base/stdx/hash.h"
#include "base/stdx/status.h"
#include "kvstore/transfer/route_transfer.h"

namespace weir::kv {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kLatencyReads = 51;
constexpr auto kPatience = std::chrono::seconds(10);

double Since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Two instances, the second of which reads from the first.
class Bench {
 public:
  static absl::StatusOr<std::unique_ptr<Bench>> Create(std::unique_ptr<Carrier> owner,
                                                       std::unique_ptr<Carrier> reader,
                                                       uint64_t arena_bytes) {
    auto out = std::make_unique<Bench>();
    WEIR_ASSIGN(out->from_, Arena::CreateShared(arena_bytes));
    WEIR_ASSIGN(out->to_, Arena::CreateShared(arena_bytes));
    // Both are touched, so that no page is made while the clock runs.
    for (uint64_t at = 0; at < arena_bytes; at += 8) {
      const uint64_t word = at * 0x9e3779b97f4a7c15ULL;
      std::memcpy(out->from_->data() + at, &word, sizeof(word));
    }
    std::memset(out->to_->data(), 1, arena_bytes);
    std::vector<std::unique_ptr<Carrier>> carriers;
    carriers.push_back(std::move(owner));
    out->owner_ = std::make_unique<RouteTransfer>(TransferOptions{.self = InstanceId(1)},
                                                  std::move(carriers));
    WEIR_TRY(out->owner_->AddRegion(1, out->from_.get()));
    std::vector<std::unique_ptr<Carrier>> second;
    second.push_back(std::move(reader));
    out->reader_ = std::make_unique<RouteTransfer>(
        TransferOptions{.self = InstanceId(2),
                        .wake = [queue = &out->wakes_] { (void)queue->TryPush(1); }},
        std::move(second));
    WEIR_TRY(out->reader_->AddRegion(1, out->to_.get()));
    WEIR_TRY(out->reader_->AddRemote(InstanceId(1), out->owner_->Descriptors()));
    return out;
  }

  absl::StatusOr<TransferRate> Measure(uint32_t bytes, const TransferBenchOptions& options) {
    TransferRate rate{.bytes = bytes};
    std::vector<double> latencies;
    for (int i = 0; i < kLatencyReads; ++i) {
      const auto start = Clock::now();
      WEIR_TRY(Post(bytes, options.checksum));
      WEIR_TRY(Drain(0));
      latencies.push_back(Since(start));
    }
    std::nth_element(latencies.begin(), latencies.begin() + kLatencyReads / 2, latencies.end());
    rate.latency_us = latencies[kLatencyReads / 2] * 1e6;

    const double cpu = CpuSeconds();
    const auto start = Clock::now();
    uint64_t posted = 0;
    while (Since(start) < options.seconds) {
      while (under_way_ < options.reads_under_way) {
        WEIR_TRY(Post(bytes, options.checksum));
        posted += bytes;
      }
      WEIR_TRY(Drain(options.reads_under_way - 1));
    }
    WEIR_TRY(Drain(0));
    const double gb = static_cast<double>(posted) / 1e9;
    rate.gb_per_second = gb / Since(start);
    rate.cpu_seconds_per_gb = (CpuSeconds() - cpu) / gb;
    return rate;
  }

 private:
  absl::Status Post(uint32_t bytes, bool checksum) {
    if (next_ + bytes > from_->bytes()) next_ = 0;
    CopyOp op{.from = InstanceId(1), .remote_region = 1, .remote_offset = next_,
              .local_region = 1, .local_offset = next_, .bytes = bytes};
    if (checksum) op.crc32c = ChecksumOf(next_, bytes);
    next_ += bytes;
    WEIR_ASSIGN(const TransferId id, reader_->Post({&op, 1}, Traffic::kHandover));
    (void)id;
    ++under_way_;
    return absl::OkStatus();
  }

  // Each place is summed once; the memory does not change.
  uint32_t ChecksumOf(uint64_t at, uint32_t bytes) {
    for (const auto& [key, sum] : sums_) {
      if (key == std::make_pair(at, bytes)) return sum;
    }
    const uint32_t sum = Crc32c({from_->data() + at, bytes});
    sums_.push_back({{at, bytes}, sum});
    return sum;
  }

  absl::Status Drain(uint32_t left) {
    while (true) {
      done_.clear();
      reader_->Poll(&done_);
      under_way_ -= static_cast<uint32_t>(done_.size());
      for (Completion& completion : done_) WEIR_TRY(completion.status);
      if (under_way_ <= left) return absl::OkStatus();
      tokens_.clear();
      if (wakes_.WaitSome(16, kPatience, &tokens_) == 0) {
        return Error(Reason::kDeadline, "a read of the benchmark does not end");
      }
    }
  }

  std::unique_ptr<Arena> from_;
  std::unique_ptr<Arena> to_;
  BoundedQueue<int> wakes_{16};
  std::unique_ptr<RouteTransfer> owner_;
  std::unique_ptr<RouteTransfer> reader_;
  std::vector<std::pair<std::pair<uint64_t, uint32_t>, uint32_t>> sums_;
  std::vector<Completion> done_;
  std::vector<int> tokens_;
  uint64_t next_ = 0;
  uint32_t under_way_ = 0;
};

}  // namespace

absl::StatusOr<std::vector<TransferRate>> MeasureTransfer(std::unique_ptr<Carrier> owner,
                                                          std::unique_ptr<Carrier> reader,
                                                          const TransferBenchOptions& options) {
  WEIR_ASSIGN(auto bench, Bench::Create(std::move(owner), std::move(reader), options.arena_bytes));
  std::vector<TransferRate> rates;
  for (const uint32_t bytes : options.sizes) {
    if (bytes == 0 || bytes > options.arena_bytes) {
      return Error(Reason::kBadField, "a size is zero or larger than the arena", "sizes");
    }
  }
  for (const uint32_t bytes : options.sizes) {
    WEIR_ASSIGN(const TransferRate rate, bench->Measure(bytes, options));
    rates.push_back(rate);
  }
  return rates;
}

}  // namespace weir::kv
