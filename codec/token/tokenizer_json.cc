// SPDX-License-Identifier: Apache-2.0
#include "codec/token/tokenizer_json.h"

#include <simdjson.h>

#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/stdx/bytes.h"
#include "base/stdx/status.h"
#include "codec/token/char_class.h"

namespace weir::codec {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

constexpr int kDepthMax = 32;

// The expressions of the released tokenizer; scanner.cc is their equal and of no others.
constexpr std::string_view kDigits = R"(\p{N}{1,3})";
constexpr std::string_view kCjk = "[一-龥぀-ゟ゠-ヿ]+";
constexpr std::string_view kWords =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^)"
    "\r\n"
    R"(\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[)"
    "\r\n"
    R"(]*|\s*[)"
    "\r\n"
    R"(]+|\s+(?!\S)|\s+)";

absl::Status Refuse(std::string_view what) {
  return Error(Reason::kBadField, "tokenizer.json: " + std::string(what));
}

// GPT-2's alphabet: every byte as a printable character, byte by byte in order.
std::array<uint32_t, 256> CodeOfByte() {
  std::array<uint32_t, 256> codes{};
  uint32_t next = 256;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
    codes[byte] = printable ? byte : next++;
  }
  return codes;
}

absl::flat_hash_map<uint32_t, uint8_t> ByteOfCode() {
  absl::flat_hash_map<uint32_t, uint8_t> map;
  const auto codes = CodeOfByte();
  for (size_t byte = 0; byte < 256; ++byte) map[codes[byte]] = static_cast<uint8_t>(byte);
  return map;
}

std::optional<std::string> BytesOfSpelling(std::string_view spelling,
                                           const absl::flat_hash_map<uint32_t, uint8_t>& map) {
  std::string bytes;
  const char* p = spelling.data();
  const char* const end = p + spelling.size();
  const uint8_t* const classes = CharClassTable();
  while (p < end) {
    const Char c = CharAt(p, end, classes);
    const auto found = map.find(c.code);
    if (found == map.end()) return std::nullopt;
    bytes.push_back(static_cast<char>(found->second));
    p += c.size;
  }
  return bytes;
}

std::string_view TypeOf(element value) {
  std::string_view type;
  if (value["type"].get(type) != simdjson::SUCCESS) return {};
  return type;
}

bool IsByteLevel(element step) {
  bool prefix_space = false;
  bool use_regex = true;
  if (step["add_prefix_space"].get(prefix_space) != simdjson::SUCCESS) prefix_space = false;
  if (step["use_regex"].get(use_regex) != simdjson::SUCCESS) use_regex = true;
  return TypeOf(step) == "ByteLevel" && !prefix_space && !use_regex;
}

bool IsSplit(element step, std::string_view regex) {
  std::string_view found;
  std::string_view behavior;
  return TypeOf(step) == "Split" && step["pattern"]["Regex"].get(found) == simdjson::SUCCESS &&
         found == regex && step["behavior"].get(behavior) == simdjson::SUCCESS &&
         behavior == "Isolated";
}

absl::StatusOr<PreTokenizer> ReadPreTokenizer(element root) {
  element step;
  if (root["pre_tokenizer"].get(step) != simdjson::SUCCESS) return Refuse("no pre_tokenizer");
  if (IsByteLevel(step)) return PreTokenizer::kNone;
  array steps;
  if (TypeOf(step) == "Sequence" && step["pretokenizers"].get(steps) == simdjson::SUCCESS &&
      steps.size() == 4 && IsSplit(steps.at(0), kDigits) && IsSplit(steps.at(1), kCjk) &&
      IsSplit(steps.at(2), kWords) && IsByteLevel(steps.at(3))) {
    return PreTokenizer::kDeepSeek;
  }
  return Refuse("pre_tokenizer is neither plain ByteLevel nor DeepSeek's sequence");
}

absl::Status CheckPlain(element root, element model) {
  element normalizer;
  if (root["normalizer"].get(normalizer) == simdjson::SUCCESS && !normalizer.is_null()) {
    array steps;
    if (normalizer["normalizers"].get(steps) != simdjson::SUCCESS || steps.size() != 0) {
      return Refuse("a normalizer is not supported");
    }
  }
  if (TypeOf(model) != "BPE") return Refuse("model.type is not BPE");
  bool fallback = false;
  if (model["byte_fallback"].get(fallback) == simdjson::SUCCESS && fallback) {
    return Refuse("model.byte_fallback is not supported");
  }
  return absl::OkStatus();
}

absl::Status ReadAdded(element root, TokenizerFile* file,
                       absl::flat_hash_set<std::string_view>* spellings) {
  array added;
  if (root["added_tokens"].get(added) != simdjson::SUCCESS) return absl::OkStatus();
  for (element token : added) {
    int64_t id = -1;
    std::string_view content;
    if (token["id"].get(id) != simdjson::SUCCESS ||
        token["content"].get(content) != simdjson::SUCCESS || id < 0 || id > INT32_MAX) {
      return Refuse("an entry of added_tokens has no id or content");
    }
    file->entries.push_back({static_cast<TokenId>(id), std::string(content), true});
    spellings->insert(content);
  }
  return absl::OkStatus();
}

