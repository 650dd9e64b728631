// SPDX-License-Identifier: Apache-2.0
#include "engine/run/copy_within.h"

#include <cstring>

namespace weir::engine {

Reason CopyWithin(const KvMemory& memory, const Fetch& fetch) {
  const auto exist = [](const PageRead& read, PageId count) {
    return read.from >= 0 && read.from < count && read.to >= 0 && read.to < count;
  };
  for (const PageRead& read : fetch.reads) {
    const int part = static_cast<int>(read.part);
    const bool state = read.kind == PageRead::Kind::kState;
    if (!exist(read, state ? memory.state_count : memory.page_count[part])) return Reason::kCorrupt;
    if (read.from == read.to) continue;
    if (state) {
      std::memcpy(memory.State(read.to), memory.State(read.from), memory.state_bytes);
    } else {
      std::memcpy(memory.Page(read.part, read.to), memory.Page(read.part, read.from),
                  memory.page_bytes[part]);
    }
  }
  return Reason::kOk;
}

}  // namespace weir::engine
