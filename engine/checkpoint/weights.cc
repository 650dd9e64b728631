// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/weights.h"

#include <simdjson.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/stdx/bytes.h"
#include "base/stdx/planted.h"

namespace weir::engine {
namespace {

constexpr size_t kIndexBytesMax = size_t{128} << 20;
constexpr size_t kFilesMax = 4096;

using WeightMap = absl::flat_hash_map<std::string, std::string>;

// A shard lies beside its index: a name with a separator could reach outside the directory.
bool IsPlainName(std::string_view name) {
  return !name.empty() && name.size() < 256 && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos && name != "." && name != "..";
}

absl::StatusOr<WeightMap> ReadIndex(const std::string& path) {
  WEIR_ASSIGN(const std::string text, ReadTextFile(path, kIndexBytesMax));
  simdjson::dom::parser parser;
  simdjson::dom::object map;
  if (parser.parse(text)["weight_map"].get(map) != simdjson::SUCCESS) {
    return Error(Reason::kCorrupt, absl::StrCat(path, ": weight_map is missing"), "weight_map");
  }
  WeightMap home;
  for (const auto& [name, value] : map) {
    std::string_view file;
    if (value.get(file) != simdjson::SUCCESS || !IsPlainName(file)) {
      return Error(Reason::kCorrupt,
                   absl::StrCat(path, ": weight_map entry \"", AbslView(name.substr(0, 200)),
                                "\" must name a file of this directory"),
                   "weight_map");
    }
    if (!home.emplace(std::string(name), std::string(file)).second) {
      return Error(
          Reason::kCorrupt,
          absl::StrCat(path, ": weight_map repeats \"", AbslView(name.substr(0, 200)), "\""),
          "weight_map");
    }
  }
  return home;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Weights>> Weights::Open(const std::string& directory) {
  std::unique_ptr<Weights> weights(new Weights());
  const std::string index = directory + "/model.safetensors.index.json";
  std::error_code ignored;
  if (!std::filesystem::exists(index, ignored)) {
    WEIR_TRY(weights->AddFile(directory, "model.safetensors", nullptr));
    return weights;
  }
  WEIR_ASSIGN(const WeightMap home, ReadIndex(index));
  std::set<std::string> files;  // ordered, so that errors do not depend on hashing
  for (const auto& [name, file] : home) files.insert(file);
  if (files.size() > kFilesMax) {
    return Error(Reason::kTooLarge, absl::StrCat(index, ": more than 4096 files"), "weight_map");
  }
  for (const std::string& file : files) WEIR_TRY(weights->AddFile(directory, file, &home));
  for (const auto& [name, file] : home) {
    if (weights->Find(name) == nullptr) {
      return Error(Reason::kCorrupt,
                   absl::StrCat(index, ": tensor \"", name, "\" is not in ", file), name);
    }
  }
  return weights;
}

absl::Status Weights::AddFile(const std::string& directory, const std::string& file,
                              const WeightMap* home) {
  const std::string path = directory + "/" + file;
  WEIR_ASSIGN(std::unique_ptr<MappedFile> mapped, MappedFile::Open(path));
  absl::StatusOr<std::vector<TensorView>> parsed = ParseSafetensors(mapped->bytes());
  if (!parsed.ok()) {
    return Error(ReasonOf(parsed.status()), absl::StrCat(path, ": ", parsed.status().message()),
                 "model");
  }
  for (TensorView& tensor : *parsed) {
    if (home != nullptr) {
      const auto listed = home->find(tensor.name);
      if (listed == home->end() || listed->second != file) {
        return Error(Reason::kCorrupt,
                     absl::StrCat(path, ": tensor \"", tensor.name,
                                  "\" is not listed for this file by the index"),
                     tensor.name);
      }
    }
    std::string name = tensor.name;
    tensors_.emplace(std::move(name), std::move(tensor));
  }
  if (IsPlanted(Planted::kMapTwice)) {
    WEIR_ASSIGN(std::unique_ptr<MappedFile> again, MappedFile::Open(path));
    files_.push_back(std::move(again));
  }
  files_.push_back(std::move(mapped));
  return absl::OkStatus();
}

const TensorView* Weights::Find(std::string_view name) const {
  const auto found = tensors_.find(AbslView(name));
  return found == tensors_.end() ? nullptr : &found->second;
}

absl::Status Weights::CheckNoOthers(const absl::flat_hash_set<std::string>& known) const {
  const std::string* other = nullptr;
  for (const auto& [name, tensor] : tensors_) {
    if (!known.contains(name) && (other == nullptr || name < *other)) other = &name;
  }
  if (other == nullptr) return absl::OkStatus();
  return Error(Reason::kBadField,
               absl::StrCat("tensor \"", *other, "\" is none that this config.json asks for"),
               *other);
}

uint64_t Weights::bytes() const {
  uint64_t total = 0;
  for (const auto& [name, tensor] : tensors_) total += tensor.bytes.size();
  return total;
}

Sha256Digest Weights::Digest() const {
  std::vector<const TensorView*> order;
  for (const auto& [name, tensor] : tensors_) order.push_back(&tensor);
  std::sort(order.begin(), order.end(),
            [](const TensorView* a, const TensorView* b) { return a->name < b->name; });
  std::string text;
  for (const TensorView* tensor : order) {
    absl::StrAppend(&text, tensor->name, "=", Describe(*tensor), ";");
    const size_t size = tensor->bytes.size();
    const size_t sample = std::min<size_t>(size, 64);
    for (const size_t at : {size_t{0}, (size - sample) / 2, size - sample}) {
      text.append(reinterpret_cast<const char*>(tensor->bytes.data()) + at, sample);
    }
  }
  ReleasePages();
  return Sha256(BytesOf(text));
}

void Weights::ReleasePages() const {
  for (const std::unique_ptr<MappedFile>& file : files_) DropPages(file->bytes());
}

}  // namespace weir::engine
