// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/expected_tensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/stdx/bytes.h"

namespace weir::engine {
namespace {

class ExpectedTensorsTest : public ::testing::Test {
 protected:
  ExpectedTensorsTest() : dir_(std::filesystem::temp_directory_path() / "weir_expected_test") {
    std::filesystem::create_directories(dir_);
  }
  ~ExpectedTensorsTest() override { std::filesystem::remove_all(dir_); }

  absl::Status Check(const std::string& header, TensorBlock block) {
    std::string file(8, '\0');
    StoreAs<uint64_t>(file.data(), header.size());
    // As much data as the last tensor asks for: offsets here are written in ascending order.
    const size_t end = header.rfind(',') + 1;
    file += header + std::string(std::stoul(header.substr(end)), '\1');
    std::ofstream(dir_ / "model.safetensors", std::ios::binary) << file;
    const auto weights = Weights::Open(dir_.string());
    EXPECT_TRUE(weights.ok()) << weights.status();
    ExpectedTensor norm;
    norm.name = "n";
    norm.use = TensorUse::kVector;
    norm.shape = {4};
    ExpectedTensor matrix;
    matrix.name = "m";
    matrix.shape = {3, 4};
    if (block.rows > 0) {
      matrix.dtype = kernels::DType::kF8E4m3;
      matrix.scales = ScaleForm::kInverseF32;
      matrix.block = block;
    }
    return CheckTensors(**weights, {norm, matrix});
  }
  void ExpectFault(const std::string& header, const std::string& param, const std::string& message,
                   TensorBlock block = {2, 2}) {
    const absl::Status status = Check(header, block);
    EXPECT_EQ(ReasonOf(status), Reason::kBadField) << header;
    EXPECT_EQ(ParamOf(status), param);
    EXPECT_NE(status.message().find(message), absl::string_view::npos) << status;
  }

  const std::filesystem::path dir_;
};

constexpr char kNorm[] = R"("n":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]})";
constexpr char kFp8[] = R"("m":{"dtype":"F8_E4M3","shape":[3,4],"data_offsets":[8,20]})";
constexpr char kFp8at4[] = R"("m":{"dtype":"F8_E4M3","shape":[3,4],"data_offsets":[4,16]})";
constexpr char kFp8at16[] = R"("m":{"dtype":"F8_E4M3","shape":[3,4],"data_offsets":[16,28]})";
constexpr char kScales[] = R"("m_scale_inv":{"dtype":"F32","shape":[2,2],"data_offsets":[20,36]})";
constexpr char kPlain[] = R"("m":{"dtype":"BF16","shape":[3,4],"data_offsets":[8,32]})";
constexpr char kExtra[] = R"("x":{"dtype":"F64","shape":[1],"data_offsets":[36,44]})";

std::string Join(std::initializer_list<std::string> parts) {
  std::string text = "{";
  for (const std::string& part : parts) text += (text.size() > 1 ? "," : "") + part;
  return text + "}";
}

TEST_F(ExpectedTensorsTest, TakesTheReleasedFormAndPlainOnes) {
  EXPECT_EQ(Check(Join({kNorm, kFp8, kScales}), {2, 2}), absl::OkStatus());
  EXPECT_EQ(Check(Join({kNorm, kPlain}), {2, 2}), absl::OkStatus());
  EXPECT_EQ(Check(Join({kNorm, kPlain}), {0, 0}), absl::OkStatus());
}

TEST_F(ExpectedTensorsTest, NamesTheTensorAtFault) {
  ExpectFault(Join({kNorm}), "m", "is missing");
  ExpectFault(Join({kNorm, kFp8, kScales, kExtra}), "x", "is none that");
  ExpectFault(Join({R"("n":{"dtype":"BF16","shape":[2,2],"data_offsets":[0,8]})", kFp8}), "n",
              "is BF16[2, 2] but should be BF16[4]");
  ExpectFault(Join({R"("n":{"dtype":"I32","shape":[4],"data_offsets":[0,16]})", kFp8at16}), "n",
              "is I32[4]");
  ExpectFault(Join({R"("n":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]})", kFp8at4}), "n",
              "F8_E4M3[4]");
  ExpectFault(Join({kNorm, kFp8}), "m_scale_inv", "is missing");
  ExpectFault(Join({kNorm, kFp8, kScales}), "m_scale_inv", "should be F32[1, 1]", {4, 4});
  ExpectFault(Join({kNorm, kFp8, kScales}), "m", "no quantization_config", {0, 0});
}

TEST_F(ExpectedTensorsTest, ScalesMustBeNumbers) {
  ExpectedTensor matrix;
  matrix.name = "m.weight";
  matrix.shape = {2, 4};
  matrix.dtype = kernels::DType::kF8E4m3;
  matrix.block = {1, 4};
  const std::string values = R"("m.weight":{"dtype":"F8_E4M3","shape":[2,4],"data_offsets":[0,8]})";
  const auto check = [&](const std::string& header, const std::string& data) {
    std::string file(8, '\0');
    StoreAs<uint64_t>(file.data(), header.size());
    std::ofstream(dir_ / "model.safetensors", std::ios::binary) << file + header + data;
    const auto weights = Weights::Open(dir_.string());
    EXPECT_TRUE(weights.ok()) << weights.status();
    EXPECT_EQ(CheckTensors(**weights, {matrix}), absl::OkStatus());
    return CheckScales(**weights, {matrix});
  };
  const auto floats = [](float a, float b) {
    std::string bytes(8, '\0');
    StoreAs(bytes.data(), a);
    StoreAs(bytes.data() + 4, b);
    return std::string(8, '\1') + bytes;
  };
  matrix.scales = ScaleForm::kInverseF32;
  const std::string f32 =
      Join({values, R"("m.weight_scale_inv":{"dtype":"F32","shape":[2,1],"data_offsets":[8,16]})"});
  EXPECT_EQ(check(f32, floats(1, 0)), absl::OkStatus());
  for (const float bad : {NAN, INFINITY, -1.0f}) {
    EXPECT_EQ(ParamOf(check(f32, floats(1, bad))), "m.weight_scale_inv") << bad;
  }
  matrix.scales = ScaleForm::kE8m0;
  const std::string e8m0 =
      Join({values, R"("m.scale":{"dtype":"F8_E8M0","shape":[2,1],"data_offsets":[8,10]})"});
  EXPECT_EQ(check(e8m0, std::string(8, '\1') + "\x7f\x7f"), absl::OkStatus());
  EXPECT_EQ(ParamOf(check(e8m0, std::string(8, '\1') + "\x7f\xff")), "m.scale");
}

}  // namespace
}  // namespace weir::engine
