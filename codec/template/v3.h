// SPDX-License-Identifier: Apache-2.0
//
// The templates of V3 (December 2024) and V3.1. See template.h for the contract.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "codec/template/template.h"

namespace weir::codec {

absl::StatusOr<std::shared_ptr<const Template>> MakeV3Template(TemplateKind kind,
                                                               const Vocab& vocab);

}  // namespace weir::codec
