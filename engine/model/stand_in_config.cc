// SPDX-License-Identifier: Apache-2.0
#include "engine/model/stand_in_config.h"

#include <fstream>
#include <set>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/stdx/bytes.h"
#include "nlohmann/json.hpp"

namespace weir::engine {

using Json = nlohmann::json;

struct StandInConfig::Impl {
  std::string file;
  Json json;
  std::set<std::string, std::less<>> seen;
  absl::Status status;

  const Json* Find(std::string_view field) {
    seen.emplace(field);
    const auto found = json.find(std::string(field));
    return found == json.end() ? nullptr : &*found;
  }
  void Fail(std::string_view field, std::string_view what) {
    if (!status.ok()) return;
    status = Error(Reason::kBadField,
                   absl::StrCat(file, ": ", AbslView(field), " ", AbslView(what)), field);
  }
};

namespace {

bool TakeIds(const Json& array, std::vector<TokenId>* out) {
  if (!array.is_array()) return false;
  out->clear();
  for (const Json& item : array) {
    if (!item.is_number_unsigned() || item.get<uint64_t>() > 0x7fffffffu) return false;
    out->push_back(item.get<TokenId>());
  }
  return true;
}

}  // namespace

StandInConfig::StandInConfig(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
StandInConfig::~StandInConfig() = default;
StandInConfig::StandInConfig(StandInConfig&&) noexcept = default;

absl::StatusOr<StandInConfig> StandInConfig::Parse(std::string_view file, const std::string& json) {
  auto impl = std::make_unique<Impl>();
  impl->file = file;
  impl->json = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!impl->json.is_object()) {
    return Error(Reason::kBadField, absl::StrCat(AbslView(file), " is not a JSON object"));
  }
  return StandInConfig(std::move(impl));
}

bool StandInConfig::Has(std::string_view field) const { return impl_->Find(field) != nullptr; }

void StandInConfig::Read(std::string_view field, uint64_t min, uint64_t max, uint32_t* out) {
  const Json* value = impl_->Find(field);
  if (value == nullptr) return;
  if (!value->is_number_unsigned() || value->get<uint64_t>() < min || value->get<uint64_t>() > max) {
    return impl_->Fail(field, absl::StrCat("must be an integer, ", min, " to ", max));
  }
  *out = static_cast<uint32_t>(value->get<uint64_t>());
}

void StandInConfig::Read(std::string_view field, uint64_t* out) {
  const Json* value = impl_->Find(field);
  if (value == nullptr) return;
  if (!value->is_number_unsigned()) return impl_->Fail(field, "must be a non-negative integer");
  *out = value->get<uint64_t>();
}

void StandInConfig::Read(std::string_view field, TokenId* out) {
  uint32_t wide = static_cast<uint32_t>(*out);
  Read(field, 0, 0x7fffffff, &wide);
  *out = static_cast<TokenId>(wide);
}

void StandInConfig::Read(std::string_view field, double* out) {
  const Json* value = impl_->Find(field);
  if (value == nullptr) return;
  if (!value->is_number() || value->get<double>() < 0 || value->get<double>() > 1) {
    return impl_->Fail(field, "must be a number, 0 to 1");
  }
  *out = value->get<double>();
}

void StandInConfig::Read(std::string_view field, std::string* out) {
  const Json* value = impl_->Find(field);
  if (value == nullptr) return;
  if (!value->is_string()) return impl_->Fail(field, "must be a string");
  *out = value->get<std::string>();
}

void StandInConfig::Read(std::string_view field, std::vector<TokenId>* out) {
  const Json* value = impl_->Find(field);
  if (value == nullptr) return;
  if (!TakeIds(*value, out)) impl_->Fail(field, "must be a list of token ids");
}

void StandInConfig::Read(std::string_view field, std::vector<std::vector<TokenId>>* out) {
  const Json* value = impl_->Find(field);
  if (value == nullptr) return;
  out->clear();
  if (!value->is_array()) return impl_->Fail(field, "must be a list of lists of token ids");
  for (const Json& item : *value) {
    if (!TakeIds(item, &out->emplace_back())) {
      return impl_->Fail(field, "must be a list of lists of token ids");
    }
  }
}

std::vector<StandInConfig> StandInConfig::Objects(std::string_view field) {
  std::vector<StandInConfig> out;
  const Json* value = impl_->Find(field);
  if (value == nullptr) return out;
  if (!value->is_array()) {
    impl_->Fail(field, "must be a list of objects");
    return out;
  }
  for (const Json& item : *value) {
    if (!item.is_object()) {
      impl_->Fail(field, "must be a list of objects");
      return {};
    }
    auto child = std::make_unique<Impl>();
    child->file = absl::StrCat(impl_->file, " ", AbslView(field), "[", out.size(), "]");
    child->json = item;
    out.push_back(StandInConfig(std::move(child)));
  }
  return out;
}

absl::Status StandInConfig::Finish() {
  for (auto it = impl_->json.begin(); it != impl_->json.end(); ++it) {
    if (!impl_->seen.contains(it.key())) impl_->Fail(it.key(), "is not a known field");
  }
  return impl_->status;
}

absl::StatusOr<std::string> ReadWholeFile(const std::string& path, size_t size_max) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return Error(Reason::kBadField, absl::StrCat(path, " cannot be opened"));
  std::string text;
  char chunk[65536];
  while (in.read(chunk, sizeof(chunk)) || in.gcount() > 0) {
    text.append(chunk, static_cast<size_t>(in.gcount()));
    if (text.size() > size_max) {
      return Error(Reason::kTooLarge, absl::StrCat(path, " is larger than ", size_max, " bytes"));
    }
  }
  return text;
}

}  // namespace weir::engine
