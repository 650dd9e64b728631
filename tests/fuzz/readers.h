// SPDX-License-Identifier: Apache-2.0
//
// One input for the readers of untrusted files. The first byte chooses the reader: 's' safetensors,
// 'c' config.json, 't' tokenizer.json, 'r' the header of a stored record, 'f' the footer of a
// segment, 'k' a store's own file, 'w' a window state; the rest is the file. Where a checksum guards the
// bytes, they are read twice: as they are, and with the checksum put right. Returns 0; a finding is a crash or a
// report of a sanitizer. A fuzzer calls it, and a test with the committed corpus.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
