// SPDX-License-Identifier: Apache-2.0
//
// Transfers between real processes, over real memory files and UCX over TCP, with the owner of the
// memory killed or stopped in the middle.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <map>

#include "base/stdx/check.h"
#include "base/stdx/hash.h"
#include "base/stdx/status.h"
#include "base/stdx/units.h"
#include "gtest/gtest.h"
#include "kvstore/transfer/route_transfer.h"
#include "kvstore/transfer/shm_carrier.h"
#include "kvstore/transfer/test_pattern.h"
#include "kvstore/transfer/test_waker.h"
#include "kvstore/transfer/ucx_carrier.h"

extern char** environ;

namespace weir::kv {
namespace {

constexpr InstanceId kOwner{1};
constexpr uint64_t kMiBs = 32;

// A transfer_peer process, killed and reaped at the end.
class Process {
 public:
  Process(std::string mode, std::string argument) {
    int in[2], out[2];
    EXPECT_EQ(pipe2(in, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(out, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    std::string program = WEIR_TRANSFER_PEER;
    char* argv[] = {program.data(), mode.data(), argument.data(), nullptr};
    EXPECT_EQ(posix_spawn(&pid_, program.c_str(), &actions, nullptr, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    input_ = in[1];
    output_ = out[0];
  }
  ~Process() {
    Signal(SIGKILL);
    close(input_);
    close(output_);
    waitpid(pid_, nullptr, 0);
  }
  void Signal(int signal) { kill(pid_, signal); }
  // The lines up to an empty one. UCX may print warnings of its own in between.
  std::vector<std::string> Lines() {
    std::vector<std::string> lines;
    std::string line;
    char c;
    while (read(output_, &c, 1) == 1) {
      if (c != '\n') {
        line += c;
      } else if (line.empty()) {
        return lines;
      } else {
        lines.push_back(std::move(line));
        line.clear();
      }
    }
    ADD_FAILURE() << "the other process ended";
    return lines;
  }

 private:
  pid_t pid_ = -1;
  int input_ = -1;
  int output_ = -1;
};

// A process that owns memory.
class Peer : public Process {
 public:
  Peer() : Process("own", std::to_string(kMiBs)), lines_(Lines()) {}

  std::vector<std::string> descriptors() const {
    std::vector<std::string> out;
    for (const std::string& hex : lines_) {
      std::string bytes;
      for (size_t at = 0; at + 1 < hex.size(); at += 2) {
        bytes += static_cast<char>(std::strtoul(hex.substr(at, 2).c_str(), nullptr, 16));
      }
      if (ParseRegionDescriptor(bytes).ok()) out.push_back(std::move(bytes));
    }
    return out;
  }
  std::vector<std::string> Of(RegionKind kind) const {
    std::vector<std::string> out;
    for (const std::string& bytes : descriptors()) {
      if (ParseRegionDescriptor(bytes)->kind == kind) out.push_back(bytes);
    }
    return out;
  }
  std::string HexOfNetwork() const {
    const std::string bytes = Of(RegionKind::kUcx)[0];
    return HexOf({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  }

 private:
  std::vector<std::string> lines_;
};

struct Reader {
  Waker waker;
  std::unique_ptr<Arena> pages = *Arena::CreatePrivate(kMiBs * kMiB);
  std::unique_ptr<RouteTransfer> transfer;

  // Patient unless told otherwise: a test machine may not give the other process a turn for a second.
  explicit Reader(UcxOptions options = {.ping_misses_max = 50}) {
    std::vector<std::unique_ptr<Carrier>> carriers;
    carriers.push_back(MakeShmCarrier());
    carriers.push_back(*MakeUcxCarrier(std::move(options)));
    transfer = std::make_unique<RouteTransfer>(
        TransferOptions{.self = InstanceId(2), .wake = waker.Hook()}, std::move(carriers));
    EXPECT_TRUE(transfer->AddRegion(1, pages.get()).ok());
  }

  // One transfer per MiB, at the same place here as there.
  void PostAll() {
    for (uint64_t i = 0; i < kMiBs; ++i) {
      const CopyOp op{.from = kOwner, .remote_region = 1, .remote_offset = i * kMiB,
                      .local_region = 1, .local_offset = i * kMiB, .bytes = 1 << 20};
      auto id = transfer->Post({&op, 1}, Traffic::kHandover);
      ASSERT_TRUE(id.ok()) << id.status();
      place[id->value] = i * kMiB;
    }
  }
  std::vector<Completion> Await(size_t count) { return waker.Await(transfer.get(), count); }
  // How many of these ended so; those that are OK have the right bytes.
  size_t CountOf(const std::vector<Completion>& done, Reason reason) {
    size_t count = 0;
    for (const Completion& completion : done) {
      if (completion.status.ok()) {
        const uint64_t at = place[completion.id.value];
        EXPECT_TRUE(HasPattern(1, at, {pages->data() + at, kMiB}));
      }
      count += ReasonOf(completion.status) == reason ? 1 : 0;
    }
    return count;
  }
  std::map<uint64_t, uint64_t> place;
};

TEST(TransferProcess, SharedMemoryIsTakenOnOneHostAndTheNetworkOtherwise) {
  Peer peer;
  Reader reader;
  ASSERT_EQ(reader.transfer->AddRemote(kOwner, peer.descriptors()), absl::OkStatus());
  EXPECT_EQ(*reader.transfer->KindOf(kOwner, 1), RegionKind::kShm);
  reader.PostAll();
  EXPECT_EQ(reader.CountOf(reader.Await(kMiBs), Reason::kOk), kMiBs);
  EXPECT_EQ(reader.transfer->Stats().bytes_shm, kMiBs * kMiB);

  auto far = peer.Of(RegionKind::kUcx);
  RegionDescriptor elsewhere = *ParseRegionDescriptor(peer.Of(RegionKind::kShm)[0]);
  elsewhere.boot[0] ^= 1;
  far.push_back(Serialise(elsewhere));
  reader.transfer->RemoveRemote(kOwner);
  std::fill_n(reader.pages->data(), reader.pages->bytes(), std::byte{0});
  ASSERT_EQ(reader.transfer->AddRemote(kOwner, far), absl::OkStatus());
  EXPECT_EQ(*reader.transfer->KindOf(kOwner, 1), RegionKind::kUcx);
  reader.PostAll();
  EXPECT_EQ(reader.CountOf(reader.Await(kMiBs), Reason::kOk), kMiBs);
  EXPECT_EQ(reader.transfer->Stats().bytes_ucx, kMiBs * kMiB);
}

TEST(TransferProcess, SharedMemorySurvivesTheDeathOfItsOwner) {
  Peer peer;
  Reader reader;
  ASSERT_EQ(reader.transfer->AddRemote(kOwner, peer.descriptors()), absl::OkStatus());
  reader.PostAll();
  auto done = reader.Await(1);
  peer.Signal(SIGKILL);
  auto rest = reader.Await(kMiBs - done.size());
  done.insert(done.end(), rest.begin(), rest.end());
  EXPECT_EQ(done.size(), kMiBs);
  EXPECT_EQ(reader.CountOf(done, Reason::kOk), kMiBs);
}

TEST(TransferProcess, OverTheNetworkTheDeathOfTheOwnerEndsEveryRead) {
  for (int round = 0; round < 3; ++round) {
    Peer peer;
    Reader reader;
    ASSERT_EQ(reader.transfer->AddRemote(kOwner, peer.Of(RegionKind::kUcx)), absl::OkStatus());
    reader.PostAll();
    auto done = reader.Await(1);
    peer.Signal(SIGKILL);
    auto rest = reader.Await(kMiBs - done.size());
    done.insert(done.end(), rest.begin(), rest.end());
    ASSERT_EQ(done.size(), kMiBs);
    const size_t ok = reader.CountOf(done, Reason::kOk);
    EXPECT_EQ(ok + reader.CountOf(done, Reason::kPeerLost), kMiBs);
    EXPECT_EQ(reader.transfer->Stats().outstanding, 0u);
  }
}

TEST(TransferProcess, AStoppedOwnerIsNoticedAndMayComeBack) {
  Peer peer;
  Reader reader({.ping_interval = Millis(100), .ping_misses_max = 25});
  ASSERT_EQ(reader.transfer->AddRemote(kOwner, peer.Of(RegionKind::kUcx)), absl::OkStatus());
  reader.PostAll();
  ASSERT_EQ(reader.CountOf(reader.Await(kMiBs), Reason::kOk), kMiBs);
  peer.Signal(SIGSTOP);
  reader.PostAll();
  auto done = reader.Await(kMiBs);
  ASSERT_EQ(done.size(), kMiBs);
  EXPECT_GE(reader.CountOf(done, Reason::kPeerLost), 1u);
  EXPECT_GE(ReachedCount("ucx: a peer fell silent"), 1u);
  // Those pages are ours again: nothing may land when the owner wakes up (case D07).
  std::fill_n(reader.pages->data(), reader.pages->bytes() / 2, std::byte{0xee});
  peer.Signal(SIGCONT);
  const CopyOp op{.from = kOwner, .remote_region = 1, .remote_offset = 5, .local_region = 1,
                  .local_offset = 20 * kMiB, .bytes = 1 << 20};
  auto id = reader.transfer->Post({&op, 1}, Traffic::kHandover);
  ASSERT_TRUE(id.ok());
  done = reader.Await(1);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status, absl::OkStatus());
  EXPECT_TRUE(HasPattern(1, 5, {reader.pages->data() + 20 * kMiB, kMiB}));
  const std::span<const std::byte> quiet(reader.pages->data(), reader.pages->bytes() / 2);
  EXPECT_TRUE(std::ranges::all_of(quiet, [](std::byte b) { return b == std::byte{0xee}; }));
}

TEST(TransferProcess, CancellingAgainstAStoppedOwnerEndsWithItsLink) {
  Peer peer;
  Reader reader({.ping_interval = Millis(100), .ping_misses_max = 25});
  ASSERT_EQ(reader.transfer->AddRemote(kOwner, peer.Of(RegionKind::kUcx)), absl::OkStatus());
  reader.PostAll();
  reader.Await(1);
  peer.Signal(SIGSTOP);
  for (const auto& [id, at] : reader.place) reader.transfer->Cancel(TransferId(id));
  reader.Await(kMiBs - 1);
  EXPECT_EQ(reader.transfer->Stats().outstanding, 0u);
  std::fill_n(reader.pages->data(), reader.pages->bytes(), std::byte{0xee});
  reader.transfer->RemoveRemote(kOwner);
  peer.Signal(SIGCONT);
  // It takes that well: it is still there for the next one.
  ASSERT_EQ(reader.transfer->AddRemote(kOwner, peer.Of(RegionKind::kUcx)), absl::OkStatus());
  const CopyOp op{.from = kOwner, .remote_region = 1, .local_region = 1, .bytes = 1 << 20};
  ASSERT_TRUE(reader.transfer->Post({&op, 1}, Traffic::kHit).ok());
  const auto done = reader.Await(1);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status, absl::OkStatus());
  const auto quiet = std::span<const std::byte>(reader.pages->data(), reader.pages->bytes());
  EXPECT_TRUE(std::ranges::all_of(quiet.subspan(kMiB),
                                  [](std::byte b) { return b == std::byte{0xee}; }));
}

TEST(TransferProcess, AnOwnerOutlivesReadersThatDie) {
  Peer peer;
  for (int round = 0; round < 3; ++round) {
    Process killed("read", peer.HexOfNetwork());
    killed.Lines();
    Process stopped("read", peer.HexOfNetwork());
    stopped.Lines();
    stopped.Signal(SIGSTOP);
  }
  Reader reader;
  ASSERT_EQ(reader.transfer->AddRemote(kOwner, peer.Of(RegionKind::kUcx)), absl::OkStatus());
  reader.PostAll();
  EXPECT_EQ(reader.CountOf(reader.Await(kMiBs), Reason::kOk), kMiBs);
}

TEST(TransferProcess, NobodyListensMeansLostInTime) {
  std::vector<std::string> descriptors;
  {
    Peer peer;
    descriptors = peer.Of(RegionKind::kUcx);
  }
  Reader reader({.ping_interval = Millis(20), .connect_timeout = Millis(200)});
  ASSERT_EQ(reader.transfer->AddRemote(kOwner, descriptors), absl::OkStatus());
  reader.PostAll();
  auto done = reader.Await(kMiBs);
  ASSERT_EQ(done.size(), kMiBs);
  EXPECT_EQ(reader.CountOf(done, Reason::kPeerLost), kMiBs);
}

}  // namespace
}  // namespace weir::kv
