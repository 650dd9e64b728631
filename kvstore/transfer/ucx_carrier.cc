// SPDX-License-Identifier: Apache-2.0
#include "kvstore/transfer/ucx_carrier.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <thread>
#include <utility>

#include "kvstore/transfer/ucx_context.h"
#include "kvstore/transfer/ucx_reader.h"
#include "kvstore/transfer/ucx_server.h"

namespace weir::kv {
namespace {

constexpr size_t kCommandsPerTurn = 1024;
constexpr int kProgressPerTurn = 64;
// Turns without work before the thread sleeps. Few: turns cost system calls, and where cores are short
// the other end wants ours.
constexpr int kIdleTurns = 2;

struct Command {
  enum class Kind : uint8_t { kRegion, kAttach, kDetach, kRead, kCancel } kind = Kind::kRead;
  CarrierOp op;                       // kRead
  uint64_t transfer = 0;              // kCancel
  RemoteHandle remote = 0;            // kAttach, kDetach
  uint32_t region = 0;                // kRegion, kAttach
  RegionToken token{};                // kRegion, kAttach
  SocketAddress address;              // kAttach
  std::span<const std::byte> memory;  // kRegion
};

Instant Now() {
  return Instant(std::chrono::duration_cast<Duration>(
      std::chrono::steady_clock::now().time_since_epoch()));
}

class UcxCarrier final : public Carrier {
 public:
  UcxCarrier(UcxOptions options, std::unique_ptr<UcxContext> ucx, int wake_fd)
      : options_(std::move(options)), ucx_(std::move(ucx)), wake_fd_(wake_fd) {}

  ~UcxCarrier() override {
    if (commands_) commands_->Close();
    Signal();
    if (thread_.joinable()) thread_.join();
    close(wake_fd_);
  }

  RegionKind kind() const override { return RegionKind::kUcx; }

  void Start(const CarrierLimits& limits, std::function<void()> wake) override {
    control_reserve_ = 2 * size_t{limits.remotes_max};
    capacity_ = limits.ops_max + 2 * size_t{limits.transfers_max} + limits.regions_max +
                2 * size_t{limits.remotes_max} * limits.regions_max + control_reserve_;
    commands_ = std::make_unique<BoundedQueue<Command>>(capacity_);
    done_ = std::make_unique<DoneQueue>(limits.ops_max, std::move(wake));
    thread_ = std::thread([this] { Run(); });
  }

  absl::Status AddRegion(uint32_t region, Arena* arena) override {
    RegionDescriptor descriptor;
    descriptor.kind = RegionKind::kUcx;
    descriptor.region = region;
    descriptor.bytes = arena->bytes();
    descriptor.token = MakeRegionToken();
    descriptor.host =
        options_.advertise_host.empty() ? options_.listen_host : options_.advertise_host;
    descriptor.port = ucx_->port();
    Command command;
    command.kind = Command::Kind::kRegion;
    command.region = region;
    command.token = descriptor.token;
    command.memory = {arena->data(), arena->bytes()};
    Push(std::move(command));
    local_.emplace(region, std::move(descriptor));
    return absl::OkStatus();
  }

  std::string Describe(uint32_t region) const override {
    auto found = local_.find(region);
    return found == local_.end() ? std::string() : Serialise(found->second);
  }

  absl::Status Attach(RemoteHandle remote, const RegionDescriptor& descriptor) override {
    WEIR_ASSIGN(const SocketAddress address,
                MakeSocketAddress(descriptor.host, descriptor.port));
    const auto at = std::make_pair(descriptor.host, descriptor.port);
    if (auto found = remotes_.find(remote); found != remotes_.end() && found->second != at) {
      return Error(Reason::kBadField, "a peer's regions are at different addresses", "regions.host");
    }
    if (commands_->size() + control_reserve_ > capacity_) {
      return Error(Reason::kQueueFull, "too many peers come and go");
    }
    remotes_[remote] = at;
    Command command;
    command.kind = Command::Kind::kAttach;
    command.remote = remote;
    command.region = descriptor.region;
    command.token = descriptor.token;
    command.address = address;
    Push(std::move(command));
    return absl::OkStatus();
  }

