// SPDX-License-Identifier: Apache-2.0
//
// RouterService: a running router. It owns one loop (connections of clients, parsers and writers,
// the core, the links of engines), a pool for large bodies, the HTTP server and the channel that
// engines dial. Create, Start, Drain, Reload and Stop belong to the process's main thread and do not
// wait, but for Stop, which joins. Alone (`weir router`) the channel is gRPC's, inside `weir serve`
// its twin in memory. Create fails with kBadField naming the setting; an engine that does not fit is
// answered HelloRefused; a link that takes no more is ended, and its requests go on elsewhere.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "base/net/channel.h"
#include "base/net/http_server.h"
#include "base/obs/admin.h"
#include "base/obs/metrics.h"
#include "base/runtime/loop.h"
#include "base/runtime/pool.h"
#include "base/runtime/stall_digest.h"
#include "proto/config.pb.h"
#include "router/front/dispatcher.h"
#include "router/front/native_front.h"

namespace weir::router {

// Zero and empty become the defaults that config.proto documents.
void FillDefaults(v1::RouterConfig* config);

struct RouterServiceOptions {
  v1::RouterConfig config;  // zero and empty mean the documented defaults
  ServedModel model;
  ChannelFactory make_channel;
  NativeFrontFactory make_native_front;  // for config.grpc_address; empty: there is none
  std::string listen_address;  // where engines dial in; empty: config.peer_address
  InstanceId instance;         // drawn at start
  uint64_t seed = 0;           // of response ids and seeds that clients did not give
  int pool_threads = 1;
  std::string name = "router";
  std::string build;
  // Borrowed, may be null. Scraped and asked on this router's loop only.
  Metrics* metrics = nullptr;
  ProgressWatch* watch = nullptr;
  TracePointSink* trace = nullptr;  // any thread
  SpanSink* spans = nullptr;        // any thread
  uint32_t sample_per_mille = 1000;  // of requests without a traceparent
  // More members of the JSON object at /debug/state, `"decode":{...}`; may be empty.
  std::function<std::string()> more_state;
};

class RouterService final : private Channel::Handler {
 public:
  static absl::StatusOr<std::unique_ptr<RouterService>> Create(RouterServiceOptions options);
  ~RouterService() override;  // Stop

  void Start();
  // Not ready from now on, new requests are refused; `drained` runs once, on the loop, when the
  // running ones are through or soon after the deadline.
  void Drain(Instant deadline, Task drained);
  // Takes over what config.proto calls reloadable.
  void Reload(const v1::RouterConfig& config);
  void Stop();

  int http_port() const { return server_->port(); }
  int grpc_port() const { return native_ ? native_->port() : 0; }
  int peer_port() const { return channel_->listen_port(); }
  // Engines of both roles take work and no drain is under way. Any thread.
  bool ready() const { return !draining_ && complete_; }

 private:
  struct Link {
    InstanceId instance;  // 0 until its Hello came
    Instant heard;        // when its last message came
    bool refused = false;
  };

  explicit RouterService(RouterServiceOptions options);
  absl::Status Open();
  absl::Status OpenNative();
  void AddMetrics();
  void AddConditions();

  // Channel::Handler, on the loop.
  void OnUp(PeerId peer, std::string_view address) override;
  void OnDown(PeerId peer, const absl::Status& why) override;
  bool OnMessage(PeerId peer, std::string&& bytes) override;

  // All below on the loop.
  void OnHello(PeerId peer, const v1::Hello& hello);
  void Refuse(PeerId peer, const absl::Status& why);
  void CloseSoon(PeerId peer);
  void LogLeaving(InstanceId instance, const absl::Status& why) const;
  void WarnOfStall(std::string_view callback, Duration took);
  void SendTo(InstanceId to, const v1::Envelope& message);
  void Settled();
  void ArmTimer();
  void KeepAliveTurn();
  void SilenceTurn();
  void FinishDrain();
  std::string StateJson() const;

  RouterServiceOptions options_;
  std::atomic<bool> draining_{false};
  std::atomic<bool> complete_{false};
  bool started_ = false;
  bool stopped_ = false;

  Loop loop_;
  std::unique_ptr<Pool> pool_;
  // Owned by the loop once it runs.
  std::unique_ptr<Dispatcher> dispatcher_;
  std::unique_ptr<HttpFront> front_;
  absl::flat_hash_map<PeerId, Link> links_;
  absl::flat_hash_map<InstanceId, PeerId> peer_of_;
  v1::Envelope incoming_;  // reused
  Loop::TimerId timer_ = 0;
  Instant armed_ = kNever;
  uint64_t fleet_seen_ = 0;
  uint64_t failed_before_drain_ = 0;
  StallDigest stalls_;
  Task drained_;
  std::optional<Metrics::Histogram> first_token_;

  // Destroyed first.
  std::unique_ptr<NativeFront> native_;
  std::unique_ptr<Channel> channel_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace weir::router
