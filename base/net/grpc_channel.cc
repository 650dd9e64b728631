// SPDX-License-Identifier: Apache-2.0
#include "base/net/grpc_channel.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <grpc/support/log.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include "absl/container/flat_hash_map.h"
#include "base/net/channel_frame.h"
#include "base/net/listen_error.h"
#include "base/runtime/clock.h"
#include "base/stdx/check.h"

namespace weir {
namespace {

constexpr char kMethod[] = "/weir.v1.Peer/Connect";
constexpr size_t kAcceptedMax = 1024;           // links that others dialled
constexpr size_t kBatchBytes = 256 * 1024;      // small messages that share one frame
constexpr size_t kSliceBytesMin = 16 * 1024;    // longer messages are sent without a copy
constexpr size_t kEntryBytes = 64;              // what a queued message costs besides its bytes
constexpr Duration kOfferAgain = Millis(1);
constexpr Duration kCloseGrace = Millis(1000);  // to flush what was queued before a close
constexpr int kMessagesPerTurn = 64;

class Stream;
class GrpcChannel;

// What the channel knows of a peer. Fields without a mark belong to the loop.
struct Link {
  PeerId peer;
  std::string address;  // dialled, or empty
  std::unique_ptr<grpc::GenericStub> stub;  // dialled
  std::shared_ptr<Stream> stream;  // changed under Shared::mu, since Send reads it on any thread
  bool up = false;
  bool closed = false;
  Duration redial{};
};
using LinkPtr = std::shared_ptr<Link>;

// Shared by the channel and its streams.
struct Shared : std::enable_shared_from_this<Shared> {
  Channel::Options options;
  Channel::Handler* handler = nullptr;
  Loop* loop = nullptr;
  bool stopped = false;  // loop's thread
  Instant last_beat{};   // loop's thread

  std::mutex mu;
  absl::flat_hash_map<PeerId, LinkPtr> links;  // guarded by mu
  uint64_t last_peer = 0;                      // guarded by mu
  size_t accepted = 0;                         // guarded by mu; streams, up or not
  // Streams whose OnDone is to come, closing ones included; guarded by mu.
  absl::flat_hash_map<Stream*, std::weak_ptr<Stream>> live;
  std::condition_variable idle;  // live became empty

  PeerId NewPeer() {
    std::lock_guard lock(mu);
    return PeerId(++last_peer);
  }
  std::shared_ptr<Stream> StreamOf(PeerId peer) {
    std::lock_guard lock(mu);
    const auto it = links.find(peer);
    return it == links.end() ? nullptr : it->second->stream;
  }
  void SetStream(const LinkPtr& link, std::shared_ptr<Stream> stream) {
    std::lock_guard lock(mu);
    link->stream = std::move(stream);
  }
  void Connect(const LinkPtr& link);
  void Redial(const LinkPtr& link);
  void Beat();
  std::vector<std::shared_ptr<Stream>> Live();
  void Opened(const LinkPtr& link, std::shared_ptr<Stream> stream);
  void Ended(const LinkPtr& link, const std::shared_ptr<Stream>& stream, const absl::Status& why);
};

// One gRPC call, either end. Reactions come on gRPC's threads; they touch what mu_ guards and post
// to the loop. gRPC never runs a reaction inside a Start call, so these are made under mu_, which
// orders them against the end of the call. The call keeps its stream alive until it is done.
class Stream : public std::enable_shared_from_this<Stream> {
 public:
  Stream(std::shared_ptr<Shared> shared, LinkPtr link)
      : shared_(std::move(shared)), link_(std::move(link)), heard_(Now()), begun_(heard_) {}
  virtual ~Stream() = default;

  bool Send(std::string bytes);
  // Flushes what is queued, then ends the call; Abort ends it at once.
  void Close();
  void Abort(absl::Status why);
  // Heartbeat and the judgement of silence.
  void Beat(Instant now, bool forgive);

 protected:
  virtual void DoRead(grpc::ByteBuffer* buffer) = 0;
  virtual void DoWrite(const grpc::ByteBuffer* buffer) = 0;
  virtual void DoCancel() = 0;
  // Ends this side of the call, after the last write; once.
  virtual void DoFinish() = 0;
  // Whether reads may be started after DoFinish.
  virtual bool ReadsAfterFinish() const = 0;

