// SPDX-License-Identifier: Apache-2.0
#include "engine/model/load_model.h"

#include <filesystem>
#include <fstream>

#include "gtest/gtest.h"

namespace weir::engine {
namespace {

class LoadModelTest : public testing::Test {
 protected:
  LoadModelTest() : directory_(testing::TempDir() + "weir_load_model_test") {
    std::filesystem::create_directories(directory_);
  }
  ~LoadModelTest() override { std::filesystem::remove_all(directory_); }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(directory_ + "/" + name) << text;
  }

  const std::string directory_;
};

TEST_F(LoadModelTest, OpensTheShippedHashModel) {
  const auto loaded = LoadModel("deploy/models/hash", {.block_tokens = 256});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ((*loaded)->info().family, "weir_hash");
  EXPECT_EQ((*loaded)->info().layout.block_tokens(), 256u);
  EXPECT_TRUE((*loaded)->info().layout.has(Part::kEncoder));
}

TEST_F(LoadModelTest, OpensAScript) {
  Write("config.json", R"({"model_type": "weir_script", "vocab_size": 50})");
  Write("script.json", R"({"entries": [{"name": "all", "emit": [3, 4]}]})");
  const auto loaded = LoadModel(directory_, {});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ((*loaded)->info().vocab, 50u);
}

TEST_F(LoadModelTest, NamesTheFieldAtFault) {
  EXPECT_EQ(ReasonOf(LoadModel(directory_ + "/none", {}).status()), Reason::kBadField);
  Write("config.json", "[1");
  EXPECT_EQ(ReasonOf(LoadModel(directory_, {}).status()), Reason::kBadField);
  Write("config.json", R"({"model_type": "gpt2"})");
  EXPECT_EQ(ReasonOf(LoadModel(directory_, {}).status()), Reason::kUnknownModel);
  Write("config.json", R"({"model_type": "weir_hash", "window": -1})");
  EXPECT_EQ(ParamOf(LoadModel(directory_, {}).status()), "window");
  Write("config.json", R"({"model_type": "weir_hash", "windw": 4})");
  EXPECT_EQ(ParamOf(LoadModel(directory_, {}).status()), "windw");
  Write("config.json", R"({"model_type": "weir_hash", "block_tokens": 63})");
  EXPECT_EQ(ParamOf(LoadModel(directory_, {}).status()), "block_tokens");
  Write("config.json", R"({"model_type": "weir_script"})");
  Write("script.json", R"({"entries": [{"emit": ["a"]}]})");
  EXPECT_EQ(ParamOf(LoadModel(directory_, {}).status()), "emit");
}

}  // namespace
}  // namespace weir::engine
