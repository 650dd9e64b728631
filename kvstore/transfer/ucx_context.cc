// SPDX-License-Identifier: Apache-2.0
#include "kvstore/transfer/ucx_context.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/stdx/check.h"
#include "base/stdx/status.h"
#include "base/stdx/units.h"

namespace weir::kv {
namespace {

// Below this a payload travels with its header; above it UCX first asks the receiver where to put it,
// which saves a copy on each side (kvstore/README.md has the numbers).
constexpr size_t kRendezvousBytes = 128 * kKiB;
constexpr int kClosingTurnsMax = 1000;
constexpr int kClosingWaitMs = 2;

absl::Status UcxError(const char* what, ucs_status_t status) {
  return Error(Reason::kNoCapacity, std::string("UCX: ") + what + ": " + ucs_status_string(status));
}

// One send under way: UCX wants the header to stay where it is.
struct Sending {
  std::vector<std::byte> header;
  std::function<void(bool)> done;
};

void OnSent(void* request, ucs_status_t status, void* arg) {
  std::unique_ptr<Sending> sending(static_cast<Sending*>(arg));
  ucp_request_free(request);
  if (sending->done) sending->done(status == UCS_OK);
}

void OnFailed(void* arg, ucp_ep_h, ucs_status_t) { static_cast<UcxPeer*>(arg)->failed = true; }

void OnRequest(ucp_conn_request_h request, void* arg) {
  static_cast<std::deque<ucp_conn_request_h>*>(arg)->push_back(request);
}

}  // namespace

absl::StatusOr<SocketAddress> MakeSocketAddress(const std::string& host, uint16_t port) {
  SocketAddress out;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&out.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&out.storage);
  if (inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    out.length = sizeof(sockaddr_in);
    return out;
  }
  if (inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    out.length = sizeof(sockaddr_in6);
    return out;
  }
  return Error(Reason::kBadField, "a transfer address is not numeric", "host");
}

absl::StatusOr<std::unique_ptr<UcxContext>> UcxContext::Create(const UcxOptions& options) {
  std::unique_ptr<UcxContext> out(new UcxContext());
  WEIR_TRY(out->Open(options));
  WEIR_TRY(out->Listen(options));
  return out;
}

absl::Status UcxContext::Open(const UcxOptions& options) {
  ucp_config_t* config = nullptr;
  if (ucs_status_t status = ucp_config_read(nullptr, nullptr, &config); status != UCS_OK) {
    return UcxError("reading the configuration", status);
  }
  const std::unique_ptr<ucp_config_t, void (*)(ucp_config_t*)> holder(config, ucp_config_release);
  // Later ones win. TCP's emulated put is slow, and in UCX 1.13 a late acknowledgement of one aborts
  // the process when the other side closed while it was stopped; without it rendezvous moves active
  // messages. No TCP_ prefix here: the library wants it so, and no other transport has the setting.
  std::vector<std::pair<std::string, std::string>> settings = {
      {"PUT_ENABLE", "n"}, {"TX_SEG_SIZE", "64k"}, {"RX_SEG_SIZE", "256k"}};
  if (!options.devices.empty()) settings.emplace_back("NET_DEVICES", options.devices);
  if (!options.transports.empty()) settings.emplace_back("TLS", options.transports);
  settings.insert(settings.end(), options.settings.begin(), options.settings.end());
  for (const auto& [name, value] : settings) {
    if (ucp_config_modify(config, name.c_str(), value.c_str()) != UCS_OK) {
      return Error(Reason::kBadField, "UCX does not take the setting " + name + "=" + value, name);
    }
  }
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.mt_workers_shared = 0;
  if (ucs_status_t status = ucp_init(&params, config, &context_); status != UCS_OK) {
    return UcxError("opening", status);
  }
  ucp_worker_params_t worker_params{};
  worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  // Created on one thread, then progressed by another, never by two at a time.
  worker_params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  if (ucs_status_t s = ucp_worker_create(context_, &worker_params, &worker_); s != UCS_OK) {
    return UcxError("making a worker", s);
  }
  if (ucs_status_t s = ucp_worker_get_efd(worker_, &event_fd_); s != UCS_OK) {
    return UcxError("asking for the worker's event", s);
  }
  return absl::OkStatus();
}

absl::Status UcxContext::Listen(const UcxOptions& options) {
  WEIR_ASSIGN(const SocketAddress address,
              MakeSocketAddress(options.listen_host, options.listen_port));
  ucp_listener_params_t params{};
  params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
  params.sockaddr.addr = reinterpret_cast<const sockaddr*>(&address.storage);
  params.sockaddr.addrlen = address.length;
  params.conn_handler.cb = OnRequest;
  params.conn_handler.arg = &requests_;
  if (ucs_status_t s = ucp_listener_create(worker_, &params, &listener_); s != UCS_OK) {
    return UcxError("listening", s);
  }
  ucp_listener_attr_t attributes{};
  attributes.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
  if (ucs_status_t s = ucp_listener_query(listener_, &attributes); s != UCS_OK) {
    return UcxError("asking for the listener's port", s);
  }
  const auto* v4 = reinterpret_cast<const sockaddr_in*>(&attributes.sockaddr);
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&attributes.sockaddr);
  port_ = ntohs(attributes.sockaddr.ss_family == AF_INET6 ? v6->sin6_port : v4->sin_port);
  return absl::OkStatus();
}

