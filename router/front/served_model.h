// SPDX-License-Identifier: Apache-2.0
//
// What the router must know of the model it serves: its name, how text becomes ids and back, and
// which ids end an answer. Read once at start from the checkpoint directory (this may block on the
// disk) and immutable afterwards; shared by value, any thread. Errors are kBadField and name the
// file and the field at fault.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/stdx/status.h"
#include "codec/prompt/prompt.h"

namespace weir::router {

struct ServedModel {
  std::string name;
  int64_t created = 0;  // seconds since 1970; when the checkpoint was written
  std::shared_ptr<const codec::Renderer> renderer;
  std::vector<TokenId> stop_tokens;  // may be empty: then the engines say
  uint32_t positions_max = 0;        // 0: not told by the checkpoint
};

struct ServedModelSource {
  std::string directory;      // config.json and, where it has one, tokenizer.json
  std::string name;           // empty: the directory's name
  std::string template_name;  // empty: by the checkpoint
  std::string earlier_reasoning;  // keep or drop; empty: as the template does
  bool keep_attribution = false;
};

absl::StatusOr<ServedModel> LoadServedModel(const ServedModelSource& source);

}  // namespace weir::router
