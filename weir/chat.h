// SPDX-License-Identifier: Apache-2.0
//
// How `weir chat` reads what a person types; apart from the terminal, so that it can be tested.
#pragma once

#include <string>
#include <string_view>

namespace weir {

// The address before "/v1/...": with a scheme, without a trailing "/v1" or "/".
std::string ChatBaseUrl(std::string_view typed);

// "reset" of "/reset"; empty for a line that is to be asked, as one that begins with a path.
std::string_view ChatCommandOf(std::string_view line);

}  // namespace weir
