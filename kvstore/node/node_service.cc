// SPDX-License-Identifier: Apache-2.0
#include "kvstore/node/node_service.h"

#include "base/stdx/bytes.h"
#include "base/stdx/status.h"
#include "kvstore/client/kv_wire.h"
#include "kvstore/transfer/arena.h"
#include "kvstore/transfer/route_transfer.h"
#include "kvstore/transfer/shm_carrier.h"

namespace weir::kv {
namespace {

constexpr uint64_t kStatesArriving = 4;  // at once; more is kQueueFull

}  // namespace

NodeService::NodeService(NodeServiceOptions options) : options_(std::move(options)) {}

absl::StatusOr<std::unique_ptr<NodeService>> NodeService::Create(NodeServiceOptions options) {
  std::unique_ptr<NodeService> node(new NodeService(std::move(options)));
  // Host tier, window ring, and room in which states arrive, one behind the other.
  const uint64_t host = AlignUp<uint64_t>(node->options_.store.host_bytes, kRecordPage);
  const uint64_t windows = AlignUp<uint64_t>(node->options_.window_bytes, kRecordPage);
  const WindowRing::Options& ring = node->options_.windows;
  if (windows > 0 && (ring.state_bytes_max == 0 ||
                      windows < WindowRing::SlotBytes(ring.state_bytes_max))) {
    return Error(Reason::kBadField, "the window ring has no room for one state", "window_bytes");
  }
  const uint64_t staging = windows == 0 ? 0 : kStatesArriving * uint64_t{ring.state_bytes_max};
  WEIR_ASSIGN(node->arena_, Arena::CreateShared(host + windows + staging));
  const std::span<std::byte> memory(node->arena_->data(), node->arena_->bytes());
  TieredOptions tiers = node->options_.store;
  tiers.arena = memory.first(host);
  NodeCore::Windows states;
  if (windows > 0) {
    node->windows_ = std::make_unique<WindowRing>(memory.subspan(host, windows), ring);
    states = {node->windows_.get(), memory.subspan(host + windows)};
  }
  WEIR_ASSIGN(node->store_, TieredStore::Open(tiers));

  NodeOptions core = node->options_.core;
  core.name = node->options_.name;
  core.instance = InstanceId(LoadAs<uint64_t>(MakeRegionToken().data()) | 1);
  // Made before the driver that its wake-ups go to; nothing wakes before the first client.
  NodeService* self = node.get();
  std::vector<std::unique_ptr<Carrier>> carriers;
  carriers.push_back(MakeShmCarrier());
  node->transfer_ = std::make_unique<RouteTransfer>(
      TransferOptions{.self = core.instance,
                      .wake =
                          [self] {
                            self->loop_.Post("kv node copies", [self] {
                              if (self->driver_) self->driver_->Deliver({});
                            });
                          }},
      std::move(carriers));
  WEIR_TRY(node->transfer_->AddRegion(kNodeRegion, node->arena_.get()));
  node->core_ =
      std::make_unique<NodeCore>(core, memory, node->store_.get(), node->transfer_.get(), states);
  Driver<NodeCore>::Options driver;
  driver.make_tick = [] { return NodeEvent{}; };
  driver.perform = [self](Instant, NodeActions* actions) { self->Perform(actions); };
  node->driver_ = std::make_unique<LoopDriver<NodeCore>>(&node->loop_, node->core_.get(),
                                                         std::move(driver));
  Channel::Options channel;
  channel.listen_address = node->options_.listen_address;
  channel.loop = &node->loop_;
  channel.heartbeat = Millis(200);
  channel.dead_after = Millis(2000);
  WEIR_ASSIGN(node->channel_, node->options_.make_channel(std::move(channel), self));
  return node;
}

void NodeService::Start() { loop_.Start(); }

NodeService::~NodeService() { Stop(); }

void NodeService::Stop() {
  if (channel_) channel_->Shutdown();
  loop_.Stop();
  loop_.Join();
  driver_.reset();
}

NodeService::Stats NodeService::GetStats() {
  Stats stats;
  stats.host_bytes_max = options_.store.host_bytes;
  stats.disk_bytes_max = options_.store.disk.capacity_bytes;
  stats.window_slots = windows_ ? windows_->slots() : 0;
  loop_.Call("kv node stats", [&] {
    stats.node = core_->stats();
    stats.store = store_->stats();
    stats.transfer = transfer_->Stats();
  });
  return stats;
}

void NodeService::OnDown(PeerId peer, const absl::Status&) {
  driver_->Deliver({.kind = NodeEvent::Kind::kDown, .peer = peer});
}

bool NodeService::OnMessage(PeerId peer, std::string&& bytes) {
  auto message = std::make_shared<v1::KvMessage>();
  if (!message->ParseFromString(bytes)) message->Clear();  // refused like any that does not fit
  driver_->Deliver({.kind = NodeEvent::Kind::kMessage, .peer = peer, .message = message});
  return true;
}

void NodeService::Perform(NodeActions* actions) {
  for (NodeActions::Send& send : actions->sends) {
    // A client that does not take its answers is dropped like a lost one.
    if (!channel_->Send(send.peer, send.message.SerializeAsString()))
      actions->closes.push_back(send.peer);
  }
  for (const PeerId peer : actions->closes) {
    channel_->Close(peer);
    loop_.Post("kv node drops a client", [this, peer] {
      if (driver_) driver_->Deliver({.kind = NodeEvent::Kind::kDown, .peer = peer});
    });
  }
}

}  // namespace weir::kv
