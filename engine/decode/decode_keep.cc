// SPDX-License-Identifier: Apache-2.0
//
// What DecodeCore gives back: when an answer is complete, its blocks and the window state behind them
// are offered to the prefill engine that computed the prompt, for the conversation's next turn. The
// sequence ends only when that engine has answered or has taken too long, and then it is told; one
// that is gone may still be reading for as long.
#include <algorithm>

#include "base/stdx/check.h"
#include "base/stdx/units.h"
#include "engine/decode/decode_impl.h"

namespace weir::engine {

// `parent`: the key of the last complete block of the tokens; `tail`: the ids behind it.
void DecodeCore::Impl::TakeKeepTerms(Sequence* s, const pb::PrefillDone& m) {
  s->keep_parent.clear();
  const auto tail = static_cast<uint32_t>(m.keep_tail_size());
  if (m.keep_parent().empty() || tail > block_tokens_ || tail > s->token_count ||
      (s->token_count - tail) % block_tokens_ != 0) {
    return;
  }
  s->keep_parent = m.keep_parent();
  s->keep_tail.assign(m.keep_tail().begin(), m.keep_tail().end());
  s->approximate = m.approximate();
}

void DecodeCore::Impl::OfferBack(Sequence* s) {
  const InstanceId source = s->receiver.source();
  if (s->keep_parent.empty() || draining_ || !peers_.IsUp(source)) return;
  const Position first = s->token_count - static_cast<Position>(s->keep_tail.size());
  const uint32_t count = s->cursor - first;  // of ids whose KV is complete
  const bool worth = count >= block_tokens_ || config_.model.window > 0;
  if (s->cursor <= s->token_count || !worth) return;
  pb::KeepOffer& offer = *SendTo(source, out_).mutable_keep_offer();
  KeyTo(s->id, offer.mutable_key());
  offer.set_parent_key(s->keep_parent);
  offer.set_approximate(s->approximate);
  offer.mutable_tokens()->Add(s->keep_tail.begin(), s->keep_tail.end());
  const auto answer = s->emitted.end() - s->emitted_here;
  WEIR_CHECK(s->cursor - s->token_count <= s->emitted_here);
  offer.mutable_tokens()->Add(answer, answer + (s->cursor - s->token_count));
  const uint32_t from = first / block_tokens_;
  const uint32_t to = CeilDiv(s->cursor, block_tokens_);
  const auto add = [&](const std::vector<PageId>& pages, auto* field) {
    if (!pages.empty()) field->Add(pages.begin() + from, pages.begin() + to);
  };
  add(s->table.pages[static_cast<int>(Part::kEncoder)], offer.mutable_encoder_pages());
  add(s->table.pages[static_cast<int>(Part::kDecoder)], offer.mutable_decoder_pages());
  offer.set_state_page(s->table.state);
  s->keeping = true;
  const PeerUp* peer = peers_.Find(source);
  const bool same = config_.arena != 0 && peer->arena == config_.arena;
  // Nothing tells whether a copy in our own arena is still under way but the answer.
  if (!same) WEIR_CHECK(keeps_until_.Grant(s->id, now_ + kKeepWait));
}

void DecodeCore::Impl::OnKeepDone(InstanceId from, const AttemptKey& id) {
  for (Sequence& s : sequences_) {
    if (s.phase != Phase::kEnding || !s.keeping || s.id != id || s.receiver.source() != from) continue;
    return EndKeep(&s);
  }
}

void DecodeCore::Impl::EndKeep(Sequence* s) {
  s->keeping = false;
  keeps_until_.Release(s->id);
  FreeIfIdle(s);
}

void DecodeCore::Impl::ExpireKeeps() {
  if (keeps_until_.NextDeadline() > now_) return;
  std::vector<AttemptKey> late;
  keeps_until_.Expire(now_, &late);
  for (Sequence& s : sequences_) {
    if (!s.keeping || std::find(late.begin(), late.end(), s.id) == late.end()) continue;
    WEIR_REACHED("decode: what was offered back was not answered");
    if (peers_.IsUp(s.receiver.source())) {
      KeyTo(s.id, SendTo(s.receiver.source(), out_).mutable_keep_done()->mutable_key());
    }
    EndKeep(&s);
  }
}

}  // namespace weir::engine