  void Begin(std::shared_ptr<Stream> self);  // before the call starts
  void Read(bool ok);
  void Written(bool ok);
  void Lost();
  void Done(absl::Status why);
  bool lost() const { return lost_; }  // under mu_

  const std::shared_ptr<Shared> shared_;
  const LinkPtr link_;
  std::mutex mu_;

 private:
  struct Entry {
    FrameKind kind;
    std::string bytes;
  };
  void WriteNext();
  void FinishIfIdle();
  void Cancel() {
    if (self_) DoCancel();  // after the call is done its context is gone
  }
  void ReadNext();
  void ScheduleDrain();
  void Drain();

  // Guarded by mu_.
  std::shared_ptr<Stream> self_;
  std::deque<Entry> queue_;
  size_t queue_bytes_ = 0;
  bool writing_ = false;
  grpc::ByteBuffer write_buffer_;
  grpc::ByteBuffer read_buffer_;
  bool reading_ = false;
  bool opened_ = false;    // the peer's hello came
  bool closing_ = false;   // finish once the queue is empty
  bool mute_ = false;      // a write failed; nothing more can be written
  bool lost_ = false;      // the call is over; no Start call any more, except the finish
  bool finished_ = false;
  std::optional<absl::Status> why_;  // our own reason to end it
  std::deque<std::string> received_;
  size_t received_bytes_ = 0;
  bool draining_ = false;
  std::optional<absl::Status> ended_;  // to be told once received_ is empty
  Instant heard_;
  Instant begun_;  // until opened_ counts
  Instant closing_since_{};
};

// ---- Stream: writing ----

grpc::ByteBuffer BufferOf(std::vector<grpc::Slice> slices) {
  return grpc::ByteBuffer(slices.data(), slices.size());
}

// A slice that owns `text` without a copy.
grpc::Slice OwningSlice(std::string text) {
  auto* owned = new std::string(std::move(text));
  return grpc::Slice(
      owned->data(), owned->size(), [](void* p) { delete static_cast<std::string*>(p); }, owned);
}

bool Stream::Send(std::string bytes) {
  std::lock_guard lock(mu_);
  if (!opened_ || closing_ || lost_ || mute_ || bytes.size() > shared_->options.message_bytes_max) return false;
  const size_t cost = bytes.size() + kEntryBytes;
  const bool full = queue_bytes_ + cost > shared_->options.send_queue_bytes_max;
  if (full && !queue_.empty()) return false;
  queue_bytes_ += cost;
  queue_.push_back({FrameKind::kMessage, std::move(bytes)});
  WriteNext();
  return true;
}

// Starts the next frame: as many queued messages as fit a batch, or one long one.
void Stream::WriteNext() {
  if (writing_ || lost_ || mute_ || queue_.empty()) return FinishIfIdle();
  std::vector<grpc::Slice> slices;
  std::string small;
  size_t batched = 0;
  while (!queue_.empty() && batched < kBatchBytes) {
    Entry entry = std::move(queue_.front());
    queue_.pop_front();
    batched += entry.bytes.size();
    queue_bytes_ -= entry.bytes.size() + kEntryBytes;
    AppendFrameHead(entry.kind, entry.bytes.size(), &small);
    if (entry.bytes.size() < kSliceBytesMin) {
      small.append(entry.bytes);
      continue;
    }
    slices.push_back(OwningSlice(std::exchange(small, {})));
    slices.push_back(OwningSlice(std::move(entry.bytes)));
  }
  if (!small.empty()) slices.push_back(OwningSlice(std::move(small)));
  write_buffer_ = BufferOf(std::move(slices));
  writing_ = true;
  DoWrite(&write_buffer_);
}

void Stream::Written(bool ok) {
  if (!ok && !ReadsAfterFinish()) Lost();
  std::lock_guard lock(mu_);
  writing_ = false;
  write_buffer_.Clear();
  if (!ok) {
    // A client hears of the call's end only behind the messages before it, so it reads on.
    WEIR_REACHED("channel: write failed before the read");
    mute_ = true;
    ReadNext();
  }
  WriteNext();
}

void Stream::FinishIfIdle() {
  if (finished_ || writing_ || !(lost_ || (closing_ && queue_.empty()))) return;
  finished_ = true;
  DoFinish();
}

// ---- Stream: reading ----

void Stream::Read(bool ok) {
  if (!ok) return Lost();
  std::vector<grpc::Slice> slices;
  std::vector<Frame> frames;
  bool good = false;
  {
    std::lock_guard lock(mu_);
    heard_ = Now();
    if (read_buffer_.Dump(&slices).ok()) {
      std::vector<std::string_view> pieces;
      for (const grpc::Slice& slice : slices) {
        pieces.emplace_back(reinterpret_cast<const char*>(slice.begin()), slice.size());
      }
      good = ParseFrames(pieces, shared_->options.message_bytes_max, &frames);
    }
    read_buffer_.Clear();
  }
  if (!good) {
    WEIR_REACHED("channel: malformed frame");
    return Abort(Error(Reason::kPeerLost, "the peer sent a malformed frame"));
  }
  std::lock_guard lock(mu_);
  reading_ = false;  // not before: a read started meanwhile could overtake this one
  for (Frame& frame : frames) {
    if (frame.kind == FrameKind::kHello && !opened_) {
      opened_ = true;
      shared_->loop->Post("channel up", [self = shared_from_this()] {
        self->shared_->Opened(self->link_, self);
      });
    } else if (frame.kind == FrameKind::kMessage && opened_ && !closing_) {
      received_bytes_ += frame.bytes.size();
      received_.push_back(std::move(frame.bytes));
    }
  }
  ScheduleDrain();
  // Not reading on backs up through gRPC's flow control into the peer's queue.
  if (received_bytes_ <= shared_->options.receive_queue_bytes_max) ReadNext();
}

void Stream::ReadNext() {
  if (reading_ || lost_ || (finished_ && !ReadsAfterFinish())) return;
  reading_ = true;
  heard_ = Now();
  DoRead(&read_buffer_);
}

void Stream::ScheduleDrain() {
  if (draining_ || (received_.empty() && !ended_)) return;
  draining_ = true;
  shared_->loop->Post("channel messages", [self = shared_from_this()] { self->Drain(); });
}

// Hands received messages to the handler, then the end of the link, if it ended. Loop's thread.
void Stream::Drain() {
  for (int i = 0;; ++i) {
    std::string message;
    {
      std::lock_guard lock(mu_);
      if (shared_->stopped || link_->closed) {
        received_.clear();
        received_bytes_ = 0;
      }
      if (received_.empty()) {
        draining_ = false;
        break;
      }
      if (i == kMessagesPerTurn) {
        shared_->loop->Post("channel messages", [self = shared_from_this()] { self->Drain(); });
        break;
      }
      message = std::move(received_.front());
      received_.pop_front();
    }
    const size_t bytes = message.size();
    const bool taken = shared_->handler->OnMessage(link_->peer, std::move(message));
    std::lock_guard lock(mu_);
    if (!taken) {
      WEIR_REACHED("channel: handler has no room");
      received_.push_front(std::move(message));
      shared_->loop->After("channel offer", kOfferAgain,
                         [self = shared_from_this()] { self->Drain(); });
      return;
    }
    received_bytes_ -= bytes;
  }
  std::optional<absl::Status> ended;
  {
    std::lock_guard lock(mu_);
    if (opened_ && received_bytes_ <= shared_->options.receive_queue_bytes_max / 2) ReadNext();
    if (received_.empty()) ended = std::exchange(ended_, std::nullopt);
  }
  if (ended) shared_->Ended(link_, shared_from_this(), *ended);
}

// ---- Stream: life ----

void Stream::Begin(std::shared_ptr<Stream> self) {
  {
    std::lock_guard lock(shared_->mu);
    shared_->live.emplace(this, self);
  }
  std::lock_guard lock(mu_);
  self_ = std::move(self);
  ReadNext();
  queue_.push_back({FrameKind::kHello, std::string(kFrameHello)});
  queue_bytes_ += kFrameHello.size() + kEntryBytes;
  WriteNext();
}

void Stream::Close() {
  std::lock_guard lock(mu_);
  if (closing_) return;
  closing_ = true;
  closing_since_ = Now();
  ReadNext();  // to notice the peer's end; what comes is dropped
  FinishIfIdle();
}

void Stream::Abort(absl::Status why) {
  std::lock_guard lock(mu_);
  if (!why_) why_ = std::move(why);
  Cancel();
  ReadNext();  // where reading paused, to be told of the end
}

void Stream::Lost() {
  std::lock_guard lock(mu_);
  if (lost_) return;
  lost_ = true;
  FinishIfIdle();
}

void Stream::Beat(Instant now, bool forgive) {
  Duration silence{};
  {
    std::lock_guard lock(mu_);
    if (forgive || !reading_) heard_ = now;
    if (forgive) begun_ = now;
    // Whoever does not say hello holds a place among the accepted, heartbeats or not.
    silence = now - (opened_ ? heard_ : std::min(heard_, begun_));
    if (opened_ && !closing_ && !lost_ && !mute_ && !writing_) {
      queue_.push_back({FrameKind::kHeartbeat, {}});
      queue_bytes_ += kEntryBytes;
      WriteNext();
    }
    if (closing_ && now - closing_since_ > kCloseGrace) Cancel();
  }
  if (silence <= shared_->options.dead_after) return;
  WEIR_REACHED("channel: peer went silent");
  Abort(Error(Reason::kPeerLost, "the peer was silent for " +
                                     std::to_string(silence / Millis(1)) + " ms"));
}

void Stream::Done(absl::Status why) {
  const std::shared_ptr<Shared> shared = shared_;
  std::shared_ptr<Stream> self;
  {
    std::lock_guard lock(mu_);
    self = std::move(self_);
    lost_ = true;
    ended_ = why_ ? *why_ : std::move(why);
    ScheduleDrain();
  }
  std::lock_guard lock(shared->mu);
  if (link_->address.empty()) --shared->accepted;
  // Let go on the loop: the last call takes its gRPC channel with it, the last channel the queue
  // that gRPC's callback threads wait on, and they cannot be joined from one of them, as we are now.
  shared->loop->Post("channel free", [self = std::move(self)] {});
  shared->live.erase(this);
  if (shared->live.empty()) shared->idle.notify_all();
}

// ---- The two ends ----

class ClientStream final : public Stream,
                           public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  using Stream::Stream;

