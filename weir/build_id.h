// SPDX-License-Identifier: Apache-2.0
//
// Which build this program is: the id that the linker draws from its contents, so that two binaries
// of one version can be told apart. Any thread.
#pragma once

#include <string>

namespace weir {

// Hexadecimal; "unknown" where the linker wrote none.
std::string BuildId();

}  // namespace weir
