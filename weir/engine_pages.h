// SPDX-License-Identifier: Apache-2.0
//
// What an engine shows of itself: gauges and counters for /metrics, JSON for /debug/state, and its
// part of readiness. The engine must outlive what is registered here.
#pragma once

#include <string>

#include "base/obs/admin.h"
#include "base/obs/metrics.h"
#include "base/obs/trace_point.h"
#include "engine/run/engine_service.h"

namespace weir {

void ShowEngine(engine::EngineService* engine, Metrics* metrics, ProgressWatch* watch);

// Where rows are traced: how many were lost. `trace` may be null.
void ShowTrace(TracePointSink* trace, Metrics* metrics);

// A JSON object.
std::string EngineStateJson(const engine::EngineService& engine);

}  // namespace weir
