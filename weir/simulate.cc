// SPDX-License-Identifier: Apache-2.0
#include "replay/sim/seed_run.h"
#include "weir/commands.h"

namespace weir {

int RunSimulate(const std::vector<std::string>& args) { return sim::RunSimulate(args); }

}  // namespace weir
