// SPDX-License-Identifier: Apache-2.0
//
// What releases weigh, from their configurations (testdata): counts and sizes that are published or
// follow from published shapes.
#include "engine/checkpoint/model_facts.h"

#include <gtest/gtest.h>

#include <string>

#include "engine/checkpoint/mapped_file.h"
#include "engine/checkpoint/model_config.h"

namespace weir::engine {
namespace {

ModelFacts Of(const std::string& name) {
  const auto text =
      ReadTextFile("engine/checkpoint/testdata/" + name + "/config.json", kConfigBytesMax);
  EXPECT_TRUE(text.ok()) << text.status();
  auto facts = DescribeModel(*text);
  EXPECT_TRUE(facts.ok()) << name << ": " << facts.status();
  return facts.ok() ? *std::move(facts) : ModelFacts();
}

struct Want {
  const char* name;
  double backbone;  // billions of parameters, within 0.1 %
  double kv;        // bytes per token
};

TEST(ModelFacts, ParametersAndKvOfEveryRelease) {
  for (const Want& want :
       {Want{"v2-lite", 15.71, 31104}, Want{"v2", 235.74, 69120}, Want{"v3", 671.03, 40016},
        Want{"v32", 671.88, 48068}, Want{"v4-flash", 284.33, 3514.25},
        Want{"v4-pro", 1573.0, 5031.4375}, Want{"v41-flash", 551.88, 890}}) {
    const ModelFacts facts = Of(want.name);
    ASSERT_FALSE(facts.kv.empty());
    EXPECT_NEAR(static_cast<double>(facts.BackboneParameters()) / 1e9, want.backbone,
                want.backbone * 1e-3)
        << want.name;
    EXPECT_DOUBLE_EQ(facts.kv[0].bytes_per_token, want.kv) << want.name;
  }
}

TEST(ModelFacts, PartsOfV41) {
  const ModelFacts facts = Of("v41-flash");
  const auto gib = [&facts](ModelPart part) {
    return static_cast<double>(facts.part(part).bytes) / (int64_t{1} << 30);
  };
  EXPECT_EQ(facts.Total().tensors, 96085);
  EXPECT_NEAR(static_cast<double>(facts.Total().bytes) / (int64_t{1} << 30), 475.24, 0.005);
  EXPECT_NEAR(gib(ModelPart::kEngramTable), 188.8, 0.05);
  EXPECT_NEAR(gib(ModelPart::kExperts), 268.9, 0.05);
  EXPECT_NEAR(gib(ModelPart::kDraft), 7.4, 0.05);
  EXPECT_NEAR(gib(ModelPart::kVision), 0.9, 0.05);
  EXPECT_NEAR(gib(ModelPart::kEmbedding), 2.5, 0.05);
  EXPECT_NEAR(facts.active_parameters / 1e9, 16.1, 0.1);
  ASSERT_EQ(facts.states.size(), 4u);
  EXPECT_EQ(facts.states[0].bytes, 40 * 128 * 528);
  EXPECT_EQ(facts.states[1].bytes, 3 * 4096);
  ASSERT_EQ(facts.roles.size(), 4u);
  EXPECT_EQ(facts.roles[1].table_bytes, facts.part(ModelPart::kEngramTable).bytes);
  EXPECT_LT(facts.roles[1].weight_bytes, facts.roles[2].weight_bytes);
}

TEST(ModelFacts, PartsOfOthers) {
  const ModelFacts flash = Of("v4-flash");
  EXPECT_EQ(flash.Total().tensors, 69187);
  EXPECT_NEAR(static_cast<double>(flash.part(ModelPart::kDraft).parameters) / 1e9, 6.6, 0.05);
  ASSERT_GE(flash.states.size(), 2u);
  EXPECT_NEAR(static_cast<double>(flash.states[0].bytes) / (1 << 20), 3.07, 0.005);
  EXPECT_NEAR(static_cast<double>(flash.states[1].bytes) / (1 << 20), 11.64, 0.005);
  const ModelFacts v3 = Of("v3");
  EXPECT_NEAR(static_cast<double>(v3.part(ModelPart::kDraft).parameters) / 1e9, 11.6, 0.05);
}

TEST(ModelFacts, NamesAFamilyItDoesNotKnow) {
  EXPECT_EQ(ReasonOf(DescribeModel(R"({"model_type":"llama"})").status()), Reason::kUnknownModel);
}

}  // namespace
}  // namespace weir::engine
