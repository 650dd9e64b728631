// SPDX-License-Identifier: Apache-2.0
//
// From a body to ids, or to the answer where that needs no model. Runs on the loop or, for a large
// body, on the pool: it may take milliseconds, never blocks, and writes to nothing but the history,
// which is shared and thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "codec/dialect/request_limits.h"
#include "codec/prompt/prompt.h"
#include "router/front/routes.h"

namespace weir::router {

// What a body is read with; goes to the pool with it.
struct Reading {
  Page page;
  codec::RequestLimits limits;
  std::string model;
  std::string tenant;
  std::shared_ptr<const codec::Renderer> renderer;
  std::shared_ptr<codec::PromptHistory> history;
  size_t prompt_max;
};

struct Prepared {
  codec::ChatRequest request;
  codec::Prompt prompt;
  std::optional<std::string> reply;  // all there is to say: the model is not asked
};

absl::StatusOr<Prepared> Prepare(const Reading& with, std::string_view body);

absl::Status UnknownModel(std::string_view asked, std::string_view served);

}  // namespace weir::router