  void Start() {
    link_->stub->PrepareBidiStreamingCall(&context_, kMethod, grpc::StubOptions(), this);
    AddHold();  // for Start calls from outside reactions; let go when the call is lost
    Begin(shared_from_this());
    StartCall();
  }

 private:
  void DoRead(grpc::ByteBuffer* buffer) override { StartRead(buffer); }
  void DoWrite(const grpc::ByteBuffer* buffer) override { StartWrite(buffer); }
  void DoCancel() override { context_.TryCancel(); }
  void DoFinish() override {
    if (!lost()) StartWritesDone();
  }
  bool ReadsAfterFinish() const override { return true; }

  void OnReadDone(bool ok) override {
    Read(ok);
    if (!ok) RemoveHold();  // once: no read follows a failed one
  }
  void OnWriteDone(bool ok) override { Written(ok); }
  void OnDone(const grpc::Status& status) override {
    Done(Error(Reason::kPeerLost, status.ok() ? "the peer closed the link"
                                              : "the link broke: " + status.error_message()));
  }

  grpc::ClientContext context_;
};

class ServerStream final : public Stream, public grpc::ServerGenericBidiReactor {
 public:
  ServerStream(std::shared_ptr<Shared> shared, LinkPtr link, grpc::CallbackServerContext* context)
      : Stream(std::move(shared), std::move(link)), context_(context) {}

