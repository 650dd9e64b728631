// SPDX-License-Identifier: Apache-2.0
//
// The fuzzer of dialects: the first byte chooses one (c, t, m, r, k, d), the rest is a body. What a body
// means is rendered, answered with ids drawn from it, and the answer must be whole JSON or events.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
