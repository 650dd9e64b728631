// SPDX-License-Identifier: Apache-2.0
//
// A place in a kernel's source, taken by a defaulted last argument `Site at = Site::Here()`, so
// that findings name the line of the kernel and not of the emulator. A plain value that points at
// string literals; it cannot go wrong.
#pragma once

#include <string>

namespace weir::kernels::simt {

struct Site {
  const char* file = "";
  int line = 0;

  static constexpr Site Here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
  bool operator==(const Site& other) const { return line == other.line && file == other.file; }

  std::string Text() const {
    const std::string path = file;
    return path.substr(path.rfind('/') + 1) + ":" + std::to_string(line);
  }
};

}  // namespace weir::kernels::simt
