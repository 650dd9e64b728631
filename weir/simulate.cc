// SPDX-License-Identifier: Apache-2.0
#include "weir/commands.h"
namespace weir { int RunSimulate(const std::vector<std::string>&) { return 2; } }
