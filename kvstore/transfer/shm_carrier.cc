// SPDX-License-Identifier: Apache-2.0
#include "kvstore/transfer/shm_carrier.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "base/stdx/units.h"

namespace weir::kv {
namespace {

// Copied between two looks at the commands: small enough that the checksum finds the bytes in the
// second-level cache and that a cancellation takes effect within about 50 us.
constexpr uint32_t kChunkBytes = 256 * kKiB;
constexpr auto kIdleWait = std::chrono::seconds(1);
constexpr size_t kCommandsPerTurn = 4096;

struct Command {
  enum class Kind : uint8_t { kRead, kCancel, kDetach } kind = Kind::kRead;
  CarrierOp op;                           // kRead
  std::shared_ptr<const ArenaView> from;  // kRead: keeps the mapping while the read is under way
  uint64_t transfer = 0;                  // kCancel
  RemoteHandle remote = 0;                // kDetach
};

// Everything that the io thread owns.
class Copier {
 public:
  Copier(BoundedQueue<Command>* commands, DoneQueue* done) : commands_(*commands), done_(*done) {}

  void Run() {
    while (true) {
      batch_.clear();
      if (Idle()) {
        commands_.WaitSome(kCommandsPerTurn, kIdleWait, &batch_);
      } else {
        commands_.PopSome(kCommandsPerTurn, &batch_);
      }
      if (commands_.closed()) return;
      for (Command& command : batch_) Obey(std::move(command));
      CopyChunk();
    }
  }

 private:
  struct Current {
    Command read;
    uint32_t copied = 0;
    uint32_t crc = 0;
  };

  bool Idle() const {
    return !current_ &&
           std::all_of(std::begin(waiting_), std::end(waiting_),
                       [](const auto& reads) { return reads.empty(); });
  }

  void Obey(Command command) {
    switch (command.kind) {
      case Command::Kind::kRead:
        waiting_[static_cast<size_t>(command.op.traffic)].push_back(std::move(command));
        return;
      case Command::Kind::kCancel:
        Drop([id = command.transfer](const CarrierOp& op) { return op.transfer == id; },
             Reason::kCancelled, "the transfer was cancelled");
        return;
      case Command::Kind::kDetach:
        Drop([remote = command.remote](const CarrierOp& op) { return op.remote == remote; },
             Reason::kPeerLost, "the peer was removed");
        return;
    }
  }

  // Every operation gets a status of its own: copies of one would share its count of references
  // with the thread that takes them.
  template <class Which>
  void Drop(Which which, Reason reason, std::string_view what) {
    if (current_ && which(current_->read.op)) {
      WEIR_REACHED("shm: dropped in the middle of a copy");
      Finish(Error(reason, what));
    }
    for (auto& reads : waiting_) {
      for (const Command& read : reads) {
        if (which(read.op)) done_.Push({read.op.transfer, read.op.bytes, Error(reason, what)});
      }
      std::erase_if(reads, [&](const Command& read) { return which(read.op); });
    }
  }

  void CopyChunk() {
    if (!current_) {
      auto* first = std::find_if(std::begin(waiting_), std::end(waiting_),
                                 [](const auto& reads) { return !reads.empty(); });
      if (first == std::end(waiting_)) return;
      current_ = Current{std::move(first->front())};
      first->pop_front();
    }
    const CarrierOp& op = current_->read.op;
    const uint32_t size = std::min(kChunkBytes, op.bytes - current_->copied);
    std::byte* to = op.to + current_->copied;
    std::memcpy(to, current_->read.from->data() + op.offset + current_->copied, size);
    if (op.crc32c != 0) current_->crc = Crc32c({to, size}, current_->crc);
    current_->copied += size;
    if (current_->copied < op.bytes) return;
    if (op.crc32c != 0 && current_->crc != op.crc32c) {
      WEIR_REACHED("transfer: checksum of landed bytes differs");
      Finish(Error(Reason::kCorrupt, "the bytes that landed have another checksum", "crc32c"));
    } else {
      Finish(absl::OkStatus());
    }
  }

  void Finish(absl::Status status) {
    const CarrierOp op = current_->read.op;
    current_.reset();
    done_.Push({op.transfer, op.bytes, std::move(status)});
  }

  BoundedQueue<Command>& commands_;
  DoneQueue& done_;
  std::vector<Command> batch_;
  std::deque<Command> waiting_[kTrafficCount];
  std::optional<Current> current_;
};

class ShmCarrier final : public Carrier {
 public:
  ~ShmCarrier() override {
    if (commands_) commands_->Close();
    if (thread_.joinable()) thread_.join();
  }

  RegionKind kind() const override { return RegionKind::kShm; }

  void Start(const CarrierLimits& limits, std::function<void()> wake) override {
    // A peer may be removed and added again before the io thread looks; hence more than one detach
    // for each peer has room, and Attach refuses before that could run out.
    command_capacity_ = limits.ops_max + 2 * limits.transfers_max + 4 * limits.remotes_max + 16;
    remotes_reserve_ = 2 * limits.remotes_max;
    commands_ = std::make_unique<BoundedQueue<Command>>(command_capacity_);
    done_ = std::make_unique<DoneQueue>(limits.ops_max, std::move(wake));
    thread_ = std::thread([this] { Copier(commands_.get(), done_.get()).Run(); });
  }

  absl::Status AddRegion(uint32_t region, Arena* arena) override {
    local_[region] = arena;
    return absl::OkStatus();
  }

  std::string Describe(uint32_t region) const override {
    auto found = local_.find(region);
    if (found == local_.end() || !found->second->shared()) return {};
    return Serialise(DescribeShared(region, *found->second));
  }

  absl::Status Attach(RemoteHandle remote, const RegionDescriptor& descriptor) override {
    if (commands_->size() + remotes_reserve_ > command_capacity_) {
      return Error(Reason::kQueueFull, "too many peers are being removed");
    }
    WEIR_ASSIGN(auto view, ArenaView::Map(descriptor));
    views_[{remote, descriptor.region}] = std::move(view);
    return absl::OkStatus();
  }

  void Detach(RemoteHandle remote) override {
    const size_t dropped =
        std::erase_if(views_, [remote](const auto& entry) { return entry.first.first == remote; });
    if (dropped == 0) return;
    Command command;
    command.kind = Command::Kind::kDetach;
    command.remote = remote;
    WEIR_CHECK(commands_->TryPush(std::move(command)));
  }

  void Read(CarrierOp op) override {
    auto view = views_.find({op.remote, op.region});
    WEIR_CHECK(view != views_.end() && op.offset + op.bytes <= view->second->bytes());
    Command command;
    command.op = op;
    command.from = view->second;
    WEIR_CHECK(commands_->TryPush(std::move(command)));
  }

  void Cancel(uint64_t transfer) override {
    Command command;
    command.kind = Command::Kind::kCancel;
    command.transfer = transfer;
    WEIR_CHECK(commands_->TryPush(std::move(command)));
  }

  void Collect(std::vector<CarrierDone>* out) override { done_->Collect(out); }

 private:
  // Owned by the Transfer's thread.
  std::map<uint32_t, Arena*> local_;
  std::map<std::pair<RemoteHandle, uint32_t>, std::shared_ptr<const ArenaView>> views_;
  // Constant after Start.
  size_t command_capacity_ = 0;
  size_t remotes_reserve_ = 0;
  std::unique_ptr<BoundedQueue<Command>> commands_;
  std::unique_ptr<DoneQueue> done_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Carrier> MakeShmCarrier() { return std::make_unique<ShmCarrier>(); }

}  // namespace weir::kv
