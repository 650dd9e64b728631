// SPDX-License-Identifier: Apache-2.0
//
// Writing JSON by hand where a document is a few flat members: log lines, trace rows, debug state.
// Pure functions, any thread.
#pragma once

#include <string>
#include <string_view>

namespace weir {

// `text` as a JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD, so that the
// result is always valid JSON; control characters and line separators are escaped.
std::string JsonString(std::string_view text);

}  // namespace weir
