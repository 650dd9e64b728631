// SPDX-License-Identifier: Apache-2.0
//
// `history_client ADDRESS SEED OPERATIONS` runs a ClientHistory against a store process and prints
// its counts as one JSON object. A store that is away is waited for. Exits 1 if a byte was wrong.
#include <cstdio>
#include <cstdlib>

#include "base/net/grpc_channel.h"
#include "kvstore/client/remote_client.h"
#include "kvstore/node/test_history.h"

int main(int argc, char** argv) {
  using namespace weir;
  using namespace weir::kv;
  if (argc != 4) return 2;
  const uint64_t seed = std::strtoull(argv[2], nullptr, 10);
  const uint64_t operations = std::strtoull(argv[3], nullptr, 10);
  WakeFlag wake;
  const auto arena = Arena::CreateShared(ClientHistory::kArenaBytes);
  auto client = RemoteClient::Create(
      {.address = argv[1],
       .name = "history",
       .make_channel = [](Channel::Options options, Channel::Handler* handler)
           -> absl::StatusOr<std::unique_ptr<Channel>> {
         options.redial_first = Millis(5);
         options.redial_max = Millis(50);
         return CreateGrpcChannel(std::move(options), handler);
       },
       .wake = wake.Hook()});
  if (!arena.ok() || !client.ok() || !(*client)->AddRegion(1, arena->get()).ok()) return 2;
  ClientHistory history(client->get(), &wake, arena->get(), seed);
  uint64_t away = 0;
  for (uint64_t i = 0; i < operations; ++i) {
    if (!(*client)->up()) {
      ++away;
      if (!history.AwaitUp()) break;
    }
    history.One();
  }
  std::printf(
      "{\"loaded_blocks\":%llu,\"puts\":%llu,\"failed\":%llu,\"erased\":%llu,\"away\":%llu,"
      "\"wrong\":%llu}\n",
      static_cast<unsigned long long>(history.loaded_blocks),
      static_cast<unsigned long long>(history.puts),
      static_cast<unsigned long long>(history.failed),
      static_cast<unsigned long long>(history.erased), static_cast<unsigned long long>(away),
      static_cast<unsigned long long>(history.wrong));
  return history.wrong > 0 ? 1 : 0;
}
