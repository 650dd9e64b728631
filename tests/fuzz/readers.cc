// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/readers.h"

#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/stdx/bytes.h"
#include "base/stdx/check.h"
#include "codec/token/tokenizer.h"
#include "engine/checkpoint/model_facts.h"
#include "engine/checkpoint/safetensors.h"

namespace weir {
namespace {

void ReadTensors(const std::string& file) {
  const auto tensors = engine::ParseSafetensors(BytesOf(file));
  if (!tensors.ok()) return;
  const auto* begin = reinterpret_cast<const std::byte*>(file.data());
  for (const engine::TensorView& tensor : *tensors) {
    if (tensor.bytes.empty()) continue;
    WEIR_CHECK(tensor.bytes.data() >= begin);
    WEIR_CHECK(tensor.bytes.data() + tensor.bytes.size() <= begin + file.size());
  }
}

void ReadConfig(const std::string& file) {
  const auto facts = engine::DescribeModel(file);
  if (facts.ok()) WEIR_CHECK(facts->Total().bytes >= 0);
}

void ReadTokenizer(const std::string& file) {
  const auto tokenizer = codec::Tokenizer::FromJson(file);
  if (!tokenizer.ok()) return;
  const std::string text = "The <｜User｜> says 12345, naïve\n\n世界 \xff\xfe end";
  std::string back;
  std::vector<TokenId> tokens;
  (*tokenizer)->Encode(text, &tokens);
  for (const TokenId token : tokens) back += (*tokenizer)->vocab().BytesOf(token);
  WEIR_CHECK(back.size() <= text.size());
}

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string file(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] == 's') weir::ReadTensors(file);
  if (data[0] == 'c') weir::ReadConfig(file);
  if (data[0] == 't') weir::ReadTokenizer(file);
  return 0;
}