  void Start() { Begin(shared_from_this()); }

 private:
  void DoRead(grpc::ByteBuffer* buffer) override { StartRead(buffer); }
  void DoWrite(const grpc::ByteBuffer* buffer) override { StartWrite(buffer); }
  void DoCancel() override { context_->TryCancel(); }
  void DoFinish() override { grpc::ServerGenericBidiReactor::Finish(grpc::Status::OK); }
  bool ReadsAfterFinish() const override { return false; }

  void OnReadDone(bool ok) override { Read(ok); }
  void OnWriteDone(bool ok) override { Written(ok); }
  void OnCancel() override { Lost(); }
  void OnDone() override { Done(Error(Reason::kPeerLost, "the peer closed or lost the link")); }

  grpc::CallbackServerContext* const context_;  // valid until OnDone
};

// ---- Shared; all on the loop ----

void Shared::Connect(const LinkPtr& link) {
  if (stopped || link->closed || link->stream) return;
  auto stream = std::make_shared<ClientStream>(shared_from_this(), link);
  SetStream(link, stream);
  stream->Start();
}

void Shared::Redial(const LinkPtr& link) {
  link->redial = std::clamp(link->redial * 2, options.redial_first, options.redial_max);
  loop->After("channel dial", link->redial,
              [self = shared_from_this(), link] { self->Connect(link); });
}

void Shared::Opened(const LinkPtr& link, std::shared_ptr<Stream> stream) {
  if (stopped || link->closed) return;
  SetStream(link, std::move(stream));
  link->up = true;
  link->redial = Duration::zero();
  if (link->address.empty()) {
    std::lock_guard lock(mu);
    links.emplace(link->peer, link);
  }
  handler->OnUp(link->peer, link->address);
}

void Shared::Ended(const LinkPtr& link, const std::shared_ptr<Stream>& stream,
                 const absl::Status& why) {
  if (link->stream != stream) return;
  SetStream(link, nullptr);
  const bool was_up = std::exchange(link->up, false);
  if (stopped || link->closed) return;
  if (link->address.empty()) {
    link->closed = true;
    std::lock_guard lock(mu);
    links.erase(link->peer);
  }
  if (was_up) handler->OnDown(link->peer, why);
  if (!link->closed) Redial(link);
}

std::vector<std::shared_ptr<Stream>> Shared::Live() {
  std::lock_guard lock(mu);
  std::vector<std::shared_ptr<Stream>> streams;
  for (const auto& [key, weak] : live) {
    if (auto stream = weak.lock()) streams.push_back(std::move(stream));
  }
  return streams;
}

void Shared::Beat() {
  if (stopped) return;
  const Instant now = Now();
  // After a pause of our own (a stopped process, a stalled loop) nobody else is to blame.
  const bool forgive = now - last_beat > options.heartbeat * 3;
  last_beat = now;
  for (const auto& stream : Live()) stream->Beat(now, forgive);
  loop->After("channel heartbeat", options.heartbeat, [self = shared_from_this()] { self->Beat(); });
}

// ---- Channel ----

class Acceptor final : public grpc::CallbackGenericService {
 public:
  explicit Acceptor(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}

  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override {
    if (context->method() != kMethod) return CallbackGenericService::CreateReactor(context);
    auto link = std::make_shared<Link>();
    {
      std::lock_guard lock(shared_->mu);
      if (shared_->accepted >= kAcceptedMax) return CallbackGenericService::CreateReactor(context);
      ++shared_->accepted;
      link->peer = PeerId(++shared_->last_peer);
    }
    auto stream = std::make_shared<ServerStream>(shared_, link, context);
    stream->Start();
    return stream.get();
  }

