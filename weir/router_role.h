// SPDX-License-Identifier: Apache-2.0
//
// From configuration to a running router. Used at start by the main thread. Errors name the setting
// at fault.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/obs/admin.h"
#include "base/obs/metrics.h"
#include "proto/config.pb.h"
#include "router/router_service.h"

namespace weir {

struct RouterRoleOptions {
  ChannelFactory make_channel;
  std::string listen_address;  // empty: router.peer_address
  Metrics* metrics = nullptr;      // borrowed
  ProgressWatch* watch = nullptr;  // borrowed
  TracePointSink* trace = nullptr;  // borrowed
  SpanSink* spans = nullptr;        // borrowed
  std::function<std::string()> more_state;
};

absl::StatusOr<std::unique_ptr<router::RouterService>> MakeRouter(const v1::Config& config,
                                                                  RouterRoleOptions options);

Duration RouterDrainLimit(const v1::RouterConfig& config);

}  // namespace weir
