// SPDX-License-Identifier: Apache-2.0
//
// Reads the fields of a stand-in model's JSON files, remembering the first that is wrong. Used once
// per load on the loading thread. A missing field keeps its default; an unknown field is refused,
// since a typo would otherwise change nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/stdx/ids.h"
#include "base/stdx/status.h"

namespace weir::engine {

class StandInConfig {
 public:
  // `file` is for messages.
  static absl::StatusOr<StandInConfig> Parse(std::string_view file, const std::string& json);
  ~StandInConfig();
  StandInConfig(StandInConfig&&) noexcept;

  bool Has(std::string_view field) const;
  void Read(std::string_view field, uint64_t min, uint64_t max, uint32_t* out);
  void Read(std::string_view field, uint64_t* out);
  void Read(std::string_view field, TokenId* out);
  void Read(std::string_view field, double* out);  // 0 to 1
  void Read(std::string_view field, std::string* out);
  void Read(std::string_view field, std::vector<TokenId>* out);
  void Read(std::string_view field, std::vector<std::vector<TokenId>>* out);
  // The objects of an array field; empty if the field is missing.
  std::vector<StandInConfig> Objects(std::string_view field);

  // The first mistake, or a field that nobody read.
  absl::Status Finish();

 private:
  struct Impl;
  explicit StandInConfig(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

absl::StatusOr<std::string> ReadWholeFile(const std::string& path, size_t size_max);

}  // namespace weir::engine
