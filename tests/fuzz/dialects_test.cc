// SPDX-License-Identifier: Apache-2.0
//
// Replays the committed corpus, which also covers what fuzzing found, without a fuzzer.
#include "tests/fuzz/dialects.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace {

TEST(Dialects, SurviveTheCorpus) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator("tests/fuzz/corpus/dialects")) {
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string file{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(file.data()), file.size());
    ++files;
  }
  EXPECT_GE(files, 20);
}

}  // namespace
