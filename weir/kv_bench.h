// SPDX-License-Identifier: Apache-2.0
//
// `weir kv bench`: what the store keeps of recorded requests, and what it costs beside what bounds
// it. Runs on the calling thread and blocks until done; files go to --dir or a folder that is
// removed.
#pragma once

#include "weir/commands.h"

namespace weir {

// 0 done, 1 a byte was wrong or a file is not readable, 2 bad usage.
int RunKvBench(const KvArgs& args);
int RunKvSpeed(const KvArgs& args);
int RunKvRestart(const KvArgs& args);

}  // namespace weir
