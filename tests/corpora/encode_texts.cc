// SPDX-License-Identifier: Apache-2.0
//
// Texts to ids, for comparison with another tokenizer, and a check that cuts change nothing.
//   encode_texts TOKENIZER_JSON TEXTS IDS
// TEXTS holds records: size in bytes (4 bytes), then the text. IDS gets for each the count of ids (4
// bytes) and the ids (4 bytes each). Last it prints `cuts=<n> bad=<n>`: every safe cut of a short
// text is tried alone; a long one is cut at all of them at once and into parts of several sizes.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/config/load.h"
#include "base/stdx/bytes.h"
#include "codec/token/parallel.h"
#include "codec/token/scanner.h"
#include "codec/token/tokenizer.h"

namespace weir::codec {
namespace {

constexpr size_t kShortText = 512;

class CutCheck {
 public:
  explicit CutCheck(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void Run(std::string_view text, const std::vector<TokenId>& whole) {
    if (text.size() <= kShortText) {
      for (size_t at = 1; at < text.size(); ++at) {
        if (IsSafeCut(text, at)) Compare(text, {at, text.size()}, whole);
      }
      return;
    }
    for (const size_t part : {size_t{1}, size_t{61}, size_t{4096}, kPartBytes}) {
      Compare(text, PartEnds(tokenizer_, text, part), whole);
    }
  }

  size_t cuts() const { return cuts_; }
  size_t bad() const { return bad_; }

 private:
  void Compare(std::string_view text, const std::vector<size_t>& ends,
               const std::vector<TokenId>& whole) {
    parts_.clear();
    size_t from = 0;
    for (const size_t end : ends) {
      tokenizer_.Encode(text.substr(from, end - from), &parts_);
      from = end;
    }
    cuts_ += ends.size() - 1;
    bad_ += parts_ != whole;
  }

  const Tokenizer& tokenizer_;
  std::vector<TokenId> parts_;
  size_t cuts_ = 0;
  size_t bad_ = 0;
};

int Run(const char* tokenizer_path, const char* texts_path, const char* ids_path) {
  const auto tokenizer = Tokenizer::FromFile(tokenizer_path);
  std::ifstream in(texts_path, std::ios::binary);
  if (!tokenizer.ok() || !in) {
    std::fprintf(stderr, "encode_texts: cannot read %s or %s\n", tokenizer_path, texts_path);
    return 1;
  }
  const std::string records{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  std::ofstream out(ids_path, std::ios::binary);
  CutCheck check(**tokenizer);
  std::vector<TokenId> ids;
  for (size_t at = 0; at + sizeof(uint32_t) <= records.size();) {
    const auto size = LoadAs<uint32_t>(records.data() + at);
    at += sizeof(uint32_t);
    const std::string_view text = std::string_view(records).substr(at, size);
    at += size;
    ids.clear();
    (*tokenizer)->Encode(text, &ids);
    const auto count = static_cast<uint32_t>(ids.size());
    out.write(reinterpret_cast<const char*>(&count), sizeof count);
    out.write(reinterpret_cast<const char*>(ids.data()),
              static_cast<std::streamsize>(ids.size() * sizeof(TokenId)));
    check.Run(text, ids);
  }
  std::printf("cuts=%zu bad=%zu\n", check.cuts(), check.bad());
  return out.good() ? 0 : 1;
}

}  // namespace
}  // namespace weir::codec

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: encode_texts TOKENIZER_JSON TEXTS IDS\n");
    return 2;
  }
  weir::ArmPlantedFromEnvironment();
  return weir::codec::Run(argv[1], argv[2], argv[3]);
}
