// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/readers.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/stdx/bytes.h"
#include "base/stdx/check.h"
#include "base/stdx/hash.h"
#include "codec/token/tokenizer.h"
#include "engine/checkpoint/model_facts.h"
#include "engine/checkpoint/safetensors.h"
#include "kvstore/blob/segment_format.h"
#include "kvstore/node/window_ring.h"

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

// Puts the CRC32C of bytes [begin, end) right behind them.
void PutCrcRight(std::string* file, size_t begin, size_t end) {
  StoreAs(file->data() + end, Crc32c(BytesOf(*file).subspan(begin, end - begin)));
}

void ReadRecord(const std::string& file) {
  const auto header = kv::DecodeHeader(BytesOf(file));
  if (!header.ok()) return;
  WEIR_CHECK(header->shape.PayloadBytes() <= kv::kRecordPayloadMax);
  std::array<std::byte, kv::kRecordPage> page;
  kv::EncodeHeader(*header, page);
  WEIR_CHECK(kv::DecodeHeader(page).ok());
  for (uint32_t i = 0; i < 40; ++i) kv::CheckBlock(*header, i, i, BytesOf(file)).IgnoreError();
}

void ReadFooter(const std::string& file) {
  if (kv::FooterPagesIn(BytesOf(file).last(std::min<size_t>(file.size(), kv::kRecordPage))) == 0)
    return;
  const auto store = LoadAs<std::array<uint8_t, 16>>(file.data() + file.size() - 40);
  const kv::SegmentName name{LoadAs<uint32_t>(file.data() + file.size() - 24),
                             LoadAs<uint32_t>(file.data() + file.size() - 20)};
  const auto records = kv::DecodeFooter(store, name, BytesOf(file), 1000);
  if (!records.ok()) return;
  for (const auto& record : *records) WEIR_CHECK(record.record.place.page + record.pages <= 1000);
}

void ReadStored(char which, std::string file) {
  if (which == 'r') {
    ReadRecord(file);
    file.resize(kv::kRecordPage);
    PutCrcRight(&file, 0, kv::kRecordPage - 4);
    ReadRecord(file);
  } else if (which == 'f') {
    ReadFooter(file);
    const size_t pages = std::clamp<size_t>(file.size() / kv::kRecordPage, 1, 4);
    file.resize(pages * kv::kRecordPage);
    const size_t tail = file.size() - 48;
    const size_t records = LoadAs<uint32_t>(file.data() + tail + 32);
    if (records * 136 <= tail) {
      StoreAs(file.data() + tail + 40, Crc32c(BytesOf(file).first(records * 136)));
    }
    PutCrcRight(&file, tail, file.size() - 4);
    ReadFooter(file);
  } else if (which == 'k') {
    kv::DecodeStoreFile(file).status().IgnoreError();
    if (file.size() < 4) return;
    PutCrcRight(&file, 0, file.size() - 4);
    const auto store = kv::DecodeStoreFile(file);
    if (store.ok()) WEIR_CHECK(kv::EncodeStoreFile(*store).size() == file.size());
  } else {
    if (file.size() >= 64) PutCrcRight(&file, 0, 60);
    kv::BlockKey key;
    if (file.size() >= 64) std::memcpy(key.bytes.data(), file.data() + 16, 32);
    const auto state =
        kv::WindowRing::ReadSlot(Instant(Millis(1)), key, Millis(1000), BytesOf(file));
    if (state.ok()) WEIR_CHECK(state->bytes.size() <= file.size());
  }
}

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string file(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] == 's') weir::ReadTensors(file);
  if (data[0] == 'c') weir::ReadConfig(file);
  if (data[0] == 't') weir::ReadTokenizer(file);
  if (data[0] == 'r' || data[0] == 'f' || data[0] == 'k' || data[0] == 'w') {
    weir::ReadStored(static_cast<char>(data[0]), file);
  }
  return 0;
}