using IdsBySpelling = absl::flat_hash_map<std::string_view, TokenId>;

absl::Status ReadVocab(element model, const absl::flat_hash_set<std::string_view>& added,
                       TokenizerFile* file, IdsBySpelling* ids) {
  object vocab;
  if (model["vocab"].get(vocab) != simdjson::SUCCESS) return Refuse("no model.vocab");
  const auto byte_of = ByteOfCode();
  file->byte_ids.fill(-1);
  absl::flat_hash_set<TokenId> taken;
  for (const auto& entry : file->entries) taken.insert(entry.id);
  for (auto field : vocab) {
    int64_t id = -1;
    if (field.value.get(id) != simdjson::SUCCESS || id < 0 || id > INT32_MAX) {
      return Refuse("model.vocab has an entry without an id");
    }
    (*ids)[field.key] = static_cast<TokenId>(id);
    if (added.contains(field.key)) continue;  // unreachable from text on purpose
    if (!taken.insert(static_cast<TokenId>(id)).second) {
      return Refuse("model.vocab gives \"" + std::string(field.key) + "\" the id " +
                    std::to_string(id) + " of another token");
    }
    std::optional<std::string> bytes = BytesOfSpelling(field.key, byte_of);
    if (!bytes) {
      return Refuse("model.vocab has the entry \"" + std::string(field.key) +
                    "\" outside the byte-level alphabet");
    }
    if (bytes->size() == 1) {
      file->byte_ids[static_cast<uint8_t>((*bytes)[0])] = static_cast<TokenId>(id);
    }
    file->entries.push_back({static_cast<TokenId>(id), *std::move(bytes), false});
  }
  for (int byte = 0; byte < 256; ++byte) {
    if (file->byte_ids[static_cast<size_t>(byte)] < 0) {
      return Refuse("model.vocab lacks the token of byte " + std::to_string(byte));
    }
  }
  return absl::OkStatus();
}

// "left right" or ["left", "right"].
bool SplitMerge(element entry, std::string_view* left, std::string_view* right) {
  std::string_view both;
  if (entry.get(both) == simdjson::SUCCESS) {
    const size_t space = both.find(' ');
    if (space == std::string_view::npos) return false;
    *left = both.substr(0, space);
    *right = both.substr(space + 1);
    return true;
  }
  array pair;
  return entry.get(pair) == simdjson::SUCCESS && pair.size() == 2 &&
         pair.at(0).get(*left) == simdjson::SUCCESS && pair.at(1).get(*right) == simdjson::SUCCESS;
}

absl::Status ReadMerges(element model, const IdsBySpelling& ids, TokenizerFile* file) {
  array merges;
  if (model["merges"].get(merges) != simdjson::SUCCESS) return Refuse("no model.merges");
  std::string joined;
  for (element entry : merges) {
    std::string_view left;
    std::string_view right;
    if (!SplitMerge(entry, &left, &right)) return Refuse("model.merges has a malformed entry");
    joined.assign(left);
    joined.append(right);
    const auto a = ids.find(left);
    const auto b = ids.find(right);
    const auto c = ids.find(std::string_view(joined));
    if (a == ids.end() || b == ids.end() || c == ids.end()) {
      return Refuse("the merge \"" + std::string(left) + " " + std::string(right) +
                    "\" names a token that model.vocab lacks");
    }
    file->merges.push_back({a->second, b->second, c->second});
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TokenizerFile> ReadTokenizerJson(std::string_view json) {
  simdjson::dom::parser parser;
  if (parser.allocate(json.size(), kDepthMax) != simdjson::SUCCESS) {
    return Refuse("too large to parse");
  }
  element root;
  const auto problem = parser.parse(json.data(), json.size()).get(root);
  if (problem != simdjson::SUCCESS) return Refuse(simdjson::error_message(problem));
  element model;
  if (root["model"].get(model) != simdjson::SUCCESS) return Refuse("no model");
  WEIR_TRY(CheckPlain(root, model));
  TokenizerFile file;
  WEIR_ASSIGN(file.pre_tokenizer, ReadPreTokenizer(root));
  absl::flat_hash_set<std::string_view> added;
  WEIR_TRY(ReadAdded(root, &file, &added));
  IdsBySpelling ids;
  WEIR_TRY(ReadVocab(model, added, &file, &ids));
  WEIR_TRY(ReadMerges(model, ids, &file));
  return file;
}

std::string ByteLevelSpelling(std::string_view bytes) {
  static constexpr uint32_t kTwoBytes = 0x80;  // codes end below 0x800
  static const std::array<uint32_t, 256> codes = CodeOfByte();
  std::string spelling;
  for (const char byte : bytes) {
    const uint32_t code = codes[static_cast<uint8_t>(byte)];
    if (code >= kTwoBytes) spelling.push_back(static_cast<char>(0xC0 | code >> 6));
    spelling.push_back(static_cast<char>(code >= kTwoBytes ? 0x80 | (code & 0x3F) : code));
  }
  return spelling;
}

}  // namespace weir::codec
