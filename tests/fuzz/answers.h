// SPDX-License-Identifier: Apache-2.0
//
// The fuzzer of answers: four bytes choose a dialect and how the answer is asked for, the rest is what
// the model says. The events of a stream, joined, must be the answer that is sent whole, however the
// tokens are cut into steps.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
