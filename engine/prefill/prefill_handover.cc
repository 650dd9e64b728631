// SPDX-License-Identifier: Apache-2.0
//
// What decode engines hear and answer. The rule behind all of it: after an offer our pages may be
// read, and after PrefillDone to an engine of the same arena they may be that engine's already; so
// they change hands only on its answer, on its death, or (other arenas) when a bound has passed.
#include <algorithm>
#include <utility>

#include "base/stdx/check.h"
#include "engine/prefill/prefill_impl.h"

namespace weir::engine {

void PrefillCore::Impl::AttachSink(Held* held, InstanceId sink, const std::string& address) {
  held->sender.Attach(sink, address, held->stays);
  if (peers_.IsUp(sink)) return Offer(held);
  if (dialing_.insert(sink).second) out_->dials.push_back({.instance = sink, .address = address});
}

void PrefillCore::Impl::Offer(Held* held) {
  const bool offers = held->phase == Phase::kComputing || held->phase == Phase::kComputed;
  if (!offers || !held->sender.attached() || !peers_.IsUp(held->sender.sink())) return;
  if (held->after_step != AfterStep::kNothing || held->next || held->next_attach) return;
  const bool all = held->computed_all();
  held->sender.Offer(held->id, held->table,
                     all ? held->table.blocks : held->computed / block_tokens_, out_);
  if (!all || held->sender.done()) return;
  pb::PrefillDone& done = held->sender.Done(held->id, held->table, out_);
  done.set_token_count(held->computed);
  done.set_cached_tokens(held->billed);
  if (held->stays && held->table.shared.size() == held->keys.size()) {
    done.set_keep_parent(held->keys.back().bytes.data(), held->keys.back().bytes.size());
    const auto tail = held->tokens.begin() + SharedTokens(*held);
    done.mutable_keep_tail()->Add(tail, held->tokens.end());
    done.set_approximate(held->grade == Grade::kApproximate);
  }
  done.set_first_token(held->first);
  if (held->sampling.logprobs) ScoreTo(held->first_score, done.mutable_first_logprob());
  done.mutable_drafts()->Add(held->drafts.begin(), held->drafts.end());
}

bool PrefillCore::Impl::SharesArena(InstanceId instance) const {
  const PeerUp* peer = peers_.Find(instance);
  return peer != nullptr && config_.arena != 0 && peer->arena == config_.arena;
}

bool PrefillCore::Impl::InDoubt(const Held& held) const {
  // Pages that stay are copied without checksums there: until the answer they must not change either.
  const bool open = held.stays ? held.sender.offered() : held.sender.done();
  return open && SharesArena(held.sender.sink());
}

void PrefillCore::Impl::AbortSink(Held* held) {
  if (peers_.IsUp(held->sender.sink())) held->sender.Abort(held->id, out_);
}

void PrefillCore::Impl::ApplyNext(Held* held) {
  const std::unique_ptr<pb::Prefill> next = std::move(held->next);
  held->next_attach.reset();
  AbortSink(held);
  Begin(held, *next);
}

void PrefillCore::Impl::OnHandoverDone(InstanceId from, const pb::HandoverDone& m) {
  const AttemptKey id = KeyFrom(m.key());
  // Who shares no arena has nothing to give for our pages, whatever it says, nor who was to copy them.
  const auto adopts = [&](const Held& held) {
    return m.adopted() && SharesArena(from) && !held.stays;
  };
  if (const auto closing = closing_.find(id);
      closing != closing_.end() && closing->second->sender.sink() == from) {
    WEIR_REACHED("prefill: handed over while closing");
    if (adopts(*closing->second)) TakeExchange(closing->second.get(), m);
    CloseEnded(closing);
    return;
  }
  Held* held = Find(id.request);
  if (held == nullptr || held->id != id || held->sender.sink() != from || !held->sender.done()) {
    ++counters_.orphans;
    return;
  }
  const bool adopted = adopts(*held);
  if (adopted) TakeExchange(held, m);
  held->sender.Detach();
  if (held->next) return ApplyNext(held);
  held->next_attach.reset();
  if (adopted) {
    Drop(held);
  } else {
    Retain(held);
  }
}

void PrefillCore::Impl::TakeExchange(Held* held, const pb::HandoverDone& m) {
  BlockTable theirs;
  theirs.pages[static_cast<int>(Part::kEncoder)].assign(m.encoder_pages().begin(),
                                                        m.encoder_pages().end());
  theirs.pages[static_cast<int>(Part::kDecoder)].assign(m.decoder_pages().begin(),
                                                        m.decoder_pages().end());
  theirs.state = m.state_page();
  theirs.blocks = held->table.blocks;
  if (pool_.Exchange(held->table, theirs)) {
    pool_.Release(&theirs);
    held->table = BlockTable();
  } else {
    WEIR_REACHED("prefill: adopted pages came back wrong");
    pool_.Abandon(&held->table);
  }
  held->computed = 0;
  held->has_first = false;
}

void PrefillCore::Impl::OnHandoverAbort(InstanceId from, const pb::HandoverAbort& m) {
  const AttemptKey id = KeyFrom(m.key());
  if (const auto closing = closing_.find(id);
      closing != closing_.end() && closing->second->sender.sink() == from) {
    CloseEnded(closing);
    return;
  }
  Held* held = Find(id.request);
  if (held == nullptr || held->id != id || held->sender.sink() != from) return;
  WEIR_REACHED("prefill: the decode engine gave up");
  held->sender.Detach();
  if (held->after_step != AfterStep::kNothing) return;
  if (held->next) {
    if (!held->in_step) ApplyNext(held);
    return;
  }
  if (const std::unique_ptr<pb::Attach> attach = std::move(held->next_attach)) {
    return AttachSink(held, InstanceId(attach->sink_instance()), attach->sink_address());
  }
  // A request that its router withdrew ends by Forget. A sink that gives up by itself (it drains, or
  // needs the pages) may say so before its router hears of it: to the request it is lost, and another
  // attempt mends that.
  const Reason reason = ReasonFrom(m.failure());
  Fail(held, reason == Reason::kCancelled ? Reason::kPeerLost : reason,
       "the decode engine gave the hand-over up", AfterStep::kRetain);
}

void PrefillCore::Impl::OnSinkDown(InstanceId sink, bool shares_arena) {
  for (auto closing = closing_.begin(); closing != closing_.end();) {
    if (closing->second->sender.sink() != sink) {
      ++closing;
      continue;
    }
    const Held& held = *closing->second;
    if (shares_arena && !held.stays && held.sender.done()) pool_.Abandon(&closing->second->table);
    closing = CloseEnded(closing);
  }
  std::vector<Held*> lost;
  for (auto& [key, held] : current_) {
    if (held->sender.sink() == sink) lost.push_back(held.get());
  }
  for (Held* held : lost) LoseSink(held, shares_arena);
}

void PrefillCore::Impl::LoseSink(Held* held, bool shares_arena) {
  WEIR_REACHED("prefill: the decode engine is gone");
  if (shares_arena && !held->stays && held->sender.done()) {
    // Who owns the pages nobody can tell any more. It takes a dying process to get here.
    WEIR_REACHED("prefill: pages in doubt abandoned");
    pool_.Abandon(&held->table);
    held->computed = 0;
    held->has_first = false;
  }
  held->sender.Detach();
  if (held->after_step != AfterStep::kNothing) return;
  if (held->next) {
    if (!held->in_step) ApplyNext(held);
    return;
  }
  if (const std::unique_ptr<pb::Attach> attach = std::move(held->next_attach);
      attach && held->computed_all()) {
    return AttachSink(held, InstanceId(attach->sink_instance()), attach->sink_address());
  }
  Fail(held, Reason::kPeerLost, "the decode engine is gone", AfterStep::kRetain);
}

PrefillCore::Impl::Closing PrefillCore::Impl::CloseEnded(Closing closing) {
  GiveBack(closing->second.get());
  closing_until_.Release(closing->first);
  return closing_.erase(closing);
}

}  // namespace weir::engine
