// SPDX-License-Identifier: Apache-2.0
#include "engine/handover/sender.h"

#include <algorithm>
#include <utility>

#include "base/stdx/check.h"
#include "engine/limits.h"

namespace weir::engine {

void Sender::Attach(InstanceId sink, std::string address, bool stays) {
  sink_ = sink;
  address_ = std::move(address);
  stays_ = stays;
  offered_ = 0;
  offered_any_ = false;
  done_ = false;
  aborted_ = false;
}

void Sender::Abort(const AttemptKey& key, EngineActions* out) {
  if (!offered_any_ || aborted_) return;
  aborted_ = true;
  pb::HandoverAbort& abort = *SendTo(sink_, out).mutable_handover_abort();
  KeyTo(key, abort.mutable_key());
  FailureTo(Reason::kCancelled, "the prefill engine gives the pages up", {},
            abort.mutable_failure());
}

void Sender::Offer(const AttemptKey& key, const BlockTable& table, uint32_t complete,
                   EngineActions* out) {
  WEIR_CHECK(attached() && complete <= table.blocks);
  while (offered_ < complete) {
    const uint32_t count = std::min(complete - offered_, kChunkBlocksMax);
    pb::ChunkDone& chunk = *SendTo(sink_, out).mutable_chunk_done();
    KeyTo(key, chunk.mutable_key());
    chunk.set_first_block(offered_);
    chunk.set_stays(stays_);
    const auto add = [&](const std::vector<PageId>& pages, auto* field) {
      if (!pages.empty()) field->Add(pages.begin() + offered_, pages.begin() + offered_ + count);
    };
    add(table.pages[static_cast<int>(Part::kEncoder)], chunk.mutable_encoder_pages());
    add(table.pages[static_cast<int>(Part::kDecoder)], chunk.mutable_decoder_pages());
    offered_ += count;
    offered_any_ = true;
  }
}

pb::PrefillDone& Sender::Done(const AttemptKey& key, const BlockTable& table, EngineActions* out) {
  WEIR_CHECK(attached() && !done_ && offered_ == table.blocks);
  pb::PrefillDone& done = *SendTo(sink_, out).mutable_prefill_done();
  KeyTo(key, done.mutable_key());
  done.set_block_count(table.blocks);
  done.set_stays(stays_);
  done.set_state_page(table.state);
  done_ = true;
  offered_any_ = true;
  return done;
}

}  // namespace weir::engine
