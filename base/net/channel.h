// SPDX-License-Identifier: Apache-2.0
//
// Channel: how roles talk. It carries byte messages between this process and named peers, in order
// and at most once per link; a lost link loses what was under way, and the peers' own leases and
// retries deal with that. Every Handler call runs on one loop (the caller's or the channel's own),
// so a handler needs no lock and must not block; Send, Dial and Close are for any thread and never
// wait. Twins: grpc_channel.h between processes, mem_channel.h inside one.
//
// A PeerId names one dialled address or one accepted link of this channel; it is never reused. A
// dialled peer may go down and up again under its id, an accepted one ends with OnDown. Two
// channels need one link between them, whoever dialled: if both dial, each sees two peers. Who the
// peer is, its first message says (proto's Register).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/runtime/loop.h"
#include "base/runtime/time.h"
#include "base/stdx/status.h"
#include "base/stdx/strong.h"

namespace weir {

using PeerId = Strong<struct PeerIdTag, uint64_t>;

class Channel {
 public:
  class Handler {
   public:
    virtual ~Handler() = default;
    // The link stands and Send works. `address` is the dialled address, or empty for an accepted
    // link.
    virtual void OnUp(PeerId peer, std::string_view address) = 0;
    // The link is gone. For a dialled peer another OnUp follows once it answers again, until Close.
    virtual void OnDown(PeerId peer, const absl::Status& why) = 0;
    // Takes the message and returns true; or returns false, leaving `bytes` alone, to have it
    // offered again a little later. Meanwhile the peer's messages back up into its send queue.
    virtual bool OnMessage(PeerId peer, std::string&& bytes) = 0;
  };

  struct Options {
    // "host:port" (port 0 picks one), "unix:PATH", "mem:NAME" for the twin, or empty to accept none.
    std::string listen_address;
    // Where the handler runs; null for a thread of the channel's own. Must outlive the channel.
    Loop* loop = nullptr;
    Duration heartbeat = Millis(500);
    Duration dead_after = Millis(5000);   // silence that ends a link
    size_t message_bytes_max = 64u << 20;
    size_t send_queue_bytes_max = 128u << 20;  // per peer; more makes Send say no
    size_t receive_queue_bytes_max = 8u << 20;  // per peer; more stops reading until some is taken
    Duration redial_first = Millis(50);  // doubles up to redial_max
    Duration redial_max = Millis(2000);
  };

  virtual ~Channel() = default;

  // Starts to connect, and again after every loss, until Close. Never fails: an address that does
  // not answer is a peer that does not come up.
  virtual PeerId Dial(std::string address) = 0;

  // Queues one message. False when the peer is not up, its queue is full or the message too long.
  // A message alone in the queue is taken up to message_bytes_max whatever the queue limit.
  [[nodiscard]] virtual bool Send(PeerId peer, std::string bytes) = 0;

  // Ends the link and forgets the peer. What was queued may be lost. The handler hears no more of
  // it once a call from the handler's own thread returns.
  virtual void Close(PeerId peer) = 0;

  // Closes all links and stops listening; no handler call runs afterwards. Waits for callbacks
  // under way, so it is not for the handler's thread. The destructor does it too.
  virtual void Shutdown() = 0;

  // The port of listen_address, 0 where there is none.
  virtual int listen_port() const = 0;
};

// Makes the channel that a service talks through: gRPC's between processes, its twin within one.
using ChannelFactory = std::function<absl::StatusOr<std::unique_ptr<Channel>>(
    Channel::Options, Channel::Handler*)>;

}  // namespace weir
