// SPDX-License-Identifier: Apache-2.0
//
// Replays the committed corpus, which also covers what fuzzing found, without a fuzzer.
#include "tests/fuzz/answers.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/stdx/planted.h"

namespace {

TEST(Answers, SurviveTheCorpus) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator("tests/fuzz/corpus/answers")) {
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string file{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(file.data()), file.size());
    ++files;
  }
  EXPECT_GE(files, 30);
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (const char* planted = std::getenv("WEIR_PLANTED")) weir::g_planted = std::atoi(planted);
  return RUN_ALL_TESTS();
}
