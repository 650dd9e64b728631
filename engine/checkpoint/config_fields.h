// SPDX-License-Identifier: Apache-2.0
//
// Reading config.json field by field, for the parsers of this folder only. A ConfigFields looks at
// one JSON object; readers of nested objects share one status, which keeps the first fault, so that
// a parser reads as a list of fields and asks once at its end. After a fault every value is 0, an
// empty text or an empty list. Pure; errors are kBadField and name the field by its whole path.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/stdx/ids.h"
#include "base/stdx/status.h"
#include "engine/checkpoint/model_config.h"

namespace weir::engine {

inline constexpr int64_t kSizeMax = int64_t{1} << 20;  // of one dimension of a model
inline constexpr int64_t kHeadsMax = 4096;
inline constexpr int64_t kHeadDimMax = 4096;
inline constexpr int64_t kLayersMax = 1024;

class ConfigFields {
 public:
  ConfigFields(simdjson::dom::element object, std::string prefix, absl::Status* status)
      : object_(object), prefix_(std::move(prefix)), status_(status) {}

  // Present and not null.
  bool Has(const char* field) const;
  int Integer(const char* field, int64_t low, int64_t high);
  int IntegerOr(const char* field, int64_t low, int64_t high, int otherwise);
  double Number(const char* field, double low, double high);
  double NumberOr(const char* field, double low, double high, double otherwise);
  bool Flag(const char* field, bool otherwise);
  std::string Text(const char* field);
  // Every entry within low and high, at most `count_max` of them.
  std::vector<int64_t> Integers(const char* field, int64_t low, int64_t high, size_t count_max);
  // As Integers, each entry larger than the one before.
  std::vector<int> Ascending(const char* field, int64_t low, int64_t high, size_t count_max);
  // One id or a list of ids below `vocab`; empty if the field is absent.
  std::vector<TokenId> Tokens(const char* field, int vocab);
  // Fields that have one meaning we implement.
  void Expect(const char* field, std::string_view wanted);
  void ExpectIfPresent(const char* field, std::string_view wanted);
  void ExpectFalse(const char* field);
  // The object under `field`; a fault if it is no object.
  ConfigFields Object(const char* field);

  void Fail(const char* field, std::string_view what);
  bool ok() const { return status_->ok(); }

 private:
  const simdjson::dom::element object_;
  const std::string prefix_;
  absl::Status* const status_;
};

// The whole file as one object of `*parser`, which must outlive what is read from it.
absl::StatusOr<simdjson::dom::element> ParseConfigObject(simdjson::dom::parser* parser,
                                                         std::string_view json);

// What every family reads alike. ReadTextShape: sizes, norms, rotation. ReadRoutedExperts: of
// `layers`, which are read before. ReadIndex: the heads that select what attention reads.
void ReadTextShape(ConfigFields* in, TextShape* shape);
void ReadRoutedExperts(ConfigFields* in, TextShape* shape);
void ReadIndex(ConfigFields* in, TextShape* shape);
// Of the object `quantization_config`.
void ReadFp8Blocks(ConfigFields* in, TextShape* shape);

}  // namespace weir::engine
