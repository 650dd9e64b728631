// SPDX-License-Identifier: Apache-2.0
#include "codec/token/piece_encoder.h"

#include <utility>

#include "base/stdx/planted.h"

namespace weir::codec {
namespace {

// The tokens that BPE makes of their own bytes.
PieceTable WholesOf(const Vocab& vocab, const std::vector<Merge>& merges,
                    const MergeTable& reference, bool linear) {
  std::vector<std::pair<std::string_view, TokenId>> wholes;
  if (linear) {  // then it is every product, which has been checked
    for (const Merge& merge : merges) {
      wholes.emplace_back(vocab.BytesOf(merge.merged), merge.merged);
    }
    return PieceTable::Build(wholes);
  }
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < vocab.size(); ++id) {
    const std::string_view bytes = vocab.BytesOf(id);
    if (bytes.size() < 2 || vocab.IsAdded(id)) continue;
    ids.clear();
    reference.Encode(bytes, &ids);
    if (ids.size() == 1 && ids[0] == id) wholes.emplace_back(bytes, id);
  }
  return PieceTable::Build(wholes);
}

}  // namespace

PieceEncoder::PieceEncoder(const std::array<TokenId, 256>& byte_ids,
                           const std::vector<Merge>& merges, const Vocab& vocab)
    : byte_ids_(byte_ids),
      merges_(MergeTable::Build(byte_ids, merges)),
      linear_(LinearBpe::Create(byte_ids, merges, vocab, merges_)),
      wholes_(WholesOf(vocab, merges, merges_, linear_.has_value())) {}

void PieceEncoder::Encode(std::string_view piece, std::vector<TokenId>* out) const {
  if (piece.empty()) return;
  const char* const end = piece.data() + piece.size();
  EncodeBatch(piece.data(), std::span(&end, 1), out);
}

void PieceEncoder::EncodeBatch(const char* begin, std::span<const char* const> ends,
                               std::vector<TokenId>* out) const {
  if (IsPlanted(Planted::kSlowTokenizer)) {
    for (const char* const end : ends) {
      merges_.Encode(std::string_view(begin, static_cast<size_t>(end - begin)), out);
      begin = end;
    }
    return;
  }
  // All keys first: by the time that a slot is read, it has been fetched.
  PieceTable::Key keys[kBatch];
  const char* from = begin;
  for (size_t i = 0; i < ends.size(); ++i) {
    const auto size = static_cast<size_t>(ends[i] - from);
    if (size >= 2 && size <= PieceTable::kShortMax) keys[i] = wholes_.KeyOf(from, size);
    from = ends[i];
  }
  from = begin;
  for (size_t i = 0; i < ends.size(); ++i) {
    const std::string_view piece(from, static_cast<size_t>(ends[i] - from));
    from = ends[i];
    TokenId whole;
    if (piece.size() == 1) {
      whole = byte_ids_[static_cast<uint8_t>(piece[0])];
    } else if (piece.size() <= PieceTable::kShortMax) {
      whole = wholes_.Find(keys[i]);
    } else {
      whole = wholes_.FindLong(piece);
    }
    if (whole >= 0) {
      out->push_back(whole);
    } else {
      EncodeOdd(piece, out);
    }
  }
}

void PieceEncoder::EncodeOdd(std::string_view piece, std::vector<TokenId>* out) const {
  if (linear_) {
    linear_->Encode(piece, out);
  } else {
    merges_.Encode(piece, out);
  }
}

}  // namespace weir::codec