UcxContext::~UcxContext() {
  while (ucp_conn_request_h request = NextRequest()) Reject(request);
  for (int turn = 0; !closing_.empty() && turn < kClosingTurnsMax; ++turn) {
    if (Progress() > 0) continue;
    pollfd wait{.fd = event_fd_, .events = POLLIN, .revents = 0};
    if (ucp_worker_arm(worker_) == UCS_OK) poll(&wait, 1, kClosingWaitMs);
  }
  if (listener_ != nullptr) ucp_listener_destroy(listener_);
  if (worker_ != nullptr) ucp_worker_destroy(worker_);
  if (context_ != nullptr) ucp_cleanup(context_);
}

void UcxContext::SetHandler(UcxMessage id, ucp_am_recv_callback_t callback, void* arg) {
  ucp_am_handler_param_t param{};
  param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                     UCP_AM_HANDLER_PARAM_FIELD_ARG;
  param.id = static_cast<unsigned>(id);
  param.cb = callback;
  param.arg = arg;
  WEIR_CHECK(ucp_worker_set_am_recv_handler(worker_, &param) == UCS_OK);
}

unsigned UcxContext::Progress() {
  const unsigned count = ucp_worker_progress(worker_);
  if (!closing_.empty()) FinishClosing();
  return count;
}

void UcxContext::Sleep(int wake_fd, Duration timeout) {
  // Busy means that something came between the last progress and now.
  if (ucp_worker_arm(worker_) != UCS_OK) return;
  pollfd waits[2] = {{.fd = event_fd_, .events = POLLIN, .revents = 0},
                     {.fd = wake_fd, .events = POLLIN, .revents = 0}};
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(timeout).count();
  poll(waits, 2, static_cast<int>(std::max<int64_t>(ms, 0)));
}

absl::StatusOr<std::unique_ptr<UcxPeer>> UcxContext::MakeEndpoint(ucp_ep_params_t params) {
  auto peer = std::make_unique<UcxPeer>();
  params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = OnFailed;
  params.err_handler.arg = peer.get();
  if (ucs_status_t s = ucp_ep_create(worker_, &params, &peer->ep); s != UCS_OK) {
    return UcxError("making an endpoint", s);
  }
  return peer;
}

absl::StatusOr<std::unique_ptr<UcxPeer>> UcxContext::Connect(const SocketAddress& address) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR;
  params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
  params.sockaddr.addr = reinterpret_cast<const sockaddr*>(&address.storage);
  params.sockaddr.addrlen = address.length;
  return MakeEndpoint(params);
}

ucp_conn_request_h UcxContext::NextRequest() {
  if (requests_.empty()) return nullptr;
  ucp_conn_request_h request = requests_.front();
  requests_.pop_front();
  return request;
}

absl::StatusOr<std::unique_ptr<UcxPeer>> UcxContext::Accept(ucp_conn_request_h request) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST;
  params.conn_request = request;
  return MakeEndpoint(params);
}

void UcxContext::Reject(ucp_conn_request_h request) { ucp_listener_reject(listener_, request); }

void UcxContext::Send(UcxPeer& peer, UcxMessage id, std::span<const std::byte> header,
                      std::span<const std::byte> bytes, std::function<void(bool)> done) {
  if (peer.failed) {
    if (done) done(false);
    return;
  }
  auto sending = std::make_unique<Sending>();
  sending->header.assign(header.begin(), header.end());
  sending->done = std::move(done);
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                       UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.cb.send = OnSent;
  param.user_data = sending.get();
  param.flags = UCP_AM_SEND_FLAG_REPLY;
  if (bytes.size() >= kRendezvousBytes) param.flags |= UCP_AM_SEND_FLAG_RNDV;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  const ucs_status_ptr_t request =
      ucp_am_send_nbx(peer.ep, static_cast<unsigned>(id), sending->header.data(),
                      sending->header.size(), bytes.data(), bytes.size(), &param);
  if (UCS_PTR_IS_PTR(request)) {
    sending.release();  // OnSent takes it back
    return;
  }
  const bool ok = !UCS_PTR_IS_ERR(request);
  if (!ok) peer.failed = true;
  if (sending->done) sending->done(ok);
}

void UcxContext::Close(std::unique_ptr<UcxPeer> peer, std::function<void()> closed) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  const ucs_status_ptr_t request = ucp_ep_close_nbx(peer->ep, &param);
  if (!UCS_PTR_IS_PTR(request)) {
    if (closed) closed();
    return;
  }
  closing_.push_back({std::move(peer), request, std::move(closed)});
}

void UcxContext::FinishClosing() {
  std::vector<Closing> finished;
  for (size_t i = 0; i < closing_.size();) {
    if (ucp_request_check_status(closing_[i].request) == UCS_INPROGRESS) {
      ++i;
      continue;
    }
    ucp_request_free(closing_[i].request);
    finished.push_back(std::move(closing_[i]));
    closing_.erase(closing_.begin() + static_cast<ptrdiff_t>(i));
  }
  for (Closing& closing : finished) {
    if (closing.closed) closing.closed();
  }
}

}  // namespace weir::kv
