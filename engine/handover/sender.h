// SPDX-License-Identifier: Apache-2.0
//
// Sender: the prefill side of one hand-over: to whom, how far blocks were offered, whether the sink
// may still be reading. A plain value of one core; it never waits. Offers are idempotent by
// (request, attempt, block): a new sink is offered everything from the start.
#pragma once

#include <cstdint>
#include <string>

#include "base/stdx/ids.h"
#include "engine/cache/kv_pool.h"
#include "engine/run/engine_io.h"
#include "engine/run/wire.h"

namespace weir::engine {

class Sender {
 public:
  // Points at another sink, to which nothing was offered yet.
  // With `stays` it is told to read the pages, never to take them over.
  void Attach(InstanceId sink, std::string address, bool stays = false);
  void Detach() { Attach(InstanceId(), {}); }

  bool attached() const { return sink_ != InstanceId(); }
  InstanceId sink() const { return sink_; }
  const std::string& address() const { return address_; }
  // Something was offered and no answer has come: the sink may read our pages.
  bool offered() const { return offered_any_; }
  // Everything was offered, so the sink may also take the pages over.
  bool done() const { return done_; }

  // Tells the sink to stop, once. Its answer, HandoverAbort or HandoverDone, still comes.
  void Abort(const AttemptKey& key, EngineActions* out);

  // Offers blocks up to `complete` of the table that were not offered yet.
  void Offer(const AttemptKey& key, const BlockTable& table, uint32_t complete,
             EngineActions* out);
  // Ends the offer; the caller fills in the rest. Offer was called with all blocks before.
  pb::PrefillDone& Done(const AttemptKey& key, const BlockTable& table, EngineActions* out);

 private:
  InstanceId sink_;
  std::string address_;
  uint32_t offered_ = 0;
  bool stays_ = false;
  bool offered_any_ = false;
  bool done_ = false;
  bool aborted_ = false;
};

}  // namespace weir::engine
