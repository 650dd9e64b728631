// SPDX-License-Identifier: Apache-2.0
//
// NodeService: the shell around NodeCore: one process's store of a host, for the engines that dial
// its address. It owns the loop whose thread runs core, store and transfer, the shared memory of the
// host tier, and the channel; it decides nothing. Create, Start, Stop and Stats are for one outside
// thread; Stats waits for a turn of the loop. Create fails where memory, folder or address cannot be
// had. Stop answers nobody any more; what the disk tier holds is there again at the next start.
#pragma once

#include <memory>
#include <string>

#include "base/net/channel.h"
#include "base/runtime/driver.h"
#include "base/runtime/loop.h"
#include "kvstore/node/node_core.h"

namespace weir::kv {

class Arena;

struct NodeServiceOptions {
  std::string name;
  std::string listen_address;  // "unix:PATH" or "host:port"
  ChannelFactory make_channel;
  TieredOptions store;  // arena is filled in
  uint64_t window_bytes = 0;  // of the window ring; 0: none
  WindowRing::Options windows;
  NodeOptions core;     // instance is drawn
};

class NodeService final : private Channel::Handler {
 public:
  static absl::StatusOr<std::unique_ptr<NodeService>> Create(NodeServiceOptions options);
  ~NodeService() override;

  void Start();
  void Stop();
  struct Stats {
    NodeStats node;
    TieredStats store;
    TransferStats transfer;
    uint64_t host_bytes_max = 0;
    uint64_t disk_bytes_max = 0;
    uint32_t window_slots = 0;
  };
  Stats GetStats();
  int listen_port() const { return channel_->listen_port(); }
  const Loop& loop() const { return loop_; }

 private:
  explicit NodeService(NodeServiceOptions options);
  void OnUp(PeerId, std::string_view) override {}
  void OnDown(PeerId peer, const absl::Status& why) override;
  bool OnMessage(PeerId peer, std::string&& bytes) override;
  void Perform(NodeActions* actions);

  // Constant after Create.
  const NodeServiceOptions options_;
  std::unique_ptr<Arena> arena_;
  Loop loop_{{.name = "kv node"}};
  std::unique_ptr<Channel> channel_;

  // Owned by the loop's thread while it runs.
  std::unique_ptr<TieredStore> store_;
  std::unique_ptr<WindowRing> windows_;
  std::unique_ptr<Transfer> transfer_;
  std::unique_ptr<NodeCore> core_;
  std::unique_ptr<LoopDriver<NodeCore>> driver_;
};

}  // namespace weir::kv
