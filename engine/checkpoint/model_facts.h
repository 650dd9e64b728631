// SPDX-License-Identifier: Apache-2.0
//
// What a model of any family weighs, from its config.json alone: tensors and parameters by part,
// bytes as released, KV bytes per token, state per sequence, and what each role must hold. Pure;
// errors are those of the family's parser, and kUnknownModel for a family without a table.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/stdx/status.h"
#include "engine/checkpoint/expected_tensors.h"

namespace weir::engine {

struct PartFacts {
  int64_t tensors = 0;  // as stored: values and scales are two
  int64_t parameters = 0;
  int64_t bytes = 0;
};

// One way to keep KV; families differ in which they allow.
struct KvFacts {
  std::string format;
  double bytes_per_token = 0;
};

// State of a sequence that does not grow with it.
struct StateFacts {
  std::string name;
  int64_t bytes = 0;
};

struct RoleFacts {
  std::string_view role;
  int64_t weight_bytes = 0;
  int64_t table_bytes = 0;  // of these, tables that may stay on the host or disk
  int64_t state_bytes = 0;  // per sequence
  bool keeps_kv = true;
};

struct ModelFacts {
  std::string model_type;
  int vocab = 0;
  int layers = 0;
  int positions_max = 0;
  std::vector<ExpectedTensor> tensors;
  std::array<PartFacts, kModelPartCount> parts;
  std::vector<KvFacts> kv;  // the released format first
  std::vector<StateFacts> states;
  std::vector<RoleFacts> roles;
  double active_parameters = 0;  // of one decoded token: no drafter, vision or input embedding

  const PartFacts& part(ModelPart which) const { return parts[static_cast<size_t>(which)]; }
  // Everything, or the model that decodes: without tables, drafter and vision.
  PartFacts Total() const;
  int64_t BackboneParameters() const;
};

absl::StatusOr<ModelFacts> DescribeModel(std::string_view config_json);

}  // namespace weir::engine
