// SPDX-License-Identifier: Apache-2.0
//
// Number formats, tables and single operations against outside truth
// (tests/golden/units/PROVENANCE.md): bytes and integers exactly.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "kernels/op/rope.h"
#include "kernels/ref/formats.h"
#include "kernels/ref/mixing.h"
#include "kernels/ref/ref_fixture_for_test.h"
#include "kernels/ref/rotary.h"
#include "nlohmann/json.hpp"

namespace weir::kernels {
namespace {

using nlohmann::json;

json JsonOf(const char* name) {
  return json::parse(std::ifstream(std::string("tests/golden/units/") + name));
}
const json& Units() {
  static const json kUnits = JsonOf("units.json");
  return kUnits;
}
std::vector<double> Doubles(const json& list) { return list.get<std::vector<double>>(); }
std::vector<float> FloatsOf(const json& list) {
  const std::vector<double> values = Doubles(list);
  return std::vector<float>(values.begin(), values.end());
}

// Codes and scale bytes of every row, as the file has them.
void ExpectBytes(RowFormat format, const char* name, const char* values) {
  const json& golden = Units().at("quantisers");
  const std::vector<float> x = FloatsOf(golden.at("input"));
  constexpr int kWidth = 64;
  const size_t bytes = RowBytes(format, kWidth);
  const size_t codes = format == RowFormat::kFp8Block32 ? kWidth : kWidth / 2;
  std::vector<int> code, scale;
  std::vector<std::byte> row(bytes);
  for (size_t at = 0; at < x.size(); at += kWidth) {
    ref::EncodeRow(format, x.data() + at, kWidth, row.data());
    for (size_t i = 0; i < bytes; ++i) {
      (i < codes ? code : scale).push_back(static_cast<int>(row[i]));
    }
  }
  EXPECT_EQ(code, golden.at(name).at(values).get<std::vector<int>>()) << name;
  EXPECT_EQ(scale, golden.at(name).at("scale_byte").get<std::vector<int>>()) << name;
}

TEST(GoldenUnits, QuantisersGiveTheSameBytes) {
  ExpectBytes(RowFormat::kFp8Block32, "fp8_b32_ue8m0", "code");
  ExpectBytes(RowFormat::kFp4Block32, "fp4_b32_ue8m0", "packed");
  ExpectBytes(RowFormat::kFp4Block16, "fp4_b16_e4m3", "packed");
}

TEST(GoldenUnits, RotationsAreTheReleasedTables) {
  const std::vector<std::pair<const char*, std::vector<float>>> tables = {
      {"v41_main", RopeFrequencies(64, 10000, std::nullopt)},
      {"v41_compress", RopeFrequencies(64, 160000, Yarn{16, 65536, 32, 1})},
      {"v3", RopeFrequencies(64, 10000, Yarn{40, 4096, 32, 1})},
      {"vision", RopeFrequencies(32, 10000, std::nullopt)}};
  for (const auto& [name, frequency] : tables) {
    const json& golden = Units().at("rope").at(name);
    EXPECT_EQ(frequency, FloatsOf(golden.at("freq"))) << name;
    const std::vector<double> cosine = Doubles(golden.at("cos")), sine = Doubles(golden.at("sin"));
    size_t at = 0;
    for (const int32_t position : golden.at("pos").get<std::vector<int32_t>>()) {
      for (const float f : frequency) {
        const ref::Rotation by = ref::RotationOf(position, f);
        EXPECT_NEAR(by.cosine, cosine[at], 3e-8 * std::abs(cosine[at])) << name << at;
        EXPECT_NEAR(by.sine, sine[at], 3e-8 * std::abs(sine[at])) << name << at;
        ++at;
      }
    }
    EXPECT_EQ(at, cosine.size());
  }
}

TEST(GoldenUnits, MixingOfStreams) {
  const json& golden = Units().at("mhc");
  const std::vector<double> x = Doubles(golden.at("X")), fn = Doubles(golden.at("h_fn"));
  const std::vector<double> scale = Doubles(golden.at("h_scale"));
  const std::vector<double> base = Doubles(golden.at("h_base"));
  const std::vector<double> pre = Doubles(golden.at("pre")), post = Doubles(golden.at("post"));
  const std::vector<double> comb = Doubles(golden.at("comb"));
  const size_t wide = 4 * golden.at("D").get<size_t>();
  for (size_t r = 0; r < x.size() / wide; ++r) {
    const double* v = x.data() + r * wide;
    double square = 0;
    for (size_t i = 0; i < wide; ++i) square += v[i] * v[i];
    double value[24];
    for (size_t o = 0; o < 24; ++o) {
      double m = 0;
      for (size_t i = 0; i < wide; ++i) m += v[i] * fn[o * wide + i];
      m /= std::sqrt(square / static_cast<double>(wide) + 1e-20);
      value[o] = m * scale[std::min<size_t>(o / 4, 2)] + base[o];
    }
    const ref::Mixing mixing = ref::MixingOf(value, 4, 20, 1e-6);
    for (size_t k = 0; k < 4; ++k) {
      EXPECT_NEAR(mixing.pre[k], pre[r * 4 + k], 1e-8);
      EXPECT_NEAR(mixing.post[k], post[r * 4 + k], 1e-8);
    }
    for (size_t i = 0; i < 16; ++i) EXPECT_NEAR(mixing.comb[i], comb[r * 16 + i], 1e-8);
  }
}

class GoldenOps : public RefFixture {
 protected:
  // Rows of every Engram layer, with the sequence run `chunk` tokens a step.
  void CheckRows(const json& constants, const json& golden, size_t chunk) {
    const auto id = golden.at("compressed").get<std::vector<int32_t>>();
    const auto image = golden.at("image").get<std::vector<int32_t>>();
    const auto want = golden.at("rows").get<std::vector<std::vector<int32_t>>>();
    const auto pad = constants.at("pad_compressed").get<int32_t>();
    RingKv history;
    history.row_bytes = 4;
    history.ring_rows = 5;
    history.state = Room(1, DType::kI32);
    history.base = Room(5, DType::kI32).address;
    for (size_t first = 0; first < id.size(); first += chunk) {
      const size_t count = std::min(chunk, id.size() - first);
      const auto part = [&](const std::vector<int32_t>& all) {
        return std::vector<int32_t>(all.begin() + static_cast<ptrdiff_t>(first),
                                    all.begin() + static_cast<ptrdiff_t>(first + count));
      };
      std::vector<int32_t> position(count);
      for (size_t i = 0; i < count; ++i) position[i] = static_cast<int32_t>(first + i);
      StepRows rows;
      rows.count = static_cast<int>(count);
      rows.position = rows.token = Put(position);  // token i maps to the i-th id
      rows.sequence = Room(rows.count, DType::kI32);
      rows.fresh_from = Put(std::vector<int32_t>(count, static_cast<int32_t>(first)));
      rows.image = Put(part(image));
      const Tensor ids = Room(rows.count, DType::kI32);
      ops().EngramIds(*stream_, {&rows, Put(id), ids});
      for (size_t l = 0; l < 2; ++l) {
        const Tensor row = Room(rows.count * 24, DType::kI32);
        const auto of = [&](const char* what) { return constants.at(what)[l]; };
        ops().EngramRows(*stream_, {&rows, 4, 8, pad, ids, history,
                                    Put(of("multipliers").get<std::vector<int64_t>>()),
                                    Put(of("primes").get<std::vector<int32_t>>()),
                                    Put(of("offsets").get<std::vector<int32_t>>()), row});
        const std::vector<int32_t> have = Ints(row, rows.count * 24);
        for (size_t i = 0; i < have.size(); ++i) {
          ASSERT_EQ(have[i], want[first + i / 24][l * 24 + i % 24]);
        }
      }
      ops().RingWrite(*stream_, {&rows, ids, history});
    }
  }
};

TEST_F(GoldenOps, CandidateBlocks) {
  for (const json& one : Units().at("candidates")) {
    const std::vector<float> scores = FloatsOf(one.at("scores"));
    const auto n = static_cast<int32_t>(scores.size());
    const int block = one.at("block"), blocks = one.at("blocks");
    StepRows rows;
    rows.count = 1;
    rows.position = Put(std::vector<int32_t>{n - 1});
    rows.sequence = Room(1, DType::kI32);
    // Two heads make a score of any sign: relu(k) - relu(-k).
    IndexSelectArgs args{&rows, 2, 1, 1, 1, Put(std::vector<float>{1, -1}),
                         Put(std::vector<float>{1, -1})};
    args.keys.base = Put(scores).address;
    args.keys.row_bytes = 4;
    args.keys.page_tokens = 64;
    args.keys.format = RowFormat::kF32;
    args.keys.table = Room(1, DType::kI32);
    args.block_entries = block;
    args.blocks_kept = blocks;
    args.candidates_out = Room(blocks, DType::kI32);
    args.entries_max = n;
    args.scratch = Room(3 * n);
    args.selected = Room(1, DType::kI32);
    ops().IndexSelect(*stream_, args);
    std::vector<int> kept;
    for (const int32_t b : Ints(args.candidates_out, blocks)) {
      for (int i = 0; b >= 0 && i < block && b * block + i < n; ++i) kept.push_back(b * block + i);
    }
    EXPECT_EQ(kept, one.at("kept").get<std::vector<int>>());
    EXPECT_EQ(Ints(args.selected, 1)[0],
              std::max_element(scores.begin(), scores.end()) - scores.begin());
  }
}

TEST_F(GoldenOps, EngramRows) {
  const json golden = JsonOf("engram.json");
  for (const json& one : golden.at("cases")) {
    for (const size_t chunk : {1u, 2u, 5u, 12u}) CheckRows(golden, one, chunk);
  }
}

}  // namespace
}  // namespace weir::kernels
