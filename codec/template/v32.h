// SPDX-License-Identifier: Apache-2.0
//
// The template of V3.2. See template.h for the contract. A user's turn ends with the head of the
// answer to it, and so do results of tools; turns of the assistant have none of their own.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "codec/template/template.h"

namespace weir::codec {

absl::StatusOr<std::shared_ptr<const Template>> MakeV32Template(const Vocab& vocab,
                                                                EarlierReasoning earlier);

}  // namespace weir::codec