  void Detach(RemoteHandle remote) override {
    if (remotes_.erase(remote) == 0) return;
    Command command;
    command.kind = Command::Kind::kDetach;
    command.remote = remote;
    Push(std::move(command));
  }

  void Read(CarrierOp op) override {
    Command command;
    command.op = op;
    Push(std::move(command));
  }

  void Cancel(uint64_t transfer) override {
    Command command;
    command.kind = Command::Kind::kCancel;
    command.transfer = transfer;
    Push(std::move(command));
  }

  void Collect(std::vector<CarrierDone>* out) override { done_->Collect(out); }

 private:
  void Push(Command command) {
    WEIR_CHECK(commands_->TryPush(std::move(command)));
    if (!signalled_.exchange(true)) Signal();
  }

  void Signal() {
    const uint64_t one = 1;
    (void)!write(wake_fd_, &one, sizeof(one));
  }

  // The progress thread.
  void Run() {
    UcxServer server(ucx_.get(), options_);
    UcxReader reader(ucx_.get(), options_, done_.get());
    Instant now = Now();
    Instant next_tick = now + options_.ping_interval;
    int idle = 0;
    while (!commands_->closed()) {
      bool busy = false;
      for (int i = 0; i < kProgressPerTurn && ucx_->Progress() > 0; ++i) busy = true;
      busy |= Obey(server, reader, now);
      server.Serve();
      now = Now();
      reader.Advance(now);
      if (now >= next_tick) {
        server.Tick();
        reader.Tick(now);
        next_tick = now + options_.ping_interval;
      }
      idle = busy ? 0 : idle + 1;
      if (idle < kIdleTurns) continue;
      ucx_->Sleep(wake_fd_, std::min(next_tick, reader.NextRetry()) - now);
      idle = 0;
    }
  }

  bool Obey(UcxServer& server, UcxReader& reader, Instant now) {
    if (signalled_.load()) {
      signalled_.store(false);
      uint64_t count;
      (void)!read(wake_fd_, &count, sizeof(count));
    }
    batch_.clear();
    commands_->PopSome(kCommandsPerTurn, &batch_);
    for (const Command& command : batch_) {
      switch (command.kind) {
        case Command::Kind::kRegion:
          server.AddRegion(command.region, command.memory, command.token);
          break;
        case Command::Kind::kAttach:
          reader.Attach(command.remote, command.address, command.region, command.token, now);
          break;
        case Command::Kind::kDetach:
          reader.Detach(command.remote);
          break;
        case Command::Kind::kRead:
          reader.Read(command.op, now);
          break;
        case Command::Kind::kCancel:
          reader.Cancel(command.transfer);
          break;
      }
    }
    return !batch_.empty();
  }

  // Constant after Start.
  const UcxOptions options_;
  const std::unique_ptr<UcxContext> ucx_;  // used by the progress thread while it runs
  const int wake_fd_;
  size_t capacity_ = 0;
  size_t control_reserve_ = 0;
  std::unique_ptr<BoundedQueue<Command>> commands_;
  std::unique_ptr<DoneQueue> done_;
  // Owned by the Transfer's thread.
  std::map<uint32_t, RegionDescriptor> local_;
  std::map<RemoteHandle, std::pair<std::string, uint16_t>> remotes_;
  // Owned by the progress thread.
  std::vector<Command> batch_;
  // Between them.
  std::atomic<bool> signalled_{false};
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Carrier>> MakeUcxCarrier(UcxOptions options) {
  if (options.window == 0 || options.piece_bytes == 0 || options.ping_misses_max == 0 ||
      options.ping_interval <= Duration::zero()) {
    return Error(Reason::kBadField, "a transfer option is zero", "transfer");
  }
  WEIR_ASSIGN(auto ucx, UcxContext::Create(options));
  const int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_fd < 0) return Error(Reason::kNoCapacity, "no event descriptor for transfers");
  return std::unique_ptr<Carrier>(
      std::make_unique<UcxCarrier>(std::move(options), std::move(ucx), wake_fd));
}

}  // namespace weir::kv
