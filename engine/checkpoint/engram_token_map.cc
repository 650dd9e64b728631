// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/engram_token_map.h"

#include <utf8proc.h>

#include <algorithm>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/stdx/bytes.h"
#include "base/stdx/check.h"
#include "codec/token/char_class.h"
#include "codec/token/tokenizer_json.h"
#include "engine/checkpoint/mapped_file.h"

namespace weir::engine {
namespace {

constexpr size_t kTokenizerBytesMax = size_t{256} << 20;
constexpr uint32_t kReplacement = 0xFFFD;  // what decoders put for bytes that are not UTF-8

bool IsWhole(std::string_view text) {
  const uint8_t* const classes = codec::CharClassTable();
  const char* const end = text.data() + text.size();
  for (const char* p = text.data(); p < end;) {
    const codec::Char c = codec::CharAt(p, end, classes);
    if (c.code > 0x10FFFF || c.code == kReplacement) return false;
    p += c.size;
  }
  return true;
}

// The rule says NFKC, then NFD, which is NFKD by the definition of both.
void Decompose(std::string_view text, std::vector<int32_t>* codes) {
  constexpr auto kNfkd = static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
  codes->resize(std::max(codes->capacity(), text.size()));
  for (;;) {
    const auto room = static_cast<utf8proc_ssize_t>(codes->size());
    const utf8proc_ssize_t size =
        utf8proc_decompose(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                           static_cast<utf8proc_ssize_t>(text.size()), codes->data(), room, kNfkd);
    WEIR_CHECK(size >= 0);  // it is UTF-8
    codes->resize(static_cast<size_t>(size));
    if (size <= room) return;
  }
}

bool IsMark(int32_t code) {
  const utf8proc_category_t category = utf8proc_category(code);
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
         category == UTF8PROC_CATEGORY_ME;
}

bool IsBlank(int32_t code) { return code == ' ' || code == '\t' || code == '\r' || code == '\n'; }

// White_Space, whatever the tokenizer's class of it is for.
bool IsSpace(int32_t code) {
  return (codec::CharClassTable()[code] & codec::kSpaceChar) != 0;
}

// Drops marks, lowers case and makes one space of every run of blanks.
void Fold(std::vector<int32_t>* codes) {
  size_t size = 0;
  for (const int32_t code : *codes) {
    if (IsMark(code)) continue;
    if (!IsBlank(code)) {
      (*codes)[size++] = utf8proc_tolower(code);
    } else if (size == 0 || (*codes)[size - 1] != ' ') {
      (*codes)[size++] = ' ';
    }
  }
  codes->resize(size);
}

// What tokens that share a compressed id have in common. `codes` is room to work in.
std::string KeyOf(std::string_view bytes, std::vector<int32_t>* codes) {
  if (!IsWhole(bytes)) return codec::ByteLevelSpelling(bytes);
  Decompose(bytes, codes);
  Fold(codes);
  auto begin = codes->begin();
  auto end = codes->end();
  if (end - begin != 1 || *begin != ' ') {  // a lone space stays
    while (begin != end && IsSpace(*begin)) ++begin;
    while (begin != end && IsSpace(end[-1])) --end;
  }
  std::string key;
  for (; begin != end; ++begin) {
    utf8proc_uint8_t units[4];
    const utf8proc_ssize_t size = utf8proc_encode_char(*begin, units);
    key.append(reinterpret_cast<const char*>(units), static_cast<size_t>(size));
  }
  return key.empty() ? std::string(bytes) : key;
}

}  // namespace

std::vector<int32_t> EngramTokenMap(const codec::Vocab& vocab, size_t ids, TokenId pad) {
  std::vector<int32_t> map(ids, -1);
  absl::flat_hash_map<std::string, int32_t> id_of;
  std::vector<int32_t> codes;
  for (size_t id = 0; id < ids; ++id) {
    const std::string_view bytes = vocab.BytesOf(static_cast<TokenId>(id));
    if (bytes.empty()) continue;
    const auto next = static_cast<int32_t>(id_of.size());
    map[id] = id_of.try_emplace(KeyOf(bytes, &codes), next).first->second;
  }
  const int32_t padding = pad >= 0 && static_cast<size_t>(pad) < ids ? std::max(map[pad], 0) : 0;
  std::replace(map.begin(), map.end(), -1, padding);
  return map;
}

absl::StatusOr<std::vector<int32_t>> ReadEngramTokenMap(const std::string& directory,
                                                        const DeepseekV41Config& config) {
  const std::string path = directory + "/tokenizer.json";
  const absl::StatusOr<std::string> json = ReadTextFile(path, kTokenizerBytesMax);
  if (!json.ok()) {
    return Error(Reason::kBadField,
                 absl::StrCat("engram_layer_ids needs the checkpoint's tokenizer.json: ",
                              json.status().message()),
                 "model");
  }
  const auto bad = [&path](std::string_view what) {
    return Error(Reason::kCorrupt, absl::StrCat(path, ": ", AbslView(what)), "model");
  };
  auto file = codec::ReadTokenizerJson(*json);
  if (!file.ok()) return bad(StdView(file.status().message()));
  const auto vocab = codec::Vocab::Create(std::move(file->entries), {});
  if (!vocab.ok()) return bad(StdView(vocab.status().message()));
  if (vocab->size() > config.vocab) {
    return bad("has ids up to " + std::to_string(vocab->size() - 1) + " where vocab_size is " +
               std::to_string(config.vocab));
  }
  std::vector<int32_t> map =
      EngramTokenMap(*vocab, static_cast<size_t>(config.vocab), config.engram.pad_token);
  const int32_t size = *std::max_element(map.begin(), map.end()) + 1;
  if (size != config.engram.compressed_vocab) {
    return bad("gives " + std::to_string(size) +
               " compressed ids where engram_compressed_vocab_size is " +
               std::to_string(config.engram.compressed_vocab));
  }
  return map;
}

}  // namespace weir::engine
