// SPDX-License-Identifier: Apache-2.0
//
// What a store process shows of itself: metrics, JSON for /debug/state, and its part of readiness.
// The node must outlive what is registered here; pages are made on the scraping thread, which waits
// for a turn of the node's loop.
#pragma once

#include <string>

#include "base/obs/admin.h"
#include "base/obs/metrics.h"
#include "kvstore/node/node_service.h"

namespace weir {

void ShowNode(kv::NodeService* node, Metrics* metrics, ProgressWatch* watch);
// A JSON object.
std::string NodeStateJson(kv::NodeService& node);

}  // namespace weir
