// SPDX-License-Identifier: Apache-2.0
#include "codec/token/tokenizer.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/stdx/bytes.h"
#include "base/stdx/check.h"
#include "base/stdx/hash.h"
#include "base/stdx/status.h"
#include "codec/token/piece_encoder.h"
#include "codec/token/scanner.h"
#include "codec/token/tokenizer_json.h"

namespace weir::codec {
namespace {

constexpr std::streamoff kFileBytesMax = std::streamoff{256} << 20;

struct Marker {
  size_t at = std::string_view::npos;
  size_t size = 0;
  TokenId id = -1;
};

// The first added token spelt in `text` from `from` on; at one place the longest spelling counts.
Marker NextMarker(const Vocab& vocab, std::string_view text, size_t from) {
  Marker best;
  for (const auto& [spelling, id] : vocab.added()) {
    if (spelling.empty()) continue;
    const size_t at = text.find(spelling, from);
    if (at == std::string_view::npos || at > best.at) continue;
    if (at < best.at || spelling.size() > best.size) best = {at, spelling.size(), id};
  }
  return best;
}

}  // namespace

Tokenizer::Tokenizer(Vocab vocab, PreTokenizer kind, std::unique_ptr<const PieceEncoder> encoder)
    : vocab_(std::move(vocab)), kind_(kind), encoder_(std::move(encoder)) {
  for (TokenId id = 0; id < vocab_.size(); ++id) {
    longest_ = std::max(longest_, vocab_.BytesOf(id).size());
  }
}

Tokenizer::~Tokenizer() = default;

absl::StatusOr<std::shared_ptr<const Tokenizer>> Tokenizer::FromJson(std::string_view json) {
  WEIR_ASSIGN(TokenizerFile file, ReadTokenizerJson(json));
  WEIR_ASSIGN(Vocab vocab, Vocab::Create(std::move(file.entries), Sha256(BytesOf(json))));
  auto encoder = std::make_unique<const PieceEncoder>(file.byte_ids, file.merges, vocab);
  return std::shared_ptr<const Tokenizer>(
      new Tokenizer(std::move(vocab), file.pre_tokenizer, std::move(encoder)));
}

absl::StatusOr<std::shared_ptr<const Tokenizer>> Tokenizer::FromFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) {
    return Error(Reason::kBadField, "cannot read " + path + ": " + std::strerror(errno));
  }
  const std::streamoff size = in.tellg();
  if (size < 0 || size > kFileBytesMax) {
    return Error(Reason::kTooLarge, path + " is larger than 256 MiB or not a file");
  }
  std::string json(static_cast<size_t>(size), '\0');
  in.seekg(0);
  if (!in.read(json.data(), size)) return Error(Reason::kBadField, "cannot read " + path);
  auto tokenizer = FromJson(json);
  if (!tokenizer.ok()) {
    return Error(ReasonOf(tokenizer.status()),
                 path + ": " + std::string(StdView(tokenizer.status().message())));
  }
  return tokenizer;
}

std::shared_ptr<const Tokenizer> Tokenizer::IdsOnly(TokenId vocab_size, TokenId bos, TokenId eos) {
  std::vector<VocabEntry> entries;
  std::string names = "ids only";
  for (TokenId id = 0; id < vocab_size; ++id) {
    VocabEntry entry{id, " " + std::to_string(id), false};
    if (id == bos) entry = {id, std::string(kBosToken), true};
    if (id == eos) entry = {id, std::string(kEosToken), true};
    names += entry.bytes;
    entries.push_back(std::move(entry));
  }
  auto vocab = Vocab::Create(std::move(entries), Sha256(BytesOf(names)));
  WEIR_CHECK(vocab.ok());
  return std::shared_ptr<const Tokenizer>(
      new Tokenizer(*std::move(vocab), PreTokenizer::kNone, nullptr));
}

void Tokenizer::Encode(std::string_view text, std::vector<TokenId>* out, size_t ids_max) const {
  WEIR_CHECK(can_encode());
  // So much text alone has more ids, whatever they are.
  if (text.size() / longest_ > ids_max) text = text.substr(0, (ids_max + 1) * longest_);
  if (kind_ == PreTokenizer::kNone) {
    encoder_->Encode(text, out);
    return;
  }
  // About four bytes a token; a longer list grows by itself.
  const size_t likely = out->size() + std::min(text.size() / 4, ids_max) + PieceEncoder::kBatch;
  if (likely > out->capacity()) out->reserve(std::max(likely, out->capacity() * 2));
  PieceScanner scanner(text);
  const char* ends[PieceEncoder::kBatch];
  const char* from = text.data();
  for (size_t count; out->size() <= ids_max && (count = scanner.Next(ends)) > 0;
       from = ends[count - 1]) {
    encoder_->EncodeBatch(from, std::span(ends, count), out);
  }
}

size_t Tokenizer::SafeCut(std::string_view text, size_t from) const {
  return kind_ == PreTokenizer::kNone ? text.size() : NextSafeCut(text, from);
}

void Tokenizer::EncodeTrusted(std::string_view text, std::vector<TokenId>* out) const {
  size_t from = 0;
  while (from < text.size()) {
    const Marker marker = NextMarker(vocab_, text, from);
    if (marker.id < 0) break;
    Encode(text.substr(from, marker.at - from), out);
    out->push_back(marker.id);
    from = marker.at + marker.size;
  }
  if (from < text.size()) Encode(text.substr(from), out);
}

std::vector<TokenId> Tokenizer::EncodeTrusted(std::string_view text) const {
  std::vector<TokenId> ids;
  EncodeTrusted(text, &ids);
  return ids;
}

std::string Tokenizer::Decode(const std::vector<TokenId>& ids) const {
  std::string text;
  for (const TokenId id : ids) text += vocab_.BytesOf(id);
  return text;
}

}  // namespace weir::codec
