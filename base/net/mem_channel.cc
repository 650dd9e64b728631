// SPDX-License-Identifier: Apache-2.0
#include "base/net/mem_channel.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/stdx/check.h"

namespace weir {
namespace {
constexpr Duration kOfferAgain = Millis(1);
constexpr size_t kEntryBytes = 64;    // what a queued message costs besides its bytes
constexpr int kMessagesPerTurn = 64;  // then other work of the loop gets its turn
}  // namespace

// One channel's side; shared with its peers, so that they can find it gone. Links are changed on
// the loop only, under mu_ since Send looks them up from any thread.
class MemChannel;
struct MemLink;
using MemLinkPtr = std::shared_ptr<MemLink>;

struct MemSide : std::enable_shared_from_this<MemSide> {
  Channel::Options options;
  Channel::Handler* handler = nullptr;

  std::mutex mu;
  Loop* loop = nullptr;                             // null after Shutdown
  uint64_t last_peer = 0;
  absl::flat_hash_map<PeerId, MemLinkPtr> links;  // dialled ones from Dial, accepted ones while up
  bool stopped = false;  // loop's thread

  // Drops the task when the side is shut down. asio's own lock nests inside mu and is a leaf.
  void Post(const char* name, Task task) {
    std::lock_guard lock(mu);
    if (loop) loop->Post(name, std::move(task));
  }
  bool Accept(const MemLinkPtr& link);  // false when shut down
  PeerId NewPeer() {
    std::lock_guard lock(mu);
    return PeerId(++last_peer);
  }
  MemLinkPtr Find(PeerId peer) {
    std::lock_guard lock(mu);
    const auto it = links.find(peer);
    return it == links.end() ? nullptr : it->second;
  }
};

// One direction's receiving end and what its owner knows of the peer.
struct MemLink {
  MemLink(std::shared_ptr<MemSide> s, PeerId p) : side(std::move(s)), peer(p) {}

  const std::shared_ptr<MemSide> side;
  const PeerId peer;
  std::string address;  // dialled, or empty
  std::shared_ptr<MemHub::State> hub;  // for dialled links

  std::mutex mu;
  std::weak_ptr<MemLink> other;  // the peer's end while up
  std::deque<std::string> inbox;
  size_t inbox_bytes = 0;
  bool draining = false;  // a drain is queued or waits to offer again

  // Owned by the side's loop.
  bool up = false;
  bool closed = false;
  Duration redial{};
};

class MemHub::State {
 public:
  bool Register(const std::string& name, const std::shared_ptr<MemSide>& side) {
    std::lock_guard lock(mu_);
    auto& entry = sides_[name];
    if (entry.lock()) return false;
    entry = side;
    return true;
  }
  void Unregister(const std::string& name) {
    std::lock_guard lock(mu_);
    sides_.erase(name);
  }
  std::shared_ptr<MemSide> Find(const std::string& name) {
    std::lock_guard lock(mu_);
    const auto it = sides_.find(name);
    return it == sides_.end() ? nullptr : it->second.lock();
  }

 private:
  std::mutex mu_;
  absl::flat_hash_map<std::string, std::weak_ptr<MemSide>> sides_;
};

namespace {

void Drain(const MemLinkPtr& link);

void Down(const MemLinkPtr& link, const absl::Status& why);

// Tells the other end, if there is one, that the link is gone.
void Unlink(const MemLinkPtr& link, const absl::Status& why) {
  MemLinkPtr other;
  {
    std::lock_guard lock(link->mu);
    other = link->other.lock();
    link->other.reset();
  }
  if (!other) return;
  other->side->Post("channel down", [other, why] { Down(other, why); });
}

void TryConnect(const MemLinkPtr& link);

void Down(const MemLinkPtr& link, const absl::Status& why) {
  MemSide& side = *link->side;
  if (side.stopped || link->closed || !link->up) return;
  {
    // What arrived before the end is delivered before it.
    std::unique_lock lock(link->mu);
    if (!link->inbox.empty()) {
      lock.unlock();
      side.loop->After("channel down", kOfferAgain, [link, why] { Down(link, why); });
      return;
    }
    link->other.reset();
  }
  link->up = false;
  if (link->address.empty()) {
    link->closed = true;
    std::lock_guard lock(side.mu);
    side.links.erase(link->peer);
  }
  side.handler->OnDown(link->peer, why);
  if (link->closed) return;
  side.loop->After("channel dial", side.options.redial_first, [link] { TryConnect(link); });
}

void Up(const MemLinkPtr& link) {
  if (link->side->stopped || link->closed) return;
  link->up = true;
  link->side->handler->OnUp(link->peer, link->address);
}

// Connects a dialled link, now or after a back-off.
void TryConnect(const MemLinkPtr& link) {
  MemSide& side = *link->side;
  if (side.stopped || link->closed || link->up) return;
  const auto target = link->hub->Find(link->address);
  MemLinkPtr accepted;
  if (target) {
    accepted = std::make_shared<MemLink>(target, target->NewPeer());
    accepted->other = link;
  }
  if (!accepted || !target->Accept(accepted)) {
    link->redial = std::clamp(link->redial * 2, side.options.redial_first, side.options.redial_max);
    side.loop->After("channel dial", link->redial, [link] { TryConnect(link); });
    return;
  }
  link->redial = Duration::zero();
  {
    std::lock_guard lock(link->mu);
    link->other = accepted;
  }
  Up(link);
}

void Drain(const MemLinkPtr& link) {
  MemSide& side = *link->side;
  for (int i = 0; i < kMessagesPerTurn; ++i) {
    if (side.stopped || link->closed) return;
    std::string message;
    {
      std::lock_guard lock(link->mu);
      if (link->inbox.empty()) {
        link->draining = false;
        return;
      }
      message = std::move(link->inbox.front());
      link->inbox.pop_front();
    }
    const size_t bytes = message.size();
    const bool taken = side.handler->OnMessage(link->peer, std::move(message));
    std::lock_guard lock(link->mu);
    if (taken) {
      link->inbox_bytes -= bytes + kEntryBytes;
      continue;
    }
    WEIR_REACHED("channel: handler has no room");
    link->inbox.push_front(std::move(message));
    side.loop->After("channel offer", kOfferAgain, [link] { Drain(link); });
    return;
  }
  side.loop->Post("channel messages", [link] { Drain(link); });
}

}  // namespace

bool MemSide::Accept(const MemLinkPtr& link) {
  std::lock_guard lock(mu);
  if (!loop) return false;
  links.emplace(link->peer, link);
  loop->Post("channel up", [link] { Up(link); });
  return true;
}

class MemChannel : public Channel {
 public:
  MemChannel(std::shared_ptr<MemHub::State> hub, std::shared_ptr<MemSide> side,
             std::unique_ptr<Loop> own_loop)
      : hub_(std::move(hub)), side_(std::move(side)), own_loop_(std::move(own_loop)) {}
  ~MemChannel() override { Shutdown(); }

