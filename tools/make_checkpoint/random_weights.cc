// SPDX-License-Identifier: Apache-2.0
#include "tools/make_checkpoint/random_weights.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string_view>

#include "absl/strings/ascii.h"
#include "base/stdx/bytes.h"
#include "base/stdx/hash.h"
#include "base/stdx/random.h"

namespace weir::tools {
namespace {

constexpr float kControlBias = -16.0f;
constexpr float kUnprintableBias = -6.0f;
constexpr float kWordBias = 1.8f;
constexpr float kSymbolBias = -1.5f;
constexpr float kEndBias = 1.5f;

bool IsPrintable(std::string_view bytes) {
  return !bytes.empty() && std::all_of(bytes.begin(), bytes.end(),
                                       [](char c) { return (c >= ' ' && c <= '~') || c == '\n'; });
}

bool IsWord(std::string_view bytes) {
  return bytes.size() > 2 && bytes[0] == ' ' &&
         std::all_of(bytes.begin() + 1, bytes.end(),
                     [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); });
}

}  // namespace

Generator::Generator(uint64_t seed, const std::string& name)
    : seed_(seed), stream_(LoadAs<uint64_t>(Sha256(BytesOf(name)).data())) {}

// Box-Muller.
float Generator::Next() {
  const double u = 1.0 - RandomUnit(seed_, stream_, 2 * index_);
  const double v = RandomUnit(seed_, stream_, 2 * index_ + 1);
  ++index_;
  return static_cast<float>(std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v));
}

std::vector<float> Generator::Draw(int64_t count, float mean, float deviation) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = mean + deviation * Next();
  return values;
}

float BiasOf(const codec::Vocab& vocab, TokenId token) {
  if (token == vocab.eos()) return kEndBias;
  if (vocab.IsAdded(token)) return kControlBias;
  const std::string_view bytes = vocab.BytesOf(token);
  if (!IsPrintable(bytes)) return kUnprintableBias;
  if (IsWord(bytes)) return kWordBias;
  return std::any_of(bytes.begin(), bytes.end(), absl::ascii_isalpha) ? 0.0f : kSymbolBias;
}

}  // namespace weir::tools
