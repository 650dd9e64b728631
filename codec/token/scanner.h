// SPDX-License-Identifier: Apache-2.0
//
// The DeepSeek pre-tokenizer as one pass without backtracking: it cuts text into the pieces that the
// tokenizer's three Split expressions would give, within which BPE may merge. Pure, any thread.
#pragma once

#include <string_view>

#include "absl/functional/function_ref.h"

namespace weir::codec {

// Calls `take` with every piece in order; joined they are `text`.
void ScanPieces(std::string_view text, absl::FunctionRef<void(std::string_view)> take);

}  // namespace weir::codec