  PeerId Dial(std::string address) override {
    const PeerId peer = side_->NewPeer();
    auto link = std::make_shared<MemLink>(side_, peer);
    link->address = std::move(address);
    link->hub = hub_;
    {
      std::lock_guard lock(side_->mu);
      side_->links.emplace(peer, link);
    }
    side_->Post("channel dial", [link] { TryConnect(link); });
    return peer;
  }

  bool Send(PeerId peer, std::string bytes) override {
    if (bytes.size() > side_->options.message_bytes_max) return false;
    const MemLinkPtr link = side_->Find(peer);
    if (!link) return false;
    MemLinkPtr other;
    {
      std::lock_guard lock(link->mu);
      other = link->other.lock();
    }
    if (!other) return false;
    bool wake = false;
    {
      std::lock_guard lock(other->mu);
      const size_t cost = bytes.size() + kEntryBytes;
      const bool full = other->inbox_bytes + cost > side_->options.send_queue_bytes_max;
      if (!other->inbox.empty() && full) return false;
      other->inbox_bytes += cost;
      other->inbox.push_back(std::move(bytes));
      wake = !std::exchange(other->draining, true);
    }
    if (wake) other->side->Post("channel messages", [other] { Drain(other); });
    return true;
  }

  void Close(PeerId peer) override {
    MemLinkPtr link;
    bool in_loop = false;
    {
      std::lock_guard lock(side_->mu);
      in_loop = side_->loop && side_->loop->InLoop();
      const auto it = side_->links.find(peer);
      if (it == side_->links.end()) return;
      link = it->second;
      side_->links.erase(it);
    }
    Unlink(link, Error(Reason::kPeerLost, "the peer closed the link"));
    if (in_loop) {
      link->closed = true;
    } else {
      side_->Post("channel close", [link] {
        link->closed = true;
        Unlink(link, Error(Reason::kPeerLost, "the peer closed the link"));  // made meanwhile
      });
    }
  }

  void Shutdown() override;
  int listen_port() const override { return 0; }

 private:
  const std::shared_ptr<MemHub::State> hub_;
  const std::shared_ptr<MemSide> side_;
  const std::unique_ptr<Loop> own_loop_;
};

void MemChannel::Shutdown() {
  Loop* loop = side_->loop;
  if (!loop) return;
  if (!side_->options.listen_address.empty()) hub_->Unregister(side_->options.listen_address);
  loop->Call("channel stop", [side = side_] { side->stopped = true; });
  absl::flat_hash_map<PeerId, MemLinkPtr> links;
  {
    std::lock_guard lock(side_->mu);
    side_->loop = nullptr;
    links.swap(side_->links);
  }
  for (const auto& [peer, link] : links) {
    Unlink(link, Error(Reason::kPeerLost, "the peer shut down"));
  }
  if (own_loop_) {
    own_loop_->Stop();
    own_loop_->Join();
  }
}

MemHub::MemHub() : state_(std::make_shared<State>()) {}
MemHub::~MemHub() = default;

absl::StatusOr<std::unique_ptr<Channel>> MemHub::Create(Channel::Options options,
                                                        Channel::Handler* handler) {
  WEIR_CHECK(handler);
  auto side = std::make_shared<MemSide>();
  std::unique_ptr<Loop> own_loop;
  if (!options.loop) {
    own_loop = std::make_unique<Loop>(Loop::Options{.name = "mem channel", .on_stall = nullptr});
    own_loop->Start();
  }
  side->loop = options.loop ? options.loop : own_loop.get();
  side->handler = handler;
  side->options = std::move(options);
  const std::string& name = side->options.listen_address;
  if (!name.empty() && !state_->Register(name, side)) {
    return Error(Reason::kBadField, "address " + name + " is taken", "listen_address");
  }
  return std::make_unique<MemChannel>(state_, std::move(side), std::move(own_loop));
}

}  // namespace weir
