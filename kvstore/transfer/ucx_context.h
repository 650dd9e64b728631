// SPDX-License-Identifier: Apache-2.0
//
// UcxContext: the UCX objects of one carrier, made and released in order. Created on any thread,
// then used by one thread only, which progresses it; Progress never blocks, Sleep does, up to its
// timeout. It owns context, worker, listener and the endpoints that are being closed. Creation fails
// with what UCX says; an endpoint that fails later tells so through its Peer.
#pragma once

#include <sys/socket.h>
#include <ucp/api/ucp.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/runtime/time.h"
#include "kvstore/transfer/ucx_carrier.h"
#include "kvstore/transfer/ucx_wire.h"

namespace weir::kv {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
};
// `host` must be a numeric IPv4 or IPv6 address.
absl::StatusOr<SocketAddress> MakeSocketAddress(const std::string& host, uint16_t port);

// One endpoint and what UCX last said about it. Lives on the heap because UCX keeps its address.
struct UcxPeer {
  ucp_ep_h ep = nullptr;
  bool failed = false;
};

class UcxContext {
 public:
  static absl::StatusOr<std::unique_ptr<UcxContext>> Create(const UcxOptions& options);
  ~UcxContext();
  UcxContext(const UcxContext&) = delete;
  UcxContext& operator=(const UcxContext&) = delete;

  ucp_worker_h worker() const { return worker_; }
  uint16_t port() const { return port_; }

  void SetHandler(UcxMessage id, ucp_am_recv_callback_t callback, void* arg);

  // Turns the crank once; how much happened.
  unsigned Progress();
  // Waits until something may have happened, another thread wrote to `wake_fd`, or the time is over.
  void Sleep(int wake_fd, Duration timeout);

  // Starts a connection; never fails at once except for want of memory.
  absl::StatusOr<std::unique_ptr<UcxPeer>> Connect(const SocketAddress& address);
  // A connection request that came in since the last call, or null.
  ucp_conn_request_h NextRequest();
  absl::StatusOr<std::unique_ptr<UcxPeer>> Accept(ucp_conn_request_h request);
  void Reject(ucp_conn_request_h request);

  // Sends a header, and a payload where `bytes` is not empty, which stays as it is until `done` is
  // called with the result: within the call or from Progress. `done` may be empty.
  void Send(UcxPeer& peer, UcxMessage id, std::span<const std::byte> header,
            std::span<const std::byte> bytes, std::function<void(bool ok)> done);

  // Closes at once, whatever is under way; `closed` is called from Progress or within the call, and
  // after it nothing of this endpoint touches memory any more.
  void Close(std::unique_ptr<UcxPeer> peer, std::function<void()> closed);

 private:
  struct Closing {
    std::unique_ptr<UcxPeer> peer;
    ucs_status_ptr_t request;
    std::function<void()> closed;
  };

  UcxContext() = default;
  absl::Status Open(const UcxOptions& options);
  absl::Status Listen(const UcxOptions& options);
  absl::StatusOr<std::unique_ptr<UcxPeer>> MakeEndpoint(ucp_ep_params_t params);
  void FinishClosing();

  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  ucp_listener_h listener_ = nullptr;
  int event_fd_ = -1;
  uint16_t port_ = 0;
  std::deque<ucp_conn_request_h> requests_;
  std::vector<Closing> closing_;
};

}  // namespace weir::kv
