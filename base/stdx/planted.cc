// SPDX-License-Identifier: Apache-2.0
#include "base/stdx/planted.h"

namespace weir {
int g_planted = 0;
}  // namespace weir
