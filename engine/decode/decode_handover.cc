// SPDX-License-Identifier: Apache-2.0
//
// Offers and reads of DecodeCore. A prefill engine keeps what it offered until it hears HandoverDone
// or HandoverAbort from us, so every offer that we do not take is answered, known or not.
#include <algorithm>
#include <utility>

#include "base/stdx/check.h"
#include "base/stdx/planted.h"
#include "engine/decode/decode_impl.h"

namespace weir::engine {

DecodeSequence* DecodeCore::Impl::Receiving(InstanceId from, const AttemptKey& id, bool stays) {
  const auto found = by_key_.find(id.request);
  const bool known = found != by_key_.end() && found->second.slot.value >= 0 &&
                     (found->second.attempt == id.attempt ||
                      (found->second.attempt > id.attempt && IsPlanted(Planted::kForgetEpochCheck)));
  if (!known) {
    WEIR_REACHED("decode: offer for an unknown sequence");
    ++counters_.orphans;
    if (!AnswersLater(id)) AnswerAbort(from, id, Reason::kCancelled);
    return nullptr;
  }
  Sequence* s = At(found->second.slot);
  if (s->phase == Phase::kRunning) return nullptr;  // a repeated message
  if (!s->receiver.bound()) {
    const PeerUp* peer = peers_.Find(from);
    s->offered = now_;
    const bool same = peer != nullptr && config_.arena != 0 && peer->arena == config_.arena;
    s->receiver.Bind(from, same && !stays);
  }
  if (s->receiver.source() != from && !IsPlanted(Planted::kForgetEpochCheck)) {
    WEIR_REACHED("decode: offers from two prefill engines");
    AnswerAbort(from, id, Reason::kCancelled);
    return nullptr;
  }
  return s;
}

void DecodeCore::Impl::OnChunkDone(InstanceId from, const pb::ChunkDone& m) {
  Sequence* s = Receiving(from, KeyFrom(m.key()), m.stays());
  if (s == nullptr) return;
  reads_.clear();
  if (!s->receiver.OnChunk(m, s->table, &reads_)) {
    WEIR_REACHED("decode: malformed offer");
    return Abort(s, Reason::kBug);
  }
  Fetch(s);
}

void DecodeCore::Impl::OnPrefillDone(InstanceId from, const pb::PrefillDone& m) {
  Sequence* s = Receiving(from, KeyFrom(m.key()), m.stays());
  if (s == nullptr || s->receiver.done()) return;
  reads_.clear();
  const bool token_ok =
      m.first_token() >= 0 && static_cast<uint32_t>(m.first_token()) < config_.model.vocab;
  const bool count_ok =
      m.token_count() == s->token_count || IsPlanted(Planted::kForgetEpochCheck);
  if (!token_ok || !count_ok || !s->receiver.OnDone(m, s->table, &reads_)) {
    WEIR_REACHED("decode: malformed end of an offer");
    return Abort(s, Reason::kBug);
  }
  s->last = m.first_token();
  s->cached_tokens = m.cached_tokens();
  TakeKeepTerms(s, m);
  s->first_score = ScoreFrom(m.first_logprob());
  const int drafts = std::min<int>(m.drafts_size(), static_cast<int>(config_.model.draft_max));
  s->drafts.clear();
  for (int i = 0; i < drafts; ++i) {
    if (m.drafts(i) < 0 || static_cast<uint32_t>(m.drafts(i)) >= config_.model.vocab) break;
    s->drafts.push_back(m.drafts(i));
  }
  Fetch(s);
  if (s->receiver.complete()) Start(s);
}

void DecodeCore::Impl::Fetch(Sequence* s) {
  for (size_t from = 0; from < reads_.size(); from += kFetchReadsMax) {
    const size_t to = std::min<size_t>(reads_.size(), from + kFetchReadsMax);
    const FetchId id(++last_fetch_);
    out_->fetches.push_back({.id = id,
                             .from = s->receiver.source(),
                             .reads = {reads_.begin() + static_cast<std::ptrdiff_t>(from),
                                       reads_.begin() + static_cast<std::ptrdiff_t>(to)}});
    s->receiver.Started(id);
    by_fetch_.emplace(id, SlotOf(s));
  }
}

void DecodeCore::Impl::Handle(const FetchDone& event) {
  const auto found = by_fetch_.find(event.fetch);
  if (found == by_fetch_.end()) {
    ++counters_.orphans;
    return;
  }
  Sequence* s = At(found->second);
  by_fetch_.erase(found);
  WEIR_CHECK(s->receiver.Ended(event.fetch));
  if (s->phase == Phase::kEnding) {
    WEIR_REACHED("decode: read of an ended sequence came back");
    return FreeIfIdle(s);
  }
  if (event.reason != Reason::kOk) {
    WEIR_REACHED("decode: read failed");
    return Abort(s, event.reason);
  }
  if (s->receiver.complete()) Start(s);
}

void DecodeCore::Impl::Abort(Sequence* s, Reason reason) {
  End(s, pb::FINISH_REASON_FAILED, reason);
}

void DecodeCore::Impl::OnHandoverAbort(InstanceId from, const AttemptKey& id, Reason) {
  const auto found = by_key_.find(id.request);
  if (found != by_key_.end() && found->second.attempt == id.attempt &&
      found->second.slot.value >= 0) {
    Sequence* s = At(found->second.slot);
    // Running: everything was read before, and our HandoverDone is the answer.
    if (s->phase == Phase::kRunning && s->receiver.source() == from) return;
    if (s->phase == Phase::kReserved && s->receiver.source() == from) {
      WEIR_REACHED("decode: the prefill engine gave up");
      return Abort(s, Reason::kPeerLost);
    }
  }
  if (!AnswersLater(id)) AnswerAbort(from, id, Reason::kCancelled);
}

void DecodeCore::Impl::OnSourceDown(InstanceId source) {
  for (Sequence& s : sequences_) {
    if (s.phase == Phase::kFree || !s.receiver.bound() || s.receiver.source() != source) continue;
    if (s.phase == Phase::kReserved) {
      WEIR_REACHED("decode: the prefill engine is gone");
      Abort(&s, Reason::kPeerLost);
    }
    s.tell_source = false;
    if (s.keeping) WEIR_CHECK(keeps_until_.Grant(s.id, now_ + kKeepWait));
  }
}

void DecodeCore::Impl::Start(Sequence* s) {
  if (s->receiver.adopt()) {
    if (!Adopt(s)) {
      WEIR_REACHED("decode: pages could not be adopted");
      return Abort(s, Reason::kBug);
    }
  } else {
    KeyTo(s->id, SendTo(s->receiver.source(), out_).mutable_handover_done()->mutable_key());
  }
  if (s->trace.sampled) RecordSpan(*s, Reason::kOk);
  s->started = now_;
  s->phase = Phase::kRunning;
  s->capacity = s->table.blocks * block_tokens_;
  scheduler_.Add(SlotOf(s));
  TokenOut row{.key = s->id.request,
               .attempt = s->id.attempt,
               .position = s->token_count,
               .cached_tokens = s->cached_tokens,
               .id_offset = static_cast<uint32_t>(out_->ids.size())};
  const bool goes_on = Take(s, s->last, &row);
  if (s->sampling.logprobs && row.id_count > 0) {
    row.score_offset = static_cast<int32_t>(out_->scores.size());
    out_->scores.push_back(std::move(s->first_score));
  }
  out_->tokens.push_back(row);
  if (!goes_on) return End(s, pb::FINISH_REASON_UNSPECIFIED, Reason::kOk);
  WantRows(s);
  SetView(s);
}

bool DecodeCore::Impl::Adopt(Sequence* s) {
  const BlockTable& theirs = s->receiver.offered();
  BlockTable mine;
  mine.blocks = theirs.blocks;
  mine.state = s->table.state;
  for (int part = 0; part < kPartCount; ++part) {
    if (s->table.pages[part].empty()) continue;
    mine.pages[part].assign(s->table.pages[part].begin(),
                            s->table.pages[part].begin() + theirs.blocks);
  }
  if (!pool_.Exchange(mine, theirs)) return false;
  for (int part = 0; part < kPartCount; ++part) {
    std::copy(theirs.pages[part].begin(), theirs.pages[part].end(), s->table.pages[part].begin());
  }
  s->table.state = theirs.state;
  pb::HandoverDone& done = *SendTo(s->receiver.source(), out_).mutable_handover_done();
  KeyTo(s->id, done.mutable_key());
  done.set_adopted(true);
  const auto& encoder = mine.pages[static_cast<int>(Part::kEncoder)];
  const auto& decoder = mine.pages[static_cast<int>(Part::kDecoder)];
  done.mutable_encoder_pages()->Add(encoder.begin(), encoder.end());
  done.mutable_decoder_pages()->Add(decoder.begin(), decoder.end());
  done.set_state_page(mine.state);
  return true;
}

// A sequence that is ending answers its prefill engine itself once its reads are over.
bool DecodeCore::Impl::AnswersLater(const AttemptKey& id) const {
  if (ending_ == 0) return false;
  return std::any_of(sequences_.begin(), sequences_.end(), [&id](const Sequence& s) {
    return s.phase == Phase::kEnding && s.id == id && s.tell_source;
  });
}

void DecodeCore::Impl::AnswerAbort(InstanceId to, const AttemptKey& id, Reason reason) {
  if (!peers_.IsUp(to)) return;
  pb::HandoverAbort& abort = *SendTo(to, out_).mutable_handover_abort();
  KeyTo(id, abort.mutable_key());
  FailureTo(reason, "the decode engine does not take this hand-over", {}, abort.mutable_failure());
}

}  // namespace weir::engine
