// SPDX-License-Identifier: Apache-2.0
//
// The Channel between processes: one bidirectional gRPC stream /weir.v1.Peer/Connect per link, with
// own heartbeats on it, so that a killed peer is noticed by its connection and a stopped one by its
// silence. See channel.h for threads and contract. Create fails with kBadField naming the address
// when it cannot listen.
#pragma once

#include <memory>

#include "base/net/channel.h"

namespace weir {

// `handler` is borrowed and must outlive the channel.
absl::StatusOr<std::unique_ptr<Channel>> CreateGrpcChannel(Channel::Options options,
                                                           Channel::Handler* handler);

}  // namespace weir
