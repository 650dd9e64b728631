// SPDX-License-Identifier: Apache-2.0
//
// What comes back from decode engines: blocks of answers and the window state behind them, so that
// the next turn of a conversation goes on where this one ended. Taken when there is room, read like
// any hand-over, and always answered: the decode engine keeps the pages until then.
#include <algorithm>
#include <utility>

#include "base/stdx/bytes.h"
#include "base/stdx/check.h"
#include "base/stdx/units.h"
#include "engine/prefill/prefill_impl.h"

namespace weir::engine {

void PrefillCore::Impl::OnKeepOffer(InstanceId from, const pb::KeepOffer& m) {
  const AttemptKey id = KeyFrom(m.key());
  Keeping keeping{.id = id, .from = from};
  if (draining_ || keeping_.size() >= kKeepsMax || !TakeOffer(m, &keeping)) {
    cache_.Release(&keeping.table);
    return AnswerKeep(keeping);
  }
  Fetch fetch{.id = FetchId(++last_fetch_), .from = from, .reads = {}};
  const size_t first = keeping.table.shared.size();
  const auto read = [&](Part part, const auto& pages, const auto& crcs) {
    for (int i = 0; i < pages.size(); ++i) {
      fetch.reads.push_back({.part = part,
                             .from = pages[i],
                             .to = keeping.table.pages[static_cast<int>(part)][first + i],
                             .crc = i < crcs.size() ? crcs[i] : 0});
    }
  };
  read(Part::kEncoder, m.encoder_pages(), m.encoder_crcs());
  read(Part::kDecoder, m.decoder_pages(), m.decoder_crcs());
  if (pool_.has_state()) {
    fetch.reads.push_back({.kind = PageRead::Kind::kState,
                           .from = m.state_page(),
                           .to = keeping.table.state,
                           .crc = m.state_crc()});
  }
  out_->fetches.push_back(std::move(fetch));
  keeping_.emplace(FetchId(last_fetch_), std::move(keeping));
}

// Fits the offer behind its parent and makes room for it. False leaves it alone.
bool PrefillCore::Impl::TakeOffer(const pb::KeepOffer& m, Keeping* keeping) {
  const auto count = static_cast<uint32_t>(m.tokens_size());
  const uint32_t blocks = CeilDiv(count, block_tokens_);
  const auto fits = [blocks](const auto& pages, bool has) {
    return static_cast<uint32_t>(pages.size()) == (has ? blocks : 0);
  };
  if (!config_.prefix_cache || count == 0 || blocks > kFetchReadsMax / 4 ||
      m.parent_key().size() != sizeof(kv::BlockKey::bytes) ||
      !fits(m.encoder_pages(), pool_.has(Part::kEncoder)) ||
      !fits(m.decoder_pages(), pool_.has(Part::kDecoder))) {
    return false;
  }
  keeping->grade = m.approximate() ? Grade::kApproximate : Grade::kExact;
  const auto parent = LoadAs<kv::BlockKey>(m.parent_key().data());
  if (!cache_.AttachUpTo(parent, &keeping->table)) {
    WEIR_REACHED("prefill: what came back has lost its beginning");
    return false;
  }
  keeping->tokens.assign(m.tokens().begin(), m.tokens().end());
  kv::KeyChain chain(parent, block_tokens_);
  chain.Append(keeping->tokens);
  keeping->keys.assign(chain.keys().begin(), chain.keys().end());
  const uint32_t all = keeping->table.blocks + blocks;
  while (!pool_.Grow(all, &keeping->table)) {
    const bool lacks_state = pool_.has_state() && !pool_.StateFree();
    if (!(lacks_state ? cache_.EvictState() : cache_.EvictBlock())) {
      WEIR_REACHED("prefill: no room for what came back");
      return false;
    }
  }
  return true;
}

void PrefillCore::Impl::Handle(const FetchDone& event) {
  const auto found = keeping_.find(event.fetch);
  if (found == keeping_.end()) {
    ++counters_.orphans;
    return;
  }
  Keeping keeping = std::move(found->second);
  keeping_.erase(found);
  if (event.reason == Reason::kOk && !keeping.withdrawn) {
    WEIR_REACHED("prefill: blocks of an answer came back");
    bool sealed = true;
    for (const kv::BlockKey& key : keeping.keys) {
      sealed = sealed && cache_.Seal(key, keeping.grade, &keeping.table);
    }
    const size_t tail = keeping.keys.size() * block_tokens_;
    if (sealed && !geometry_.plain() && keeping.table.state != kNoPage) {
      (void)cache_.Save(std::span<const TokenId>(keeping.tokens).subspan(tail), keeping.grade,
                        &keeping.table);
    }
  }
  cache_.Release(&keeping.table);
  AnswerKeep(keeping);
}

void PrefillCore::Impl::AnswerKeep(const Keeping& keeping) {
  if (!peers_.IsUp(keeping.from)) return;
  KeyTo(keeping.id, SendTo(keeping.from, out_).mutable_keep_done()->mutable_key());
}

void PrefillCore::Impl::WithdrawKeeps(InstanceId from, const AttemptKey* id) {
  for (auto& [fetch, keeping] : keeping_) {
    if (keeping.from == from && (id == nullptr || keeping.id == *id)) keeping.withdrawn = true;
  }
}

}  // namespace weir::engine