 private:
  const std::shared_ptr<Shared> shared_;
};

class GrpcChannel : public Channel {
 public:
  explicit GrpcChannel(std::shared_ptr<Shared> shared, std::unique_ptr<Loop> own_loop)
      : shared_(std::move(shared)), own_loop_(std::move(own_loop)), acceptor_(shared_) {}
  ~GrpcChannel() override { Shutdown(); }

  absl::Status Start();
  PeerId Dial(std::string address) override;
  bool Send(PeerId peer, std::string bytes) override {
    const auto stream = shared_->StreamOf(peer);
    return stream && stream->Send(std::move(bytes));
  }
  void Close(PeerId peer) override;
  void Shutdown() override;
  int listen_port() const override { return port_; }

 private:
  int FrameBytesMax() const {
    return static_cast<int>(shared_->options.message_bytes_max + 2 * kBatchBytes);
  }

  const std::shared_ptr<Shared> shared_;
  const std::unique_ptr<Loop> own_loop_;
  Acceptor acceptor_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
  bool shut_down_ = false;
};

absl::Status GrpcChannel::Start() {
  const std::string& address = shared_->options.listen_address;
  if (!address.empty()) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port_);
    builder.SetMaxReceiveMessageSize(FrameBytesMax());
    builder.SetMaxSendMessageSize(FrameBytesMax());
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // a taken port is an error
    builder.RegisterCallbackGenericService(&acceptor_);
    server_ = builder.BuildAndStart();
    if (!server_) {
      const std::string why = WhyNotListening(address);
      return Error(Reason::kBadField, "cannot listen on " + address + ": " + why, "listen_address");
    }
  }
  shared_->loop->Post("channel heartbeat", [shared = shared_] {
    shared->last_beat = Now();
    shared->Beat();
  });
  return absl::OkStatus();
}

