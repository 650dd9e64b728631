// SPDX-License-Identifier: Apache-2.0
//
// The version of the program, as in CMakeLists.txt and docs/CHANGELOG.md.
#pragma once

namespace weir {
inline constexpr char kVersion[] = "0.1.0";
}  // namespace weir
