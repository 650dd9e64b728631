// SPDX-License-Identifier: Apache-2.0
//
// Bodies of GET /v1/models and GET /v1/models/{id}, with what clients of OpenAI's and of Anthropic's
// dialect look for side by side. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace weir::codec {

struct ModelCard {
  std::string id;
  int64_t created = 0;  // seconds since 1970
  std::string owned_by = "weir";
  uint32_t max_model_len = 0;  // prompt plus answer, tokens; 0: not told
};

std::string ModelListBody(std::span<const ModelCard> models);
std::string ModelBody(const ModelCard& model);

}  // namespace weir::codec
