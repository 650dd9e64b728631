// SPDX-License-Identifier: Apache-2.0
//
// One input for what turns text into ids and ids into events. The first byte chooses: 'e' encodes
// the rest; 'p' parses it as an answer, told by the next two bytes how; 'h' renders its lines as a
// conversation that grows. Returns 0; a finding is a crash, a report of a sanitizer or two ways that
// differ. A fuzzer calls it, and a test with the committed corpus; run in the repository's root.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
