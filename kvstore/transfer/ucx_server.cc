// SPDX-License-Identifier: Apache-2.0
#include "kvstore/transfer/ucx_server.h"

#include <cstring>
#include <utility>

#include "base/stdx/bytes.h"
#include "base/stdx/check.h"
#include "base/stdx/status.h"

namespace weir::kv {
namespace {

// What a peer may have unanswered before we call it broken; a well-behaved one has its window.
constexpr size_t kRequestsMax = 65536;
// The time to compare does not depend on where the first difference is.
bool SameToken(const uint8_t* a, const RegionToken& b) {
  uint8_t difference = 0;
  for (size_t i = 0; i < b.size(); ++i) difference |= static_cast<uint8_t>(a[i] ^ b[i]);
  return difference == 0;
}

template <class T>
std::span<const std::byte> HeaderOf(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

}  // namespace

UcxServer::UcxServer(UcxContext* ucx, const UcxOptions& options) : ucx_(*ucx), options_(options) {
  ucx_.SetHandler(UcxMessage::kPing, OnPing, this);
  ucx_.SetHandler(UcxMessage::kRead, OnRead, this);
}

UcxServer::~UcxServer() {
  ucx_.SetHandler(UcxMessage::kPing, nullptr, nullptr);
  ucx_.SetHandler(UcxMessage::kRead, nullptr, nullptr);
  for (auto& [ep, served] : served_) ucx_.Close(std::move(served->peer), {});
}

void UcxServer::AddRegion(uint32_t region, std::span<const std::byte> memory,
                          const RegionToken& token) {
  regions_[region] = Region{memory, token};
}

UcxServer::Served* UcxServer::Find(const ucp_am_recv_param_t* param) {
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) == 0) return nullptr;
  auto found = served_.find(param->reply_ep);
  if (found == served_.end()) return nullptr;
  found->second->heard = true;
  return found->second.get();
}

ucs_status_t UcxServer::OnPing(void* arg, const void* header, size_t header_bytes, void*, size_t,
                               const ucp_am_recv_param_t* param) {
  auto& self = *static_cast<UcxServer*>(arg);
  Served* served = self.Find(param);
  if (served == nullptr) return UCS_OK;
  if (header_bytes != sizeof(UcxPing)) {
    served->broken = true;
    return UCS_OK;
  }
  const auto ping = LoadAs<UcxPing>(header);
  self.ucx_.Send(*served->peer, UcxMessage::kPong, HeaderOf(ping), {}, {});
  return UCS_OK;
}

ucs_status_t UcxServer::OnRead(void* arg, const void* header, size_t header_bytes, void*,
                               size_t bytes, const ucp_am_recv_param_t* param) {
  auto& self = *static_cast<UcxServer*>(arg);
  Served* served = self.Find(param);
  if (served == nullptr) return UCS_OK;
  if (header_bytes != sizeof(UcxReadRequest) || bytes != 0 ||
      self.requests_.size() >= kRequestsMax) {
    WEIR_REACHED("ucx: a reader's request is malformed");
    served->broken = true;
    return UCS_OK;
  }
  self.requests_.push_back({param->reply_ep, LoadAs<UcxReadRequest>(header)});
  return UCS_OK;
}

void UcxServer::Serve() {
  while (ucp_conn_request_h request = ucx_.NextRequest()) {
    if (served_.size() >= options_.served_max) {
      WEIR_REACHED("ucx: too many readers");
      ucx_.Reject(request);
      continue;
    }
    auto peer = ucx_.Accept(request);
    if (!peer.ok()) continue;
    auto served = std::make_shared<Served>();
    served->peer = *std::move(peer);
    const ucp_ep_h ep = served->peer->ep;
    served_[ep] = std::move(served);
  }
  answering_.swap(requests_);
  for (const Request& request : answering_) Answer(request);
  answering_.clear();
}

Reason UcxServer::Check(const Served& served, const UcxReadRequest& read,
                        std::span<const std::byte>* bytes) const {
  if (served.sends >= 2 * options_.window) return Reason::kQueueFull;
  auto region = regions_.find(read.region);
  if (region == regions_.end()) return Reason::kBadField;
  if (!SameToken(read.token, region->second.token)) return Reason::kForbidden;
  const auto memory = region->second.memory;
  if (read.bytes == 0 || read.bytes > options_.piece_bytes || read.offset > memory.size() ||
      read.bytes > memory.size() - read.offset) {
    return Reason::kBadField;
  }
  *bytes = memory.subspan(read.offset, read.bytes);
  return Reason::kOk;
}

void UcxServer::Answer(const Request& request) {
  auto found = served_.find(request.from);
  if (found == served_.end() || found->second->peer->failed) return;
  Served& served = *found->second;
  std::span<const std::byte> bytes;
  UcxData data{};
  data.piece = request.read.piece;
  data.reason = static_cast<uint16_t>(Check(served, request.read, &bytes));
  if (data.reason != 0) WEIR_REACHED("ucx: a read was refused");
  ++served.sends;
  // The send may end after the peer was dropped from the table.
  ucx_.Send(*served.peer, UcxMessage::kData, HeaderOf(data), bytes,
            [kept = found->second](bool) { --kept->sends; });
}

void UcxServer::Tick() {
  for (auto it = served_.begin(); it != served_.end();) {
    Served& served = *it->second;
    served.misses = served.heard ? 0 : served.misses + 1;
    served.heard = false;
    const bool silent = served.misses >= options_.ping_misses_max;
    if (!silent && !served.broken && !served.peer->failed) {
      ++it;
      continue;
    }
    if (silent) WEIR_REACHED("ucx: a reader fell silent");
    ucx_.Close(std::move(served.peer), {});
    served_.erase(it++);
  }
}

}  // namespace weir::kv
