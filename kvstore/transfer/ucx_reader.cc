// SPDX-License-Identifier: Apache-2.0
#include "kvstore/transfer/ucx_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/stdx/bytes.h"
#include "base/stdx/check.h"
#include "base/stdx/status.h"

namespace weir::kv {
namespace {

template <class T>
std::span<const std::byte> HeaderOf(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

absl::Status RefusalOf(uint16_t reason) {
  // Only reasons that an owner may give; whatever else comes is the peer's fault.
  switch (static_cast<Reason>(reason)) {
    case Reason::kBadField:
      return Error(Reason::kBadField, "the peer refused a read outside of its region",
                   "remote_offset");
    case Reason::kForbidden:
      return Error(Reason::kForbidden, "the peer refused a read with a wrong token", "regions");
    case Reason::kQueueFull:
      return Error(Reason::kQueueFull, "the peer has too many reads under way");
    default:
      return Error(Reason::kPeerLost, "the peer refused a read for an unknown reason");
  }
}

}  // namespace

UcxReader::UcxReader(UcxContext* ucx, const UcxOptions& options, DoneQueue* done)
    : ucx_(*ucx),
      options_(options),
      done_(*done),
      self_(std::make_shared<UcxReader*>(this)) {
  ucx_.SetHandler(UcxMessage::kPong, OnPong, this);
  ucx_.SetHandler(UcxMessage::kData, OnData, this);
}

UcxReader::~UcxReader() {
  ucx_.SetHandler(UcxMessage::kPong, nullptr, nullptr);
  ucx_.SetHandler(UcxMessage::kData, nullptr, nullptr);
  for (auto& [remote, link] : links_) {
    if (link.peer) ucx_.Close(std::move(link.peer), {});
  }
  links_.clear();
  *self_ = nullptr;
}

void UcxReader::Attach(RemoteHandle remote, const SocketAddress& address, uint32_t region,
                       const RegionToken& token, Instant now) {
  auto [found, fresh] = links_.try_emplace(remote);
  Link& link = found->second;
  link.regions[region] = token;
  if (!fresh) return;
  link.address = address;
  link.backoff = options_.backoff_min;
  Connect(link, remote, now);
}

void UcxReader::Connect(Link& link, RemoteHandle remote, Instant now) {
  auto peer = ucx_.Connect(link.address);
  if (!peer.ok()) {
    link.state = State::kWaiting;
    link.retry_at = now + link.backoff;
    link.backoff = std::min(2 * link.backoff, options_.backoff_max);
    return;
  }
  link.peer = *std::move(peer);
  link.ep = link.peer->ep;
  link.state = State::kConnecting;
  link.misses = 0;
  link.heard = true;
  Ping(link, remote);
}

void UcxReader::Ping(Link& link, RemoteHandle remote) {
  UcxPing ping{};
  ping.link = remote;
  ucx_.Send(*link.peer, UcxMessage::kPing, HeaderOf(ping), {}, {});
}

ucs_status_t UcxReader::OnPong(void* arg, const void* header, size_t header_bytes, void*, size_t,
                               const ucp_am_recv_param_t* param) {
  auto& self = *static_cast<UcxReader*>(arg);
  if (header_bytes != sizeof(UcxPing)) return UCS_OK;
  auto found = self.links_.find(static_cast<RemoteHandle>(LoadAs<UcxPing>(header).link));
  if (found == self.links_.end() || found->second.ep != param->reply_ep) return UCS_OK;
  Link& link = found->second;
  link.heard = true;
  if (link.state == State::kConnecting) {
    link.state = State::kUp;
    link.backoff = self.options_.backoff_min;
  }
  return UCS_OK;
}

void UcxReader::Detach(RemoteHandle remote) {
  auto found = links_.find(remote);
  if (found == links_.end()) return;
  Link& link = found->second;
  link.detached = true;
  FailOps(remote, link, Error(Reason::kPeerLost, "the peer was removed"));
  if (link.state == State::kClosing) return;
  if (!link.peer) {
    links_.erase(found);
    return;
  }
  link.state = State::kClosing;
  link.ep = nullptr;
  ucx_.Close(std::move(link.peer), [self = self_, remote] {
    if (*self != nullptr) (*self)->Closed(remote);
  });
}

void UcxReader::Read(const CarrierOp& read, Instant now) {
  const OpKey key{read.transfer, ++last_op_};
  Op op;
  op.read = read;
  op.posted = now;
  auto found = links_.find(read.remote);
  WEIR_CHECK(found != links_.end() && !found->second.detached);
  found->second.waiting[static_cast<size_t>(read.traffic)].push_back(key);
  ops_.emplace(key, std::move(op));
}

void UcxReader::Cancel(uint64_t transfer) {
  auto it = ops_.lower_bound({transfer, 0});
  while (it != ops_.end() && it->first.first == transfer) {
    const OpKey key = it->first;
    Op& op = it->second;
    ++it;
    if (op.status.ok()) op.status = Error(Reason::kCancelled, "the transfer was cancelled");
    auto link = links_.find(op.read.remote);
    if (link != links_.end()) {
      std::erase(link->second.waiting[static_cast<size_t>(op.read.traffic)], key);
    }
    EndOpIfOver(key);
  }
}

void UcxReader::Advance(Instant now) {
  for (const RemoteHandle remote : detached_) links_.erase(remote);
  detached_.clear();
  for (auto& [remote, link] : links_) {
    if (link.state == State::kWaiting && !link.detached && link.retry_at <= now) {
      Connect(link, remote, now);
    }
    if (link.peer && link.peer->failed) {
      const bool up = link.state == State::kUp;
      Lose(remote, link,
           up ? Error(Reason::kPeerLost, "the connection to the peer broke") : absl::OkStatus(),
           now);
    }
    if (link.state == State::kUp) AskMore(link, remote, now);
  }
}

void UcxReader::AskMore(Link& link, RemoteHandle remote, Instant now) {
  for (auto& waiting : link.waiting) {
    while (link.pieces < options_.window && !waiting.empty()) {
      const OpKey key = waiting.front();
      Op& op = ops_.at(key);
      if (!AskPiece(link, remote, op, key, now)) return;
      if (op.asked == op.read.bytes) waiting.pop_front();
    }
  }
}

bool UcxReader::AskPiece(Link& link, RemoteHandle remote, Op& op, const OpKey& key, Instant now) {
  const uint64_t id = ++last_piece_;
  Piece piece;
  piece.link = remote;
  piece.op = key;
  piece.offset = op.asked;
  piece.bytes = std::min(options_.piece_bytes, op.read.bytes - op.asked);
  piece.deadline = now + options_.piece_timeout;
  UcxReadRequest request{};
  request.piece = id;
  request.offset = op.read.offset + piece.offset;
  request.region = op.read.region;
  request.bytes = piece.bytes;
  const RegionToken& token = link.regions.at(op.read.region);
  std::memcpy(request.token, token.data(), token.size());
  ucx_.Send(*link.peer, UcxMessage::kRead, HeaderOf(request), {}, {});
  if (link.peer->failed) return false;  // the next Advance ends the link and its reads
  op.asked += piece.bytes;
  ++op.pieces;
  ++link.pieces;
  pieces_.emplace(id, std::move(piece));
  return true;
}

ucs_status_t UcxReader::OnData(void* arg, const void* header, size_t header_bytes, void* data,
                               size_t bytes, const ucp_am_recv_param_t* param) {
  auto& self = *static_cast<UcxReader*>(arg);
  if (header_bytes != sizeof(UcxData)) return UCS_OK;
  const auto answer = LoadAs<UcxData>(header);
  auto found = self.pieces_.find(answer.piece);
  // An answer counts only on the endpoint it was asked on: a peer cannot answer for another one.
  if (found == self.pieces_.end() || found->second.landing) return UCS_OK;
  Piece& piece = found->second;
  auto link = self.links_.find(piece.link);
  if (link == self.links_.end() || link->second.ep == nullptr ||
      link->second.ep != param->reply_ep) {
    return UCS_OK;
  }
  link->second.heard = true;
  if (answer.reason != 0) {
    self.EndPiece(answer.piece, RefusalOf(answer.reason));
    return UCS_OK;
  }
  if (bytes != piece.bytes) {
    WEIR_REACHED("ucx: an answer of a wrong size");
    self.EndPiece(answer.piece, Error(Reason::kPeerLost, "the peer answered with a wrong size"));
    return UCS_OK;
  }
  Op& op = self.ops_.at(piece.op);
  return self.TakeData(answer.piece, piece, op, data, bytes,
                       (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0);
}

ucs_status_t UcxReader::TakeData(uint64_t id, Piece& piece, Op& op, void* data, size_t bytes,
                                 bool rendezvous) {
  if (!op.status.ok()) {
    // Cancelled meanwhile: without a receive UCX drops the bytes and the owner's send ends.
    EndPiece(id, absl::OkStatus());
    return UCS_OK;
  }
  std::byte* to = op.read.to + piece.offset;
  if (!rendezvous) {
    std::memcpy(to, data, bytes);
    EndPiece(id, absl::OkStatus());
    return UCS_OK;
  }
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                       UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  param.cb.recv_am = OnLanded;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  auto landing = std::make_unique<Landing>(Landing{self_, id});
  param.user_data = landing.get();
  piece.landing = true;
  const ucs_status_ptr_t request = ucp_am_recv_data_nbx(ucx_.worker(), data, to, bytes, &param);
  if (UCS_PTR_IS_PTR(request)) {
    landing.release();  // OnLanded takes it back
  } else {
    EndPiece(id, request == nullptr ? absl::OkStatus()
                                    : Error(Reason::kPeerLost, "the read could not land"));
  }
  return UCS_INPROGRESS;
}

void UcxReader::OnLanded(void* request, ucs_status_t status, size_t, void* arg) {
  const std::unique_ptr<Landing> landing(static_cast<Landing*>(arg));
  ucp_request_free(request);
  UcxReader* reader = *landing->reader;
  if (reader == nullptr) return;
  reader->EndPiece(landing->piece,
                   status == UCS_OK ? absl::OkStatus()
                                    : Error(Reason::kPeerLost, "the peer went away during a read"));
}

void UcxReader::EndPiece(uint64_t id, const absl::Status& status) {
  auto found = pieces_.find(id);
  if (found == pieces_.end()) return;  // its link was closed first
  const Piece piece = found->second;
  pieces_.erase(found);
  if (auto link = links_.find(piece.link); link != links_.end()) {
    --link->second.pieces;
    link->second.heard = true;
  }
  Op& op = ops_.at(piece.op);
  --op.pieces;
  if (status.ok()) {
    op.landed += piece.bytes;
  } else if (op.status.ok()) {
    op.status = status;
    auto link = links_.find(op.read.remote);
    if (link != links_.end()) {
      std::erase(link->second.waiting[static_cast<size_t>(op.read.traffic)], piece.op);
    }
  }
  EndOpIfOver(piece.op);
}

void UcxReader::EndOpIfOver(const OpKey& key) {
  auto found = ops_.find(key);
  Op& op = found->second;
  if (op.pieces > 0) return;
  if (op.status.ok() && op.landed < op.read.bytes) return;
  if (op.status.ok()) op.status = CheckLanded({op.read.to, op.read.bytes}, op.read.crc32c);
  CarrierDone done{op.read.transfer, op.read.bytes, std::move(op.status)};
  ops_.erase(found);
  done_.Push(std::move(done));
}

void UcxReader::FailOps(RemoteHandle remote, Link& link, const absl::Status& status) {
  for (auto& waiting : link.waiting) waiting.clear();
  for (auto it = ops_.begin(); it != ops_.end();) {
    const OpKey key = it->first;
    Op& op = it->second;
    ++it;
    if (op.read.remote != remote) continue;
    if (op.status.ok()) op.status = status;
    EndOpIfOver(key);
  }
}

// Ends a connection. With an error the reads of the link fail too; without one (it never was up) they
// wait for the next try.
void UcxReader::Lose(RemoteHandle remote, Link& link, const absl::Status& status, Instant now) {
  if (!status.ok()) {
    WEIR_REACHED("ucx: a peer was lost");
    FailOps(remote, link, status);
  }
  link.state = State::kClosing;
  link.ep = nullptr;
  link.retry_at = now + link.backoff;
  link.backoff = std::min(2 * link.backoff, options_.backoff_max);
  ucx_.Close(std::move(link.peer), [self = self_, remote] {
    if (*self != nullptr) (*self)->Closed(remote);
  });
}

// The endpoint is gone: nothing of it can land any more, so what was under way is over.
void UcxReader::Closed(RemoteHandle remote) {
  std::vector<uint64_t> left;
  for (const auto& [id, piece] : pieces_) {
    if (piece.link == remote) left.push_back(id);
  }
  for (const uint64_t id : left) {
    EndPiece(id, Error(Reason::kPeerLost, "the connection to the peer broke"));
  }
  auto found = links_.find(remote);
  if (found == links_.end()) return;
  found->second.state = State::kWaiting;
  if (found->second.detached) detached_.push_back(remote);
}

void UcxReader::ExpireWaiting(RemoteHandle remote, Link& link, Instant now) {
  std::vector<OpKey> expired;
  for (auto& waiting : link.waiting) {
    for (const OpKey& key : waiting) {
      if (ops_.at(key).posted + options_.connect_timeout <= now) expired.push_back(key);
    }
    std::erase_if(waiting, [&](const OpKey& key) {
      return ops_.at(key).posted + options_.connect_timeout <= now;
    });
  }
  for (const OpKey& key : expired) {
    WEIR_REACHED("ucx: no connection in time");
    ops_.at(key).status = Error(Reason::kPeerLost, "the peer could not be connected in time");
    EndOpIfOver(key);
  }
}

void UcxReader::CheckDeadlines(Instant now) {
  for (const auto& [id, piece] : pieces_) {
    if (piece.deadline > now) continue;
    auto link = links_.find(piece.link);
    if (link == links_.end() || !link->second.peer) continue;
    WEIR_REACHED("ucx: a read was not answered in time");
    // What is landing can only be stopped with its endpoint.
    Lose(piece.link, link->second, Error(Reason::kDeadline, "the peer did not answer in time"), now);
    return;  // the table may have changed; the others follow with the next tick
  }
}

void UcxReader::Tick(Instant now) {
  for (auto& [remote, link] : links_) {
    if (link.state == State::kUp || link.state == State::kConnecting) {
      // Counted in our own ticks: a pause of this process is not the peer's silence.
      link.misses = link.heard ? 0 : link.misses + 1;
      link.heard = false;
      if (link.misses >= options_.ping_misses_max) {
        WEIR_REACHED("ucx: a peer fell silent");
        const bool up = link.state == State::kUp;
        Lose(remote, link,
             up ? Error(Reason::kPeerLost, "the peer fell silent") : absl::OkStatus(), now);
      } else {
        Ping(link, remote);
      }
    }
    if (link.state != State::kUp) ExpireWaiting(remote, link, now);
  }
  CheckDeadlines(now);
}

Instant UcxReader::NextRetry() const {
  Instant next = kNever;
  for (const auto& [remote, link] : links_) {
    if (link.state == State::kWaiting) next = std::min(next, link.retry_at);
  }
  return next;
}

}  // namespace weir::kv
