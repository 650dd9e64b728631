// SPDX-License-Identifier: Apache-2.0
//
// How V4 and V4.1 read the fields they share, for the parsers of this folder only. Pure; faults go
// to the reader.
#pragma once

#include "engine/checkpoint/config_fields.h"
#include "engine/checkpoint/deepseek_v4_config.h"

namespace weir::engine {

// Values that share one scale, of FP8 rows and FP4 rows along their width.
inline constexpr int kScaleGroup = 32;

void RequireMultiple(ConfigFields* in, const char* field, int value, int of);
void ReadV4Shape(ConfigFields* in, DeepseekV4Shape* shape);
// One ratio for each layer and, 0, for each of `stages`.
void ReadV4Ratios(ConfigFields* in, int stages, int ratio_max, DeepseekV4Shape* shape);
void ReadV4Quantisation(ConfigFields* in, DeepseekV4Shape* shape);

}  // namespace weir::engine
