// SPDX-License-Identifier: Apache-2.0
//
// How the models are told what their answer must look like: a block at the end of the system text,
// the same for all templates. Pure, any thread.
#pragma once

#include <string>

#include "codec/conversation/conversation.h"

namespace weir::codec {

// Empty where the form is free.
inline std::string ResponseFormatOf(const Constraint& constraint) {
  std::string block =
      "\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n";
  if (constraint.kind == ConstraintKind::kJsonObject) return block + "{\"type\": \"json_object\"}";
  if (constraint.kind == ConstraintKind::kJsonSchema) return block + constraint.text;
  return {};
}

}  // namespace weir::codec
