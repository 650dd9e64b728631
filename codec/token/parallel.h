// SPDX-License-Identifier: Apache-2.0
//
// One long text encoded by several threads, which are the caller's: it says how jobs are run. The
// text is cut where cutting changes nothing, so the ids are those of Tokenizer::Encode. Pure apart
// from what `run` does.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/stdx/ids.h"
#include "codec/token/tokenizer.h"

namespace weir::codec {

// Calls job(0) … job(count - 1), each once, in any order and on any threads, and returns when all
// have returned.
using RunJobs = absl::FunctionRef<void(size_t count, absl::FunctionRef<void(size_t)> job)>;

// Where to cut: the ends of parts of at least `part_bytes` (the last one may be shorter), each but
// the last at a safe cut. Text that cannot be cut is one part.
std::vector<size_t> PartEnds(const Tokenizer& tokenizer, std::string_view text, size_t part_bytes);

// So small that what a part is encoded into stays in the cache of the thread that does it.
inline constexpr size_t kPartBytes = 32 << 10;

// Appends the ids of `text`. Texts of one part are encoded by the caller alone.
void EncodeInParallel(const Tokenizer& tokenizer, std::string_view text, RunJobs run,
                      std::vector<TokenId>* out, size_t part_bytes = kPartBytes);

}  // namespace weir::codec
