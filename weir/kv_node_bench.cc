// SPDX-License-Identifier: Apache-2.0
//
// A running store, measured from an engine's side: a prompt of records of 1 MiB is put once, looked
// up, and its records are loaded one after another into memory of this process.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/net/grpc_channel.h"
#include "base/runtime/clock.h"
#include "base/stdx/bounded_queue.h"
#include "base/stdx/bytes.h"
#include "base/stdx/random.h"
#include "kvstore/client/remote_client.h"
#include "kvstore/key/namespace.h"
#include "kvstore/transfer/arena.h"
#include "weir/kv_commands.h"

namespace weir {
namespace {

constexpr uint32_t kRecords = 16;
constexpr uint32_t kRecordBlocks = 16;
constexpr uint32_t kBlockBytes = 64 * 1024;

class NodeBench {
 public:
  absl::Status Open(const std::string& address) {
    WEIR_ASSIGN(arena_, kv::Arena::CreateShared(uint64_t{kRecordBlocks} * kBlockBytes));
    WEIR_ASSIGN(client_, kv::RemoteClient::Create(
                             {.address = address,
                              .name = "bench",
                              .make_channel =
                                  [](Channel::Options channel, Channel::Handler* handler) {
                                    return CreateGrpcChannel(std::move(channel), handler);
                                  },
                              .wake = [this] { (void)wakes_.TryPush(1); }}));
    WEIR_TRY(client_->AddRegion(1, arena_.get()));
    shape_.blocks = kRecordBlocks;
    shape_.sections = 1;
    shape_.section[0] = {1, kBlockBytes};
    std::vector<TokenId> tokens(kRecords * kRecordBlocks);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(i);
    kv::KeyChain chain(root_, 1);
    chain.Append(tokens);
    keys_.assign(chain.keys().begin(), chain.keys().end());
    for (uint32_t j = 0; j < kRecordBlocks; ++j)
      parts_.push_back({.block = j, .region = 1, .offset = uint64_t{j} * kBlockBytes});
    const Instant end = Now() + Millis(10'000);
    while (!client_->up() && Now() < end) WaitTurn(Millis(50));
    return client_->up() ? absl::OkStatus()
                         : Error(Reason::kPeerLost, "no store answers there", "--node");
  }

  // Records of 1 MiB a second that a prompt's loads bring; the lookup counts.
  absl::StatusOr<double> Measure(int prompts) {
    for (uint32_t i = 0; i < kRecords; ++i) WEIR_TRY(PutRecord(i));
    const Instant begin = Now();
    for (int turn = 0; turn < prompts; ++turn) {
      WEIR_ASSIGN(const kv::KvOpId lookup, client_->Lookup(Now(), root_, keys_, true, shape_));
      WEIR_ASSIGN(const kv::KvOutcome found, Await(lookup));
      if (found.blocks != keys_.size())
        return Error(Reason::kNoCapacity, "the store is too small for 16 MiB", "--node");
      for (uint32_t i = 0; i < kRecords; ++i) {
        for (uint32_t j = 0; j < kRecordBlocks; ++j) parts_[j].block = i * kRecordBlocks + j;
        WEIR_ASSIGN(const kv::KvOpId load,
                    client_->Load(Now(), lookup, parts_, Now() + Millis(5000)));
        WEIR_TRY(Await(load).status());
      }
      client_->Release(lookup);
    }
    return prompts * static_cast<double>(kRecords) / Seconds(Now() - begin);
  }

 private:
  absl::Status PutRecord(uint32_t index) {
    kv::KvPut put{.root = root_, .keys = keys_, .first = index * kRecordBlocks, .shape = shape_};
    put.parts = parts_;
    for (uint32_t j = 0; j < kRecordBlocks; ++j) {
      put.parts[j].block = index * kRecordBlocks + j;
      std::memset(arena_->data() + put.parts[j].offset, static_cast<int>(index + j), kBlockBytes);
    }
    WEIR_ASSIGN(const kv::KvOpId id, client_->Put(Now(), put, Now() + Millis(5000)));
    return Await(id).status();
  }

  void WaitTurn(Duration limit) {
    std::vector<int> woken;
    wakes_.WaitSome(64, limit, &woken);
    client_->Poll(Now(), &outcomes_);
  }

  absl::StatusOr<kv::KvOutcome> Await(kv::KvOpId id) {
    for (;;) {  // every operation ends by its deadline
      client_->Poll(Now(), &outcomes_);
      for (kv::KvOutcome& outcome : outcomes_) {
        if (outcome.id != id) continue;
        kv::KvOutcome found = std::move(outcome);
        outcomes_.clear();
        if (!found.status.ok()) return found.status;
        return found;
      }
      outcomes_.clear();
      WaitTurn(Millis(100));
    }
  }

  BoundedQueue<int> wakes_{64};
  std::unique_ptr<kv::Arena> arena_;
  std::unique_ptr<kv::RemoteClient> client_;
  kv::RecordShape shape_;
  const kv::BlockKey root_ = kv::DomainRoot("bench", {.account = "bench"}, {.model = "bench"});
  std::vector<kv::BlockKey> keys_;
  std::vector<kv::BlockPart> parts_;
  std::vector<kv::KvOutcome> outcomes_;
};

}  // namespace

int RunKvNodeBench(const KvNodeBenchArgs& args) {
  NodeBench bench;
  const absl::Status opened = bench.Open(args.address);
  const absl::StatusOr<double> rate =
      opened.ok() ? bench.Measure(args.quick ? 20 : 200) : absl::StatusOr<double>(opened);
  if (!rate.ok()) {
    std::fprintf(stderr, "weir kv bench: %s\n",
                 std::string(StdView(rate.status().message())).c_str());
    return 1;
  }
  std::printf(args.json ? "{\"mib_per_s\":%.1f}\n" : "%.1f MiB/s in records of 1 MiB\n", *rate);
  return 0;
}

}  // namespace weir
