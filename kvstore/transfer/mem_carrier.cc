// SPDX-License-Identifier: Apache-2.0
#include "kvstore/transfer/mem_carrier.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

namespace weir::kv {
namespace {

class MemCarrier final : public Carrier {
 public:
  explicit MemCarrier(MemFabric* fabric) : fabric_(*fabric) {}
  ~MemCarrier() override {
    for (const auto& [region, descriptor] : local_) fabric_.Remove(descriptor.token);
  }

  RegionKind kind() const override { return RegionKind::kMem; }

  void Start(const CarrierLimits&, std::function<void()> wake) override { wake_ = std::move(wake); }

  absl::Status AddRegion(uint32_t region, Arena* arena) override {
    RegionDescriptor descriptor;
    descriptor.kind = RegionKind::kMem;
    descriptor.region = region;
    descriptor.bytes = arena->bytes();
    descriptor.token = MakeRegionToken();
    fabric_.Add(descriptor.token, *arena);
    local_.emplace(region, descriptor);
    return absl::OkStatus();
  }

  std::string Describe(uint32_t region) const override {
    auto found = local_.find(region);
    return found == local_.end() ? std::string() : Serialise(found->second);
  }

  absl::Status Attach(RemoteHandle remote, const RegionDescriptor& descriptor) override {
    remote_[{remote, descriptor.region}] = descriptor.token;
    return absl::OkStatus();
  }

  void Detach(RemoteHandle remote) override {
    std::erase_if(remote_, [remote](const auto& entry) { return entry.first.first == remote; });
    Drop([remote](const CarrierOp& op) { return op.remote == remote; },
         Error(Reason::kPeerLost, "the peer was removed"));
  }

  void Read(CarrierOp op) override {
    waiting_[static_cast<size_t>(op.traffic)].push_back(op);
    if (wake_) wake_();
  }

  void Cancel(uint64_t transfer) override {
    Drop([transfer](const CarrierOp& op) { return op.transfer == transfer; },
         Error(Reason::kCancelled, "the transfer was cancelled"));
  }

  void Collect(std::vector<CarrierDone>* out) override {
    std::move(done_.begin(), done_.end(), std::back_inserter(*out));
    done_.clear();
    for (auto& ops : waiting_) {
      for (const CarrierOp& op : ops) out->push_back({op.transfer, op.bytes, Copy(op)});
      ops.clear();
    }
  }

 private:
  absl::Status Copy(const CarrierOp& op) {
    auto token = remote_.find({op.remote, op.region});
    WEIR_CHECK(token != remote_.end());
    WEIR_TRY(fabric_.Read(token->second, op.offset, {op.to, op.bytes}));
    return CheckLanded({op.to, op.bytes}, op.crc32c);
  }

  template <class Which>
  void Drop(Which which, const absl::Status& status) {
    for (auto& ops : waiting_) {
      for (const CarrierOp& op : ops) {
        if (which(op)) done_.push_back({op.transfer, op.bytes, status});
      }
      std::erase_if(ops, which);
    }
    if (!done_.empty() && wake_) wake_();
  }

  MemFabric& fabric_;
  std::function<void()> wake_;
  std::map<uint32_t, RegionDescriptor> local_;
  std::map<std::pair<RemoteHandle, uint32_t>, RegionToken> remote_;
  std::deque<CarrierOp> waiting_[kTrafficCount];
  std::vector<CarrierDone> done_;
};

}  // namespace

void MemFabric::Add(const RegionToken& token, const Arena& arena) {
  std::unique_lock lock(mu_);
  regions_.emplace(token, Entry{arena.data(), arena.bytes()});
}

void MemFabric::Remove(const RegionToken& token) {
  std::unique_lock lock(mu_);
  regions_.erase(token);
}

absl::Status MemFabric::Read(const RegionToken& token, uint64_t offset,
                             std::span<std::byte> to) const {
  std::shared_lock lock(mu_);
  auto found = regions_.find(token);
  if (found == regions_.end()) return Error(Reason::kPeerLost, "the peer has gone");
  const Entry& entry = found->second;
  if (offset > entry.bytes || to.size() > entry.bytes - offset) {
    return Error(Reason::kBadField, "the read reaches beyond the peer's region", "remote_offset");
  }
  std::memcpy(to.data(), entry.data + offset, to.size());
  return absl::OkStatus();
}

std::unique_ptr<Carrier> MakeMemCarrier(MemFabric* fabric) {
  return std::make_unique<MemCarrier>(fabric);
}

}  // namespace weir::kv
