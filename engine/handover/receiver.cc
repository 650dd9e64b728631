// SPDX-License-Identifier: Apache-2.0
#include "engine/handover/receiver.h"

#include <algorithm>

#include "base/stdx/check.h"
#include "base/stdx/planted.h"

namespace weir::engine {
namespace {

constexpr int kEncoder = static_cast<int>(Part::kEncoder);
constexpr int kDecoder = static_cast<int>(Part::kDecoder);

}  // namespace

void Receiver::Reset(uint32_t blocks) {
  source_ = InstanceId();
  adopt_ = false;
  done_ = false;
  seen_count_ = 0;
  seen_.assign(blocks, false);
  offered_.pages[0].clear();
  offered_.pages[1].clear();
  offered_.state = kNoPage;
  offered_.blocks = blocks;
  fetches_.clear();
}

void Receiver::Bind(InstanceId source, bool adopt) {
  source_ = source;
  adopt_ = adopt;
}

bool Receiver::OnChunk(const pb::ChunkDone& chunk, const BlockTable& own,
                       std::vector<PageRead>* reads) {
  const auto& encoder = chunk.encoder_pages();
  const auto& decoder = chunk.decoder_pages();
  const size_t count = static_cast<size_t>(std::max(encoder.size(), decoder.size()));
  const size_t first = chunk.first_block();
  if (first > seen_.size() || count > seen_.size() - first) return false;
  const auto fits = [count](const auto& pages, const auto& crcs, bool has) {
    return static_cast<size_t>(pages.size()) == (has ? count : 0) &&
           (crcs.empty() || crcs.size() == pages.size());
  };
  const bool has[kPartCount] = {!own.pages[0].empty(), !own.pages[1].empty()};
  if (!fits(encoder, chunk.encoder_crcs(), has[0])) return false;
  if (!fits(decoder, chunk.decoder_crcs(), has[1])) return false;
  for (size_t i = 0; i < count; ++i) {
    const size_t block = first + i;
    if (seen_[block]) continue;
    seen_[block] = true;
    ++seen_count_;
    for (int part : {kEncoder, kDecoder}) {
      if (!has[part]) continue;
      const auto& pages = part == kEncoder ? encoder : decoder;
      const auto& crcs = part == kEncoder ? chunk.encoder_crcs() : chunk.decoder_crcs();
      const PageId from = pages[static_cast<int>(i)];
      if (adopt_) {
        offered_.pages[part].resize(seen_.size(), kNoPage);
        offered_.pages[part][block] = from;
        continue;
      }
      if (IsPlanted(Planted::kChunkLost) && block == 1) continue;
      reads->push_back({.kind = PageRead::Kind::kPage,
                        .part = static_cast<Part>(part),
                        .from = from,
                        .to = own.pages[part][block],
                        .crc = crcs.empty() ? 0 : crcs[static_cast<int>(i)]});
    }
  }
  return true;
}

bool Receiver::OnDone(const pb::PrefillDone& done, const BlockTable& own,
                      std::vector<PageRead>* reads) {
  if (done_) return true;
  if (done.block_count() != seen_.size() || seen_count_ != seen_.size()) return false;
  if ((own.state == kNoPage) != (done.state_page() == kNoPage)) return false;
  done_ = true;
  offered_.state = done.state_page();
  if (own.state == kNoPage || adopt_ || IsPlanted(Planted::kLostCarry)) return true;
  reads->push_back({.kind = PageRead::Kind::kState,
                    .from = done.state_page(),
                    .to = own.state,
                    .crc = done.state_crc()});
  return true;
}

bool Receiver::Ended(FetchId fetch) { return std::erase(fetches_, fetch) > 0; }

}  // namespace weir::engine
