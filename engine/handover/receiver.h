// SPDX-License-Identifier: Apache-2.0
//
// Receiver: the decode side of one hand-over: what was offered, what was asked for, what has
// arrived. A plain value of one core; it never waits. Every block is read at most once per attempt.
// Messages are not trusted: one that does not fit the reservation is refused.
#pragma once

#include <cstdint>
#include <vector>

#include "base/stdx/ids.h"
#include "engine/cache/kv_pool.h"
#include "engine/run/engine_io.h"

namespace weir::engine {

class Receiver {
 public:
  // For a sequence of `blocks` offered blocks. Keeps capacity.
  void Reset(uint32_t blocks);

  // The prefill engine that offers; unset before its first message.
  bool bound() const { return source_ != InstanceId(); }
  InstanceId source() const { return source_; }
  // `adopt`: pages will change owner, so nothing is read.
  void Bind(InstanceId source, bool adopt);
  bool adopt() const { return adopt_; }

  // Both append the reads into `own` that the message calls for, and return false when the message
  // does not fit.
  [[nodiscard]] bool OnChunk(const pb::ChunkDone& chunk, const BlockTable& own,
                             std::vector<PageRead>* reads);
  [[nodiscard]] bool OnDone(const pb::PrefillDone& done, const BlockTable& own,
                            std::vector<PageRead>* reads);

  void Started(FetchId fetch) { fetches_.push_back(fetch); }
  // False for a fetch that is not ours.
  bool Ended(FetchId fetch);
  const std::vector<FetchId>& fetches() const { return fetches_; }

  bool done() const { return done_; }
  // Everything was offered and nothing is under way.
  bool complete() const { return done_ && fetches_.empty(); }
  // The pages of the prefill engine, once done.
  const BlockTable& offered() const { return offered_; }

 private:
  InstanceId source_;
  bool adopt_ = false;
  bool done_ = false;
  uint32_t seen_count_ = 0;
  std::vector<bool> seen_;  // by block
  BlockTable offered_;
  std::vector<FetchId> fetches_;
};

}  // namespace weir::engine