PeerId GrpcChannel::Dial(std::string address) {
  const Options& options = shared_->options;
  auto link = std::make_shared<Link>();
  link->peer = shared_->NewPeer();
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(FrameBytesMax());
  arguments.SetMaxSendMessageSize(FrameBytesMax());
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // one connection per peer, not per host
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS,
                   static_cast<int>(options.redial_first / Millis(1)));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS,
                   static_cast<int>(options.redial_max / Millis(1)));
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
                   static_cast<int>(options.dead_after / Millis(1)));
  link->stub = std::make_unique<grpc::GenericStub>(
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
  link->address = std::move(address);
  {
    std::lock_guard lock(shared_->mu);
    shared_->links.emplace(link->peer, link);
  }
  shared_->loop->Post("channel dial", [shared = shared_, link] { shared->Connect(link); });
  return link->peer;
}

void GrpcChannel::Close(PeerId peer) {
  LinkPtr link;
  std::shared_ptr<Stream> stream;
  {
    std::lock_guard lock(shared_->mu);
    const auto it = shared_->links.find(peer);
    if (it == shared_->links.end()) return;
    link = it->second;
    stream = link->stream;
    shared_->links.erase(it);
  }
  if (shared_->loop->InLoop()) {
    link->closed = true;
  } else {
    shared_->loop->Post("channel close", [link] {
      link->closed = true;
      if (link->stream) link->stream->Close();  // where a dial began meanwhile
    });
  }
  if (stream) stream->Close();
}

void GrpcChannel::Shutdown() {
  if (std::exchange(shut_down_, true)) return;
  shared_->loop->Call("channel stop", [shared = shared_] { shared->stopped = true; });
  for (const auto& stream : shared_->Live()) stream->Close();
  if (server_) {
    server_->Shutdown(std::chrono::system_clock::now() + kCloseGrace);
    server_->Wait();
  }
  const auto idle = [this] { return shared_->live.empty(); };
  std::unique_lock lock(shared_->mu);
  if (!shared_->idle.wait_for(lock, kCloseGrace, idle)) {
    lock.unlock();
    for (const auto& stream : shared_->Live()) stream->Abort(Error(Reason::kCancelled, "shut down"));
    lock.lock();
    WEIR_CHECK(shared_->idle.wait_for(lock, std::chrono::seconds(10), idle));
  }
  lock.unlock();
  // Links and streams hold each other until the link hears of the end; nothing is left to say.
  shared_->loop->Call("channel stop", [shared = shared_] {
    std::lock_guard links_lock(shared->mu);
    for (const auto& [peer, link] : shared->links) link->stream.reset();
    shared->links.clear();
  });
  if (own_loop_) {
    own_loop_->Stop();
    own_loop_->Join();
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Channel>> CreateGrpcChannel(Channel::Options options,
                                                           Channel::Handler* handler) {
  WEIR_CHECK(handler);
  // What matters comes as a status. Whoever sets GRPC_VERBOSITY still hears gRPC itself.
  gpr_log_verbosity_init();
  if (!gpr_should_log(GPR_LOG_SEVERITY_INFO)) gpr_set_log_function([](gpr_log_func_args*) {});
  auto shared = std::make_shared<Shared>();
  std::unique_ptr<Loop> own_loop;
  if (!options.loop) {
    own_loop = std::make_unique<Loop>(Loop::Options{.name = "grpc channel", .on_stall = nullptr});
    own_loop->Start();
  }
  shared->loop = options.loop ? options.loop : own_loop.get();
  shared->handler = handler;
  shared->options = std::move(options);
  auto channel = std::make_unique<GrpcChannel>(std::move(shared), std::move(own_loop));
  WEIR_TRY(channel->Start());
  return channel;
}

}  // namespace weir
