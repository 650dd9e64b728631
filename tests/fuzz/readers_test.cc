// SPDX-License-Identifier: Apache-2.0
//
// Replays the committed corpus, which also covers what fuzzing found, without a fuzzer.
#include "tests/fuzz/readers.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "engine/checkpoint/mapped_file.h"

namespace {

TEST(Readers, SurviveTheCorpus) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator("tests/fuzz/corpus/readers")) {
    const auto file = weir::engine::ReadTextFile(entry.path().string(), 1 << 20);
    ASSERT_TRUE(file.ok()) << file.status();
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(file->data()), file->size());
    ++files;
  }
  EXPECT_GE(files, 20);
}

}  // namespace
