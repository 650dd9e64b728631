// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/stdx/bytes.h"
#include "base/stdx/random.h"
#include "engine/checkpoint/weights.h"

namespace weir::engine {
namespace {

std::string File(const std::string& header, size_t data_bytes) {
  std::string file(8, '\0');
  StoreAs<uint64_t>(file.data(), header.size());
  return file + header + std::string(data_bytes, '\x01');
}

absl::Status StatusOf(const std::string& file) { return ParseSafetensors(BytesOf(file)).status(); }

constexpr char kGood[] =
    R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
    R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]}})";

TEST(Safetensors, ReadsNamesShapesAndBytes) {
  const std::string file = File(kGood, 32);
  const auto tensors = ParseSafetensors(BytesOf(file));
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 2u);
  EXPECT_EQ((*tensors)[0].name, "a");
  EXPECT_EQ((*tensors)[0].bytes.size(), 24u);
  EXPECT_EQ(Describe((*tensors)[1]), "BF16[4]");
}

TEST(Safetensors, RefusesEachBrokenHeaderWithItsReason) {
  const struct {
    const char* header;
    size_t data;
    const char* message;
  } cases[] = {
      {"[]", 0, "not a JSON object"},
      {"{", 0, "not a JSON object"},
      {R"({"a":3})", 8, "dtype"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       8, "repeats"},
      {R"({"a":{"dtype":"F32","shape":2,"data_offsets":[0,4]}})", 8, "shape"},
      {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 8, "extent"},
      {R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 8, "extent"},
      {R"({"a":{"dtype":"F32","shape":[281474976710656,281474976710656],"data_offsets":[0,4]}})", 8,
       "overflows"},
      {R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}})", 8,
       "dimensions"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 8, "two counts"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 8, "outside"},
      {R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})", 8, "outside"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551615]}})", 8,
       "outside"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 8, "do not match"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[3,7]}})",
       7, "overlaps"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8, "hole"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 8, "after the last"},
  };
  for (const auto& c : cases) {
    const absl::Status status = StatusOf(File(c.header, c.data));
    EXPECT_EQ(ReasonOf(status), Reason::kCorrupt) << c.header;
    EXPECT_NE(status.message().find(c.message), absl::string_view::npos)
        << c.header << " gave " << status.message();
  }
}

TEST(Safetensors, RefusesLengthsThatLie) {
  std::string file = File(kGood, 32);
  EXPECT_FALSE(StatusOf(file.substr(0, 7)).ok());
  for (const uint64_t length :
       {uint64_t{1} << 63, ~uint64_t{0}, uint64_t{1} << 40, uint64_t{9999}}) {
    StoreAs(file.data(), length);
    EXPECT_EQ(ReasonOf(StatusOf(file)), Reason::kCorrupt);
  }
}

// Any damage is refused or yields views inside the file; the sanitizer build watches the reads.
TEST(Safetensors, SurvivesRandomDamage) {
  const std::string good = File(kGood, 32);
  Random random(7);
  for (int round = 0; round < 20000; ++round) {
    std::string file = good;
    const int edits = 1 + static_cast<int>(random.Below(4));
    for (int i = 0; i < edits; ++i) {
      file[random.Below(file.size())] = static_cast<char>(random.Below(256));
    }
    if (random.Chance(0.2)) file.resize(random.Below(file.size()));
    const auto tensors = ParseSafetensors(BytesOf(file));
    if (!tensors.ok()) continue;
    for (const TensorView& tensor : *tensors) {
      const auto* begin = reinterpret_cast<const char*>(tensor.bytes.data());
      EXPECT_GE(begin, file.data());
      EXPECT_LE(begin + tensor.bytes.size(), file.data() + file.size());
    }
  }
}

class WeightsTest : public ::testing::Test {
 protected:
  WeightsTest() : dir_(std::filesystem::temp_directory_path() / "weir_weights_test") {
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
  }
  ~WeightsTest() override { std::filesystem::remove_all(dir_); }
  void Write(const std::string& name, const std::string& bytes) {
    std::ofstream(dir_ / name, std::ios::binary) << bytes;
  }
  absl::StatusOr<std::unique_ptr<Weights>> Open() { return Weights::Open(dir_.string()); }

  const std::filesystem::path dir_;
};

constexpr char kOnlyA[] = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
constexpr char kOnlyB[] = R"({"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";

TEST_F(WeightsTest, OpensOneFileAndDigestsItsBytes) {
  Write("model.safetensors", File(kGood, 32));
  const auto one = Open();
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ((*one)->count(), 2u);
  EXPECT_NE((*one)->Find("b"), nullptr);
  EXPECT_EQ((*one)->Find("c"), nullptr);
  const Sha256Digest before = (*one)->Digest();
  std::string other = File(kGood, 32);
  other.back() = 2;
  Write("model.safetensors", other);
  EXPECT_NE((*Open())->Digest(), before);
}

TEST_F(WeightsTest, OpensShardsByIndex) {
  Write("one.safetensors", File(kOnlyA, 4));
  Write("two.safetensors", File(kOnlyB, 4));
  Write("model.safetensors.index.json",
        R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  const auto weights = Open();
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ((*weights)->count(), 2u);
}

TEST_F(WeightsTest, RefusesIndexesThatLieOrEscape) {
  Write("one.safetensors", File(kOnlyA, 4));
  Write("model.safetensors.index.json",
        R"({"weight_map":{"a":"one.safetensors","b":"one.safetensors"}})");
  EXPECT_NE(Open().status().message().find("\"b\" is not in one.safetensors"),
            absl::string_view::npos);
  Write("model.safetensors.index.json", R"({"weight_map":{"b":"one.safetensors"}})");
  EXPECT_NE(Open().status().message().find("\"a\" is not listed"), absl::string_view::npos);
  // The same tensor in two files, of which the index can name one.
  Write("two.safetensors", File(kGood, 32));
  Write("model.safetensors.index.json",
        R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  EXPECT_NE(Open().status().message().find("two.safetensors: tensor \"a\""),
            absl::string_view::npos);
  Write("model.safetensors.index.json", R"({"weight_map":{"a":"../one.safetensors"}})");
  EXPECT_EQ(ReasonOf(Open().status()), Reason::kCorrupt);
  Write("model.safetensors.index.json", R"({"weight_map":{"a":"gone.safetensors"}})");
  EXPECT_NE(Open().status().message().find("gone.safetensors"), absl::string_view::npos);
  Write("model.safetensors.index.json", "{}");
  EXPECT_EQ(ParamOf(Open().status()), "weight_map");
}

TEST_F(WeightsTest, NamesTheFileThatIsMissing) {
  EXPECT_NE(Open().status().message().find("model.safetensors"), absl::string_view::npos);
}

}  // namespace
}  // namespace weir::engine
