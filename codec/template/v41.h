// SPDX-License-Identifier: Apache-2.0
//
// The templates of V4 and V4.1, which differ in tag names, system tokens and effort texts. See
// template.h for the contract.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "codec/template/template.h"

namespace weir::codec {

absl::StatusOr<std::shared_ptr<const Template>> MakeV4Template(TemplateKind kind,
                                                               const Vocab& vocab,
                                                               EarlierReasoning earlier);

}  // namespace weir::codec
